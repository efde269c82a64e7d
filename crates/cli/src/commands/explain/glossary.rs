//! Words of the field: what `rnic explain QP` prints.

use serde::Serialize;

use super::here::{self, Place};
use super::{Answer, VERSION, lookup, print, row as topic_row};
use crate::platform::failure::{Failure, Result};
use crate::platform::out;
use crate::topics::topic::Topic;
use crate::topics::words::{self, Word};

/// What was asked for.
pub enum Asked {
    /// `rnic explain words`.
    All,
    /// A word, and the topics that have the same name.
    One(&'static Word, Vec<&'static Topic>),
}

/// Whether that is a word of the field.
pub fn asked(typed: &[String]) -> Option<Asked> {
    let text = typed.join(" ");
    if text.eq_ignore_ascii_case("words") {
        return Some(Asked::All);
    }
    let word = words::find(&text)?;
    Some(Asked::One(word, lookup::named(&text.to_lowercase())))
}

/// A word as `--json` has it.
#[derive(Serialize)]
pub struct Entry {
    name: &'static str,
    long: &'static str,
    spellings: &'static [&'static str],
    what: &'static str,
    why: &'static str,
    c: &'static str,
    rust: &'static str,
    source: &'static str,
    see: &'static [&'static str],
    here: Option<Place>,
    nowhere: Option<String>,
}

impl Entry {
    /// Without the line of this machine, which `shown` is.
    fn new(word: &'static Word, shown: Option<here::Shown>) -> Entry {
        let (here, nowhere) = match shown {
            Some(Ok(place)) => (Some(place), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        Entry {
            name: word.name,
            long: word.long,
            spellings: &word.also,
            what: word.what,
            why: word.why,
            c: word.c,
            rust: word.rust,
            source: word.source,
            see: &word.see,
            here,
            nowhere,
        }
    }
}

pub fn answer(asked: &Asked, json: bool) -> Result<()> {
    let topics: &[&'static Topic] = match asked {
        Asked::All => &[],
        Asked::One(_, topics) => topics,
    };
    if json {
        let entries = match asked {
            Asked::All => words::all().iter().map(|w| Entry::new(w, None)).collect(),
            Asked::One(word, _) => vec![Entry::new(word, Some(here::look(word.here)))],
        };
        let answer = Answer {
            version: VERSION,
            words: entries,
            topics,
            also: &[],
        };
        let text =
            serde_json::to_string_pretty(&answer).map_err(|e| Failure::new(e.to_string()))?;
        crate::say!("{text}");
        return Ok(());
    }
    let terminal = out::columns();
    let width = terminal.map_or(out::WIDTH, |columns| columns.min(out::WIDTH));
    match asked {
        Asked::All => list(width),
        Asked::One(word, topics) => {
            show(word, width);
            match &topics[..] {
                [] => {}
                [topic] => {
                    crate::say!();
                    print(topic, width);
                }
                topics => {
                    crate::say!("\nThe same name elsewhere:");
                    topics.iter().for_each(|topic| topic_row(topic, terminal));
                }
            }
        }
    }
    Ok(())
}

/// A word in a list.
pub fn row(word: &Word) -> String {
    format!("{:<19} {}", word.name, word.long)
}

fn list(width: usize) {
    let say = |text: &str| crate::say!("{}", out::paragraph(width, "", "  ", text));
    say("Words that `rnic explain` knows, also by their other spellings: rnic explain queue pair");
    let mut all: Vec<&Word> = words::all().iter().collect();
    all.sort_by_key(|word| word.name.to_lowercase());
    for word in all {
        let text = row(word);
        match 2 + text.len() > width {
            true => say(&format!("  {}: {}", word.name, word.long)),
            false => crate::say!("  {text}"),
        }
    }
}

fn show(word: &Word, width: usize) {
    let say = |label: &str, text: &str| {
        let first = format!("  {label:<8}");
        let rest = " ".repeat(first.len());
        crate::say!("{}", out::paragraph(width, &first, &rest, text));
    };
    crate::say!(
        "{}",
        out::paragraph(width, "", "  ", &format!("{}: {}", word.name, word.long))
    );
    say("what:", word.what);
    say("why:", word.why);
    say("C:", word.c);
    say("Rust:", word.rust);
    say("source:", word.source);
    match here::look(word.here) {
        Ok(Place { command, line }) => {
            say("here:", &format!("{command}:"));
            say("", &line);
        }
        Err(why) => say("here:", &why),
    }
    say("see:", &word.see.join(", "));
}
