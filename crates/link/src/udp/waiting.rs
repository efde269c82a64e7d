//! Packets for which a socket's send buffer had no room.
//!
//! The buffer is full when the network takes packets more slowly than they are made. That holds
//! senders up and loses nothing, as a port without credits or under pause frames does: what the
//! socket did not take waits here, and until it is gone nobody builds packets for that socket
//! ([`crate::staging::socket::TxSocket::is_full`]). Nobody tells when there is room again without a
//! descriptor more to wait for, so it is tried after a pause that grows as long as nothing goes. It
//! stays short beside the time that the buffer takes to empty, as it is at most as long as the time
//! that passed since it was full.
//!
//! What no socket took for [`PATIENCE_NS`] is lost, so that a network that has stopped does not
//! stop queue pairs for ever: their timers then end them.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::staging::batch::Run;

/// Until the first trial, and between two at most.
const PAUSE_NS: RangeInclusive<u64> = 50_000..=1_000_000;

/// So long packets wait.
pub(crate) const PATIENCE_NS: u64 = 1_000_000_000;

/// Most bytes that wait. More than a staging buffer only comes together by fault injection, which
/// holds packets back.
const MOST_BYTES: usize = 4 << 20;

/// When packets are tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    now: u64,
    /// When they were tried first.
    since: u64,
}

impl Moment {
    /// They were not tried before.
    pub(crate) fn first(now: u64) -> Moment {
        Moment { now, since: now }
    }

    /// The same, at another trial.
    pub(crate) fn again(self, now: u64) -> Moment {
        Moment { now, ..self }
    }

    pub(crate) fn now(self) -> u64 {
        self.now
    }

    pub(crate) fn is_first(self) -> bool {
        self.now == self.since
    }
}

/// A run with its bytes.
pub(crate) struct Kept {
    pub(crate) run: Run,
    pub(crate) bytes: Vec<u8>,
    /// When it was tried last.
    pub(crate) at: Moment,
}

/// All that wait, in order.
pub(crate) struct Waiting {
    runs: VecDeque<Kept>,
    bytes: usize,
    /// When to try.
    again: u64,
    pause: u64,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            runs: VecDeque::new(),
            bytes: 0,
            again: 0,
            pause: *PAUSE_NS.start(),
        }
    }
}

impl Waiting {
    /// Keeps `run`, whose packets are in `bytes`, and marks its socket; false: it has waited long
    /// enough, or too much is here already.
    pub(crate) fn keep(&mut self, run: &Run, bytes: &[u8], at: Moment) -> bool {
        let late = at.now.saturating_sub(at.since) >= PATIENCE_NS;
        let Some(route) = run.route.as_ref().filter(|_| !late) else {
            return false;
        };
        if self.bytes + run.len > MOST_BYTES {
            return false;
        }
        route.socket.set_full(true);
        if self.runs.is_empty() {
            self.again = at.now.saturating_add(self.pause);
        }
        self.bytes += run.len;
        self.runs.push_back(Kept {
            bytes: bytes[run.start..run.start + run.len].to_vec(),
            run: Run {
                start: 0,
                ..run.clone()
            },
            at,
        });
        true
    }

    /// It is time to try.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        !self.runs.is_empty() && now >= self.again
    }

    /// All of them, to be tried; their sockets count as having room.
    pub(crate) fn take(&mut self) -> VecDeque<Kept> {
        for route in self.runs.iter().filter_map(|kept| kept.run.route.as_ref()) {
            route.socket.set_full(false);
        }
        self.bytes = 0;
        self.pause = (self.pause * 2).min(*PAUSE_NS.end());
        std::mem::take(&mut self.runs)
    }

    /// Nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// A socket took something.
    pub(crate) fn moved(&mut self) {
        self.pause = *PAUSE_NS.start();
    }

    /// When to try again.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        (!self.runs.is_empty()).then_some(self.again)
    }
}
