//! Deadlines, soonest first, of one time in the order in which they were armed. What a deadline
//! belongs to knows the one that counts: others lie here until they are due.

use crate::Time;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// When, how many were armed before, and whose.
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    armed: u64,
}

impl Timers {
    pub fn arm(&mut self, id: u32, at: Time) {
        self.heap.push(Reverse((at, self.armed, id)));
        self.armed += 1;
    }

    pub fn first(&self) -> Option<(Time, u32)> {
        self.heap.peek().map(|Reverse((at, _, id))| (*at, *id))
    }

    pub fn pop(&mut self) {
        self.heap.pop();
    }

    /// Whether there are far more entries than the `live` ones that may count.
    pub fn is_cluttered(&self, live: usize) -> bool {
        self.heap.len() > 64 + 4 * live
    }

    pub fn rebuild(&mut self, live: impl Iterator<Item = (Time, u32)>) {
        self.heap.clear();
        for (at, id) in live {
            self.arm(id, at);
        }
    }
}
