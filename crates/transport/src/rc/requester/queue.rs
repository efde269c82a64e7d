//! The send queue: a ring of entries that are written where they lie.
//!
//! An entry is long, and a new one is needed for every message. Built elsewhere and moved, it would
//! be read in wider pieces than it was stored in just before, for which processors wait; so what is
//! put in takes over the place of one that is done. Short messages are, by that; others are moved
//! in, which their length hides.

use super::{Entry, Kind, NOT_STARTED};
use crate::fifo::Fifo;
use crate::{SendData, SendWqe};
use alloc::collections::TryReserveError;

/// Entries, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SendQueue(Fifo<Entry>);

impl SendQueue {
    /// Takes memory for so many entries.
    pub(crate) fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.0.try_reserve(most)
    }

    /// Drops all entries. Their memory stays.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.0.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        self.0.get_mut(index)
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Entry> {
        self.0.front()
    }

    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut Entry> {
        self.0.front_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Those from `from` on.
    pub(super) fn for_each_from(&mut self, from: usize, mut change: impl FnMut(&mut Entry)) {
        for index in from..self.len() {
            if let Some(entry) = self.get_mut(index) {
                change(entry);
            }
        }
    }

    /// How many at the front `are` so, if none behind them is.
    pub(super) fn partition_point(&self, are: impl Fn(&Entry) -> bool) -> usize {
        let (mut least, mut most) = (0, self.len());
        while least < most {
            let middle = least.midpoint(most);
            if self.get(middle).is_some_and(&are) {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }

    /// The place of a new entry at the end, to be written: it is as another one left it.
    #[inline]
    pub(super) fn push(&mut self) -> &mut Entry {
        self.0.push_place()
    }

    /// Takes the oldest out; gives it as it lies there, but for a long list or long inline data.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<&Entry> {
        let entry = self.0.pop_place()?;
        // What it has outside of itself is not kept for the next one.
        let has_more = match &entry.wqe.data {
            SendData::Gather(list) => list.spilled(),
            SendData::Inline(bytes) => bytes.spilled(),
        };
        if has_more {
            entry.wqe.data = SendData::default();
        }
        Some(entry)
    }
}

impl Default for Entry {
    fn default() -> Entry {
        Entry {
            wqe: SendWqe::default(),
            start: NOT_STARTED,
            len: 0,
            packets: 0,
            kind: Kind::Local,
            oversize: false,
            checked: false,
            pointed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    //! It is a queue, whatever lay in its places before.

    use super::*;
    use crate::{SgList, Sge};
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Pop,
        /// Starts those from here on.
        Start(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => Just(Step::Push),
            4 => Just(Step::Pop),
            1 => (0..9usize).prop_map(Step::Start),
        ]
    }

    proptest! {
        #[test]
        fn first_in_first_out(steps in prop::collection::vec(step(), 0..200)) {
            let mut queue = SendQueue::default();
            let mut model: VecDeque<(u64, u64)> = VecDeque::new();
            for (id, step) in (0..).zip(steps) {
                match step {
                    Step::Push => {
                        let entry = queue.push();
                        entry.wqe.wr_id = id;
                        entry.start.pos = id;
                        model.push_back((id, id));
                    }
                    Step::Pop => {
                        let popped = queue.pop_front().map(|entry| (entry.wqe.wr_id, entry.start.pos));
                        prop_assert_eq!(popped, model.pop_front());
                    }
                    Step::Start(from) => {
                        queue.for_each_from(from, |entry| entry.start.pos += 1);
                        model.iter_mut().skip(from).for_each(|entry| entry.1 += 1);
                    }
                }
                let key = |entry: &Entry| (entry.wqe.wr_id, entry.start.pos);
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.iter().map(key).eq(model.iter().copied()));
                prop_assert_eq!(queue.front().map(key), model.front().copied());
                prop_assert_eq!(queue.front_mut().map(|entry| key(entry)), model.front().copied());
                for at in 0..model.len() + 2 {
                    prop_assert_eq!(queue.get(at).map(key), model.get(at).copied());
                    let before = queue.partition_point(|entry| entry.wqe.wr_id < id.saturating_sub(at as u64));
                    prop_assert_eq!(before, model.partition_point(|entry| entry.0 < id.saturating_sub(at as u64)));
                }
            }
        }
    }

    #[test]
    fn long_lists_are_freed_with_their_entries() {
        let mut queue = SendQueue::default();
        queue.push().wqe.data = SendData::Gather(SgList::from_slice(&[Sge::default(); 9]));
        queue.push().wqe.data = SendData::Inline([7; 99].into_iter().collect());
        for _ in 0..2 {
            let left = queue.pop_front().map(|entry| entry.wqe.data.clone());
            assert_eq!(left, Some(SendData::default()));
        }
        assert!(queue.pop_front().is_none());
    }
}
