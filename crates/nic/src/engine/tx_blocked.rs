//! Queue pairs that cannot go on because the process that they send to has not taken enough from
//! its ring, or the network not enough from their socket.
//!
//! They wait beside the list of those that are ready, so that they hold up nobody. As long as the
//! application polls they are tried with every round, or, if they are many, with every round that
//! finds no others ready; else the engine tries them now and then, less often as time goes on. The
//! link gives them room after a second in any case, and loses their packets then.

use std::collections::TryReserveError;

use crate::adapt::Backoff;

/// How long to wait before trying again, ns.
type Pause = Backoff<30_000, 5_000_000>;

/// Those that wait.
#[derive(Debug, Default)]
pub(super) struct TxBlocked {
    qpns: Vec<u32>,
    again: u64,
    pause: Pause,
}

impl TxBlocked {
    /// A queue pair found no room.
    pub(super) fn hold(&mut self, qpn: u32, now: u64) {
        // Rounds of an application that polls come in between.
        if now >= self.again {
            self.again = now.saturating_add(self.pause.wrong().into());
        }
        self.qpns.push(qpn);
    }

    /// A queue pair found room.
    #[inline]
    pub(super) fn moved(&mut self) {
        self.pause.forget();
    }

    /// When they are to be tried again, whoever polls.
    pub(super) fn deadline(&self) -> Option<u64> {
        (!self.qpns.is_empty()).then_some(self.again)
    }

    /// Makes room for so many.
    pub(super) fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        super::reserve_for(&mut self.qpns, most)
    }

    /// Those that waited.
    #[inline]
    pub(super) fn take(&mut self) -> impl Iterator<Item = u32> {
        self.qpns.drain(..)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.qpns.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.qpns.is_empty()
    }
}
