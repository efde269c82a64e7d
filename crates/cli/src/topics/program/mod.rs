//! Lines that programs print when something fails: how they are recognized.
//!
//! Such a line says what the program was at, seldom why it failed. So the causes here are
//! candidates, and the checks say how to tell them apart.
//!
//! * [`line`]: a line, and what there is to say of it.
//! * [`tools`]: perftest, ibverbs-utils, rdmacm-utils, qperf.
//! * [`libraries`]: calls of the verbs as any program prints them, UCX, libfabric, NCCL, SPDK, Ceph.

mod libraries;
mod line;
mod tools;

pub use line::Line;

use super::topic::{Kind, Topic};

fn lines() -> impl Iterator<Item = &'static Line> {
    tools::LINES.iter().chain(libraries::LINES)
}

pub fn topics() -> impl Iterator<Item = &'static Topic> {
    lines().map(|line| &line.topic)
}

/// What a line leads to that names only what did not come.
pub fn instead_of(kind: Kind) -> Option<&'static Topic> {
    let name = match kind {
        Kind::Status => "failed completion",
        Kind::Cm => "CM event",
        _ => return None,
    };
    topics().find(|topic| topic.name == name)
}

/// What stands around words, in sentences and logs.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| matches!(c, ',' | ':' | ';' | '.' | '(' | ')' | '"' | '\'' | '`'))
}

/// The word without the index of an array or the arguments of a call: "qp\[3\]" is a QP.
fn unindexed(word: &str) -> &str {
    let word = word.split_once('(').map_or(word, |(name, _)| name);
    match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
        Some((name, index)) if !name.is_empty() && is_number(index) => name,
        _ => word,
    }
}

fn is_number(word: &str) -> bool {
    let word = word.strip_prefix('-').unwrap_or(word);
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// An address and a port, as "127.0.0.1:18515" or "::1:18515".
fn is_endpoint(word: &str) -> bool {
    word.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && is_number(port))
}

/// Whether `word` is what `pattern` asks of it: `*` any word, `#` a number, `HOST:PORT` an address
/// with a port, `word:` this word with a colon, else this word.
fn is(pattern: &str, word: &str) -> bool {
    match pattern {
        "*" => !bare(word).is_empty(),
        "#" => is_number(bare(word)),
        "HOST:PORT" => is_endpoint(bare(word)),
        _ if pattern.ends_with(':') => pattern == word,
        _ => bare(word) == pattern || unindexed(bare(word)) == pattern,
    }
}

/// Whether the words of a line hold those of a pattern, one after the other. `^` is the line's
/// start, and `$` its end.
fn holds(words: &[&str], pattern: &str) -> bool {
    let (pattern, at_start) = match pattern.strip_prefix("^ ") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let (pattern, at_end) = match pattern.strip_suffix(" $") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let pattern: Vec<&str> = pattern.split(' ').collect();
    words
        .windows(pattern.len())
        .enumerate()
        .any(|(at, window)| {
            (!at_start || at == 0)
                && (!at_end || at + window.len() == words.len())
                && pattern
                    .iter()
                    .zip(window)
                    .all(|(pattern, word)| is(pattern, word))
        })
}

/// The lines that `text` (lower case, single spaces) holds.
pub fn matches(text: &str) -> Vec<&'static Line> {
    // Mail programs and web pages put a typographic apostrophe; perftest puts "status=12".
    let text = text.replace('\u{2019}', "'").replace('=', " ");
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    lines()
        .filter(|line| line.patterns.iter().any(|pattern| holds(&words, pattern)))
        .collect()
}
