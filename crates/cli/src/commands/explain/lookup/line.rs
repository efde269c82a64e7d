//! What a line of a program's output tells of: the statuses, errnos and events in it, by name, by the
//! library's words, or by a number and the word before it that says what is counted.
//!
//! A line often holds more than what failed: what was expected, an opcode, a state. So each item has a
//! rank, and what failed wins.

use std::ops::Range;

use super::words::{self, CM_STATUS};
use crate::topics::catalogue::{all, numbered};
use crate::topics::program;
use crate::topics::topic::{Kind, Topic};

/// Strings shorter than this occur in sentences by chance.
const TELLING: usize = 7;

/// Words that say: what comes next was wanted, and did not come.
const WANTED: [&str; 22] = [
    "expected",
    "expecting",
    "expect",
    "expects",
    "exp",
    "wanted",
    "want",
    "wants",
    "waiting",
    "wait",
    "awaiting",
    "instead",
    "not",
    "isn't",
    "wasn't",
    "should",
    "must",
    "rather",
    "than",
    "without",
    "==",
    "!=",
];
/// Words that say: what comes next is what came.
const CAME: [&str; 14] = [
    "got", "get", "received", "receive", "but", "actual", "actually", "was", "were", "had", "have",
    "returned", "failed", "with",
];
/// Words that stand between a name of a number and the number.
const FILLERS: [&str; 16] = [
    ":",
    "=",
    "(",
    "[",
    "is",
    "was",
    "of",
    "code",
    "no",
    "number",
    "value",
    "==",
    "!=",
    "expected",
    "expecting",
    "be",
];
/// Texts of statuses and events that other libraries and the kernel put in their own words.
const OTHER_TEXTS: [(&str, Kind, u32); 26] = [
    ("receive-no-ready retry counter exceeded", Kind::Status, 13),
    (
        "receiver not ready retry counter exceeded",
        Kind::Status,
        13,
    ),
    ("retry counter exceeded", Kind::Status, 12),
    ("retry exceeded", Kind::Status, 12),
    ("rnr retry exceeded", Kind::Status, 13),
    ("local qp operation on", Kind::Status, 2),
    ("local protection on", Kind::Status, 4),
    ("wr flushed", Kind::Status, 5),
    ("wr flush error", Kind::Status, 5),
    ("flushed error", Kind::Status, 5),
    ("flush error", Kind::Status, 5),
    ("memory window bind error", Kind::Status, 6),
    ("memory bind operation error", Kind::Status, 6),
    ("bad response on", Kind::Status, 7),
    ("local access on", Kind::Status, 8),
    ("invalid request on", Kind::Status, 9),
    ("remote access on", Kind::Status, 10),
    ("remote operation on", Kind::Status, 11),
    ("remote side aborted", Kind::Status, 16),
    ("operation aborted", Kind::Status, 16),
    ("local eec operation error", Kind::Status, 3),
    ("qp fatal error", Kind::Event, 1),
    ("qp request error", Kind::Event, 2),
    ("qp access error", Kind::Event, 3),
    ("device fatal error", Kind::Event, 8),
    ("gid changed", Kind::Event, 18),
];
/// Syndromes of the error completions of mlx5, which UCX and the driver print: statuses.
const CQE_SYNDROMES: [(i64, u32); 13] = [
    (0x01, 1),
    (0x02, 2),
    (0x04, 4),
    (0x05, 5),
    (0x06, 6),
    (0x10, 7),
    (0x11, 8),
    (0x12, 9),
    (0x13, 10),
    (0x14, 11),
    (0x15, 12),
    (0x16, 13),
    (0x22, 16),
];

/// A thing that a line names.
struct Item {
    topic: &'static Topic,
    at: usize,
    /// The line says that it was wanted, or compares with it.
    wanted: bool,
    rank: Rank,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Failure,
    /// A success, an event that is none to worry about.
    Fine,
    /// What the work request or queue pair was when it failed.
    Circumstance,
}

fn rank(topic: &Topic) -> Rank {
    match (topic.kind, topic.number) {
        (Kind::Status, 0) | (Kind::Cm, 0 | 2 | 4 | 5 | 9 | 12 | 15) => Rank::Fine,
        (Kind::Event, 4 | 5 | 6 | 9 | 15 | 16) => Rank::Fine,
        (Kind::State | Kind::Request, _) => Rank::Circumstance,
        _ => Rank::Failure,
    }
}

