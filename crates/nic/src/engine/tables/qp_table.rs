//! Queue pairs by number, and the numbers themselves.

use rnic_host::QpnRange;
use rnic_link::LinkError;

use crate::engine::QpEntry;
use crate::host::Host;

/// How long a number rests after its queue pair: peers that missed the end of a connection still
/// have it (a DREQ is repeated after 6.1 s), and packets may be on their way.
const REST_NS: u64 = 10_000_000_000;

/// Ranges that are claimed to let numbers rest; more only for queue pairs that exist.
const RANGES_FOR_REST: usize = 16;

/// All queue pairs of the process. A number is used again only after it has rested, as long as
/// there are ranges for that, and after all others of the ranges were. Within a range they come in
/// random order: who does not know a queue pair's number, but the process's range, has to try half
/// of it.
#[derive(Debug, Default)]
pub(crate) struct QpTable {
    host: Host,
    ranges: Vec<Range>,
    /// In which of them a number was found last: it is mostly the next one's, too.
    last: usize,
    live: usize,
    /// Where the search for a free number goes on: range, and place in its order.
    next: (usize, u32),
    /// The host has no range left.
    at_limit: bool,
}

#[derive(Debug)]
struct Range {
    first: u32,
    /// Places, in the order in which they are given out.
    order: Vec<u16>,
    entries: Vec<Option<Box<QpEntry>>>,
    /// When the last queue pair of each number ended; 0 if there was none.
    freed_ns: Vec<u64>,
}

impl Range {
    /// Where in it a number is.
    #[inline]
    fn place_of(&self, qpn: u32) -> Option<usize> {
        let place = qpn.wrapping_sub(self.first) as usize;
        (place < self.entries.len()).then_some(place)
    }
}

impl QpTable {
    /// On that host, whose randomness orders the numbers.
    pub(crate) fn new(host: Host) -> QpTable {
        QpTable {
            host,
            ..QpTable::default()
        }
    }

    pub(crate) fn add_range(&mut self, range: QpnRange) {
        self.next = (self.ranges.len(), 0);
        self.ranges.push(Range {
            first: range.first,
            order: shuffled(range.count, &self.host),
            entries: (0..range.count).map(|_| None).collect(),
            freed_ns: vec![0; range.count as usize],
        });
    }

    /// The range that has a number, and its place there.
    #[inline]
    fn place(&mut self, qpn: u32) -> Option<(&mut Range, usize)> {
        let has = |range: &Range| range.place_of(qpn).is_some();
        if !self.ranges.get(self.last).is_some_and(has) {
            self.last = self.ranges.iter().position(has)?;
        }
        let range = &mut self.ranges[self.last];
        range.place_of(qpn).map(|place| (range, place))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, qpn: u32) -> Option<&mut QpEntry> {
        let (range, place) = self.place(qpn)?;
        range.entries[place].as_deref_mut()
    }

    /// A number without a queue pair. `claim` gives one more range, and is asked if no number has
    /// rested or none is free. `None` if all are taken even then.
    ///
    /// # Errors
    /// None is free, and `claim` failed; or it was [busy](LinkError::is_busy), and there may be one
    /// in a moment.
    pub(crate) fn allocate(
        &mut self,
        now_ns: u64,
        claim: impl FnOnce() -> Result<QpnRange, LinkError>,
    ) -> Result<Option<u32>, LinkError> {
        let may_rest = !self.at_limit && self.ranges.len() < RANGES_FOR_REST;
        let has_rested = |freed: u64| freed == 0 || freed.saturating_add(REST_NS) <= now_ns;
        if let Some(qpn) = self.find(|freed| !may_rest || has_rested(freed)) {
            return Ok(Some(qpn));
        }
        match claim() {
            Ok(range) => {
                self.add_range(range);
                Ok(self.find(|_| true))
            }
            Err(e) if e.is_busy() => Err(e),
            Err(e) => {
                self.at_limit = true;
                self.find(|_| true).map(Some).ok_or(e)
            }
        }
    }

    /// The next number without a queue pair whose last one ended at a time that suits.
    fn find(&mut self, suits: impl Fn(u64) -> bool) -> Option<u32> {
        let total: usize = self.ranges.iter().map(|r| r.entries.len()).sum();
        // Going on to the next range takes a step, too.
        for _ in 0..=total + self.ranges.len() {
            let (index, offset) = self.next;
            let range = self.ranges.get(index)?;
            match range.order.get(offset as usize).copied() {
                None => self.next = ((index + 1) % self.ranges.len(), 0),
                Some(place) => {
                    self.next.1 += 1;
                    let at = usize::from(place);
                    if range.entries[at].is_none() && suits(range.freed_ns[at]) {
                        return Some(range.first + u32::from(place));
                    }
                }
            }
        }
        None
    }

    pub(crate) fn insert(&mut self, entry: QpEntry) {
        if let Some((range, place)) = self.place(entry.shared.qpn) {
            range.entries[place] = Some(Box::new(entry));
            self.live += 1;
        }
    }

    /// The queue pair of this number ends now.
    fn let_rest(&mut self, qpn: u32, now_ns: u64) {
        if let Some((range, place)) = self.place(qpn) {
            range.freed_ns[place] = now_ns;
        }
    }

    pub(crate) fn remove(&mut self, qpn: u32, now_ns: u64) -> Option<Box<QpEntry>> {
        let (range, place) = self.place(qpn)?;
        let entry = range.entries[place].take();
        if entry.is_some() {
            self.live -= 1;
            self.let_rest(qpn, now_ns);
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

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QpEntry> {
        let ranges = self.ranges.iter_mut();
        ranges.flat_map(|range| range.entries.iter_mut().flatten().map(Box::as_mut))
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

/// The places of a range in an order that nobody can tell (Fisher and Yates).
fn shuffled(count: u32, host: &Host) -> Vec<u16> {
    let mut order: Vec<u16> = (0..=u16::MAX).take(count as usize).collect();
    let mut random = vec![0; 8 * order.len()];
    host.random_bytes(&mut random);
    for (at, bytes) in (1..order.len()).rev().zip(random.as_chunks::<8>().0) {
        let other = u64::from_ne_bytes(*bytes) % (at as u64 + 1);
        order.swap(at, other as usize);
    }
    order
}

#[cfg(test)]
mod tests;
