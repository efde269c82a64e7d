//! Memory regions in the table: entered, changed, removed.

use rnic_transport::Pd;

use super::copies::Backing;
use super::table::{Entry, Role};
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
            role: Role::Region { windows: 0 },
        }
    }
}

/// A region or what is bound to it is in use: so many windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowsBound(pub(crate) u32);

impl MemoryTable {
    /// Enters a region and gives its key; `None` if the table is full.
    ///
    /// # Safety
    /// Unless `paged`, `[base, base + len)` is valid for reads, and for writes if `access` has any write right, until
    /// [`MemoryTable::remove`] of the key, or [`MemoryTable::change`], has returned. If `paged`, whoever owns what lies
    /// in that range accepts that it is read, and written if `access` says so.
    pub(crate) unsafe fn insert(&mut self, spec: RegionSpec) -> Option<u32> {
        self.enter(|key| spec.entry(key))
    }

    /// Enters a region that reads as zeros and swallows what is written, for local work requests.
    pub(crate) fn insert_null(&mut self, pd: Pd) -> Option<u32> {
        self.enter(|key| Entry {
            key,
            pd,
            iova: 0,
            len: u64::MAX,
            base: 0,
            access: Access::LOCAL_WRITE,
            backing: Backing::Null,
            role: Role::Region { windows: 0 },
        })
    }

    /// Makes a region another one with the same key (`ibv_rereg_mr(3)`).
    ///
    /// # Errors
    /// Windows are bound to it.
    ///
    /// # Safety
    /// As [`MemoryTable::insert`].
    pub(crate) unsafe fn change(&mut self, key: u32, spec: RegionSpec) -> Result<(), WindowsBound> {
        self.windows_bound(key)?;
        if let Some(entry) = self.get_mut(key) {
            *entry = spec.entry(key);
        }
        Ok(())
    }

    /// The region grants nothing any more; its key stays taken.
    ///
    /// # Errors
    /// Windows are bound to it, which go on granting access to its memory: nothing happened.
    pub(crate) fn disable(&mut self, key: u32) -> Result<(), WindowsBound> {
        self.windows_bound(key)?;
        if let Some(entry) = self.get_mut(key) {
            entry.len = 0;
            entry.access = Access(0);
        }
        Ok(())
    }

    /// `Err` if windows are bound to the region.
    pub(crate) fn windows_bound(&self, key: u32) -> Result<(), WindowsBound> {
        match self.get(key) {
            Some(Entry {
                role: Role::Region { windows },
                ..
            }) if *windows > 0 => Err(WindowsBound(*windows)),
            _ => Ok(()),
        }
    }

    /// Revokes a region's key.
    ///
    /// # Errors
    /// Windows are bound to it, which go on granting access to its memory: nothing happened.
    pub(crate) fn remove(&mut self, key: u32) -> Result<(), WindowsBound> {
        self.windows_bound(key)?;
        if self.get(key).is_some() {
            self.take(key::index(key));
        }
        Ok(())
    }

    /// The key and length of a region of `pd`, by its index.
    pub(crate) fn find_region(&self, pd: Pd, index: u32) -> Option<(u32, u64)> {
        let found = self.entries().find(|(own, _)| *own == index)?.1;
        let region = matches!(found.role, Role::Region { .. }) && found.pd == pd;
        region.then_some((found.key, found.len))
    }

    /// Revokes a region's key, and what is granted through windows of it.
    pub(crate) fn remove_with_windows(&mut self, key: u32) {
        if self.remove(key).is_ok() {
            return;
        }
        let region = key::index(key);
        let windows: Vec<u32> = self
            .entries()
            .filter(|(_, entry)| {
                matches!(entry.role, Role::Window { bound: Some(ref b), .. } if b.region == region)
            })
            .map(|(index, _)| index)
            .collect();
        for window in windows {
            self.unbind(window);
        }
        self.take(region);
    }
}
