//! Queue pairs by number, and the numbers themselves.

use rnic_link::QpnRange;

use crate::qp::QpEntry;

/// All queue pairs of the process. A number is used again only after all others of its ranges were.
#[derive(Debug, Default)]
pub(crate) struct QpTable {
    ranges: Vec<Range>,
    live: usize,
    /// Where the search for a free number goes on: range and offset.
    next: (usize, u32),
}

#[derive(Debug)]
struct Range {
    first: u32,
    entries: Vec<Option<Box<QpEntry>>>,
}

impl QpTable {
    pub(crate) fn add_range(&mut self, range: QpnRange) {
        self.next = (self.ranges.len(), 0);
        self.ranges.push(Range {
            first: range.first,
            entries: (0..range.count).map(|_| None).collect(),
        });
    }

    fn slot(&mut self, qpn: u32) -> Option<&mut Option<Box<QpEntry>>> {
        self.ranges.iter_mut().find_map(|range| {
            let offset = qpn.checked_sub(range.first)?;
            range.entries.get_mut(offset as usize)
        })
    }

    pub(crate) fn get_mut(&mut self, qpn: u32) -> Option<&mut QpEntry> {
        self.slot(qpn)?.as_deref_mut()
    }

    /// A number without a queue pair; `None` if all are taken.
    pub(crate) fn free_qpn(&mut self) -> Option<u32> {
        let total: usize = self.ranges.iter().map(|r| r.entries.len()).sum();
        for _ in 0..=total {
            let (index, offset) = self.next;
            let range = self.ranges.get(index)?;
            match range.entries.get(offset as usize) {
                None => self.next = ((index + 1) % self.ranges.len(), 0),
                Some(entry) => {
                    self.next.1 += 1;
                    if entry.is_none() {
                        return Some(range.first + offset);
                    }
                }
            }
        }
        None
    }

    pub(crate) fn insert(&mut self, entry: QpEntry) {
        let qpn = entry.shared.qpn;
        if let Some(slot) = self.slot(qpn) {
            *slot = Some(Box::new(entry));
            self.live += 1;
        }
    }

    pub(crate) fn remove(&mut self, qpn: u32) -> Option<Box<QpEntry>> {
        let entry = self.slot(qpn)?.take();
        if entry.is_some() {
            self.live -= 1;
        }
        entry
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// All queue pairs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &QpEntry> {
        self.ranges
            .iter()
            .flat_map(|range| range.entries.iter().flatten().map(Box::as_ref))
    }

    /// The numbers of all queue pairs.
    pub(crate) fn qpns(&self) -> Vec<u32> {
        self.ranges
            .iter()
            .flat_map(|range| {
                let numbered = range.entries.iter().zip(range.first..);
                numbered
                    .filter(|(entry, _)| entry.is_some())
                    .map(|(_, qpn)| qpn)
            })
            .collect()
    }
}
