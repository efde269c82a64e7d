//! Who may touch what: every access by key is decided here.

use rnic_transport::{LocalFault, Pd, RemoteAccess, RemoteFault};

use super::copies::Place;
use super::fault::Fault;
use super::table::{Entry, Role};
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
        if !matches!(entry.role, Role::Region { .. }) {
            return Err(Fault::UnknownKey);
        }
        if entry.pd != pd {
            return Err(Fault::OtherPd);
        }
        let place = Self::place(entry, va, len)?;
        if write && !entry.access.contains(Access::LOCAL_WRITE) {
            return Err(Fault::NoRight);
        }
        Ok(place)
    }

    /// Peers name regions and bound windows. A type-2 window is bound to a queue pair as well and opens for that one
    /// alone (type 2B, IBTA 10.6.7.2.3).
    #[inline]
    pub(super) fn grant_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<Place, Fault> {
        let entry = self.get(key).ok_or(Fault::UnknownKey)?;
        match entry.role {
            Role::Region { .. } => {}
            Role::Window { bound: None, .. } => return Err(Fault::UnknownKey),
            Role::Window {
                bound: Some(ref bound),
                ..
            } => {
                if bound.qpn.is_some_and(|owner| owner != qpn) {
                    return Err(Fault::NoRight);
                }
            }
        }
        if entry.pd != pd {
            return Err(Fault::OtherPd);
        }
        let place = Self::place(entry, va, len)?;
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
        Ok(self.grant_remote(pd, qpn, key, va, len, access).map(drop)?)
    }
}
