//! The tables of `docs/situations.md`: what goes wrong, what a NIC says of it, and what rnic says.
//!
//! Each row is a situation. The tests that make it happen hand in what was said, a column each, and
//! it has to stand there word by word. With `RNIC_WRITE_SITUATIONS=1` in the environment it is
//! written there instead. Numbers that differ from run to run are left out.

use std::cell::RefCell;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;

/// What a program sees on any NIC.
pub const NIC: &str = "a NIC says";
/// What rnic says if both programs are under one `rnic run`.
pub const ONE_TERMINAL: &str = "rnic, one terminal";
/// If each is under its own.
pub const TWO_TERMINALS: &str = "rnic, two terminals";
/// If each is on its own host.
pub const TWO_HOSTS: &str = "rnic, two hosts";
/// What the peer's terminal says, on the same host.
pub const PEER: &str = "the peer's terminal";

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/situations.md");
/// In a cell: it says what the one before it says.
const SAME: &str = "the same";
/// In a cell: nothing is said.
const NOTHING: &str = "nothing";

struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(text: &str) -> Table {
        let cells = |line: &str| -> Vec<String> {
            let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
            inner
                .split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect()
        };
        let mut lines = text.lines();
        let header = lines.next().map(cells).unwrap_or_default();
        Table {
            header,
            rows: lines.skip(1).map(cells).collect(),
        }
    }

    fn print(&self) -> String {
        let mut text = String::new();
        let mut line = |cells: &[String]| {
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        line(&self.header);
        line(&vec!["---".to_owned(); self.header.len()]);
        self.rows.iter().for_each(|row| line(row));
        text
    }

    /// What a row says in a column, by the words of an earlier one if it is the same.
    fn says(row: &[String], column: usize) -> &str {
        match row[column].as_str() {
            SAME if column > 0 => Table::says(row, column - 1),
            cell => cell,
        }
    }

    /// Puts the cells into a column; gives those that said something else.
    fn set(&mut self, column: usize, cells: &[(String, String)]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (what, cell) in cells {
            let known = self.rows.iter().position(|row| row[0] == *what);
            let at = known.unwrap_or_else(|| {
                let mut row = vec![String::new(); self.header.len()];
                row[0].clone_from(what);
                self.rows.push(row);
                self.rows.len() - 1
            });
            let row = &mut self.rows[at];
            if Table::says(row, column) != cell {
                wrong.push(format!("{what}: {:?} instead of {cell:?}", row[column]));
            }
            row[column] = match column > 1 && Table::says(row, column - 1) == cell {
                true => SAME.to_owned(),
                false => cell.clone(),
            };
        }
        let is_told = |row: &Vec<String>| cells.iter().any(|(what, _)| *what == row[0]);
        let untold = self.rows.iter().filter(|row| !is_told(row));
        wrong.extend(untold.map(|row| format!("{}: nobody tells that", row[0])));
        wrong
    }
}

/// What a test has heard: a column of a section's table, with a cell for each case of a program in
/// `c/`.
#[derive(Debug)]
pub struct Column {
    section: &'static str,
    name: &'static str,
    program: &'static str,
    cells: RefCell<Vec<(String, String)>>,
}

impl Column {
    /// An empty one. `name` is one of the names above.
    pub fn new(section: &'static str, name: &'static str, program: &'static str) -> Column {
        Column {
            section,
            name,
            program,
            cells: RefCell::default(),
        }
    }

    /// That is said in this case.
    pub fn add(&self, case: &str, says: &str) {
        let cell = (situation(self.program, case), says.to_owned());
        self.cells.borrow_mut().push(cell);
    }

    /// The same in a situation of the test's own.
    pub fn tell(&self, situation: &str, says: &str) {
        let cell = (situation.to_owned(), says.to_owned());
        self.cells.borrow_mut().push(cell);
    }

    /// The document has these cells.
    ///
    /// # Panics
    /// When it has not, or there is no such section or column.
    pub fn check(self) {
        check(self.section, self.name, &self.cells.into_inner());
    }
}

