//! What a document has to keep to, a function for each rule. CONTRIBUTING.md lists the rules for
//! people.

use crate::document::{CODE, Document, Prose};
use crate::{Complaint, Repository};

/// Columns of a line, but for what cannot be wrapped.
pub const COLUMNS: usize = 100;
/// Words of a sentence.
pub const WORDS: usize = 35;

/// How long documents may be.
const SIZES: [(&str, Size); 5] = [
    ("README.md", Size::Lines(200)),
    ("ARCHITECTURE.md", Size::Bytes(15_000)),
    ("BENCHMARKS.md", Size::Lines(300)),
    ("CHANGELOG.md", Size::Lines(120)),
    ("ROADMAP.md", Size::Lines(60)),
];

#[derive(Clone, Copy, Debug)]
enum Size {
    Lines(usize),
    Bytes(usize),
}

/// Words that are not plain English, and what to write.
const INSTEAD: [(&str, &str); 11] = [
    ("in place of", "instead of"),
    ("in its place", "instead"),
    ("by udp", "over UDP"),
    ("by tcp", "over TCP"),
    ("by memory", "through shared memory"),
    ("by shared memory", "through shared memory"),
    ("by sockets", "through sockets"),
    (
        "whoever",
        "\"anyone who\" for people, \"the process that\" for processes",
    ),
    ("he", "\"it\" for processes, \"they\" for people"),
    ("him", "\"it\" for processes, \"them\" for people"),
    ("his", "\"its\" for processes, \"their\" for people"),
];

/// People, behind whom "who" may stand.
const PEOPLE: [&str; 22] = [
    "people",
    "person",
    "user",
    "users",
    "those",
    "anyone",
    "someone",
    "everyone",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "reader",
    "readers",
    "learner",
    "learners",
    "developer",
    "developers",
    "maintainers",
    "attacker",
    "administrator",
    "researchers",
];

/// Files of other projects that documents name.
const ELSEWHERE: [&str; 4] = ["rsocket.c", "rxe_comp.c", "verbs.h", "rdma_cma.h"];

/// Endings of files that no user of rnic has under such a name, so that a bare name with one means
/// a file of the repository.
const SOURCES: [&str; 6] = [".rs", ".md", ".c", ".pkt", ".cm", ".toml"];

/// Returns what is wrong with a document, by all rules that it has to keep to.
pub fn all(document: &Document, repository: &Repository) -> Vec<Complaint> {
    let mut found = links(document, repository);
    if !Repository::is_looked_up(&document.path) {
        found.extend(size(document));
        found.extend(columns(document));
        found.extend(sentences(document));
        found.extend(words(document));
        found.extend(who(document));
        found.extend(hashes(document));
        found.extend(dates(document));
        found.extend(paths(document, repository));
    }
    found.sort_by_key(|complaint| complaint.line);
    found
}

fn complaint(document: &Document, line: usize, what: impl Into<String>) -> Complaint {
    Complaint {
        document: document.path.clone(),
        line,
        what: what.into(),
    }
}

/// Documents that people read as a whole are short.
pub fn size(document: &Document) -> Option<Complaint> {
    let (_, size) = SIZES.iter().find(|(path, _)| *path == document.path)?;
    let (has, most, unit) = match *size {
        Size::Lines(most) => (document.text.lines().count(), most, "lines"),
        Size::Bytes(most) => (document.text.len(), most, "bytes"),
    };
    (has > most).then(|| complaint(document, 0, format!("{has} {unit}, at most {most}")))
}

/// A line has at most [`COLUMNS`] columns, but for tables, code between fences, and what has no
/// space to wrap at.
pub fn columns(document: &Document) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (line, text, inside) in document.lines() {
        let length = text.chars().count();
        if length > COLUMNS && !inside && !text.trim_start().starts_with('|') && could_wrap(text) {
            let what = format!("{length} columns, at most {COLUMNS}");
            found.push(complaint(document, line, what));
        }
    }
    found
}

