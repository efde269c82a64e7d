//! From what a person typed, or copied from a log, to topics.

use crate::topics::catalogue::{all, numbered};
use crate::topics::program;
use crate::topics::topic::{Kind, Topic};

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// What was meant.
    pub topics: Vec<&'static Topic>,
    /// What the same words could mean as well.
    pub also: Vec<&'static Topic>,
}

/// Prefixes that people leave out.
const PREFIXES: [&str; 9] = [
    "ibv_wc_",
    "ibv_event_",
    "ibv_qps_",
    "ibv_wr_",
    "rdma_cm_event_",
    "ib_cm_rej_",
    "ib_sidr_",
    "rnic ",
    "nak ",
];
/// What programs put before the word "event" if it is one of librdmacm.
const CM_WORDS: [&str; 3] = ["cm", "cma", "rdma_cm"];
/// Strings shorter than this occur in sentences by chance.
const TELLING: usize = 7;

fn number(word: &str) -> Option<u32> {
    let word = word.trim_matches(|c: char| matches!(c, ',' | ':' | ';' | '.' | '(' | ')' | '-'));
    match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// The words as they are compared: lower case, single spaces.
fn normal(text: &str) -> String {
    text.to_lowercase()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn has_name(topic: &Topic, wanted: &str) -> bool {
    let name = topic.name.to_lowercase();
    let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    let bare = short.and_then(|short| short.strip_suffix("_err"));
    name == wanted || short == Some(wanted) || bare == Some(wanted)
}

pub fn find(words: &[String]) -> Found {
    let text = normal(&words.join(" "));
    if text.is_empty() {
        return Found::default();
    }
    if let Some(n) = number(&text) {
        return by_number(n);
    }
    let tokens: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == '=')
        .filter(|token| !token.is_empty())
        .collect();
    // "CM event 8" is one of librdmacm's, not the device's.
    let tokens = match tokens.iter().position(|token| *token == "event") {
        Some(at) if at > 0 && CM_WORDS.contains(&tokens[at - 1]) => {
            [&tokens[..at - 1], &["cm_event"], &tokens[at + 1..]].concat()
        }
        _ => tokens,
    };
    if let [kind, rest @ ..] = &tokens[..]
        && let Some(kind) = Kind::from_word(kind)
        && !rest.is_empty()
    {
        let rest = rest.join(" ");
        let topics: Vec<_> = match number(&rest) {
            Some(n) => numbered(kind, n).collect(),
            None => all()
                .filter(|topic| topic.kind == kind)
                .filter(|topic| has_name(topic, &rest) || topic.text.to_lowercase() == rest)
                .collect(),
        };
        if !topics.is_empty() {
            return Found {
                topics,
                also: Vec::new(),
            };
        }
    }
    let named: Vec<_> = all()
        .filter(|topic| has_name(topic, &text) || topic.text.to_lowercase() == text)
        .collect();
    if !named.is_empty() {
        return Found {
            topics: named,
            also: Vec::new(),
        };
    }
    within(&text, &tokens)
}

/// A bare number: most people ask for a completion status.
fn by_number(n: u32) -> Found {
    let of = |kinds: &[Kind]| -> Vec<&'static Topic> {
        kinds.iter().flat_map(|kind| numbered(*kind, n)).collect()
    };
    // A code of the peer's answer or of a vendor is written in hex, and beyond the other numbers.
    let order: [&[Kind]; 4] = [
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
    ];
    let mut found = Found::default();
    for kinds in order {
        if found.topics.is_empty() {
            found.topics = of(kinds);
        } else {
            found
                .also
                .extend(of(kinds).into_iter().filter(|t| t.number == n));
        }
    }
    found
}

/// Words before the status of a librdmacm event.
const CM_STATUS: [&str; 3] = ["error", "status", "err"];

fn word(token: &str) -> &str {
    token.trim_matches(|c: char| matches!(c, ',' | ':' | ';' | '.' | '(' | ')'))
}

/// The librdmacm event that a line tells of: by its name, or the first number after "CM event", as
/// perftest prints it.
fn cm_event(tokens: &[&str]) -> Option<&'static Topic> {
    let events = || all().filter(|topic| topic.kind == Kind::Cm);
    let named = tokens
        .iter()
        .find_map(|token| events().find(|event| event.name.eq_ignore_ascii_case(word(token))));
    named.or_else(|| {
        let at = tokens.iter().position(|token| *token == "cm_event")?;
        let n = tokens[at..].iter().find_map(|token| number(token))?;
        numbered(Kind::Cm, n).next()
    })
}

