//! Who may touch what: every access by key is decided here.

use rnic_transport::{LocalFault, Pd, RemoteAccess, RemoteFault};

use super::copies::Place;
use super::fault::Fault;
use super::table::Entry;
use super::{Access, MemoryTable};

impl MemoryTable {
    /// The bytes `[va, va + len)` of an entry, as far as they lie within it.
    #[inline]
    pub(super) fn place(entry: &Entry, va: u64, len: u64) -> Result<Place, Fault> {
        let offset = va.checked_sub(entry.iova).ok_or(Fault::OutOfRange)?;
        match offset.checked_add(len) {
            Some(end) if end <= entry.len => Ok(Place {
                at: entry.base.wrapping_add(offset as usize),
                backing: entry.backing,
            }),
            _ => Err(Fault::OutOfRange),
        }
    }

    /// Local work requests name regions only: a window has no lkey.
    #[inline]
    pub(super) fn grant_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        len: u64,
        write: bool,
    ) -> Result<Place, Fault> {
        let entry = self.get(key).ok_or(Fault::UnknownKey)?;
        if entry.pd != pd {
            return Err(Fault::OtherPd);
        }
        let place = Self::place(entry, va, len)?;
        if write && !entry.access.contains(Access::LOCAL_WRITE) {
            return Err(Fault::NoRight);
        }
        Ok(place)
    }

    /// Lets `use_it` at what a peer is granted. Peers name regions and bound windows.
    #[inline]
    pub(super) fn reach_remote<T, E: From<Fault>>(
        &self,
        pd: Pd,
        qpn: u32,
        (key, va, len): (u32, u64, u64),
        access: RemoteAccess,
        use_it: impl FnOnce(Place) -> Result<T, E>,
    ) -> Result<T, E> {
        let grant = |entry: &Entry| grant_remote(entry, pd, va, len, access);
        match self.get(key) {
            Some(entry) => use_it(grant(entry)?),
            None => self.windows.pass(qpn, key, grant, use_it),
        }
    }

    pub(crate) fn check_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        len: u64,
        write: bool,
    ) -> Result<(), LocalFault> {
        Ok(self.grant_local(pd, key, va, len, write).map(drop)?)
    }

    pub(crate) fn check_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        let allowed = |_| Ok::<(), Fault>(());
        Ok(self.reach_remote(pd, qpn, (key, va, len), access, allowed)?)
    }
}

#[inline]
pub(super) fn grant_remote(
    entry: &Entry,
    pd: Pd,
    va: u64,
    len: u64,
    access: RemoteAccess,
) -> Result<Place, Fault> {
    if entry.pd != pd {
        return Err(Fault::OtherPd);
    }
    let place = MemoryTable::place(entry, va, len)?;
    let right = match access {
        RemoteAccess::Read => Access::REMOTE_READ,
        RemoteAccess::Write => Access::REMOTE_WRITE,
        RemoteAccess::Atomic => Access::REMOTE_ATOMIC,
        RemoteAccess::FlushGlobal => Access::FLUSH_GLOBAL,
        RemoteAccess::FlushPersistent => Access::FLUSH_PERSISTENT,
    };
    if entry.access.contains(right) {
        Ok(place)
    } else {
        Err(Fault::NoRight)
    }
}
