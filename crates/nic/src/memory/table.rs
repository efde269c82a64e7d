//! The table itself: keys, and what each of them stands for.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

use rnic_transport::Pd;

use super::Access;
use super::copies::Backing;
use super::foreign::Reach;
use super::key::{self, IndexHasher};
use crate::report::RegionFacts;

/// What a key stands for. Regions and bound windows are alike where it matters for speed: a range and rights.
#[derive(Debug)]
pub(super) struct Entry {
    /// The whole key: index and tag.
    pub(super) key: u32,
    pub(super) pd: Pd,
    /// Address that work requests and peers use for the first byte.
    pub(super) iova: u64,
    pub(super) len: u64,
    /// Where the first byte is in this process.
    pub(super) base: usize,
    pub(super) access: Access,
    pub(super) backing: Backing,
    pub(super) role: Role,
}

#[derive(Debug)]
pub(super) enum Role {
    Region {
        /// Windows that are bound to it.
        windows: u32,
    },
    Window {
        type_2: bool,
        /// `None`: nothing can be reached through it.
        bound: Option<Bound>,
    },
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Index of the region.
    pub(super) region: u32,
    /// The queue pair that may use it and invalidate it; `None`: type 1, all of the protection domain.
    pub(super) qpn: Option<u32>,
}

/// All memory regions and windows of the process, by key. A region's lkey and rkey are the same number.
#[derive(Debug, Default)]
pub(crate) struct MemoryTable {
    entries: HashMap<u32, Entry, BuildHasherDefault<IndexHasher>>,
    /// Bound type-2 windows: queue pair and index.
    pub(super) by_qpn: BTreeSet<(u32, u32)>,
    /// How regions of other processes are reached, by index.
    pub(super) reaches: HashMap<u32, Reach>,
    /// Index retired last, so that a fresh key never equals it.
    last_removed: u32,
}

/// Entries at most: half of all indices, so that a free one is found soon.
const CAPACITY: usize = 1 << 23;

impl MemoryTable {
    /// Regions and bound windows.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn get(&self, key: u32) -> Option<&Entry> {
        self.entries
            .get(&key::index(key))
            .filter(|entry| entry.key == key)
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Entry> {
        self.entries
            .get_mut(&key::index(key))
            .filter(|entry| entry.key == key)
    }

    /// What a key stands for, for people.
    pub(crate) fn facts(&self, key: u32) -> Option<RegionFacts> {
        let entry = self.get(key)?;
        Some(RegionFacts {
            pd: entry.pd.0,
            addr: entry.iova,
            length: entry.len,
            access: entry.access,
        })
    }

    /// By index, whatever the tag is now.
    pub(super) fn at_index(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&index)
    }

    /// Enters what `make` makes of a fresh key, and gives that key; `None` if the table is full.
    pub(super) fn enter(&mut self, make: impl FnOnce(u32) -> Entry) -> Option<u32> {
        if self.entries.len() >= CAPACITY {
            return None;
        }
        loop {
            let key = key::random();
            let index = key::index(key);
            if index == self.last_removed || self.entries.contains_key(&index) {
                continue;
            }
            self.entries.insert(index, make(key));
            return Some(key);
        }
    }

    /// Enters under a key that somebody else chose and nobody here has.
    pub(super) fn enter_as(&mut self, key: u32, entry: Entry) {
        self.entries.insert(key::index(key), entry);
    }

    pub(super) fn take(&mut self, index: u32) -> Option<Entry> {
        self.last_removed = index;
        self.entries.remove(&index)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(index, entry)| (*index, entry))
    }

    /// Revokes all keys (process exit).
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.by_qpn.clear();
        self.reaches.clear();
    }
}
