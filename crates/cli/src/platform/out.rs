//! Words for people, on stdout and stderr: either may be a pipe that nobody reads any more (`|
//! head`).

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use crate::platform::signals;

/// Columns of text that is broken into lines, where the terminal does not have fewer. More are hard
/// to read.
pub const WIDTH: usize = 100;

/// Columns of the terminal that the answer goes to; `None` if it goes to a file or pipe.
pub fn columns() -> Option<usize> {
    columns_of(std::io::stdout())
}

fn columns_of(output: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(output).ok()?;
    // Some terminals do not know their size.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Breaks a paragraph at spaces, so that no line is longer than `width`, where words allow.
pub fn paragraph(width: usize, first: &str, rest: &str, text: &str) -> String {
    let mut all = String::new();
    let mut line = first.to_owned();
    let mut empty = true;
    // Two and more spaces part a command from its explanation.
    for (i, word) in text.split(' ').enumerate() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            all += line.trim_end();
            all.push('\n');
            line = rest.to_owned();
            empty = true;
        }
        if !empty || (word.is_empty() && i > 0) {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    all + line.trim_end()
}

/// The lines of a text, each broken where it is longer than the terminal, and indented below its
/// beginning. What a terminal breaks by itself hides where a line of a table begins.
fn fitted(text: &str, columns: usize) -> String {
    let mut all = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end_matches('\n');
        let plain = !bare.contains(['\x1b', '\r']);
        if plain && bare.chars().count() > columns {
            let start = bare.len() - bare.trim_start_matches(' ').len();
            let (indent, words) = bare.split_at(start);
            let deeper = (start + 2).min(columns / 2);
            all += &paragraph(columns, indent, &" ".repeat(deeper), words);
            all += &line[bare.len()..];
        } else {
            all += line;
        }
    }
    all
}

/// Text with columns, as the examples of a help have them: what is too long for a row goes on below
/// where its last column begins. The parser of the command line would go on at the left.
pub fn in_columns(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if line.chars().count() <= width {
            lines.push(line.to_owned());
            continue;
        }
        let start = line.len() - line.trim_start_matches(' ').len();
        let gap = line[start..].find("  ").map(|at| start + at);
        let column = gap.map(|at| line.len() - line[at..].trim_start_matches(' ').len());
        lines.push(match column.filter(|column| *column * 3 <= width * 2) {
            Some(column) => {
                let (first, words) = line.split_at(column);
                paragraph(width, first, &" ".repeat(column), words)
            }
            None => {
                let (first, words) = line.split_at(start);
                let deeper = if start == 0 { 0 } else { start + 2 };
                paragraph(width, first, &" ".repeat(deeper), words)
            }
        });
    }
    lines.join("\n")
}

/// Columns of the help: as the parser of the command line counts them.
pub fn help_columns() -> usize {
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    columns()
        .or_else(told)
        .map_or(WIDTH, |columns: usize| columns.min(WIDTH))
}

/// The text as the terminal has room for it, if the answer goes to one.
pub fn fit(text: String) -> String {
    match columns() {
        Some(columns) => fitted(&text, columns),
        None => text,
    }
}

/// A line of the answer. If nobody reads any more, the process ends quietly, as programs in C do.
#[macro_export]
macro_rules! say {
    () => { $crate::platform::out::answer(format_args!("\n")) };
    ($($words:tt)*) => { $crate::platform::out::answer(format_args!("{}\n", format_args!($($words)*))) };
}

/// A line beside it. If nobody reads it, all else goes on.
#[macro_export]
macro_rules! remark {
    ($($words:tt)*) => { $crate::platform::out::aside(format_args!("{}\n", format_args!($($words)*))) };
}

pub fn answer(words: Arguments<'_>) {
    let written = match columns() {
        Some(columns) => {
            std::io::stdout().write_all(fitted(&words.to_string(), columns).as_bytes())
        }
        None => std::io::stdout().write_fmt(words),
    };
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => signals::end_by_broken_pipe(),
        Err(error) => {
            aside(format_args!("rnic: cannot write to stdout: {error}\n"));
            std::process::exit(1);
        }
    }
}

/// At one go: others write to the same terminal or file.
pub fn aside(words: Arguments<'_>) {
    let text = words.to_string();
    let text = match columns_of(std::io::stderr()) {
        Some(columns) => fitted(&text, columns),
        None => text,
    };
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{fitted, in_columns, paragraph};

    #[test]
    fn lines_are_broken_where_the_terminal_ends() {
        let text = "short\n  a line that is longer than twenty columns\n\nend";
        assert_eq!(
            fitted(text, 20),
            "short\n  a line that is\n    longer than\n    twenty columns\n\nend"
        );
        assert_eq!(fitted(text, 80), text);
        // A word stays one, and a narrow terminal is no reason to fail.
        assert_eq!(fitted("0123456789abc", 4), "0123456789abc");
        assert_eq!(fitted("a b", 1), "a\nb");
    }

    #[test]
    fn what_is_too_long_for_a_row_goes_on_in_its_column() {
        let text = "Examples:\n  run a   starts the program a\n  --option-of-its-own  x y z";
        assert_eq!(
            in_columns(text, 24),
            "Examples:\n  run a   starts the\n          program a\n  --option-of-its-own  x\n    y z"
        );
        assert_eq!(in_columns(text, 80), text);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(
            paragraph(6, "", "", "\u{e9}\u{e9}\u{e9} \u{e9}\u{e9}"),
            "\u{e9}\u{e9}\u{e9} \u{e9}\u{e9}"
        );
    }
}
