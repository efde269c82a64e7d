//! A line that programs print: how it is recognized, and what is to say of it.

use crate::topics::topic::{Kind, Topic};

/// A line of programs: how it is recognized, and what is to say of it.
pub struct Line {
    /// Words as [`super::matches`] reads them; one of these is enough.
    pub patterns: &'static [&'static str],
    /// An errno in the line is not one of a verb: the call was one of a socket, or it did not fail.
    pub hides_errno: bool,
    /// The line only introduces a status, errno or event, so it gives way to one that is named.
    pub introduces: bool,
    pub topic: Topic,
}

pub const fn line(
    patterns: &'static [&'static str],
    name: &'static str,
    text: &'static str,
    meaning: &'static str,
    causes: &'static [&'static str],
    check: &'static [&'static str],
) -> Line {
    Line {
        patterns,
        hides_errno: false,
        introduces: false,
        topic: Topic {
            kind: Kind::Program,
            number: 0,
            name,
            text,
            meaning,
            side: "",
            causes,
            check,
            follows: "",
        },
    }
}

/// The name of a call says what the program was at. An errno beside it says more.
pub const fn call(
    patterns: &'static [&'static str],
    name: &'static str,
    text: &'static str,
    meaning: &'static str,
    causes: &'static [&'static str],
    check: &'static [&'static str],
) -> Line {
    Line {
        introduces: true,
        ..line(patterns, name, text, meaning, causes, check)
    }
}

pub const WORDS: &str =
    "RNIC_LOG=1 rnic run -- PROGRAM      says in words why each verb was refused";
pub const START: &str = "rnic run -- PROGRAM      starts a program with rnic0 as its device";
pub const DEVICES: &str = "rnic devices      the device, its GID indices and MTU";
pub const OTHER_SIDE: &str = "the terminal of the other side: its last line tells why it ended";
