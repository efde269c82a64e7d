//! Words, numbers and names, as people type them and programs print them.

use crate::topics::topic::{Kind, Topic};

/// Prefixes that people leave out.
const PREFIXES: [&str; 11] = [
    "ibv_wc_",
    "ibv_event_",
    "ibv_qps_",
    "ibv_wr_",
    "rdma_cm_event_",
    "ib_cm_rej_",
    "ib_sidr_",
    "ucs_err_",
    "ib_wc_",
    "rnic ",
    "nak ",
];
/// What programs put before the word "event" if it is one of librdmacm.
pub const CM_WORDS: [&str; 3] = ["cm", "cma", "rdma_cm"];
/// Words before the status of a librdmacm event.
pub const CM_STATUS: [&str; 3] = ["error", "status", "err"];

/// The number that a word is, with its sign.
pub fn number(word: &str) -> Option<i64> {
    let word = word.trim_matches(|c: char| matches!(c, ',' | ':' | ';' | '.' | '(' | ')'));
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    let n: u32 = match digits.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        // "00000000" is a word of a dump.
        None if digits.len() > 3 && digits.starts_with('0') => return None,
        None if digits.starts_with(|c: char| c.is_ascii_digit()) => digits.parse().ok()?,
        None => return None,
    };
    Some(sign * i64::from(n))
}

/// The words as they are compared: lower case, single spaces.
pub fn normal(text: &str) -> String {
    text.to_lowercase()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The words and signs of a line. A sign that parts words or belongs to none is a token of its own.
pub fn tokens(text: &str) -> Vec<String> {
    let text = text
        .replace('\u{2019}', "'")
        .replace(" -> ", " ")
        .replace("->", ".");
    let mut tokens: Vec<String> = Vec::new();
    for piece in text.split_whitespace() {
        let mut word = String::new();
        let mut push = |word: &mut String, sign: Option<char>| {
            let bare = word.trim_matches(|c: char| matches!(c, '\'' | '.'));
            if !bare.is_empty() {
                tokens.push(bare.to_owned());
            }
            word.clear();
            match sign {
                Some('=') if tokens.last().is_some_and(|last| last == "!" || last == "=") => {
                    if let Some(last) = tokens.last_mut() {
                        last.push('=');
                    }
                }
                Some(sign) => tokens.push(sign.to_string()),
                None => {}
            }
        };
        for c in piece.chars() {
            match c {
                '=' | ':' | ',' | ';' | '(' | ')' | '[' | ']' | '!' => push(&mut word, Some(c)),
                '"' | '`' | '<' | '>' | '{' | '}' | '*' | '|' => push(&mut word, None),
                _ => word.push(c),
            }
        }
        push(&mut word, None);
    }
    tokens
}

/// Whether two words say the same: "retry count" is "retry counter".
pub fn same(a: &str, b: &str) -> bool {
    fn plain(word: &str) -> &str {
        match word {
            "count" | "counts" | "counters" => "counter",
            "failure" | "errors" | "err" => "error",
            _ => word,
        }
    }
    plain(a) == plain(b)
}

/// The name without its prefix, if it has one.
pub fn short(topic: &Topic) -> String {
    let name = topic.name.to_lowercase();
    let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    short.unwrap_or(&name).to_owned()
}

pub fn has_name(topic: &Topic, wanted: &str) -> bool {
    let short = short(topic);
    let kernel = wanted.strip_prefix("ib_wc_");
    topic.name.eq_ignore_ascii_case(wanted)
        || short == wanted
        || (kernel.is_some() && topic.kind == Kind::Status && kernel == Some(&*short))
        || (short.len() < topic.name.len() && short.strip_suffix("_err") == Some(wanted))
}

/// Where "CM event", or one of its other spellings, ends.
pub fn cm_event(tokens: &[String]) -> Option<usize> {
    let at = tokens.iter().position(|token| token == "event")?;
    let before = at.checked_sub(1).map(|at| &*tokens[at]);
    before
        .is_some_and(|before| CM_WORDS.contains(&before))
        .then_some(at + 1)
}

/// What the status of an event is (`rdma_get_cm_event(3)`).
pub fn status_kind(event: &str, negative: bool) -> Option<Kind> {
    match event {
        _ if negative => Some(Kind::Errno),
        "RDMA_CM_EVENT_REJECTED" => Some(Kind::Reject),
        "RDMA_CM_EVENT_UNREACHABLE" => Some(Kind::Sidr),
        _ => None,
    }
}
