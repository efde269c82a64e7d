//! The tables of `docs/situations.md`: what goes wrong, what a NIC says of it, and what rnic says.
//!
//! The tests that make situations happen hand in what was said, and it has to stand there word by
//! word. With `RNIC_WRITE_SITUATIONS=1` in the environment it is written there instead. Numbers that
//! differ from run to run are left out.

use std::fmt::Write;
use std::path::PathBuf;

/// One row.
#[derive(Clone, Debug)]
pub struct Situation {
    /// What goes wrong.
    pub what: String,
    /// Where the sides run: one terminal, two, two hosts.
    pub place: &'static str,
    /// What a program sees on any NIC: statuses, errnos, nothing.
    pub nic: String,
    /// What rnic says in the terminal of the program that it happens to.
    pub here: String,
    /// What it says in the peer's; empty: nothing, or there is none.
    pub there: String,
}

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/situations.md");

/// The table of a section is made of these rows.
///
/// # Panics
/// When it is not, or there is no such section.
pub fn check(section: &str, rows: &[Situation]) {
    let path = PathBuf::from(DOCUMENT);
    let text = std::fs::read_to_string(&path).expect("docs/situations.md");
    let (begin, end) = (
        format!("<!-- {section} from here -->\n"),
        format!("<!-- {section} to here -->\n"),
    );
    let parts = text
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let (before, (is, after)) = parts.unwrap_or_else(|| panic!("no section {section:?}"));
    let table = table(rows);
    if std::env::var_os("RNIC_WRITE_SITUATIONS").is_some() {
        let text = format!("{before}{begin}{table}{end}{after}");
        std::fs::write(&path, text).expect("docs/situations.md");
        return;
    }
    let told = is.lines().zip(table.lines()).find(|(is, told)| is != told);
    let same = told.is_none() && is.lines().count() == table.lines().count();
    assert!(
        same,
        "docs/situations.md, {section}: {told:?}; RNIC_WRITE_SITUATIONS=1 writes what is told now:\n\
         {table}"
    );
}

fn table(rows: &[Situation]) -> String {
    let mut table = String::from(
        "| situation | sides | a NIC says | rnic says | rnic says to the peer |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let cells = [&row.what, row.place, &row.nic, &row.here, &row.there];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    table
}

/// The words of a report that name a cause, or what may be one. In a report without such lines,
/// what was seen; in a short one, all.
pub fn causes(report: &str) -> String {
    let named = parts(report, &["cause:", "maybe:"]);
    let found = match named.is_empty() {
        true => parts(report, &["seen:"]),
        false => named,
    };
    let found = match found.is_empty() {
        true => {
            let lines = report
                .lines()
                .filter_map(|line| line.strip_prefix("rnic: "));
            lines.map(str::to_owned).collect()
        }
        false => found,
    };
    let mut distinct: Vec<String> = Vec::new();
    for words in found.iter().map(|words| plain(words)) {
        if !distinct.contains(&words) {
            distinct.push(words);
        }
    }
    distinct.join("<br>")
}

/// The parts of a report that begin with one of these words; a part goes on in lines that are
/// indented more.
fn parts(report: &str, heads: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in report.lines() {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        if let Some(head) = heads.iter().find(|head| words.starts_with(**head)) {
            let rest = words[head.len()..].trim();
            let head = head.trim_end_matches(':');
            found.push(match head {
                "maybe" => format!("maybe: {rest}"),
                _ => rest.to_owned(),
            });
            goes_on = true;
        } else if goes_on && indent > 4 {
            if let Some(last) = found.last_mut() {
                let _ = write!(last, "; {words}");
            }
        } else {
            goes_on = false;
        }
    }
    found
}

/// Without process numbers, addresses of memory, keys, QPNs, and times.
pub fn plain(words: &str) -> String {
    let mut plain = String::new();
    let mut rest = words;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        let is_hex = from.starts_with("0x");
        let digits = match is_hex {
            true => 2 + from[2..].bytes().take_while(u8::is_ascii_hexdigit).count(),
            false => from.bytes().take_while(u8::is_ascii_digit).count(),
        };
        let (number, after) = from.split_at(digits);
        let varies = match is_hex {
            true => number.len() > 6 && !plain.ends_with("PSN "),
            false => plain.ends_with("pid ") || after.starts_with(" ms"),
        };
        plain.push_str(match (varies, is_hex) {
            (true, true) => "0x…",
            (true, false) => "N",
            (false, _) => number,
        });
        rest = after;
    }
    plain.push_str(rest);
    plain.replace(" (pid N)", "")
}

#[cfg(test)]
mod tests {
    //! What differs from run to run is left out, and nothing else.

    use super::*;

    #[test]
    fn numbers_that_vary_are_left_out() {
        let words = "misfit (pid 8125) sent PSN 0x0003e7 in 793 ms to ::1 QP 0x5f1f22, 16384 bytes";
        assert_eq!(
            plain(words),
            "misfit sent PSN 0x0003e7 in N ms to ::1 QP 0x…, 16384 bytes"
        );
    }

    #[test]
    fn causes_are_found_and_go_on() {
        let report =
            "rnic: a (pid 1): failed\n  seen:  much\n  cause: one\n         more\n  next:  do\n";
        assert_eq!(causes(report), "one; more");
        assert_eq!(causes("rnic: a\n  seen:  much\n"), "much");
        assert_eq!(causes("rnic: a (pid 12): dropped\n"), "a: dropped");
        let maybe = "  maybe: one\n  maybe: two\n";
        assert_eq!(causes(maybe), "maybe: one<br>maybe: two");
    }
}
