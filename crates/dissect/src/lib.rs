//! What a RoCEv2 capture holds.
//!
//! [`Decoder`] takes the bytes of a pcap or pcapng file and gives frames, [`Dissector`] takes
//! frames and gives each packet's [`Place`], and at the end a [`Capture`]: queue pairs that talked
//! with each other ([`Conversation`]), their messages, what was sent again and why, and
//! [`Finding`]s. No I/O, no clock: whoever reads the file feeds it in pieces of any size, and
//! memory is bounded by [`Limits`] however long the file is.
//!
//! A BTH says for which queue pair a packet is, not which one sent it. The two directions of a
//! conversation are known to belong together when the connection manager's messages were captured
//! ([`Pairing::Connection`]); otherwise it is inferred from the first answer: it goes back between
//! the same addresses and names a PSN that is waited for ([`Pairing::Inferred`]).
//!
//! A capture is taken at one place. What the receiver of a packet got may be less, and what was
//! lost before the place is not in it; the [`Finding`]s say which of these it must have been.
#![forbid(unsafe_code)]

mod again;
mod answers;
mod bad;
mod capture;
mod closing;
mod connection;
mod dissector;
mod end;
mod finding;
mod frame;
mod gaps;
mod kind;
mod latency;
mod live;
mod model;
mod notes;
mod packet;
mod tracker;
mod twice;

pub use capture::{CaptureError, Decoder, Format, Frame, link_type_name};
pub use connection::{Connection, Step};
pub use dissector::{Dissector, Finished, Limits};
pub use end::{End, other};
pub use finding::{Finding, PeerHad, Severity, What};
pub use frame::{Outer, Skip};
pub use kind::Kind;
pub use latency::{Latencies, Summary};
pub use model::{
    Capture, Cause, Conversation, Endpoint, Mark, Message, MtuSource, Outcome, Pairing, Place,
    Repeat, Side, Skipped,
};
pub use packet::{Icrc, NoPacket, Packet};

/// Makes the examples of README.md tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