/// Whether a line has a space to wrap at, behind its indentation and mark, outside of code, and in
/// the columns that there are.
fn could_wrap(line: &str) -> bool {
    let start = line.len() - line.trim_start_matches([' ', '*', '-', '>', '#']).len();
    let mut in_code = false;
    line.char_indices().take(COLUMNS + 1).any(|(at, c)| {
        in_code ^= c == '`';
        c == ' ' && at > start && !in_code
    })
}

/// A sentence has at most [`WORDS`] words. Items of lists and cells of tables are sentences, too.
pub fn sentences(document: &Document) -> Vec<Complaint> {
    let mut found = Vec::new();
    for prose in &document.prose {
        for sentence in split(&prose.text) {
            let words = sentence
                .split_whitespace()
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
            if words > WORDS {
                let start: String = sentence.chars().take(60).collect();
                let what = format!("a sentence of {words} words, at most {WORDS}: {start}...");
                found.push(complaint(document, prose.line, what));
            }
        }
    }
    found
}

/// The sentences of a text: they end with a full stop, a question mark or an exclamation mark and a
/// space.
fn split(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let closes = rest.trim_start_matches([')', '"', '\'']);
        let is_end = matches!(c, '.' | '?' | '!') && closes.starts_with(char::is_whitespace);
        let is_abbreviation = ["e.g", "i.e", "vol", "cf"]
            .iter()
            .any(|short| text[..at].ends_with(short));
        if is_end && !is_abbreviation {
            let end = text.len() - closes.len();
            sentences.push(text[start..end].trim());
            start = end;
        }
    }
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// Small words of a piece of prose, without the marks around them.
fn small_words(text: &str) -> Vec<String> {
    text.split_whitespace()
        .map(|word| {
            if word.contains(CODE) {
                return CODE.to_owned();
            }
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            word.to_lowercase()
        })
        .collect()
}

/// Words that are not plain English here.
pub fn words(document: &Document) -> Vec<Complaint> {
    let mut found = Vec::new();
    for prose in &document.prose {
        let there = small_words(&prose.text);
        for (wrong, right) in INSTEAD {
            let wrong_words: Vec<&str> = wrong.split(' ').collect();
            if there.windows(wrong_words.len()).any(|w| w == wrong_words) {
                let what = format!("\"{wrong}\": write {right}");
                found.push(complaint(document, prose.line, what));
            }
        }
    }
    found
}

/// Processes, kernels and peers are things: "who" is for people, and for questions.
pub fn who(document: &Document) -> Vec<Complaint> {
    let is_asked = |prose: &&Prose| !prose.is_heading;
    let mut found = Vec::new();
    for prose in document.prose.iter().filter(is_asked) {
        for sentence in split(&prose.text) {
            if sentence.ends_with('?') {
                continue;
            }
            let there = small_words(sentence);
            // "Who can do what" is the title of a page; after a verb of knowing it is a question.
            let may_follow = [
                "says", "say", "know", "knows", "tell", "tells", "see", "sees", "of", "matter",
            ];
            let is_wrong = |(nth, word): (usize, &String)| {
                let before = nth.checked_sub(1).map_or("", |nth| there[nth].as_str());
                let is_title =
                    there[nth..].starts_with(&["who", "can", "do", "what"].map(String::from));
                matches!(word.as_str(), "who" | "whom")
                    && !PEOPLE.contains(&before)
                    && !may_follow.contains(&before)
                    && !is_title
            };
            if there.iter().enumerate().any(is_wrong) {
                let start: String = sentence.chars().take(60).collect();
                let what =
                    format!("\"who\" is for people; write \"that\" or \"which\": {start}...");
                found.push(complaint(document, prose.line, what));
            }
        }
    }
    found
}

/// Hashes of commits say nothing to readers, and are wrong after a rebase.
pub fn hashes(document: &Document) -> Vec<Complaint> {
    let in_prose = document.prose.iter().map(|p| (p.line, p.text.as_str()));
    let in_code = document.code.iter().map(|c| (c.line, c.text.as_str()));
    let mut found = Vec::new();
    for (line, text) in in_prose.chain(in_code) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| is_hash(word)) {
            let what = format!("{word} looks like the hash of a commit");
            found.push(complaint(document, line, what));
        }
    }
    found
}

