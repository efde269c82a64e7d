//! Shared receive queues by number.

use std::sync::Arc;

use rnic_host::QpnRange;

use crate::device::MAX_SRQ;
use crate::queues::SrqShared;

/// All shared receive queues of the process. A number is used again only after all others were.
///
/// Numbers lie in the process's ranges of queue pair numbers, so that a number tells whose queue it
/// is: over XRC a queue pair of another process may name it.
#[derive(Debug, Default)]
pub(crate) struct SrqTable {
    ranges: Vec<QpnRange>,
    /// The numbers of the first range, then those of the second, and so on.
    entries: Vec<Option<Arc<SrqShared>>>,
    live: u32,
    /// Where the search for a free number goes on.
    next: usize,
}

impl SrqTable {
    /// These are the process's ranges now; none of them is ever given back.
    pub(crate) fn set_ranges(&mut self, ranges: &[QpnRange]) {
        if self.ranges.len() < ranges.len() {
            self.ranges = ranges.to_vec();
            let numbers: u32 = ranges.iter().map(|range| range.count).sum();
            self.entries.resize_with(numbers as usize, || None);
        }
    }

    #[inline]
    fn index(&self, number: u32) -> Option<usize> {
        let mut before = 0;
        for range in &self.ranges {
            let offset = number.wrapping_sub(range.first);
            if offset < range.count {
                return Some((before + offset) as usize);
            }
            before += range.count;
        }
        None
    }

    fn number(&self, index: usize) -> Option<u32> {
        let mut left = index as u32;
        for range in &self.ranges {
            if left < range.count {
                return Some(range.first + left);
            }
            left -= range.count;
        }
        None
    }

    /// The number, used or not, is this process's.
    pub(crate) fn is_ours(&self, number: u32) -> bool {
        self.index(number).is_some()
    }

    /// The device has as many as it can have.
    pub(crate) fn is_full(&self) -> bool {
        self.live == MAX_SRQ
    }

    /// A number without a queue; `None` if all of the ranges are taken.
    pub(crate) fn free_number(&mut self) -> Option<u32> {
        let len = self.entries.len();
        let free = (0..len)
            .map(|i| (self.next + i) % len)
            .find(|index| self.entries[*index].is_none())?;
        self.next = (free + 1) % len;
        self.number(free)
    }

    pub(crate) fn insert(&mut self, srq: Arc<SrqShared>) {
        let index = self.index(srq.number);
        if let Some(slot) = index.and_then(|index| self.entries.get_mut(index)) {
            *slot = Some(srq);
            self.live += 1;
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<SrqShared>> {
        let index = self.index(number)?;
        self.entries.get(index)?.as_ref()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<SrqShared>> {
        self.entries.iter().flatten()
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let index = self.index(number);
        if let Some(slot) = index.and_then(|index| self.entries.get_mut(index))
            && slot.take().is_some()
        {
            self.live -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which number is given out, and whose it is.

    use super::*;

    #[test]
    fn numbers_are_the_ranges_and_go_round() {
        let range = |first| QpnRange { first, count: 4 };
        let mut table = SrqTable::default();
        assert_eq!(table.free_number(), None);
        table.set_ranges(&[range(0x7000), range(0x3000)]);
        let numbers: Vec<u32> = (0..9).filter_map(|_| table.free_number()).collect();
        assert_eq!(
            numbers,
            [
                0x7000, 0x7001, 0x7002, 0x7003, 0x3000, 0x3001, 0x3002, 0x3003, 0x7000
            ]
        );
        assert!(table.is_ours(0x3003) && !table.is_ours(0x3004) && !table.is_ours(0x6fff));
    }
}
