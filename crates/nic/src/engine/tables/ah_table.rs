//! Address handles inside the engine: which paths lead to their peer.

use std::collections::{TryReserveError, VecDeque};

use crate::device::MAX_AH;
use crate::reserve;
use rnic_host::registry::range_of;
use rnic_link::{AddressVector, PathId, Port};
use rnic_transport::Pd;
use rnic_wire::Psn;

/// Paths that one address handle keeps open. The link has one per process of the peer's host, so
/// that its packets find the right one at once; who sends to more processes than this by UDP sends
/// to the others by way of the first.
const PATHS: usize = 32;
/// By memory nobody hands over what came to the wrong one: as many as a host has ranges of QPNs.
const PATHS_BY_MEMORY: usize = 4096;

/// The number of an address handle: place, and how often the place was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AhNumber(pub(crate) u32);

const PLACE_BITS: u32 = 20;

#[derive(Debug)]
struct Entry {
    vector: AddressVector,
    pd: Pd,
    /// Destroyed; stays as long as queued work requests may name it.
    retired: bool,
    /// By the range of the destination QPN, in order.
    paths: Vec<(u32, PathId)>,
}

/// All address handles of the process.
#[derive(Debug, Default)]
pub(crate) struct AhTable {
    slots: Vec<(u32, Option<Entry>)>,
    free: Vec<u32>,
    /// Destroyed, but work requests that are still queued may name them; in that order.
    retired: VecDeque<Retired>,
}

/// A destroyed address handle.
#[derive(Debug)]
struct Retired {
    number: AhNumber,
    /// The queue pairs that had sends queued then, and the PSN behind them: none behind it names
    /// the handle.
    marks: Vec<(u32, Psn)>,
}

impl AhTable {
    /// Makes room for one more, alive or given up.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        let all = self.slots.len() + 1;
        crate::engine::reserve_for(&mut self.slots, all)?;
        crate::engine::reserve_for(&mut self.free, all)?;
        let more = all.saturating_sub(self.retired.len());
        self.retired.try_reserve(more)
    }

    /// `None`: the device's are all in use. There is [room](Self::try_reserve).
    pub(crate) fn insert(&mut self, vector: AddressVector, pd: Pd) -> Option<AhNumber> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() >= MAX_AH as usize => return None,
            None => {
                self.slots.push((0, None));
                self.slots.len() as u32 - 1
            }
        };
        let (generation, slot) = &mut self.slots[place as usize];
        *slot = Some(Entry {
            vector,
            pd,
            retired: false,
            paths: Vec::new(),
        });
        Some(AhNumber(*generation << PLACE_BITS | place))
    }

    fn slot(&mut self, number: AhNumber) -> Option<&mut Option<Entry>> {
        let place = (number.0 & ((1 << PLACE_BITS) - 1)) as usize;
        let (generation, slot) = self.slots.get_mut(place)?;
        (*generation == number.0 >> PLACE_BITS).then_some(slot)
    }

    /// The protection domain of a live one.
    pub(crate) fn pd(&self, number: AhNumber) -> Option<Pd> {
        let place = (number.0 & ((1 << PLACE_BITS) - 1)) as usize;
        let (generation, slot) = self.slots.get(place)?;
        let entry = slot.as_ref().filter(|entry| !entry.retired)?;
        (*generation == number.0 >> PLACE_BITS).then_some(entry.pd)
    }

    /// The path to a queue pair behind this address; `None`: there is none now.
    #[inline]
    pub(crate) fn path(&mut self, number: AhNumber, qpn: u32, link: &mut Port) -> Option<PathId> {
        let entry = self.slot(number)?.as_mut()?;
        let range = range_of(qpn);
        match entry.paths.binary_search_by_key(&range, |(r, _)| *r) {
            Ok(place) => Some(entry.paths[place].1),
            Err(place) => entry.open(place, range, qpn, link),
        }
    }

    /// Gives one up. Work requests that name it may be queued before these marks: queue pair, and
    /// PSN of the first one behind them.
    pub(crate) fn retire(&mut self, number: AhNumber, marks: Vec<(u32, Psn)>) {
        if let Some(Some(entry)) = self.slot(number) {
            entry.retired = true;
            self.retired.push_back(Retired { number, marks });
        }
    }

    /// Something waits for [`AhTable::sweep`].
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Frees what was given up as far as no queued work request names it any more: `is_past` says
    /// of a queue pair whether all its sends before a mark have left.
    pub(crate) fn sweep(&mut self, link: &mut Port, mut is_past: impl FnMut(u32, Psn) -> bool) {
        while let Some(number) = self.next_unnamed(&mut is_past) {
            self.free(number, link);
        }
    }

    fn next_unnamed(&mut self, is_past: &mut impl FnMut(u32, Psn) -> bool) -> Option<AhNumber> {
        let oldest = self.retired.front_mut()?;
        oldest.marks.retain(|(qpn, mark)| !is_past(*qpn, *mark));
        // What keeps one back keeps back those that were given up after it.
        if !oldest.marks.is_empty() {
            return None;
        }
        self.retired.pop_front().map(|oldest| oldest.number)
    }

    fn free(&mut self, number: AhNumber, link: &mut Port) {
        let place = number.0 & ((1 << PLACE_BITS) - 1);
        let Some((generation, slot)) = self.slots.get_mut(place as usize) else {
            return;
        };
        if let Some(entry) = slot.take() {
            for (_, path) in entry.paths {
                link.release_path(path);
            }
            *generation = (*generation + 1) & ((1 << (32 - PLACE_BITS)) - 1);
            self.free.push(place);
        }
    }
}

