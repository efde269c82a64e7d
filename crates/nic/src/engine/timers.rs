//! Deadlines of all queue pairs: a heap whose stale entries are dropped when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rnic_transport::Time;

use crate::qp::QpEntry;

/// Earliest deadlines first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
}

impl Timers {
    /// Notes the deadline a queue pair has now. A later deadline than the one noted costs nothing: it is corrected when
    /// the earlier one comes up.
    pub(crate) fn note(&mut self, entry: &mut QpEntry) {
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

    /// The earliest noted deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
