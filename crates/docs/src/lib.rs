//! Checks the documents of this repository: what they say has to be readable, and their links,
//! paths and commands have to work.
//!
//! [`check`] reads every document of a [`Repository`] and returns what is wrong with them.
//! [`console`] finds the commands that a document shows, and compares what they print with what the
//! document says; `crates/programs/tests/readme.rs` runs those of README.md.
//!
//! The rules are one function each, in [`rules`]. CONTRIBUTING.md says what they ask for.

pub mod console;
pub mod document;
pub mod repository;
pub mod rules;
pub mod wrap;

pub use document::Document;
pub use repository::Repository;

use std::fmt;

/// Something that is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Path of the document from the root of the repository.
    pub document: String,
    /// Line of the document, from 1; 0 stands for the document as a whole.
    pub line: usize,
    /// What is wrong, and what to do about it.
    pub what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.document, self.line, self.what)
    }
}

/// Returns everything that is wrong with the documents of a repository, by document and line.
pub fn check(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for path in repository.documents() {
        let Some(text) = repository.read(path) else {
            continue;
        };
        let document = Document::parse(path, &text);
        complaints.extend(rules::all(&document, repository));
    }
    complaints
}