fn is_hash(word: &str) -> bool {
    let is_hexadecimal = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (7..=40).contains(&word.len())
        && word.chars().all(is_hexadecimal)
        && word.contains(|c: char| c.is_ascii_digit())
        && word.contains(|c: char| c.is_ascii_alphabetic())
}

/// What was so on some day belongs into commit messages.
pub fn dates(document: &Document) -> Vec<Complaint> {
    let is_date = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let digits = |part: &&str| part.chars().all(|c| c.is_ascii_digit());
        lengths == [4, 2, 2] && parts.iter().all(digits)
    };
    let mut found = Vec::new();
    for prose in &document.prose {
        let words = prose
            .text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        for word in words.filter(|word| is_date(word)) {
            let what = format!("{word}: what was so on a day belongs into a commit message");
            found.push(complaint(document, prose.line, what));
        }
    }
    found
}

/// Links within the repository lead to files, folders and headings that are there.
pub fn links(document: &Document, repository: &Repository) -> Vec<Complaint> {
    let mut found = Vec::new();
    for link in &document.links {
        if link.text.contains("://") || link.text.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = link.text.split_once('#').unwrap_or((&link.text, ""));
        let target = if path.is_empty() {
            Some(document.path.clone())
        } else {
            resolve(&document.path, path)
        };
        let Some(target) = target.filter(|target| repository.has(target)) else {
            let what = format!("a link to {}, which is not there", link.text);
            found.push(complaint(document, link.line, what));
            continue;
        };
        if anchor.is_empty() || !target.ends_with(".md") {
            continue;
        }
        let anchors = if target == document.path {
            document.anchors.clone()
        } else {
            let text = repository.read(&target).unwrap_or_default();
            Document::parse(&target, &text).anchors
        };
        if !anchors.iter().any(|there| there == anchor) {
            let what = format!("a link to #{anchor}, which {target} does not have");
            found.push(complaint(document, link.line, what));
        }
    }
    found
}

/// The path from the root that a link means; `None`: it leads out of the repository.
fn resolve(document: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A piece of code that looks like a file of the repository is one.
pub fn paths(document: &Document, repository: &Repository) -> Vec<Complaint> {
    let mut found = Vec::new();
    // An exercise names the file that the command writes for the learner.
    if document.path.contains("/course/c/") {
        return found;
    }
    for code in &document.code {
        // `file.rs::a_test` is a test of that file.
        let path = code.text.split("::").next().unwrap_or_default();
        if !looks_like_a_path(path, repository) {
            continue;
        }
        for path in braces(path) {
            // A pattern stands for what its folder has.
            let path = match path.find('*') {
                Some(star) => path[..path[..star].rfind('/').unwrap_or(0)].to_owned(),
                None => path,
            };
            if !path.is_empty() && !repository.has_ending(&path) {
                let what = format!("`{}`: there is no {path}", code.text);
                found.push(complaint(document, code.line, what));
            }
        }
    }
    found
}

fn looks_like_a_path(text: &str, repository: &Repository) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},*".contains(c);
    if !text.chars().all(is_plain) || text.starts_with(['/', '.', '-']) || ELSEWHERE.contains(&text)
    {
        return false;
    }
    let is_source = SOURCES.iter().any(|ending| text.ends_with(ending));
    match text.split_once('/') {
        Some(("target", _)) => false,
        Some((start, _)) => is_source || repository.is_start(start),
        None => is_source,
    }
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn braces(path: &str) -> Vec<String> {
    let Some((start, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let Some((inner, end)) = rest.split_once('}') else {
        return vec![path.to_owned()];
    };
    inner
        .split(',')
        .flat_map(|choice| braces(&format!("{start}{choice}{end}")))
        .collect()
}

#[cfg(test)]
mod tests;
