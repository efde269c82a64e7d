//! Copies by key: a grant, then the copy.

use rnic_transport::{AtomicOp, LocalFault, Misplaced, Pd, RemoteAccess, RemoteFault};

use super::copies::{Backing, PacketMemory, Place, fetch};
use super::fault::Fault;
use super::foreign::Reach;
use super::{MemoryTable, key};

impl MemoryTable {
    #[inline]
    fn read_at(&self, key: u32, place: Place, out: &mut [u8]) -> Result<(), Fault> {
        match place.backing {
            Backing::Foreign => self.reach(key)?.read(place.at, out),
            _ => place.read(out),
        }
    }

    #[inline]
    fn write_at(&self, key: u32, place: Place, data: &[u8]) -> Result<(), Fault> {
        match place.backing {
            Backing::Foreign => self.reach(key)?.write(place.at, data),
            _ => place.write(data),
        }
    }

    fn pull_at(
        &self,
        key: u32,
        place: Place,
        packet: &dyn PacketMemory,
        (from, len): (usize, usize),
    ) -> Result<(), Misplaced<Fault>> {
        if place.backing != Backing::Foreign {
            return place.pull(packet, from, len);
        }
        let mut buffer = vec![0; len];
        if !fetch(packet, from, &mut buffer) {
            return Err(Misplaced::Lost);
        }
        Ok(self.write_at(key, place, &buffer)?)
    }

    #[cold]
    fn reach(&self, key: u32) -> Result<&Reach, Fault> {
        self.reaches.get(&key::index(key)).ok_or(Fault::Unmapped)
    }

    pub(crate) fn read_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), LocalFault> {
        let place = self.grant_local(pd, key, va, out.len() as u64, false)?;
        Ok(self.read_at(key, place, out)?)
    }

    pub(crate) fn write_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        let place = self.grant_local(pd, key, va, data.len() as u64, true)?;
        Ok(self.write_at(key, place, data)?)
    }

    /// [`MemoryTable::write_local`] of `len` bytes that lie in `packet` from `from` on.
    pub(crate) fn pull_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        packet: &dyn PacketMemory,
        (from, len): (usize, usize),
    ) -> Result<(), Misplaced<LocalFault>> {
        let granted = self.grant_local(pd, key, va, len as u64, true);
        let place = granted.map_err(LocalFault::from)?;
        self.pull_at(key, place, packet, (from, len))
            .map_err(refused)
    }

    pub(crate) fn read_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), RemoteFault> {
        let named = (key, va, out.len() as u64);
        let read = |place| self.read_at(key, place, out);
        Ok(self.reach_remote(pd, qpn, named, RemoteAccess::Read, read)?)
    }

    pub(crate) fn write_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        data: &[u8],
    ) -> Result<(), RemoteFault> {
        let named = (key, va, data.len() as u64);
        let write = |place| self.write_at(key, place, data);
        Ok(self.reach_remote(pd, qpn, named, RemoteAccess::Write, write)?)
    }

    /// [`MemoryTable::write_remote`] of `len` bytes that lie in `packet` from `from` on.
    pub(crate) fn pull_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        packet: &dyn PacketMemory,
        (from, len): (usize, usize),
    ) -> Result<(), Misplaced<RemoteFault>> {
        let named = (key, va, len as u64);
        let pull = |place| self.pull_at(key, place, packet, (from, len));
        self.reach_remote(pd, qpn, named, RemoteAccess::Write, pull)
            .map_err(refused)
    }

    pub(crate) fn atomic_write(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault> {
        let store = |place: Place| place.store(value);
        Ok(self.reach_remote(pd, qpn, (key, va, 8), RemoteAccess::Write, store)?)
    }

    /// Sees to it that what was written to `range`, or to all of the region, is placed as `access`
    /// says: one of the two kinds of FLUSH.
    pub(crate) fn flush(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        range: Option<(u64, u32)>,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        let whole = || match self.get(key) {
            Some(entry) => Some((entry.iova, entry.len)),
            None => self.windows.range(key),
        };
        let range = range.map(|(va, len)| (va, u64::from(len)));
        let (va, len) = range.or_else(whole).ok_or(RemoteFault::UnknownKey)?;
        let flush = |place: Place| match access {
            RemoteAccess::FlushPersistent => place.make_persistent(len),
            _ => {
                place.make_visible();
                Ok(())
            }
        };
        Ok(self.reach_remote(pd, qpn, (key, va, len), access, flush)?)
    }

    pub(crate) fn atomic(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, RemoteFault> {
        let execute = |place: Place| place.atomic(op);
        Ok(self.reach_remote(pd, qpn, (key, va, 8), RemoteAccess::Atomic, execute)?)
    }
}

fn refused<F: From<Fault>>(why: Misplaced<Fault>) -> Misplaced<F> {
    match why {
        Misplaced::Refused(fault) => Misplaced::Refused(fault.into()),
        Misplaced::Lost => Misplaced::Lost,
    }
}
