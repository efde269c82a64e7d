//! Memory windows (IBTA 10.6.7): allocated, bound, invalidated.
//!
//! Regions are in the table of each shard, windows in one place for all of them, behind a lock of
//! their own, since whoever binds or closes one does so for the others, too. The lock is held
//! during each access by way of a window: when a window was closed, no copy by way of it is in
//! flight in any shard. Nothing else is locked under it.

use std::collections::{BTreeSet, HashSet, TryReserveError};

use rnic_transport::{BindFault, BindWindow, Pd, RemoteFault};
use rustix_futex_sync::RwLock;

use super::copies::{Backing, Place};
use super::fault::Fault;
use super::index_table::IndexTable;
use super::region::WindowsBound;
use super::table::{CAPACITY, Entry, RegionFacts};
use super::{Access, MemoryTable, key};

/// All windows of the process, by key, and which regions they are bound to.
#[derive(Debug, Default)]
pub(crate) struct Windows(RwLock<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: IndexTable<Window>,
    /// Bound type-2 windows: queue pair and index.
    by_qpn: BTreeSet<(u32, u32)>,
    /// How many are bound to a region, by its index; none is no entry.
    bound: IndexTable<u32>,
    /// Regions, by index, to which none may be bound any more, or for the moment.
    closed: HashSet<u32>,
}

#[derive(Debug)]
struct Window {
    /// What it opens; nothing unless it is bound.
    open: Entry,
    type_2: bool,
    /// `None`: nothing can be reached through it.
    bound: Option<Bound>,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// Index of the region.
    region: u32,
    /// The queue pair that may use it and invalidate it; `None`: type 1, all of the protection
    /// domain.
    qpn: Option<u32>,
}

impl Windows {
    pub(crate) fn len(&self) -> usize {
        self.0.read().entries.len()
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.0.read().entries.has(index)
    }

    /// What a key stands for, for people.
    pub(super) fn facts(&self, key: u32) -> Option<RegionFacts> {
        self.0.read().get(key).map(|window| RegionFacts {
            window: true,
            ..RegionFacts::of(&window.open)
        })
    }

    /// First address and length of what the window of that key opens.
    pub(super) fn range(&self, key: u32) -> Option<(u64, u64)> {
        let inner = self.0.read();
        let window = inner.get(key)?;
        Some((window.open.iova, window.open.len))
    }

    /// Lets `access` at what queue pair `qpn` is granted by way of a window; it cannot be closed
    /// meanwhile.
    #[cold]
    pub(super) fn pass<T, E: From<Fault>>(
        &self,
        qpn: u32,
        key: u32,
        grant: impl FnOnce(&Entry) -> Result<Place, Fault>,
        access: impl FnOnce(Place) -> Result<T, E>,
    ) -> Result<T, E> {
        let inner = self.0.read();
        let window = inner.get(key).ok_or(Fault::UnknownKey)?;
        let bound = window.bound.ok_or(Fault::UnknownKey)?;
        // A type-2 window opens for its queue pair alone (type 2B, IBTA 10.6.7.2.3).
        if bound.qpn.is_some_and(|owner| owner != qpn) {
            return Err(Fault::NoRight.into());
        }
        access(grant(&window.open)?)
    }

    /// From now on no window can be bound to the region, until [`Windows::reopen`].
    ///
    /// # Errors
    /// Windows are bound to it: nothing happened.
    pub(crate) fn close(&self, region: u32) -> Result<(), WindowsBound> {
        let mut inner = self.0.write();
        inner.none_bound(region)?;
        inner.closed.insert(key::index(region));
        Ok(())
    }

    /// The same; windows that are bound to it are closed.
    pub(crate) fn close_all_of(&self, region: u32) {
        let mut inner = self.0.write();
        let region = key::index(region);
        let bound: Vec<u32> = inner
            .entries
            .iter()
            .filter(|(_, window)| window.bound.is_some_and(|bound| bound.region == region))
            .map(|(index, _)| index)
            .collect();
        for window in bound {
            inner.unbind(window);
        }
        inner.closed.insert(region);
    }

