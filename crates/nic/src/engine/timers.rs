//! Deadlines of all queue pairs: a heap whose stale entries are dropped when they come up, or are
//! too many.

use crate::engine::QpEntry;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError};

use rnic_transport::Time;

use super::incast::Incast;

/// Earliest deadlines first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// Who may have requests under way, of which timers and answers tell.
    pub(crate) incast: Incast,
}

impl Timers {
    /// Makes room for the deadlines of so many queue pairs, stale ones included.
    pub(crate) fn try_reserve(&mut self, queue_pairs: usize) -> Result<(), TryReserveError> {
        let most = 2 * most_stale(queue_pairs);
        self.heap.try_reserve(most.saturating_sub(self.heap.len()))
    }

    /// Notes the deadline a queue pair has now. A later deadline than the one noted costs nothing:
    /// it is corrected when the earlier one comes up.
    pub(crate) fn note(&mut self, entry: &mut QpEntry) {
        if entry.incast_member.is_in_group() {
            let requests = entry.requests();
            self.incast.note(&mut entry.incast_member, requests);
        }
        if let Some(at) = entry.transport.next_timeout()
            && entry.armed.is_none_or(|armed| at < armed)
        {
            entry.armed = Some(at);
            self.heap.push(Reverse((at, entry.shared.qpn)));
        }
    }

    /// Takes one queue pair whose noted deadline has come; the caller looks whether it is true.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Time, u32)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }

    /// Most entries are stale, of so many queue pairs. A queue pair that waits for a receive of its
    /// peer's notes a near deadline over a far one again and again, and each leaves the far one
    /// behind.
    pub(crate) fn is_cluttered(&self, queue_pairs: usize) -> bool {
        self.heap.len() > most_stale(queue_pairs)
    }

    /// Leaves those that queue pairs have noted now.
    pub(crate) fn rebuild(&mut self, noted: impl Iterator<Item = (Time, u32)>) {
        self.heap.clear();
        self.heap.extend(noted.map(Reverse));
    }

    /// The earliest noted deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

/// With more entries the heap is rebuilt at the end of the round.
fn most_stale(queue_pairs: usize) -> usize {
    2 * queue_pairs + 64
}

#[cfg(test)]
mod tests {
    //! However often a queue pair notes a nearer deadline, the heap stays in proportion.

    use super::*;

    #[test]
    fn stale_deadlines_are_thrown_away_when_they_are_too_many() {
        let mut timers = Timers::default();
        let mut most = 0;
        let live = (Time(1 << 39), 6);
        timers.heap.push(Reverse(live));
        for round in 0..10_000 {
            // What an ACK timeout is behind an RNR wait: far, and never reached.
            timers.heap.push(Reverse((Time(1 << 40 | round), 5)));
            most = most.max(timers.heap.len());
            if timers.is_cluttered(2) {
                timers.rebuild(std::iter::once(live));
            }
        }
        assert!(most < 100, "{most} entries for two queue pairs");
        assert_eq!(timers.next(), Some(live.0));
    }
}