impl Entry {
    #[cold]
    fn open(&mut self, place: usize, range: u32, qpn: u32, link: &mut Port) -> Option<PathId> {
        if self.paths.len() >= PATHS {
            let by_memory = |path| link.is_by_memory(path);
            let other = self.paths.iter().find(|(_, path)| !by_memory(*path));
            if other.is_some() || self.paths.len() >= PATHS_BY_MEMORY {
                return other.or(self.paths.first()).map(|(_, path)| *path);
            }
        }
        if reserve::is_short() {
            return self.paths.first().map(|(_, path)| *path);
        }
        let path = link.path(&self.vector.towards(qpn)).ok()?;
        self.paths.insert(place, (range, path));
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    //! An address handle is good until it is given up, and its place is another's only when nothing
    //! queued names it.

    use rnic_link::IbPath;

    use super::*;

    fn vector() -> AddressVector {
        AddressVector::Ib(IbPath {
            local_lid: 1,
            remote_lid: 2,
            sl: 0,
        })
    }

    #[test]
    fn what_is_queued_later_keeps_no_handle_back() {
        let mut ahs = AhTable::default();
        let handles = [(); 3].map(|()| ahs.insert(vector(), Pd(1)).expect("room"));
        let [first, second, third] = handles;
        // Queue pair 5 is at PSN 100 with ten queued, 6 at the end of the circle with two.
        let (five, six) = (Psn::new(110), Psn::new(0xff_ffff).add(2));
        ahs.retire(first, vec![(5, five), (6, six)]);
        ahs.retire(second, vec![(5, five.add(3))]);
        ahs.retire(third, vec![]);
        let mut at = [(5, Psn::new(109)), (6, six)];
        let freed = |ahs: &mut AhTable, at: [(u32, Psn); 2]| {
            ahs.next_unnamed(&mut |qpn, mark| {
                let (_, psn) = at.into_iter().find(|(q, _)| *q == qpn).expect("5 or 6");
                !psn.is_before(mark)
            })
        };
        assert_eq!(freed(&mut ahs, at), None);
        at[0].1 = Psn::new(112);
        assert_eq!(freed(&mut ahs, at), Some(first));
        assert_eq!(freed(&mut ahs, at), None);
        at[0].1 = Psn::new(113);
        assert_eq!(freed(&mut ahs, at), Some(second));
        assert_eq!(freed(&mut ahs, at), Some(third));
        assert!(!ahs.has_retired());
    }

    #[test]
    fn what_was_given_up_is_refused_though_it_is_still_there() {
        let mut ahs = AhTable::default();
        let (pd, other) = (Pd(1), Pd(2));
        let first = ahs.insert(vector(), pd).expect("room");
        assert_eq!(ahs.pd(first), Some(pd));
        ahs.retire(first, Vec::new());
        assert_eq!(ahs.pd(first), None);
        assert!(ahs.has_retired());
        let second = ahs.insert(vector(), other).expect("room");
        assert_ne!(first, second);
        assert_eq!((ahs.pd(first), ahs.pd(second)), (None, Some(other)));
        assert_eq!(ahs.pd(AhNumber(second.0 + 1)), None);
        assert_eq!(ahs.pd(AhNumber(second.0 | 1 << PLACE_BITS)), None);
    }
}
