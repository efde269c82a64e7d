//! Shared receive queues by number.

use crate::device::MAX_SRQ;
use crate::srq::SrqEntry;

/// All shared receive queues of the process. A number is used again only after all others were; 0 is none.
#[derive(Debug)]
pub(crate) struct SrqTable {
    entries: Vec<Option<Box<SrqEntry>>>,
    live: u32,
    /// Where the search for a free number goes on.
    next: u32,
}

impl Default for SrqTable {
    fn default() -> SrqTable {
        SrqTable {
            entries: Vec::new(),
            live: 0,
            next: 1,
        }
    }
}

impl SrqTable {
    /// A number without a queue; `None` if all are taken.
    pub(crate) fn free_number(&mut self) -> Option<u32> {
        if self.live == MAX_SRQ {
            return None;
        }
        loop {
            let number = self.next;
            self.next = if number == MAX_SRQ { 1 } else { number + 1 };
            if self.get_mut(number).is_none() {
                return Some(number);
            }
        }
    }

    pub(crate) fn insert(&mut self, entry: SrqEntry) {
        let index = entry.shared.number as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(Box::new(entry));
        self.live += 1;
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut SrqEntry> {
        self.entries.get_mut(number as usize)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if let Some(slot) = self.entries.get_mut(number as usize)
            && slot.take().is_some()
        {
            self.live -= 1;
        }
    }
}