fn check(section: &str, column: &str, cells: &[(String, String)]) {
    let path = Path::new(DOCUMENT);
    let writes = std::env::var_os("RNIC_WRITE_SITUATIONS").is_some();
    let file = File::open(path).expect("docs/situations.md");
    if writes {
        // Tests run side by side.
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    }
    let text = std::fs::read_to_string(path).expect("docs/situations.md");
    let begin = format!("<!-- {section} from here -->\n");
    let end = format!("<!-- {section} to here -->\n");
    let parts = text
        .split_once(&begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let (before, (table, after)) = parts.unwrap_or_else(|| panic!("no section {section:?}"));
    let mut table = Table::read(table);
    let at = table.header.iter().position(|name| name == column);
    let at = at.unwrap_or_else(|| panic!("no column {column:?} in {section:?}"));
    let cells: Vec<(String, String)> = cells
        .iter()
        .map(|(what, cell)| match cell.is_empty() {
            true => (what.clone(), NOTHING.to_owned()),
            false => (what.clone(), cell.replace('|', "\\|")),
        })
        .collect();
    let wrong = table.set(at, &cells);
    if writes {
        let text = format!("{before}{begin}{}{end}{after}", table.print());
        std::fs::write(path, text).expect("docs/situations.md");
        return;
    }
    assert!(
        wrong.is_empty(),
        "docs/situations.md, {section}, {column}: RNIC_WRITE_SITUATIONS=1 writes what is told now\n{}",
        wrong.join("\n")
    );
}

/// The words of a report that name a cause, or what may be one. Of a report without such lines,
/// what was seen; of a short one, all.
pub fn causes(report: &str) -> String {
    let mut found = parts(report, &["cause:", "maybe:"]);
    if found.is_empty() {
        found = parts(report, &["seen:"]);
    }
    if found.is_empty() {
        let lines = report
            .lines()
            .filter_map(|line| line.strip_prefix("rnic: "));
        found = lines.map(str::to_owned).collect();
    }
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
    let mut head = None;
    for line in report.lines() {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        let begins = heads.iter().find(|head| words.starts_with(**head));
        let of_part = match begins {
            Some(begins) => {
                head = Some(*begins);
                words[begins.len()..].trim()
            }
            None if indent > 4 => words,
            None => {
                head = None;
                continue;
            }
        };
        match head {
            Some("maybe:") => found.push(format!("maybe: {of_part}")),
            Some(_) => found.push(of_part.to_owned()),
            None => {}
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
            false => decimal(from),
        };
        let (number, after) = from.split_at(digits);
        rest = after;
        if is_hex {
            let varies = number.len() > 6 && !plain.ends_with("PSN ");
            plain.push_str(if varies { "0x…" } else { number });
        } else if let Some(behind) = UNITS.iter().find_map(|unit| behind_unit(after, unit)) {
            plain.push_str("N s");
            rest = behind;
        } else {
            let varies = plain.ends_with("pid ") || after.starts_with(" requests came");
            plain.push_str(if varies { "N" } else { number });
        }
    }
    plain.push_str(rest);
    // Through memory a message is one packet.
    let plain = plain.replace(": 1 request came", ": N requests came");
    plain.replace(" (pid N)", "")
}

/// Of times: which of them a time has depends on how long it was.
const UNITS: [&str; 3] = [" us", " ms", " s"];

/// What follows the unit, if it stands there as a word.
fn behind_unit<'a>(after: &'a str, unit: &str) -> Option<&'a str> {
    let behind = after.strip_prefix(unit)?;
    let goes_on = behind.starts_with(|c: char| c.is_ascii_alphanumeric());
    (!goes_on).then_some(behind)
}

/// Bytes of the decimal number that the text begins with, its fraction included.
fn decimal(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    match text[whole..].strip_prefix('.').map(digits) {
        Some(fraction) if fraction > 0 => whole + 1 + fraction,
        _ => whole,
    }
}