    /// What the tables say of the region counts again.
    pub(crate) fn reopen(&self, region: u32) {
        self.0.write().closed.remove(&key::index(region));
    }

    /// `Err` if windows are bound to the region.
    pub(crate) fn none_bound(&self, region: u32) -> Result<(), WindowsBound> {
        self.0.read().none_bound(region)
    }

    /// Removes a window, bound or not; `key` may be any that it had.
    pub(crate) fn remove(&self, key: u32) {
        let mut inner = self.0.write();
        let index = key::index(key);
        inner.unbind(index);
        inner.entries.remove(index);
    }

    /// Closes all type-2 windows of a queue pair that is destroyed or reset: they were bound to it.
    pub(crate) fn close_those_of(&self, qpn: u32) {
        let mut inner = self.0.write();
        while let Some(&(_, index)) = inner.by_qpn.range((qpn, 0)..=(qpn, u32::MAX)).next() {
            inner.unbind(index);
        }
    }

    /// Revokes all keys (process exit).
    pub(crate) fn clear(&self) {
        *self.0.write() = Inner::default();
    }

    #[cfg(test)]
    pub(super) fn belongs_to_a_queue_pair(&self) -> bool {
        !self.0.read().by_qpn.is_empty()
    }
}

impl Inner {
    fn get(&self, key: u32) -> Option<&Window> {
        let window = self.entries.get(key::index(key))?;
        (window.open.key == key).then_some(window)
    }

    fn none_bound(&self, region: u32) -> Result<(), WindowsBound> {
        match self.bound.get(key::index(region)) {
            Some(windows) => Err(WindowsBound(*windows)),
            None => Ok(()),
        }
    }

    /// Closes a window.
    fn unbind(&mut self, index: u32) {
        let Some(window) = self.entries.get_mut(index) else {
            return;
        };
        let Some(Bound { region, qpn }) = window.bound.take() else {
            return;
        };
        window.open.len = 0;
        window.open.access = Access(0);
        if let Some(qpn) = qpn {
            self.by_qpn.remove(&(qpn, index));
        }
        if let Some(windows) = self.bound.get_mut(region) {
            *windows -= 1;
            if *windows == 0 {
                self.bound.remove(region);
            }
        }
    }
}

