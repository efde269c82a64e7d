//! A scenario as text, in both directions: [`parse`] of what [`print`](print()) gives is the
//! scenario again. `tests/scripts/README.md` describes the language.
//!
//! | file | duty |
//! | --- | --- |
//! | `script` | the words, which both directions share |
//! | `words` | one line, word by word; numbers and times with their limits |
//! | `parse` | from text; `parse/datagrams`: the lines of UD |
//! | `print` | to text; `print/datagrams`: the lines of UD |

mod parse;
mod print;
mod words;

use rnic_nic::{HostPath, MwType, Status};
use rnic_wire::Operation;

use crate::scenario::{Flow, Grant, Impairments, Kind, Measure, Relation, Service};

pub use parse::{Error, parse};
pub use print::print;
pub(crate) use print::{bound, fate};

/// Words and what they mean.
type Table<T> = &'static [(&'static str, T)];

/// The word that means this.
fn word<T: PartialEq>(table: Table<T>, meaning: &T) -> &'static str {
    let mut entries = table.iter();
    let entry = entries.find(|(_, means)| means == meaning);
    // Of what has no word nothing can be said.
    entry.map_or("?", |(word, _)| word)
}

/// What this word means.
fn meaning<T: Copy>(table: Table<T>, word: &str) -> Option<T> {
    let mut entries = table.iter();
    entries.find(|(known, _)| *known == word).map(|(_, m)| *m)
}

/// What a line begins with that is not about an end of a flow. No host has such a name.
const LINES: [&str; 15] = [
    "seed",
    "network",
    "host",
    "process",
    "srq",
    "ud",
    "flow",
    "expect",
    "drop",
    "corrupt",
    "duplicate",
    "delay",
    "kill",
    "stop",
    "dereg",
];

/// How processes of a host reach each other; without a word they exchange packets.
const HOST_PATHS: Table<HostPath> = &[("memory", HostPath::On), ("rings", HostPath::Rings)];

const SERVICES: Table<Service> = &[("rc", Service::Rc), ("uc", Service::Uc)];

const KINDS: Table<Kind> = &[
    ("send", Kind::Send),
    ("send_imm", Kind::SendImm),
    ("write", Kind::Write),
    ("write_imm", Kind::WriteImm),
    ("read", Kind::Read),
    ("fetch_add", Kind::FetchAdd),
    ("cmp_swap", Kind::CompareSwap),
    ("bind", Kind::Bind),
    ("unbind", Kind::Unbind),
    ("send_inv", Kind::SendInvalidate),
];

const WINDOW_TYPES: Table<MwType> = &[("type1", MwType::Type1), ("type2", MwType::Type2)];

const GRANTS: Table<Grant> = &[
    ("write", Grant::Write),
    ("read", Grant::Read),
    ("atomic", Grant::Atomic),
];

/// The names that the packet scripts of `rnic-transport` use.
const STATUSES: Table<Status> = &[
    ("success", Status::Success),
    ("local_length", Status::LocalLengthError),
    ("local_qp_operation", Status::LocalQpOperationError),
    ("local_protection", Status::LocalProtectionError),
    ("flushed", Status::WorkRequestFlushed),
    ("mw_bind", Status::MemoryWindowBindError),
    ("bad_response", Status::BadResponse),
    ("local_access", Status::LocalAccessError),
    ("remote_invalid_request", Status::RemoteInvalidRequest),
    ("remote_access", Status::RemoteAccessError),
    ("remote_operation", Status::RemoteOperationError),
    ("retry_exceeded", Status::RetryExceeded),
    ("rnr_retry_exceeded", Status::RnrRetryExceeded),
    ("remote_aborted", Status::RemoteAborted),
    ("fatal", Status::FatalError),
    ("response_timeout", Status::ResponseTimeout),
    ("general", Status::GeneralError),
];

