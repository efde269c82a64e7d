//! From what a person typed, or copied from a log, to topics.

mod line;
mod near;
mod words;

pub use near::{near, near_words};

use crate::topics::catalogue::{all, numbered};
use crate::topics::topic::{Kind, Topic};
use words::{has_name, normal, number};

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// What was meant.
    pub topics: Vec<&'static Topic>,
    /// What the same words could mean as well.
    pub also: Vec<&'static Topic>,
}

impl From<Vec<&'static Topic>> for Found {
    fn from(topics: Vec<&'static Topic>) -> Found {
        Found {
            topics,
            also: Vec::new(),
        }
    }
}

pub fn find(asked: &[String]) -> Found {
    let text = normal(&asked.join(" "));
    if text.is_empty() {
        return Found::default();
    }
    if let Some(n) = number(&text) {
        return by_number(n);
    }
    let topics = of_kind(&text);
    if !topics.is_empty() {
        return topics.into();
    }
    let named = named(&text);
    if !named.is_empty() {
        return named.into();
    }
    line::topics(&text).into()
}

/// Topics whose name or text this is, in small letters.
pub fn named(text: &str) -> Vec<&'static Topic> {
    let is = |topic: &&Topic| has_name(topic, text) || topic.text.to_lowercase() == text;
    all().filter(is).collect()
}

/// A kind and a number or a name of that kind: "wc 12", "cm event 8", "vendor_err=19".
fn of_kind(text: &str) -> Vec<&'static Topic> {
    let tokens = words::tokens(text);
    let tokens: Vec<&str> = tokens
        .iter()
        .map(|token| &**token)
        .filter(|token| *token != "=")
        .collect();
    let (kind, rest) = match &tokens[..] {
        [cm, "event", rest @ ..] if words::CM_WORDS.contains(cm) => (Kind::Cm, rest),
        [kind, rest @ ..] => match Kind::from_word(kind) {
            Some(kind) => (kind, rest),
            None => return Vec::new(),
        },
        [] => return Vec::new(),
    };
    if rest.is_empty() {
        return Vec::new();
    }
    let rest = rest.join(" ");
    match number(&rest) {
        // Only these are negative, where calls return them; a status that is negative is an errno.
        Some(n) if n >= 0 || matches!(kind, Kind::Errno | Kind::Fabric | Kind::Ucx) => {
            let n = u32::try_from(n.unsigned_abs()).unwrap_or(u32::MAX);
            numbered(kind, n).filter(|_| rest != "-1").collect()
        }
        Some(_) => Vec::new(),
        None => all()
            .filter(|topic| topic.kind == kind)
            .filter(|topic| has_name(topic, &rest) || topic.text.to_lowercase() == rest)
            .collect(),
    }
}

/// A bare number: most people ask for a completion status. What is negative is what a call returned.
fn by_number(n: i64) -> Found {
    let Ok(magnitude) = u32::try_from(n.unsigned_abs()) else {
        return Found::default();
    };
    let of = |kinds: &[Kind]| -> Vec<&'static Topic> {
        kinds
            .iter()
            .flat_map(|kind| numbered(*kind, magnitude))
            .collect()
    };
    // A code of the peer's answer or of a vendor is written in hex, and beyond the other numbers.
    let order: &[&[Kind]] = match n < 0 {
        true => &[&[Kind::Errno], &[Kind::Fabric], &[Kind::Ucx]],
        false => &[
            &[Kind::Status],
            &[Kind::Errno],
            &[Kind::Nak, Kind::Vendor],
            &[
                Kind::Event,
                Kind::State,
                Kind::Request,
                Kind::Cm,
                Kind::Reject,
                Kind::Sidr,
            ],
        ],
    };
    let mut found = Found::default();
    for kinds in order {
        if found.topics.is_empty() {
            found.topics = of(kinds);
        } else {
            let same = of(kinds).into_iter().filter(|t| t.number == magnitude);
            found.also.extend(same);
        }
    }
    found
}

#[cfg(test)]
mod tests;
