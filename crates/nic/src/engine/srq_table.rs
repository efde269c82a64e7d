//! Shared receive queues by number.

use crate::device::MAX_SRQ;
use crate::srq::SrqEntry;

/// All shared receive queues of the process. A number is used again only after all others were.
///
/// Numbers start where those of the process's queue pairs do: so a number that belongs to another process of the host, and
/// came here by mistake, mostly names nothing.
#[derive(Debug)]
pub(crate) struct SrqTable {
    base: u32,
    /// By the distance of their numbers from `base`, modulo 2^24; the first is never used.
    entries: Vec<Option<Box<SrqEntry>>>,
    live: u32,
    /// Where the search for a free number goes on.
    next: u32,
}

/// Numbers have 24 bits.
const NUMBERS: u32 = 0xff_ffff;

impl SrqTable {
    pub(crate) fn new(base: u32) -> SrqTable {
        SrqTable {
            base,
            entries: Vec::new(),
            live: 0,
            next: 1,
        }
    }

    #[inline]
    fn index(&self, number: u32) -> usize {
        (number.wrapping_sub(self.base) & NUMBERS) as usize
    }

    /// A number without a queue; `None` if all are taken.
    pub(crate) fn free_number(&mut self) -> Option<u32> {
        if self.live == MAX_SRQ {
            return None;
        }
        loop {
            let number = self.base.wrapping_add(self.next) & NUMBERS;
            self.next = if self.next == MAX_SRQ {
                1
            } else {
                self.next + 1
            };
            if self.get_mut(number).is_none() {
                return Some(number);
            }
        }
    }

    pub(crate) fn insert(&mut self, entry: SrqEntry) {
        let index = self.index(entry.shared.number);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(Box::new(entry));
        self.live += 1;
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut SrqEntry> {
        let index = self.index(number);
        self.entries.get_mut(index)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let index = self.index(number);
        if let Some(slot) = self.entries.get_mut(index)
            && slot.take().is_some()
        {
            self.live -= 1;
        }
    }
}
