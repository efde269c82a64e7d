//! docs/programs.md, from the table and the results.

use super::results::{Outcome, Results, median};
use super::{Line, System};
use std::fmt::Write as _;

const HEAD: &str = "\
# Systems that run on rnic

These are whole systems of other people, unmodified: what a package, the Python package index or a
release holds. Each ran over rnic and over TCP in turn, on one host, in a network namespace of its
own. Every byte was checked, where the table does not say otherwise.

`./test systems` fetches them, types the lines below, and writes this page;
`./test systems NAME...` does so for some. What cannot be had is left out, and the row says why. The
table of all lines is `crates/programs/src/systems/table.rs`; the programs that were written for
these lines are in [crates/programs/systems](../crates/programs/systems).

Figures are of the lines below, and of nothing else: the median of the repetitions in MB/s
(10^6 bytes), payload in one direction. The last column is the median of rnic divided by the run
over TCP right after it. Some systems check bytes in the time that counts, so they are slow over
anything.
";

/// The whole page.
pub fn page(table: &[System], results: &Results) -> String {
    let mut text = String::from(HEAD);
    text += "\n| system | rnic | TCP | rnic / TCP |\n| --- | --- | --- | --- |\n";
    let mut when: Vec<(String, Vec<&str>)> = Vec::new();
    for system in table {
        let name = link(system);
        match results.of(&system.key()) {
            Some(Outcome::Ran(measured)) => {
                let (rdma, tcp) = (
                    median(measured.rdma.iter().copied()),
                    median(measured.tcp.iter().copied()),
                );
                let _ = writeln!(
                    text,
                    "| {name} | {} | {} | {:.2} |",
                    number(rdma),
                    number(tcp),
                    measured.ratio()
                );
                match when.iter_mut().find(|(words, _)| *words == measured.when) {
                    Some((_, names)) => names.push(system.name),
                    None => when.push((measured.when.clone(), vec![system.name])),
                }
            }
            Some(Outcome::Skipped(why)) => {
                let why = plain(&why);
                let _ = writeln!(text, "| {name} | skipped: {why} | | |");
            }
            None => {
                let _ = writeln!(text, "| {name} | not measured yet | | |");
            }
        }
    }
    if !when.is_empty() {
        text += "\nMeasured:\n\n";
    }
    for (words, names) in when {
        let _ = writeln!(
            text,
            "{}",
            wrapped("* ", "  ", &format!("{words}: {}.", names.join(", ")))
        );
    }
    text += &wrapped(
        "\n",
        "",
        "In the lines below `$SYSTEMS` is the folder of what was fetched, and 10.0.0.1 an address of \
         this host. A line that ends in `&` goes on, or ends, beside the next ones.",
    );
    text.push('\n');
    for system in table {
        section(&mut text, system, results);
    }
    text
}

/// Rows without decimals, but for small figures.
fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// As GitHub names a section.
fn link(system: &System) -> String {
    let anchor: String = system
        .name
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    format!("[{}](#{anchor})", system.name)
}

/// In a cell of a table.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn section(text: &mut String, system: &System, results: &Results) {
    let _ = writeln!(text, "\n## {}\n", system.name);
    let mut words = format!("From {}. {}", system.from, system.checked);
    if let Some(Outcome::Ran(measured)) = results.of(&system.key()) {
        let _ = write!(
            words,
            " One run moved at least {} over rnic.",
            measured.moved
        );
    }
    *text += &wrapped("", "", &words);
    text.push('\n');
    if !system.note.is_empty() {
        *text += &wrapped("\n", "", system.note);
        text.push('\n');
    }
    *text += "\n```sh\n";
    for line in system.before {
        let _ = writeln!(text, "{line}");
    }
    lines(text, system.rdma);
    *text += "# over TCP\n";
    lines(text, system.tcp);
    *text += "```\n";
}

fn lines(text: &mut String, lines: &[Line]) {
    for line in lines {
        let _ = writeln!(text, "{}", line.text());
    }
}

/// In lines of at most 100 columns.
fn wrapped(first: &str, others: &str, text: &str) -> String {
    let mut all = String::from(first);
    let mut column = first.trim_start_matches('\n').chars().count();
    let mut begins = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !begins && column + 1 + length > 100 {
            all.push('\n');
            all += others;
            column = others.len();
            begins = true;
        }
        if !begins {
            all.push(' ');
            column += 1;
        }
        all += word;
        column += length;
        begins = false;
    }
    all
}
