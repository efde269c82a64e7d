//! Whole systems of other people, unmodified, over rnic: what docs/programs.md tells.
//!
//! [`table`] is all that is known about a system: where it comes from, and the lines that start it.
//! [`trial`] types these lines in a network namespace, over rnic and over TCP in turn. [`page`]
//! writes docs/programs.md from the table and from the last [`results`].

pub mod page;
pub mod read;
pub mod results;
pub mod table;
pub mod trial;

use std::path::PathBuf;

/// A system: one section of docs/programs.md.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Also what `./test systems NAME` is told, in lower case and with `-` for spaces.
    pub name: &'static str,
    /// Where a reader gets it.
    pub from: &'static str,
    /// Programs in `PATH`, or files below the folder of what was fetched.
    pub needs: &'static [&'static str],
    /// The name under which `crates/programs/systems/fetch` keeps its log.
    pub fetched_as: &'static str,
    /// Files of `crates/programs/systems` that the lines use.
    pub files: &'static [&'static str],
    /// What is typed once, before either mode.
    pub before: &'static [&'static str],
    /// At most three lines.
    pub rdma: &'static [Line],
    /// At most three lines.
    pub tcp: &'static [Line],
    /// How bytes are checked: a sentence.
    pub checked: &'static str,
    /// What else is to know: sentences, or nothing.
    pub note: &'static str,
    /// Where the throughput is in what the last line prints.
    pub rate: Rate,
}

/// A line as a reader types it.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    /// In the foreground.
    Runs(&'static str),
    /// In the background until all is done; then it is ended.
    Serves(&'static str, Ready),
    /// In the background, and ends by itself, without an error.
    Beside(&'static str, Ready),
}

impl Line {
    /// As it is typed.
    pub fn text(self) -> String {
        match self {
            Line::Runs(text) => text.into(),
            Line::Serves(text, _) | Line::Beside(text, _) => format!("{text} &"),
        }
    }
}

/// What a reader waits for before the next line.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It prints these words.
    Says(&'static str),
    /// A TCP port listens.
    Listens(u16),
    /// rdma_cm listens for connections.
    Accepts,
    /// A file is there.
    Has(&'static str),
}

/// Where a throughput stands.
#[derive(Clone, Copy, Debug)]
pub enum Rate {
    /// Behind these words: a number, and its unit.
    After(&'static str),
    /// In the last line that begins with these words: the column, in MB/s.
    Column(&'static str, usize),
    /// The same in Gbit/s.
    Gigabits(&'static str, usize),
}

impl System {
    /// The name as an argument.
    pub fn key(&self) -> String {
        self.name.to_lowercase().replace([' ', '\''], "-")
    }
}

/// `crates/programs/systems`.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("systems")
}

/// docs/programs.md.
pub fn document() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md")
}
