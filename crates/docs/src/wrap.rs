//! Wraps the prose of a document. Tables, headings, pictures and code between fences stay as they
//! are.

use crate::rules::COLUMNS;

/// A paragraph or an item of a list that is being collected: how its first line begins, how the
/// others do, and its words.
#[derive(Debug, Default)]
struct Block {
    first: String,
    rest: String,
    words: Vec<String>,
}

/// Returns the document with its prose in lines of at most [`COLUMNS`] columns, where there is a
/// space to wrap at. What it says stays the same.
pub fn wrap(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut block = Block::default();
    let mut in_fence = false;
    for line in text.lines() {
        let inner = line.trim_start();
        let indent = &line[..line.len() - inner.len()];
        let is_fence = inner.starts_with("```");
        let stays =
            inner.is_empty() || inner.starts_with(['|', '#', '<', '>']) || inner.starts_with("![");
        if is_fence || in_fence || stays {
            block.flush(&mut out);
            out.push(line.to_owned());
            in_fence ^= is_fence;
            continue;
        }
        if let Some((mark, item)) = item(inner) {
            block.flush(&mut out);
            block.first = format!("{indent}{mark} ");
            block.rest = " ".repeat(block.first.len());
            block.words = words(item);
        } else if block.words.is_empty() {
            block.first = indent.to_owned();
            block.rest = indent.to_owned();
            block.words = words(inner);
        } else {
            // A piece of code may go on from one line to the next.
            let joined = format!("{} {inner}", block.words.join(" "));
            block.words = words(&joined);
        }
    }
    block.flush(&mut out);
    out.join("\n") + "\n"
}

impl Block {
    fn flush(&mut self, out: &mut Vec<String>) {
        let block = std::mem::take(self);
        let mut line = block.first;
        let mut is_empty = true;
        for word in joined(block.words) {
            let columns = line.chars().count() + 1 + word.chars().count();
            if !is_empty && columns > COLUMNS {
                out.push(std::mem::replace(&mut line, block.rest.clone()));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&word);
            is_empty = false;
        }
        if !is_empty {
            out.push(line);
        }
    }
}

/// The words, but what would begin a list or a heading at the start of a line is one with the word
/// before it.
fn joined(words: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in words {
        let would_mark = item(&format!("{word} x")).is_some() || word.starts_with('#');
        match joined.last_mut() {
            Some(before) if would_mark => *before = format!("{before} {word}"),
            _ => joined.push(word),
        }
    }
    joined
}

/// The mark of an item of a list, and what is behind it.
fn item(line: &str) -> Option<(&str, &str)> {
    let (mark, rest) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').unwrap_or("");
    let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    (matches!(mark, "*" | "-" | "+") || is_number).then(|| (mark, rest.trim_start()))
}

/// The words of a text; a piece of code is one.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut in_code = false;
    for c in text.chars() {
        in_code ^= c == '`';
        if c == ' ' && !in_code {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, rules};

    const LONG: &str = "# A heading that stays\n\nA paragraph of many words, which goes on and on until it is longer than a line may be, with `some code that is long`.\n\n* an item of a list that is as long as the paragraph was, and goes on with some more words behind it, and more\n  * an inner one\n\n1. one\n2. two\n\n| a table | stays |\n| - | - |\n\n```console\n$ code stays\n```\n";

    /// What is wrapped keeps to the columns, says the same, and is not wrapped otherwise the next
    /// time.
    #[test]
    fn the_same_words_in_shorter_lines() {
        let wrapped = wrap(LONG);
        let before = Document::parse("x.md", LONG);
        let after = Document::parse("x.md", &wrapped);
        assert!(!rules::columns(&before).is_empty());
        assert!(rules::columns(&after).is_empty(), "{wrapped}");
        let words = |document: &Document| -> Vec<String> {
            document.prose.iter().map(|p| p.text.clone()).collect()
        };
        assert_eq!(words(&before), words(&after));
        let code = |document: &Document| -> Vec<String> {
            document.code.iter().map(|c| c.text.clone()).collect()
        };
        assert_eq!(code(&before), code(&after));
        assert_eq!(wrap(&wrapped), wrapped);
    }

    /// No word that would begin an item begins a line.
    #[test]
    fn no_word_becomes_a_mark() {
        for mark in ["-", "*", "1.", "128.", "#"] {
            let text = format!("{}ends {mark} and more\n", "word ".repeat(19));
            let wrapped = wrap(&text);
            assert!(wrapped.contains(&format!("\nends {mark} and")), "{wrapped}");
            let document = Document::parse("x.md", &wrapped);
            assert!(rules::columns(&document).is_empty(), "{wrapped}");
        }
    }

    /// Every document of the repository says the same when it is wrapped.
    #[test]
    fn all_documents_stay_the_same() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let repository = crate::Repository::open(&root).expect("the repository");
        for path in repository.documents() {
            let text = repository.read(path).expect("a document");
            let before = Document::parse(path, &text);
            let after = Document::parse(path, &wrap(&text));
            let said = |d: &Document| d.prose.iter().map(|p| p.text.clone()).collect::<Vec<_>>();
            assert_eq!(said(&before), said(&after), "{path}");
        }
    }
}
