//! The memory table: which key grants which bytes, and the only code that touches user memory.
//!
//! All copies happen while the engine's lock is held, and so does the removal of a region: when
//! [`MemoryTable::remove`] has returned, no copy into or out of that region is in flight or will begin.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rnic_transport::{AtomicOp, LocalFault, Pd, RemoteAccess, RemoteFault};

use crate::sys;

/// Access rights; the bits of `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u32);

impl Access {
    /// The NIC may write on behalf of local work requests.
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may RDMA WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// Peers may RDMA READ.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may execute atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// Memory windows may be bound.
    pub const MW_BIND: Access = Access(16);
    /// Remote addresses count from 0.
    pub const ZERO_BASED: Access = Access(32);
    /// On-demand paging.
    pub const ON_DEMAND: Access = Access(64);
    /// Backed by huge pages.
    pub const HUGETLB: Access = Access(128);
    /// First of the optional bits, which a device may ignore (`IBV_ACCESS_OPTIONAL_FIRST`).
    pub const OPTIONAL_FIRST: Access = Access(1 << 20);
    /// Relaxed ordering: the first optional bit.
    pub const RELAXED_ORDERING: Access = Access(1 << 20);

    /// Every bit of `other` is set.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Keys are random, so they are their own hash.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*b);
        }
    }
    fn write_u32(&mut self, key: u32) {
        self.0 = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Debug)]
struct Region {
    pd: Pd,
    /// Address that work requests and peers use for the first byte.
    iova: u64,
    len: u64,
    /// Where the first byte is in this process.
    base: usize,
    access: Access,
}

/// Why a range is not granted, before it is known who asked.
enum Fault {
    UnknownKey,
    OtherPd,
    OutOfRange,
}

impl From<Fault> for LocalFault {
    fn from(fault: Fault) -> LocalFault {
        match fault {
            Fault::UnknownKey => LocalFault::UnknownKey,
            Fault::OtherPd => LocalFault::OtherPd,
            Fault::OutOfRange => LocalFault::OutOfRange,
        }
    }
}

impl From<Fault> for RemoteFault {
    fn from(fault: Fault) -> RemoteFault {
        match fault {
            Fault::UnknownKey => RemoteFault::UnknownKey,
            Fault::OtherPd => RemoteFault::OtherPd,
            Fault::OutOfRange => RemoteFault::OutOfRange,
        }
    }
}

/// All memory regions of the process, by key. A region's lkey and rkey are the same number.
#[derive(Debug, Default)]
pub(crate) struct MemoryTable {
    regions: HashMap<u32, Region, BuildHasherDefault<KeyHasher>>,
    /// Key retired last, so that a fresh one never equals it.
    last_removed: u32,
}

impl MemoryTable {
    /// Enters a region and gives its key: 32 random bits, so that peers cannot find keys by counting.
    ///
    /// # Safety
    /// `[base, base + len)` is valid for reads, and for writes if `access` has any write right, until
    /// [`MemoryTable::remove`] of the key has returned.
    pub(crate) unsafe fn insert(
        &mut self,
        pd: Pd,
        base: usize,
        len: usize,
        iova: u64,
        access: Access,
    ) -> u32 {
        loop {
            let key = sys::random_u64() as u32;
            // 0 is the value of uninitialised sge.lkey fields: it must never grant anything.
            if key == 0 || key == self.last_removed || self.regions.contains_key(&key) {
                continue;
            }
            self.regions.insert(
                key,
                Region {
                    pd,
                    iova,
                    len: len as u64,
                    base,
                    access,
                },
            );
            return key;
        }
    }

    /// Revokes a key.
    pub(crate) fn remove(&mut self, key: u32) -> bool {
        self.last_removed = key;
        self.regions.remove(&key).is_some()
    }

    /// Revokes all keys (process exit).
    pub(crate) fn clear(&mut self) {
        self.regions.clear();
    }

    fn grant(&self, pd: Pd, key: u32, va: u64, len: u64) -> Result<(&Region, usize), Fault> {
        let region = self.regions.get(&key).ok_or(Fault::UnknownKey)?;
        if region.pd != pd {
            return Err(Fault::OtherPd);
        }
        let offset = va.checked_sub(region.iova).ok_or(Fault::OutOfRange)?;
        match offset.checked_add(len) {
            Some(end) if end <= region.len => Ok((region, region.base + offset as usize)),
            _ => Err(Fault::OutOfRange),
        }
    }