/// What a case of a program in `c/` is, in the words of its source: a line of the first comment has
/// its name, or several, and two spaces or more before the words.
///
/// # Panics
/// There is no such line.
fn situation(program: &str, case: &str) -> String {
    let path = format!("{}/c/{program}.c", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&path).expect("the program's source");
    let comment = source.split("*/").next().unwrap_or_default();
    described(comment, case).unwrap_or_else(|| panic!("{path} does not say what {case} is"))
}

fn described(comment: &str, case: &str) -> Option<String> {
    comment.lines().find_map(|line| {
        let (names, words) = line.strip_prefix(" *   ")?.split_once("  ")?;
        let names: Vec<&str> = names.split(", ").collect();
        let words = words.trim();
        names.contains(&case).then(|| match names.len() {
            1 => words.to_owned(),
            _ => format!("{case}: {words}"),
        })
    })
}

/// The statuses that a program printed as `status N`, in order, by their names in verbs.
pub fn statuses(printed: &str) -> String {
    const NAMES: [(u32, &str); 12] = [
        (0, "SUCCESS"),
        (1, "LOC_LEN_ERR"),
        (2, "LOC_QP_OP_ERR"),
        (4, "LOC_PROT_ERR"),
        (5, "WR_FLUSH_ERR"),
        (6, "MW_BIND_ERR"),
        (7, "BAD_RESP_ERR"),
        (9, "REM_INV_REQ_ERR"),
        (10, "REM_ACCESS_ERR"),
        (11, "REM_OP_ERR"),
        (12, "RETRY_EXC_ERR"),
        (13, "RNR_RETRY_EXC_ERR"),
    ];
    let numbers = printed.split("status ").skip(1).map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap_or_default().to_owned()
    });
    let named = numbers.map(|number| {
        let name = NAMES.iter().find(|(n, _)| n.to_string() == number);
        name.map_or(format!("status {number}"), |(n, name)| {
            format!("{n} IBV_WC_{name}")
        })
    });
    let mut named: Vec<String> = named.collect();
    named.dedup();
    named.join("<br>")
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
            "misfit sent PSN 0x0003e7 in N s to ::1 QP 0x…, 16384 bytes"
        );
        assert_eq!(plain("for 1.25 s, 2 sends"), "for N s, 2 sends");
        assert_eq!(
            plain("10.0.0.1:7471. 19 requests came"),
            "10.0.0.1:7471. N requests came"
        );
    }

    #[test]
    fn causes_are_found_in_a_report() {
        let report =
            "rnic: a (pid 1): failed\n  seen:  much\n  cause: one\n  next:  do\n         it\n";
        assert_eq!(causes(report), "one");
        assert_eq!(causes("rnic: a\n  seen:  much\n"), "much");
        assert_eq!(causes("rnic: a (pid 12): dropped\n"), "a: dropped");
        let maybe = "  maybe: one\n         two\n";
        assert_eq!(causes(maybe), "maybe: one<br>maybe: two");
    }

    #[test]
    fn cases_are_described() {
        let comment = " *   one    the first\n *   two, three   others\n * four  none\n";
        assert_eq!(described(comment, "one").as_deref(), Some("the first"));
        assert_eq!(
            described(comment, "three").as_deref(),
            Some("three: others")
        );
        assert_eq!(described(comment, "four"), None);
    }

    #[test]
    fn statuses_have_their_names() {
        let printed = "A status 12\nB status 12\nB status 77\n";
        assert_eq!(statuses(printed), "12 IBV_WC_RETRY_EXC_ERR<br>status 77");
    }

    #[test]
    fn a_cell_that_differs_is_found() {
        let text = "| what | one | two |\n| --- | --- | --- |\n| a | x | the same |\n";
        let cell = |what: &str, says: &str| (what.to_owned(), says.to_owned());
        let mut table = Table::read(text);
        assert!(table.set(2, &[cell("a", "x")]).is_empty());
        assert_eq!(table.print(), text);
        assert_eq!(table.set(2, &[cell("a", "y")]).len(), 1);
        assert_eq!(
            table.set(2, &[cell("b", "y")]).len(),
            2,
            "a new one, and one that is gone"
        );
    }
}