/// What the status of an event is (`rdma_get_cm_event(3)`).
fn status_kind(event: &str, negative: bool) -> Option<Kind> {
    match event {
        _ if negative => Some(Kind::Errno),
        "RDMA_CM_EVENT_REJECTED" => Some(Kind::Reject),
        "RDMA_CM_EVENT_UNREACHABLE" => Some(Kind::Sidr),
        _ => None,
    }
}

/// A line of a program's output, the specific before the generic: "Failed status 12: wr_id 0
/// syndrom 0x81", "mlx5: transport retry counter exceeded".
fn within(text: &str, tokens: &[&str]) -> Found {
    let mut found = Found::default();
    let mut add = |topic: &'static Topic| {
        if !found.topics.iter().any(|t| std::ptr::eq(*t, topic)) {
            found.topics.push(topic);
        }
    };
    let lines = program::matches(text);
    for line in lines.iter().filter(|line| !line.introduces) {
        add(&line.topic);
    }
    let event = cm_event(tokens);
    if let Some(event) = event {
        add(event);
    }
    for pair in tokens.windows(2) {
        let Some(n) = number(pair[1]) else { continue };
        let kind = match event {
            // "cma event RDMA_CM_EVENT_REJECTED, error 8": what the number is depends on the event.
            Some(event) if CM_STATUS.contains(&word(pair[0])) => {
                status_kind(event.name, word(pair[1]).starts_with('-'))
            }
            // "Couldn't allocate MR with error=12".
            None if word(pair[0]) == "error" && !lines.is_empty() && !pair[1].starts_with('-') => {
                Some(Kind::Errno)
            }
            _ => Kind::from_word(word(pair[0])).filter(|kind| event.is_none() || *kind != Kind::Cm),
        };
        // The states that rping prints are its own.
        if let Some(kind) = kind.filter(|kind| lines.is_empty() || *kind != Kind::State) {
            numbered(kind, n).for_each(&mut add);
        }
    }
    for topic in all().filter(|topic| topic.kind != Kind::Program) {
        let name = topic.name.to_lowercase();
        let named = tokens
            .iter()
            .any(|token| token.trim_matches(|c: char| !c.is_alphanumeric() && c != '_') == name);
        // "Poll send CQ error" is of a completion, not the event "CQ error".
        let strerror = matches!(topic.kind, Kind::Errno | Kind::Status);
        let quoted = (strerror || lines.is_empty())
            && topic.text.len() >= TELLING
            && text.contains(&topic.text.to_lowercase());
        if named || quoted {
            add(topic);
        }
    }
    if lines.iter().any(|line| line.hides_errno) {
        // "Success" is what errno 0 reads like.
        let of_errno = |topic: &Topic| {
            topic.kind == Kind::Errno || (topic.kind == Kind::Status && topic.number == 0)
        };
        found.topics.retain(|topic| !of_errno(topic));
    }
    if found.topics.is_empty() {
        found.topics = lines.iter().map(|line| &line.topic).collect();
    }
    found
}

/// Names near to what was typed, and topics whose text has all the words.
pub fn near(words: &[String]) -> Vec<&'static Topic> {
    let text = normal(&words.join(" "));
    let mut rated: Vec<(usize, &'static Topic)> = all()
        .filter_map(|topic| {
            let name = topic.name.to_lowercase();
            let short = PREFIXES
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix))
                .unwrap_or(&name);
            let distance = distance(&name, &text).min(distance(short, &text));
            (distance <= text.len().max(3) / 3).then_some((distance, topic))
        })
        .collect();
    rated.sort_by_key(|(distance, _)| *distance);
    let mut topics: Vec<_> = rated.into_iter().map(|(_, topic)| topic).take(5).collect();
    if topics.is_empty() {
        let has = |topic: &Topic| {
            let all = [topic.meaning, topic.text, topic.name, topic.follows]
                .into_iter()
                .chain(topic.causes.iter().copied())
                .collect::<Vec<_>>()
                .join(" ")
                .to_lowercase();
            text.split(' ').all(|word| all.contains(word))
        };
        topics = all().filter(|topic| has(topic)).take(8).collect();
    }
    topics
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (above + 1)
                .min(row[j] + 1)
                .min(diagonal + usize::from(from != *to));
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