struct Line {
    tokens: Vec<String>,
    lines: Vec<&'static program::Line>,
    items: Vec<Item>,
    /// Tokens that a name or a text covers.
    covered: Vec<bool>,
}

impl Line {
    fn is(&self, at: usize, words: &[&str]) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| words.contains(&&**token))
    }

    fn has(&self, words: &[&str]) -> bool {
        self.tokens.iter().any(|token| words.contains(&&**token))
    }

    /// Whether the line tells of completions, and not of a call.
    fn of_completions(&self) -> bool {
        let call = |token: &String| {
            let is = |prefix| token.starts_with(prefix) && !token.starts_with("ibv_wc");
            ["ibv_", "rdma_", "fi_"].into_iter().any(is)
        };
        self.has(&["wc", "completion", "completions", "cqe", "cq", "wr"])
            && !self.tokens.iter().any(call)
            && self.lines.iter().all(|line| line.introduces)
    }

    /// Whether the line says that the item at this token was wanted: before it, or just behind it.
    fn wanted(&self, item: Range<usize>) -> bool {
        for at in (item.start.saturating_sub(6)..item.start).rev() {
            let token = &*self.tokens[at];
            if WANTED.contains(&token) {
                // "but not X", "was not X": X did not come.
                return true;
            }
            if matches!(token, "," | ";") || CAME.contains(&token) {
                break;
            }
        }
        let ends = |at: usize| {
            self.tokens
                .get(at)
                .is_none_or(|token| matches!(&**token, "," | ";" | "." | "but" | ")"))
        };
        self.is(item.end, &["expected", "wanted"]) && ends(item.end + 1)
    }

    fn add(&mut self, topic: &'static Topic, item: Range<usize>) {
        if self
            .items
            .iter()
            .any(|item| std::ptr::eq(item.topic, topic) && !item.wanted)
        {
            return;
        }
        let wanted = self.wanted(item.clone());
        self.items.push(Item {
            topic,
            at: item.start,
            wanted,
            rank: rank(topic),
        });
    }

    /// Names, as C, Python, Rust and libfabric spell them: with or without a prefix.
    fn names(&mut self) {
        for at in 0..self.tokens.len() {
            let token = self.tokens[at].clone();
            let name = token.rsplit('.').next().unwrap_or(&token);
            let errno = name.trim_start_matches('-').strip_prefix("fi_");
            let found: Vec<_> = all()
                .filter(|topic| topic.kind != Kind::Program)
                .filter(|topic| {
                    topic.name.eq_ignore_ascii_case(name)
                        || (name.contains('_') && words::has_name(topic, name))
                        || (topic.kind == Kind::Fabric
                            && topic
                                .name
                                .eq_ignore_ascii_case(name.trim_start_matches('-')))
                        || (topic.kind == Kind::Errno
                            && errno.is_some_and(|errno| topic.name.eq_ignore_ascii_case(errno)))
                })
                .collect();
            for topic in found {
                self.covered[at] = true;
                self.add(topic, at..at + 1);
            }
        }
    }

    /// Where the words of `text` stand, one after the other.
    fn find(&self, text: &[String]) -> Option<Range<usize>> {
        let same = |(a, b): (&String, &String)| words::same(a, b);
        (0..self.tokens.len())
            .map(|at| at..at + text.len())
            .filter(|range| range.end <= self.tokens.len())
            .find(|range| self.tokens[range.clone()].iter().zip(text).all(same))
    }

    /// The words of the C library, of the verbs' library, of UCX, libfabric, and of the kernel.
    fn texts(&mut self) {
        let strerror = |kind| matches!(kind, Kind::Errno | Kind::Status | Kind::Fabric | Kind::Ucx);
        // "Poll send CQ error" is of a completion, not the event "CQ error".
        let alone = self.lines.iter().all(|line| line.introduces);
        let own = all()
            .filter(|topic| topic.kind != Kind::Program && topic.text.len() >= TELLING)
            .map(|topic| (topic, topic.text.to_lowercase()));
        let others = OTHER_TEXTS
            .iter()
            .filter_map(|(text, kind, n)| Some((numbered(*kind, *n).next()?, (*text).to_owned())));
        let mut found: Vec<(Range<usize>, &'static Topic)> = own
            .chain(others)
            .filter(|(topic, _)| strerror(topic.kind) || alone)
            .filter_map(|(topic, text)| Some((self.find(&words::tokens(&text))?, topic)))
            .collect();
        // The longest text is what is meant, and a status before what else has the same words.
        let order = |kind| match kind {
            Kind::Status => 0,
            Kind::Errno | Kind::Event => 1,
            _ => 2,
        };
        found.sort_by_key(|(range, topic)| (usize::MAX - range.len(), order(topic.kind)));
        let mut taken: Vec<Range<usize>> = Vec::new();
        for (range, topic) in found {
            let overlaps =
                |other: &Range<usize>| other.start < range.end && range.start < other.end;
            if taken.iter().any(overlaps) {
                continue;
            }
            self.covered[range.clone()].fill(true);
            taken.push(range.clone());
            self.add(topic, range);
        }
    }

    /// The event of librdmacm that came: by its name, or the first number after "CM event".
    fn cm_event(&mut self) -> Option<&'static Topic> {
        let of_cm = |item: &&Item| item.topic.kind == Kind::Cm && !item.wanted;
        if let Some(item) = self.items.iter().find(of_cm) {
            return Some(item.topic);
        }
        let at = words::cm_event(&self.tokens)?;
        let (n, at) =
            (at..self.tokens.len()).find_map(|at| Some((words::number(&self.tokens[at])?, at)))?;
        let topic = numbered(Kind::Cm, u32::try_from(n).ok()?).next()?;
        self.add(topic, at..at + 1);
        Some(topic)
    }

    /// The word before a number that says what it is, and the one before that. Also whether a sign of
    /// assignment stands between.
    fn label(&self, number: usize) -> Option<(usize, bool)> {
        let mut assigned = false;
        for at in (number.saturating_sub(5)..number).rev() {
            let token = &*self.tokens[at];
            if !FILLERS.contains(&token) {
                let word = token.starts_with(|c: char| c.is_alphabetic()) && !self.covered[at];
                return word.then_some((at, assigned));
            }
            assigned |= matches!(token, ":" | "=");
        }
        None
    }

    /// What a negative number is that a call returned: UCX and libfabric have numbers of their own.
    fn returned(&self, n: i64) -> Kind {
        let magnitude = u32::try_from(n.unsigned_abs()).unwrap_or(u32::MAX);
        let ucx = |token: &String| {
            ["ucp_", "uct_", "ucs_"]
                .iter()
                .any(|p| token.starts_with(p))
        };
        let known = |kind| numbered(kind, magnitude).next().is_some();
        if self.tokens.iter().any(ucx) && known(Kind::Ucx) {
            Kind::Ucx
        } else if known(Kind::Fabric) {
            Kind::Fabric
        } else {
            Kind::Errno
        }
    }

    /// What a number is, by the words before it.
    fn kind(&self, number: usize, n: i64, event: Option<&Topic>) -> Option<Kind> {
        let errno = (n < -1).then(|| self.returned(n));
        let Some((at, assigned)) = self.label(number) else {
            // "(-104)", ": -61".
            let signed = number > 0 && self.is(number - 1, &["(", "[", ":", "="]);
            return errno.filter(|_| signed && self.lines.iter().all(|line| line.introduces));
        };
        let full = &*self.tokens[at];
        let word = full.rsplit('.').next().unwrap_or(full);
        let before = match at {
            0 => "",
            _ => &*self.tokens[at - 1],
        };
        if let Some(event) = event
            && CM_STATUS.contains(&word)
        {
            return words::status_kind(event.name, n < 0);
        }
        match word {
            "err" | "error" | "errno" | "syndrome" | "code"
                if matches!(before, "vendor" | "vend") =>
            {
                Some(Kind::Vendor)
            }
            // Numbers of their own.
            "error" if matches!(before, "nccl" | "cuda" | "mpi") => None,
            "prov_errno" if n > 0 => Some(Kind::Status),
            "errno" if matches!(before, "provider" | "prov") && n > 0 => Some(Kind::Status),
            "synd" => Some(Kind::Status),
            "syndrome" if self.has(&["cqe"]) => Some(Kind::Status),
            "status" if matches!(before, "exit" | "exited" | "exiting" | "http") => None,
            "status" if at > 1 && before == "with" && self.is(at - 2, &["exited", "exits"]) => None,
            "status" | "error" | "err" | "rc" | "result" | "res" | "ret" | "prov_errno"
            | "errno"
                if n < 0 =>
            {
                errno
            }
            "status" if self.has(&["rejected", "reject"]) && !self.of_completions() => {
                Some(Kind::Reject)
            }
            "error" | "err" if self.of_completions() => Some(Kind::Status),
            "error" | "err" | "failed" | "errno" if n > 0 => Some(self.returned(n)),
            "rc" | "result" | "res" if assigned && n > 0 => Some(Kind::Errno),
            // The states that rping prints are its own.
            "state" if !self.lines.is_empty() => None,
            _ if n < 0 => {
                let introduced = CAME.contains(&word) || Kind::from_word(word).is_some();
                let signed = self.is(number - 1, &["(", "[", ":", "="]);
                errno.filter(|_| {
                    (introduced || signed) && self.lines.iter().all(|line| line.introduces)
                })
            }
            "event" if event.is_some() => None,
            "event" if words::CM_WORDS.contains(&before) => Some(Kind::Cm),
            _ => Kind::from_word(word).filter(|kind| event.is_none() || *kind != Kind::Cm),
        }
    }

    fn numbers(&mut self) {
        let event = self.cm_event();
        let mut last = None;
        for at in 0..self.tokens.len() {
            let Some(n) = words::number(&self.tokens[at]) else {
                continue;
            };
            let came = at > 0 && self.is(at - 1, &CAME) && n >= 0;
            let kind = match self.kind(at, n, event) {
                None | Some(Kind::Errno) if came && last.is_some() => last,
                kind => kind,
            };
            let Some(kind) = kind else { continue };
            last = Some(kind);
            let full = self.label(at).map(|(at, _)| &*self.tokens[at]);
            let of_cqe = full == Some("synd") || (full == Some("syndrome") && kind == Kind::Status);
            let n = match CQE_SYNDROMES.iter().find(|(code, _)| of_cqe && *code == n) {
                Some((_, status)) => *status,
                None if of_cqe => continue,
                None => u32::try_from(n.unsigned_abs()).unwrap_or(u32::MAX),
            };
            for topic in numbered(kind, n) {
                self.add(topic, at..at + 1);
            }
        }
    }

    /// What is left when what was wanted, and what is no failure, gives way.
    fn topics(mut self) -> Vec<&'static Topic> {
        if self.lines.iter().any(|line| line.hides_errno) {
            // "Success" is what errno 0 reads like.
            self.items
                .retain(|item| item.topic.kind != Kind::Errno && item.rank != Rank::Fine);
        }
        let only_wanted = self.items.iter().all(|item| item.wanted);
        let mut introducing: Vec<&'static Topic> = self
            .lines
            .iter()
            .filter(|line| line.introduces)
            .map(|line| &line.topic)
            .collect();
        if only_wanted && let Some(item) = self.items.first() {
            // What came instead is not in the line.
            introducing.splice(0..0, program::instead_of(item.topic.kind));
        }
        self.items.retain(|item| !item.wanted);
        let best = self.items.iter().map(|item| item.rank).min();
        self.items.retain(|item| Some(item.rank) == best);
        let failed = self
            .items
            .iter()
            .any(|item| item.topic.kind == Kind::Status);
        if failed {
            // "CQ error ... (12): transport retry counter exceeded": no event.
            let text = |topic: &Topic| topic.kind == Kind::Event && topic.number == 0;
            self.items.retain(|item| !text(item.topic));
        }
        self.items
            .sort_by_key(|item| (item.topic.kind == Kind::Vendor, item.at));
        let mut topics: Vec<&'static Topic> = self
            .lines
            .iter()
            .filter(|line| !line.introduces)
            .map(|line| &line.topic)
            .collect();
        topics.extend(self.items.iter().map(|item| item.topic));
        if topics.is_empty() {
            topics = introducing;
        }
        let mut seen: Vec<&'static Topic> = Vec::new();
        topics.retain(|topic| {
            let new = !seen.iter().any(|other| std::ptr::eq(*other, *topic));
            seen.push(topic);
            new
        });
        topics
    }
}

/// What a line (lower case, single spaces) tells of, the first the likeliest.
pub fn topics(text: &str) -> Vec<&'static Topic> {
    let tokens = words::tokens(text);
    let mut line = Line {
        covered: vec![false; tokens.len()],
        lines: program::matches(text),
        tokens,
        items: Vec::new(),
    };
    line.names();
    line.texts();
    line.numbers();
    line.topics()
}
