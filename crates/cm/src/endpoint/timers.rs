//! Deadlines, soonest first. What a deadline belongs to knows the one that counts: others lie here until they are due.

use crate::Time;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Time, u32)>>);

impl Timers {
    pub fn arm(&mut self, id: u32, at: Time) {
        self.0.push(Reverse((at, id)));
    }

    pub fn first(&self) -> Option<(Time, u32)> {
        self.0.peek().map(|Reverse(entry)| *entry)
    }

    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Whether there are far more entries than the `live` ones that may count.
    pub fn is_cluttered(&self, live: usize) -> bool {
        self.0.len() > 64 + 4 * live
    }

    pub fn rebuild(&mut self, live: impl Iterator<Item = (Time, u32)>) {
        self.0.clear();
        self.0.extend(live.map(Reverse));
    }
}
