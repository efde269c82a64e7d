//! Memory regions in the table: entered, changed, removed.

use rnic_transport::Pd;

use super::copies::Backing;
use super::table::Entry;
use super::{Access, MemoryTable, key};

/// What a region covers, and with which rights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionSpec {
    pub(crate) pd: Pd,
    /// Where the first byte is in this process.
    pub(crate) base: usize,
    pub(crate) len: u64,
    /// Address that work requests and peers use for the first byte.
    pub(crate) iova: u64,
    pub(crate) access: Access,
    /// Whatever is there is reached in the guarded way ([`Access::ON_DEMAND`]).
    pub(crate) paged: bool,
}

impl RegionSpec {
    fn entry(self, key: u32) -> Entry {
        Entry {
            key,
            pd: self.pd,
            iova: self.iova,
            len: self.len,
            base: self.base,
            access: self.access,
            backing: if self.paged {
                Backing::Paged
            } else {
                Backing::Pinned
            },
        }
    }
}

/// A region or what is bound to it is in use: so many windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowsBound(pub(crate) u32);

/// A region is in the table of each shard of the engine: the table of the first one chooses the
/// key, and has it first and last. Whoever changes or removes one closes it to windows before
/// ([`super::Windows::close`]).
impl MemoryTable {
    /// Enters a region and gives its key; `None` if the table is full.
    ///
    /// # Safety
    /// Unless `paged`, `[base, base + len)` is valid for reads, and for writes if `access` has any
    /// write right, until [`MemoryTable::remove`] or [`MemoryTable::disable`] of the key, or
    /// [`MemoryTable::change`], has returned, and windows were closed. If `paged`, whoever owns
    /// what lies in that range accepts that it is read, and written if `access` says so.
    pub(crate) unsafe fn insert(&mut self, spec: RegionSpec) -> Option<u32> {
        self.enter(|key| spec.entry(key))
    }

    /// Enters a region under the key that another shard's table has given it.
    ///
    /// # Safety
    /// As [`MemoryTable::insert`].
    pub(crate) unsafe fn insert_as(&mut self, key: u32, spec: RegionSpec) {
        self.enter_as(key, spec.entry(key));
    }

    /// Enters a region that reads as zeros and swallows what is written, for local work requests.
    pub(crate) fn insert_null(&mut self, pd: Pd) -> Option<u32> {
        self.enter(|key| null(key, pd))
    }

    /// The same under a key that another shard's table has given it.
    pub(crate) fn insert_null_as(&mut self, key: u32, pd: Pd) {
        self.enter_as(key, null(key, pd));
    }

    /// Makes a region another one with the same key (`ibv_rereg_mr(3)`).
    ///
    /// # Safety
    /// As [`MemoryTable::insert`].
    pub(crate) unsafe fn change(&mut self, key: u32, spec: RegionSpec) {
        if let Some(entry) = self.get_mut(key) {
            *entry = spec.entry(key);
        }
    }

    /// The region grants nothing any more; its key stays taken.
    pub(crate) fn disable(&mut self, key: u32) {
        if let Some(entry) = self.get_mut(key) {
            entry.len = 0;
            entry.access = Access(0);
        }
    }

    /// Revokes a region's key.
    pub(crate) fn remove(&mut self, key: u32) {
        if self.get(key).is_some() {
            self.take(key::index(key));
        }
    }

    /// The key and length of a region of `pd`, by its index.
    pub(crate) fn find_region(&self, pd: Pd, index: u32) -> Option<(u32, u64)> {
        let found = self.by_index(index)?;
        (found.pd == pd).then_some((found.key, found.len))
    }
}

fn null(key: u32, pd: Pd) -> Entry {
    Entry {
        key,
        pd,
        iova: 0,
        len: u64::MAX,
        base: 0,
        access: Access::LOCAL_WRITE,
        backing: Backing::Null,
    }
}
