//! Regions of another process's memory (`ibv_import_mr(3)`).

use std::sync::Arc;

use rnic_sys::Fd;
use rnic_transport::Pd;

use super::copies::{Backing, tail_of};
use super::fault::Fault;
use super::gate::Gate;
use super::table::Entry;
use super::{Access, MemoryTable, RegionSpec, key};

/// A process that lets this one reach into its memory.
#[derive(Debug)]
pub(crate) struct Foreign {
    memory: Fd,
    gate: Gate,
}

impl Foreign {
    pub(crate) fn new(memory: Fd, gate: Gate) -> Foreign {
        Foreign { memory, gate }
    }

    /// Copies bytes at `at` of that process to `out`, unless the slot is revoked.
    pub(crate) fn read(&self, slot: u32, at: u64, out: &mut [u8]) -> bool {
        let copy = || {
            let done = rnic_sys::read_at(&self.memory, out, at);
            done.is_ok_and(|n| n == out.len())
        };
        self.gate.pass(slot, copy) == Some(true)
    }

    /// Copies `data` to `at`, the last bytes last, unless the slot is revoked.
    pub(crate) fn write(&self, slot: u32, at: u64, data: &[u8]) -> bool {
        let (head, tail) = data.split_at(data.len() - tail_of(at as usize, data.len()));
        let write = |bytes: &[u8], at| {
            let done = rnic_sys::write_at(&self.memory, bytes, at);
            done.is_ok_and(|n| n == bytes.len())
        };
        let copy = || write(head, at) && write(tail, at.wrapping_add(head.len() as u64));
        self.gate.pass(slot, copy) == Some(true)
    }
}

/// Bytes of such a process.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) process: Arc<Foreign>,
    pub(super) slot: u32,
    /// Times that the region was imported.
    pub(super) imports: u32,
}

impl Reach {
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> Result<(), Fault> {
        let done = self.process.read(self.slot, at as u64, out);
        done.then_some(()).ok_or(Fault::Unmapped)
    }

    pub(super) fn write(&self, at: usize, data: &[u8]) -> Result<(), Fault> {
        let done = self.process.write(self.slot, at as u64, data);
        done.then_some(()).ok_or(Fault::Unmapped)
    }
}

/// What the owner of a region tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exported {
    pub(crate) key: u32,
    pub(crate) access: u32,
    pub(crate) base: u64,
    pub(crate) iova: u64,
    pub(crate) len: u64,
}

/// Rights that an import has no use for: no system call executes an atomic in another process,
/// windows would outlive the import, and what is another process's mapping cannot be written back.
const NOT_IMPORTED: u32 = Access::REMOTE_ATOMIC.0 | Access::MW_BIND.0 | Access::FLUSH_PERSISTENT.0;

impl MemoryTable {
    /// A region of `pd` with that index, for another process. Device memory too: it is memory of
    /// this process.
    pub(crate) fn export(&self, pd: Pd, index: u32) -> Option<Exported> {
        let (found, _) = self.find_region(pd, index)?;
        let entry = self.get(found)?;
        let own = matches!(entry.backing, Backing::Pinned | Backing::Paged);
        own.then_some(Exported {
            key: entry.key,
            access: entry.access.0,
            base: entry.base as u64,
            iova: entry.iova,
            len: entry.len,
        })
    }

    /// Enters another process's region under the key that it has there, once more if it is here
    /// already; false: that key is taken by something else.
    pub(crate) fn import(
        &mut self,
        pd: Pd,
        process: &Arc<Foreign>,
        slot: u32,
        region: Exported,
    ) -> bool {
        let index = key::index(region.key);
        if let Some(reach) = self.reaches.get_mut(&index) {
            let same = Arc::ptr_eq(&reach.process, process) && reach.slot == slot;
            reach.imports += u32::from(same);
            return same;
        }
        if index == 0 || self.is_taken(index) {
            return false;
        }
        let spec = RegionSpec {
            pd,
            base: region.base as usize,
            len: region.len,
            iova: region.iova,
            access: Access(region.access & !NOT_IMPORTED),
            paged: false,
        };
        self.enter_as(region.key, reached(spec, region.key));
        let process = process.clone();
        let reach = Reach {
            process,
            slot,
            imports: 1,
        };
        self.reaches.insert(index, reach);
        true
    }

    /// Takes one import back; its slot, if there was one.
    pub(crate) fn unimport(&mut self, found: u32) -> Option<u32> {
        let index = key::index(found);
        let reach = self.reaches.get_mut(&index)?;
        let slot = reach.slot;
        reach.imports -= 1;
        if reach.imports == 0 {
            self.reaches.remove(&index);
            self.take(index);
        }
        Some(slot)
    }
}

fn reached(spec: RegionSpec, key: u32) -> Entry {
    Entry {
        key,
        pd: spec.pd,
        iova: spec.iova,
        len: spec.len,
        base: spec.base,
        access: spec.access,
        backing: Backing::Foreign,
    }
}
