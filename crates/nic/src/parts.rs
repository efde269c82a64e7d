//! Parts of the device, to be measured alone (`benches/parts.rs`). Nobody else has a use for them.

use std::sync::Arc;

use rnic_transport::{Completion, Pd, RemoteAccess};

use crate::memory::{Access, MemoryTable, RegionSpec};
use crate::objects::cq::Cq;
use crate::queues::{Freed, Slots};

const PAGE: usize = 4096;

/// A memory table with regions of a page each.
#[derive(Debug)]
pub struct Memory {
    table: MemoryTable,
    /// Key and address.
    regions: Vec<(u32, u64)>,
}

impl Memory {
    /// With so many.
    pub fn new(regions: usize) -> Memory {
        let mut table = MemoryTable::default();
        // Never given back, so the regions may be used for ever.
        let bytes = Box::leak(vec![0u8; regions * PAGE].into_boxed_slice());
        let enter = |page: &mut [u8]| {
            let base = page.as_mut_ptr() as usize;
            let spec = RegionSpec {
                pd: Pd(1),
                base,
                len: PAGE as u64,
                iova: base as u64,
                access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
                paged: false,
            };
            // SAFETY: the page stays for ever, and nobody else knows of it.
            let key = unsafe { table.insert(spec) }.expect("room in the table");
            (key, base as u64)
        };
        let regions = bytes.chunks_mut(PAGE).map(enter).collect();
        Memory { table, regions }
    }

    /// May a peer write `len` bytes to region `nth`?
    pub fn check_remote(&self, nth: usize, len: u64) -> bool {
        let (key, va) = self.regions[nth % self.regions.len()];
        let write = RemoteAccess::Write;
        self.table
            .check_remote(Pd(1), 1, key, va + 64, len, write)
            .is_ok()
    }

    /// Does so.
    pub fn write_remote(&self, nth: usize, data: &[u8]) -> bool {
        let (key, va) = self.regions[nth % self.regions.len()];
        self.table
            .write_remote(Pd(1), 1, key, va + 64, data)
            .is_ok()
    }

    /// Fills a packet from region `nth`.
    pub fn read_local(&self, nth: usize, out: &mut [u8]) -> bool {
        let (key, va) = self.regions[nth % self.regions.len()];
        self.table.read_local(Pd(1), key, va + 64, out).is_ok()
    }
}

/// What completes work requests into a queue.
#[derive(Debug)]
pub struct Completer {
    cq: Cq,
    slots: Arc<Slots>,
}

impl Completer {
    /// For this queue.
    pub fn new(cq: &Cq) -> Completer {
        Completer {
            cq: cq.clone(),
            slots: Arc::default(),
        }
    }

    /// Completes a receive.
    pub fn push(&self, completion: Completion) {
        let freed = Freed { send: 0, recv: 1 };
        self.cq.shared.push(&completion, &self.slots, freed);
    }
}