    fn grant_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        len: u64,
        write: bool,
    ) -> Result<usize, LocalFault> {
        let (region, at) = self.grant(pd, key, va, len)?;
        if write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(LocalFault::NoLocalWrite);
        }
        Ok(at)
    }

    fn grant_remote(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<usize, RemoteFault> {
        let (region, at) = self.grant(pd, key, va, len)?;
        let right = match access {
            RemoteAccess::Read => Access::REMOTE_READ,
            RemoteAccess::Write => Access::REMOTE_WRITE,
            RemoteAccess::Atomic => Access::REMOTE_ATOMIC,
        };
        if region.access.contains(right) {
            Ok(at)
        } else {
            Err(RemoteFault::NoRight)
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
        self.grant_local(pd, key, va, len, write).map(drop)
    }

    pub(crate) fn read_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), LocalFault> {
        let at = self.grant_local(pd, key, va, out.len() as u64, false)?;
        copy_out(at, out);
        Ok(())
    }

    pub(crate) fn write_local(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        let at = self.grant_local(pd, key, va, data.len() as u64, true)?;
        copy_in(at, data);
        Ok(())
    }

    pub(crate) fn check_remote(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        self.grant_remote(pd, key, va, len, access).map(drop)
    }

    pub(crate) fn read_remote(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), RemoteFault> {
        let at = self.grant_remote(pd, key, va, out.len() as u64, RemoteAccess::Read)?;
        copy_out(at, out);
        Ok(())
    }

    pub(crate) fn write_remote(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        data: &[u8],
    ) -> Result<(), RemoteFault> {
        let at = self.grant_remote(pd, key, va, data.len() as u64, RemoteAccess::Write)?;
        copy_in(at, data);
        Ok(())
    }

    pub(crate) fn atomic(
        &self,
        pd: Pd,
        key: u32,
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, RemoteFault> {
        let at = self.grant_remote(pd, key, va, 8, RemoteAccess::Atomic)?;
        if at % 8 != 0 {
            // An aligned iova over an unaligned buffer: the CPU could not do it atomically.
            return Err(RemoteFault::OutOfRange);
        }
        // SAFETY: the table granted 8 bytes at `at`, which is aligned; the region is valid until removed, and
        // removal waits for the engine's lock, which the caller holds. Atomics tolerate concurrent CPU accesses.
        let cell = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        Ok(match op {
            AtomicOp::FetchAdd { add } => cell.fetch_add(add, Ordering::AcqRel),
            AtomicOp::CompareSwap { compare, swap } => cell
                .compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|seen| seen),
        })
    }
}

/// Copies granted user memory into a packet.
fn copy_out(at: usize, out: &mut [u8]) {
    // SAFETY: the table granted `out.len()` bytes at `at`; see the module's contract. `out` is a packet buffer of the
    // engine, which no user region can overlap usefully; the application may change its bytes meanwhile, as with DMA:
    // any mix of old and new bytes is then a valid outcome, and the ICRC is taken over the copy.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, out.as_mut_ptr(), out.len()) };
}

/// Copies a packet's payload into granted user memory, the last bytes last.
///
/// Programs spin on the end of a buffer to learn that an RDMA WRITE is complete; hardware writes in address order. So
/// the tail (a whole aligned word where the end is aligned) is stored after everything before it.
fn copy_in(at: usize, data: &[u8]) {
    let Some((last, head)) = data.split_last() else {
        return;
    };
    let end = at + data.len();
    let tail = if end.is_multiple_of(8) && data.len() >= 8 {
        8
    } else if end.is_multiple_of(4) && data.len() >= 4 {
        4
    } else {
        1
    };
    let body = data.len() - tail;
    // SAFETY: the table granted `data.len()` bytes at `at`; see the module's contract. The word pointers are aligned
    // because `end` is, and lie within the granted range because `tail <= data.len()`.
    unsafe {
        std::ptr::copy_nonoverlapping(data.as_ptr(), at as *mut u8, body);
        fence(Ordering::Release);
        let tail_at = at + body;
        match tail {
            8 => {
                let word = u64::from_ne_bytes(data[body..].try_into().unwrap_or_default());
                AtomicU64::from_ptr(tail_at as *mut u64).store(word, Ordering::Release);
            }
            4 => {
                let word = u32::from_ne_bytes(data[body..].try_into().unwrap_or_default());
                AtomicU32::from_ptr(tail_at as *mut u32).store(word, Ordering::Release);
            }
            _ => {
                debug_assert_eq!(head.len(), body);
                (tail_at as *mut u8).write_volatile(*last);
            }
        }
    }
}

#[cfg(test)]
mod tests;
