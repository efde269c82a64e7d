//! How far a connection has come.

use core::fmt;

/// State of a connection (IBTA 12.9.6, without those of path migration).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// Active: a REQ was sent.
    ReqSent,
    /// Active: a REP has come; the host was told.
    RepReceived,
    /// Passive: a REQ has come; the host was told.
    ReqReceived,
    /// Passive: a REP was sent.
    RepSent,
    /// Both sides are ready.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// A DREQ has come; the host was told.
    DreqReceived,
    /// Over, but packets may still be on their way.
    TimeWait,
    /// Refused by us, and kept in mind only to say so again.
    Refused,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::ReqSent => "being requested",
            State::RepReceived => "accepted by the peer and waits for us",
            State::ReqReceived => "requested by the peer and waits for us",
            State::RepSent => "accepted and waits for the peer",
            State::Established => "established",
            State::DreqSent => "being disconnected",
            State::DreqReceived => "disconnected by the peer",
            State::TimeWait => "in time-wait",
            State::Refused => "refused",
        })
    }
}
