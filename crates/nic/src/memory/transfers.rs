//! Copies by key: a grant, then the copy.

use rnic_transport::{AtomicOp, LocalFault, Pd, RemoteAccess, RemoteFault};

use super::MemoryTable;

impl MemoryTable {
    pub(crate) fn read_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), LocalFault> {
        let place = self.grant_local(pd, key, va, out.len() as u64, false)?;
        Ok(place.read(out)?)
    }

    pub(crate) fn write_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        let place = self.grant_local(pd, key, va, data.len() as u64, true)?;
        Ok(place.write(data)?)
    }

    pub(crate) fn read_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), RemoteFault> {
        let len = out.len() as u64;
        let place = self.grant_remote(pd, qpn, key, va, len, RemoteAccess::Read)?;
        Ok(place.read(out)?)
    }

    pub(crate) fn write_remote(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        data: &[u8],
    ) -> Result<(), RemoteFault> {
        let len = data.len() as u64;
        let place = self.grant_remote(pd, qpn, key, va, len, RemoteAccess::Write)?;
        Ok(place.write(data)?)
    }

    pub(crate) fn atomic_write(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault> {
        let place = self.grant_remote(pd, qpn, key, va, 8, RemoteAccess::Write)?;
        Ok(place.store(value)?)
    }

    /// Sees to it that what was written to `range`, or to all of the region, is placed as `access` says: one of the two
    /// kinds of FLUSH.
    pub(crate) fn flush(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        range: Option<(u64, u32)>,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        let (va, len) = match (range, self.get(key)) {
            (Some((va, len)), _) => (va, u64::from(len)),
            (None, Some(entry)) => (entry.iova, entry.len),
            (None, None) => return Err(RemoteFault::UnknownKey),
        };
        let place = self.grant_remote(pd, qpn, key, va, len, access)?;
        match access {
            RemoteAccess::FlushPersistent => place.make_persistent(len)?,
            _ => place.make_visible(),
        }
        Ok(())
    }

    pub(crate) fn atomic(
        &self,
        pd: Pd,
        qpn: u32,
        key: u32,
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, RemoteFault> {
        let place = self.grant_remote(pd, qpn, key, va, 8, RemoteAccess::Atomic)?;
        Ok(place.atomic(op)?)
    }
}