impl MemoryTable {
    /// Makes room for one window more, bound or not.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn reserve_window(&self) -> Result<(), TryReserveError> {
        let mut inner = self.windows.0.write();
        inner.entries.try_reserve(1)?;
        let unbound = (inner.entries.len() + 1).saturating_sub(inner.bound.len());
        inner.bound.try_reserve(unbound)
    }

    /// Enters a window that is bound to nothing and gives its key; `None` if there are too many. To
    /// be asked of the first shard's table, which gives out the keys.
    pub(crate) fn insert_window(&mut self, pd: Pd, type_2: bool) -> Option<u32> {
        if self.windows.len() >= CAPACITY {
            return None;
        }
        let key = self.fresh_key();
        let open = Entry {
            key,
            pd,
            iova: 0,
            len: 0,
            base: 0,
            access: Access(0),
            backing: Backing::Pinned,
        };
        let window = Window {
            open,
            type_2,
            bound: None,
        };
        self.windows
            .0
            .write()
            .entries
            .insert(key::index(key), window);
        Some(key)
    }

    /// Executes a bind of queue pair `qpn` (IBTA 10.6.7.2.2, 11.4.1.1): afterwards the window opens
    /// what it says, under the new key. Nothing changes if it is refused.
    pub(crate) fn bind(&self, pd: Pd, qpn: u32, bind: &BindWindow) -> Result<(), BindFault> {
        let index = key::index(bind.rkey);
        let mut inner = self.windows.0.write();
        let window = inner.entries.get(index).ok_or(BindFault::UnknownWindow)?;
        if window.open.pd != pd {
            return Err(BindFault::OtherPd);
        }
        if window.type_2 && window.bound.is_some() {
            return Err(BindFault::AlreadyBound);
        }
        let type_2 = window.type_2;
        if bind.length == 0 {
            inner.unbind(index);
            if let Some(window) = inner.entries.get_mut(index) {
                window.open.key = bind.rkey;
            }
            return Ok(());
        }
        let (region, base, backing) = self.bindable(pd, bind)?;
        if inner.closed.contains(&region) {
            return Err(BindFault::UnknownRegion);
        }
        inner.unbind(index);
        let qpn = type_2.then_some(qpn);
        match inner.bound.get_mut(region) {
            Some(windows) => *windows += 1,
            None => inner.bound.insert(region, 1),
        }
        if let Some(qpn) = qpn {
            inner.by_qpn.insert((qpn, index));
        }
        if let Some(window) = inner.entries.get_mut(index) {
            window.bound = Some(Bound { region, qpn });
            window.open = Entry {
                key: bind.rkey,
                pd,
                iova: if bind.zero_based { 0 } else { bind.addr },
                len: bind.length,
                base,
                access: access_of(bind),
                backing,
            };
        }
        Ok(())
    }

    /// The memory that a bind asks for: index of the region, where it is, how it is reached.
    fn bindable(&self, pd: Pd, bind: &BindWindow) -> Result<(u32, usize, Backing), BindFault> {
        let region = self.get(bind.lkey).ok_or(BindFault::UnknownRegion)?;
        if matches!(region.backing, Backing::Null | Backing::Foreign) {
            return Err(BindFault::UnknownRegion);
        }
        if region.pd != pd {
            return Err(BindFault::RegionOfOtherPd);
        }
        if !region.access.contains(Access::MW_BIND) {
            return Err(BindFault::NoBindRight);
        }
        if (bind.write || bind.atomic) && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(BindFault::NoLocalWrite);
        }
        let place = MemoryTable::place(region, bind.addr, bind.length)
            .map_err(|_| BindFault::OutOfRange)?;
        Ok((key::index(bind.lkey), place.at, place.backing))
    }

    /// Closes a type-2 window of queue pair `qpn`, on behalf of a local work request (IBTA
    /// 10.6.7.2.6).
    pub(crate) fn invalidate(&self, pd: Pd, qpn: u32, rkey: u32) -> Result<(), BindFault> {
        // A region of `ibv_reg_mr` lives until it is deregistered.
        if self.get(rkey).is_some() {
            return Err(BindFault::InvalidatesRegion);
        }
        let mut inner = self.windows.0.write();
        let window = inner.get(rkey).ok_or(BindFault::UnknownWindow)?;
        if !window.type_2 {
            return Err(BindFault::InvalidatesType1);
        }
        let bound = window.bound.ok_or(BindFault::UnknownWindow)?;
        if window.open.pd != pd {
            return Err(BindFault::OtherPd);
        }
        if bound.qpn != Some(qpn) {
            return Err(BindFault::OtherQp);
        }
        inner.unbind(key::index(rkey));
        Ok(())
    }

    /// The same on behalf of a peer's SEND with invalidate.
    pub(crate) fn invalidate_by_peer(
        &self,
        pd: Pd,
        qpn: u32,
        rkey: u32,
    ) -> Result<(), RemoteFault> {
        self.invalidate(pd, qpn, rkey).map_err(|fault| match fault {
            BindFault::OtherPd => RemoteFault::OtherPd,
            BindFault::UnknownWindow => RemoteFault::UnknownKey,
            _ => RemoteFault::NoRight,
        })
    }
}

fn access_of(bind: &BindWindow) -> Access {
    let right = |given, right: Access| if given { right } else { Access(0) };
    right(bind.read, Access::REMOTE_READ)
        | right(bind.write, Access::REMOTE_WRITE)
        | right(bind.atomic, Access::REMOTE_ATOMIC)
}
