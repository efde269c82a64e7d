//! The words of the field: what `rnic explain QP` knows, and what the glossary is made of.
//!
//! The text files beside this one have them, an entry for each word: its name and what it is called
//! in full, then a line for each key of [`Word`]. `also` has other spellings, and may come twice.

use std::collections::HashMap;
use std::sync::OnceLock;

/// A word, with a line for each question.
#[derive(Debug)]
pub struct Word {
    pub name: &'static str,
    /// What it is called in full, or what kind of thing it is.
    pub long: &'static str,
    /// Other spellings, in small letters.
    pub also: Vec<&'static str>,
    pub what: &'static str,
    pub why: &'static str,
    /// How a program in C sets or sees it.
    pub c: &'static str,
    /// The same in Rust, by the crate `rnic`.
    pub rust: &'static str,
    /// Sections of specifications, and manual pages.
    pub source: &'static str,
    pub here: Here,
    /// Names of words that are near to it.
    pub see: Vec<&'static str>,
}

/// Where the output of this machine shows it: the first line with these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// Of `rnic devices`.
    Devices(&'static str),
    /// Of `rnic devices -v`.
    Settings(&'static str),
    /// Of `ibv_devinfo -v`.
    Devinfo(&'static str),
    /// Of `rnic dissect --packets`.
    Packets(&'static str),
    /// Of `rnic dissect`.
    Dissect(&'static str),
    /// A field of a packet, in the page of `rnic dissect --html`.
    Field(&'static str),
    /// A limit that no command prints.
    Limit(&'static str),
    /// Of `rnic explain` with these words.
    Explain(&'static str),
    /// Nowhere, and why.
    Nowhere(&'static str),
}

impl Here {
    fn read(text: &'static str) -> Option<Here> {
        let (kind, mark) = text.split_once(' ')?;
        Some(match kind {
            "devices" => Here::Devices(mark),
            "settings" => Here::Settings(mark),
            "devinfo" => Here::Devinfo(mark),
            "packets" => Here::Packets(mark),
            "dissect" => Here::Dissect(mark),
            "page" => Here::Field(mark),
            "limit" => Here::Limit(mark),
            "explain" => Here::Explain(mark),
            "none" => Here::Nowhere(mark),
            _ => return None,
        })
    }
}

const FILES: [&str; 3] = [
    include_str!("objects.txt"),
    include_str!("requests.txt"),
    include_str!("network.txt"),
];

/// All of them, in the order of the files.
pub fn all() -> &'static [Word] {
    static WORDS: OnceLock<Vec<Word>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let entries = FILES.iter().flat_map(|file| file.split("\n\n"));
        entries.filter_map(read).collect()
    })
}

/// An entry, or `None` if that is none.
fn read(entry: &'static str) -> Option<Word> {
    let mut lines = entry
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let (name, long) = lines.next()?.split_once(" | ")?;
    let mut word = Word {
        name,
        long,
        also: Vec::new(),
        what: "",
        why: "",
        c: "",
        rust: "",
        source: "",
        here: Here::Nowhere(""),
        see: Vec::new(),
    };
    for line in lines {
        let (key, text) = line.split_once(' ')?;
        let list = || text.split(',').map(str::trim);
        match key {
            "also" => word.also.extend(list()),
            "what" => word.what = text,
            "why" => word.why = text,
            "c" => word.c = text,
            "rust" => word.rust = text,
            "source" => word.source = text,
            "here" => word.here = Here::read(text)?,
            "see" => word.see.extend(list()),
            _ => return None,
        }
    }
    Some(word)
}

/// A spelling as it is compared: small letters, and one sign for what parts words.
fn plain(text: &str) -> String {
    let lower = text.to_lowercase().replace(['-', '_', '/'], " ");
    let words: Vec<&str> = lower.split_whitespace().collect();
    words.join(" ")
}

impl Word {
    /// Its name, what it is called in full, and its other spellings.
    pub fn spellings(&self) -> impl Iterator<Item = &'static str> {
        [self.name, self.long]
            .into_iter()
            .chain(self.also.iter().copied())
    }
}

/// The word of this spelling, whatever its case; hyphens and underscores count as spaces.
pub fn find(text: &str) -> Option<&'static Word> {
    static SPELLINGS: OnceLock<HashMap<String, &'static Word>> = OnceLock::new();
    let spellings = SPELLINGS.get_or_init(|| {
        let each = |word: &'static Word| word.spellings().map(move |text| (plain(text), word));
        all().iter().flat_map(each).collect()
    });
    let text = plain(text);
    let forms = std::iter::once(&*text).chain(stems(&text));
    let mut found = forms.filter_map(|form| spellings.get(form).copied());
    // One more than the entry has: "access flag".
    found
        .next()
        .or_else(|| spellings.get(&format!("{text}s")).copied())
}

/// The word without the ending of a plural or of a past: "lkeys", "inlined", "posted".
fn stems(text: &str) -> impl Iterator<Item = &str> {
    let endings = [("s", 3), ("d", 6), ("ed", 6)];
    endings
        .into_iter()
        .filter(move |(_, least)| text.len() >= *least)
        .filter_map(move |(ending, _)| text.strip_suffix(ending))
}

#[cfg(test)]
mod tests;