/// Those that a flow can send, named as in packet scripts.
const OPERATIONS: Table<Operation> = &[
    ("SEND_FIRST", Operation::SendFirst),
    ("SEND_MIDDLE", Operation::SendMiddle),
    ("SEND_LAST", Operation::SendLast),
    ("SEND_LAST_IMM", Operation::SendLastImm),
    ("SEND_ONLY", Operation::SendOnly),
    ("SEND_ONLY_IMM", Operation::SendOnlyImm),
    ("SEND_LAST_INV", Operation::SendLastInvalidate),
    ("SEND_ONLY_INV", Operation::SendOnlyInvalidate),
    ("WRITE_FIRST", Operation::WriteFirst),
    ("WRITE_MIDDLE", Operation::WriteMiddle),
    ("WRITE_LAST", Operation::WriteLast),
    ("WRITE_LAST_IMM", Operation::WriteLastImm),
    ("WRITE_ONLY", Operation::WriteOnly),
    ("WRITE_ONLY_IMM", Operation::WriteOnlyImm),
    ("READ_REQUEST", Operation::ReadRequest),
    ("READ_FIRST", Operation::ReadResponseFirst),
    ("READ_MIDDLE", Operation::ReadResponseMiddle),
    ("READ_LAST", Operation::ReadResponseLast),
    ("READ_ONLY", Operation::ReadResponseOnly),
    ("ACK", Operation::Acknowledge),
    ("ATOMIC_ACK", Operation::AtomicAcknowledge),
    ("CMP_SWAP", Operation::CompareSwap),
    ("FETCH_ADD", Operation::FetchAdd),
];

const MEASURES: Table<Measure> = &[
    ("time", Measure::Time),
    ("packets", Measure::Packets),
    ("retransmissions", Measure::Retransmissions),
    ("timeouts", Measure::Timeouts),
    ("rnr_naks", Measure::RnrNaks),
    ("sequence_naks", Measure::SequenceNaks),
    ("duplicates", Measure::Duplicates),
    ("received", Measure::Received),
    ("dropped", Measure::Dropped),
    ("qkey_violations", Measure::QkeyViolations),
    ("limit_events", Measure::LimitEvents),
    ("rings", Measure::Rings),
    ("copied", Measure::Copied),
    ("references", Measure::References),
    ("busy", Measure::Busy),
];

const RELATIONS: Table<Relation> = &[
    ("<=", Relation::AtMost),
    ("=", Relation::Exactly),
    (">=", Relation::AtLeast),
];

/// A number of a flow.
struct Number {
    name: &'static str,
    /// From and to.
    range: (u64, u64),
    get: fn(&Flow) -> u64,
    set: fn(&mut Flow, u64),
}

const NUMBERS: &[Number] = &[
    Number {
        name: "depth",
        range: (1, 4096),
        get: |flow| flow.depth.into(),
        set: |flow, n| flow.depth = n as u32,
    },
    Number {
        name: "receives",
        range: (1, 4096),
        get: |flow| flow.receives.into(),
        set: |flow, n| flow.receives = n as u32,
    },
    Number {
        name: "timeout",
        range: (0, 31),
        get: |flow| flow.timeout.into(),
        set: |flow, n| flow.timeout = n as u8,
    },
    Number {
        name: "retry",
        range: (0, 7),
        get: |flow| flow.retry.into(),
        set: |flow, n| flow.retry = n as u8,
    },
    Number {
        name: "rnr_retry",
        range: (0, 7),
        get: |flow| flow.rnr_retry.into(),
        set: |flow, n| flow.rnr_retry = n as u8,
    },
];

/// The chances of harm.
type Chance = fn(&mut Impairments) -> &mut f64;
const CHANCES: Table<Chance> = &[
    ("loss", |i| &mut i.loss),
    ("corrupt", |i| &mut i.corrupt),
    ("duplicate", |i| &mut i.duplicate),
    ("reorder", |i| &mut i.reorder),
];

/// No shared receive queue.
const NONE: &str = "-";

/// Units of time, the largest first, ns.
const UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A packet that is duplicated arrives again after so long, if nothing else is said, ns.
const AGAIN: u64 = 10_000;

/// How the two ends of a flow are called: as their hosts, and the second of a host that talks to
/// itself with a prime.
fn ends(names: [&str; 2]) -> [String; 2] {
    let [first, second] = names;
    match first == second {
        true => [first.to_owned(), format!("{first}'")],
        false => [first.to_owned(), second.to_owned()],
    }
}
