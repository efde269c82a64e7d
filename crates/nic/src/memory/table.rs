//! The table itself: keys, and what each of them stands for.

use std::collections::{HashMap, TryReserveError};
use std::sync::Arc;

use rnic_transport::Pd;

use super::Access;
use super::copies::Backing;
use super::foreign::Reach;
use super::index_table::IndexTable;
use super::key;
use super::window::Windows;
use crate::host::Host;

/// What a key stands for: a range and rights.
#[derive(Clone, Debug)]
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
}

/// All memory regions of the process, by key, as one shard of the engine has them; its lock guards
/// them. A region's lkey and rkey are the same number. Windows are one for all shards.
#[derive(Debug, Default)]
pub(crate) struct MemoryTable {
    /// Whose randomness fresh keys have.
    host: Host,
    entries: IndexTable<Entry>,
    pub(super) windows: Arc<Windows>,
    /// How regions of other processes are reached, by index.
    pub(super) reaches: HashMap<u32, Reach>,
    /// Index retired last, so that a fresh key never equals it.
    last_removed: u32,
}

/// Entries at most: half of all indices, so that a free one is found soon.
pub(super) const CAPACITY: usize = 1 << 22;

impl MemoryTable {
    /// On that host.
    pub(crate) fn new(host: Host) -> MemoryTable {
        MemoryTable {
            host,
            ..MemoryTable::default()
        }
    }

    /// Regions and windows.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.windows.len()
    }

    /// The table of another shard, with the same regions and windows.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn beside(&self) -> Result<MemoryTable, TryReserveError> {
        Ok(MemoryTable {
            host: self.host.clone(),
            entries: self.entries.try_clone()?,
            windows: self.windows.clone(),
            reaches: self.reaches.clone(),
            last_removed: self.last_removed,
        })
    }

    /// The process's windows.
    pub(crate) fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    #[inline]
    pub(super) fn get(&self, key: u32) -> Option<&Entry> {
        self.entries
            .get(key::index(key))
            .filter(|entry| entry.key == key)
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut Entry> {
        self.entries
            .get_mut(key::index(key))
            .filter(|entry| entry.key == key)
    }

    /// What a key stands for, for people.
    pub(crate) fn facts(&self, key: u32) -> Option<RegionFacts> {
        match self.get(key) {
            Some(entry) => Some(RegionFacts::of(entry)),
            None => self.windows.facts(key),
        }
    }

    /// Some region or window has that index.
    pub(super) fn is_taken(&self, index: u32) -> bool {
        self.entries.has(index) || self.windows.has(index)
    }

    /// A key whose index nobody has.
    pub(super) fn fresh_key(&self) -> u32 {
        loop {
            let key = key::random(&self.host);
            let index = key::index(key);
            if index != self.last_removed && !self.is_taken(index) {
                return key;
            }
        }
    }

    /// Makes room for one entry more.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        self.entries.try_reserve(1)
    }

    /// Enters what `make` makes of a fresh key, and gives that key; `None` if the table is full.
    /// There is [room](Self::try_reserve).
    pub(super) fn enter(&mut self, make: impl FnOnce(u32) -> Entry) -> Option<u32> {
        if self.entries.len() >= CAPACITY {
            return None;
        }
        let key = self.fresh_key();
        self.entries.insert(key::index(key), make(key));
        Some(key)
    }

    /// Enters under a key that somebody else chose and nobody here has.
    pub(super) fn enter_as(&mut self, key: u32, entry: Entry) {
        self.entries.insert(key::index(key), entry);
    }

    pub(super) fn take(&mut self, index: u32) -> Option<Entry> {
        self.last_removed = index;
        self.entries.remove(index)
    }

    pub(super) fn by_index(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Key, domain, first address and length of all regions but those imported from other
    /// processes.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (u32, RegionFacts)> {
        let own = self
            .entries
            .iter()
            .filter(|(index, _)| !self.reaches.contains_key(index));
        own.map(|(_, entry)| (entry.key, RegionFacts::of(entry)))
    }

    /// Revokes all keys (process exit).
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.windows.clear();
        self.reaches.clear();
    }
}

/// A region as messages name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionFacts {
    pub(crate) pd: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    /// Where it lies in this process.
    pub(crate) base: Option<usize>,
    /// It is a memory window.
    pub(crate) window: bool,
}

impl RegionFacts {
    pub(super) fn of(entry: &Entry) -> RegionFacts {
        RegionFacts {
            pd: entry.pd.0,
            addr: entry.iova,
            length: entry.len,
            access: entry.access,
            base: match entry.backing {
                Backing::Null | Backing::Foreign => None,
                _ => Some(entry.base),
            },
            window: false,
        }
    }
}
