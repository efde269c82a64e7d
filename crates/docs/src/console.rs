//! Commands in documents, and what they print.
//!
//! A block of code in the language `console` is what somebody sees in a terminal: lines that begin
//! with `$ ` are typed, `# ` at the end of one begins a comment, and the lines up to the next `$ `
//! are printed. `...`, as a line or at the end of one, stands for anything.

use crate::Document;

/// A command of a document, and what it is said to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Line of the document, from 1.
    pub line: usize,
    /// What is typed, without the comment.
    pub typed: String,
    /// The comment behind it.
    pub comment: String,
    /// The lines that are said to be printed. Empty: nothing is said of them.
    pub printed: Vec<String>,
}

/// The blocks of a document in the language `console`, as lists of commands in order.
pub fn blocks(document: &Document) -> Vec<Vec<Command>> {
    let fenced = document.fenced.iter();
    fenced
        .filter(|fence| fence.language == "console")
        .map(|fence| {
            let mut commands: Vec<Command> = Vec::new();
            for (nth, line) in fence.text.lines().enumerate() {
                if let Some(typed) = line.strip_prefix("$ ") {
                    let (typed, comment) = typed.split_once(" # ").unwrap_or((typed, ""));
                    commands.push(Command {
                        line: fence.line + 1 + nth,
                        typed: typed.trim().to_owned(),
                        comment: comment.trim().to_owned(),
                        printed: Vec::new(),
                    });
                } else if let Some(command) = commands.last_mut() {
                    command.printed.push(line.to_owned());
                }
            }
            commands
        })
        .collect()
}

/// A line with each number as `#`, and each row of spaces as one: what has to be the same each time
/// a program runs.
pub fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_whitespace() {
        if !shape.is_empty() {
            shape.push(' ');
        }
        let mut rest = word;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            shape.push_str(&rest[..at]);
            shape.push('#');
            let number = &rest[at..];
            // 0x12ab, 1.5, 1234.
            let length = match number.strip_prefix("0x") {
                Some(digits) => 2 + run(digits, |c| c.is_ascii_hexdigit()),
                None => run(number, |c| c.is_ascii_digit() || c == '.' || c == ','),
            };
            // A full stop or comma behind it belongs to the sentence.
            let length = number[..length].trim_end_matches(['.', ',']).len();
            rest = &number[length..];
        }
        shape.push_str(rest);
    }
    shape
}

fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !is_part(c)).unwrap_or(text.len())
}

/// Whether a program prints what the document says, up to numbers, spaces and breaks of lines.
///
/// `...`, as a line or at the end of one, stands for anything. What is printed before the first and
/// behind the last word of the document is of no concern. `Err` has the first line of the document
/// that is missing.
pub fn compare(said: &[String], printed: &str) -> Result<(), String> {
    let printed = words(printed);
    let mut from = 0;
    let mut piece: Vec<(usize, String)> = Vec::new();
    let lines = said.iter().map(String::as_str).chain(["..."]);
    for (nth, line) in lines.enumerate() {
        let line = line.trim_end();
        piece.extend(
            words(line.trim_end_matches("..."))
                .into_iter()
                .map(|word| (nth, word)),
        );
        if !line.ends_with("...") || piece.is_empty() {
            continue;
        }
        let wanted: Vec<&String> = piece.iter().map(|(_, word)| word).collect();
        match find(&printed[from..], &wanted) {
            Ok(place) => from += place + wanted.len(),
            Err(fits) => return Err(said[piece[fits].0].trim().to_owned()),
        }
        piece.clear();
    }
    Ok(())
}

fn words(text: &str) -> Vec<String> {
    shape(text)
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Where these words are in a text; `Err`: how many of them fit at the best place.
fn find(text: &[String], wanted: &[&String]) -> Result<usize, usize> {
    let mut best = 0;
    for start in 0..text.len() {
        let fits = wanted
            .iter()
            .zip(&text[start..])
            .take_while(|(a, b)| **a == *b)
            .count();
        if fits == wanted.len() {
            return Ok(start);
        }
        best = best.max(fits);
    }
    Err(best.min(wanted.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    /// Commands, comments and output of a block are told apart; other blocks are none.
    #[test]
    fn blocks_of_commands() {
        let text = "```console\n$ a -b   # what for\nout\n$ c\n```\n\n```text\n$ d\n```\n";
        let blocks = blocks(&Document::parse("x.md", text));
        assert_eq!(blocks.len(), 1);
        let [a, c] = &blocks[0][..] else {
            panic!("{blocks:?}")
        };
        assert_eq!(
            (a.line, a.typed.as_str(), a.comment.as_str()),
            (2, "a -b", "what for")
        );
        assert_eq!(a.printed, ["out"]);
        assert_eq!((c.line, c.typed.as_str(), c.printed.len()), (4, "c", 0));
    }

    /// Numbers of any kind are alike, and nothing else is.
    #[test]
    fn numbers_are_alike() {
        assert_eq!(
            shape("QP 0x71a000 -> 127.0.0.1, 4.5 us."),
            "QP # -> #, # us."
        );
        assert_eq!(shape("  2       1000     0.42"), shape("2 999 66.86"));
        assert_ne!(shape("5 packets"), shape("5 messages"));
    }

    /// A document that says what a program does not print is told which line is wrong; breaks of
    /// lines and what `...` stands for are left open.
    #[test]
    fn output_is_compared() {
        let printed = "head\na 1\nb 2\nc 3\nd 4\n";
        assert_eq!(compare(&said("a 7\nb 8"), printed), Ok(()));
        assert_eq!(compare(&said("a 7\n...\nd 8"), printed), Ok(()));
        assert_eq!(compare(&said("a\n  7 b 8 ...\nd 8"), printed), Ok(()));
        assert_eq!(compare(&said("a 7\nx 8"), printed), Err("x 8".into()));
        assert_eq!(compare(&said("a 7\nc 8"), printed), Err("c 8".into()));
        assert_eq!(compare(&said("d 7\n...\na 8"), printed), Err("a 8".into()));
        assert_eq!(compare(&said("d 7\nd 8"), printed), Err("d 8".into()));
        assert_eq!(compare(&said("gone"), ""), Err("gone".into()));
    }
}
