//! Memory of the device itself (`ibv_alloc_dm(3)`).

use std::sync::atomic::{AtomicU64, Ordering};

use super::copies::OwnMemory;

/// Bytes of device memory in all.
pub(crate) const DEVICE_MEMORY: u64 = 4 << 20;

static USED: AtomicU64 = AtomicU64::new(0);

/// A piece of it. Its bytes stay where they are until it is dropped.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    memory: OwnMemory,
    len: u64,
}

impl DeviceMemory {
    /// Zeroed; `None` if not that much is left.
    pub(crate) fn alloc(len: u64) -> Option<DeviceMemory> {
        let taken = USED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(len).filter(|used| *used <= DEVICE_MEMORY)
        });
        taken.ok()?;
        let give_back = || {
            USED.fetch_sub(len, Ordering::AcqRel);
            None
        };
        usize::try_from(len)
            .ok()
            .and_then(OwnMemory::new)
            .map_or_else(give_back, |memory| Some(DeviceMemory { memory, len }))
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Where its first byte is, for regions of it.
    pub(crate) fn address(&self) -> usize {
        self.memory.address()
    }

    /// `[offset, offset + len)` lies within.
    pub(crate) fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Copies `data` to `offset`; false if that leaves it.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> bool {
        self.contains(offset, data.len() as u64)
            && self.memory.place(offset as usize).write(data).is_ok()
    }

    /// Copies from `offset`; false if that leaves it.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        self.contains(offset, out.len() as u64)
            && self.memory.place(offset as usize).read(out).is_ok()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        USED.fetch_sub(self.len, Ordering::AcqRel);
    }
}
