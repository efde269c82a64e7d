//! What may stand in front of the diagram: operations, each with its explanation and its packets,
//! and the words in it. `rnic demo --html` has one.

use serde::{Deserialize, Serialize};

use crate::topics::words;

/// Style, markup and script of it, which are added to those of the page.
pub const PARTS: [&str; 3] = [
    include_str!("page/lesson.css"),
    include_str!("page/lesson.html"),
    include_str!("page/lesson.js"),
];

/// An operation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Operation {
    pub title: String,
    pub text: String,
    /// So many requests of the first side's send queue belong to it, in order.
    pub requests: u64,
    pub result: String,
}

#[derive(Debug, Serialize)]
struct Word {
    name: &'static str,
    long: &'static str,
    spellings: Vec<&'static str>,
    what: &'static str,
    why: &'static str,
    c: &'static str,
    rust: &'static str,
    source: &'static str,
}

/// A page's lesson.
#[derive(Debug, Serialize)]
pub struct Lesson {
    pub title: String,
    operations: Vec<Operation>,
    words: Vec<Word>,
}

impl Lesson {
    /// Of these operations, with all words: the page shows those that it uses.
    pub fn new(operations: Vec<Operation>) -> Lesson {
        let word = |word: &'static words::Word| Word {
            name: word.name,
            long: word.long,
            spellings: word.spellings().collect(),
            what: word.what,
            why: word.why,
            c: word.c,
            rust: word.rust,
            source: word.source,
        };
        Lesson {
            title: "rnic demo".to_owned(),
            operations,
            words: words::all().iter().map(word).collect(),
        }
    }
}
