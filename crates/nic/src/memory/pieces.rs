//! Pieces of device memory, and those of the process by number.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use rustix_futex_sync::{Mutex, MutexGuard};

use super::{DeviceMemory, Foreign};
use crate::memory::DEVICE_SLOT;

#[derive(Debug)]
pub(crate) struct DmShared {
    pub(crate) memory: Bytes,
    pub(crate) number: u32,
    /// The context that allocated it, or imported it from another process.
    pub(crate) context: u64,
}

#[derive(Debug)]
pub(crate) enum Bytes {
    Own(DeviceMemory),
    /// Another process's.
    Foreign {
        process: Arc<Foreign>,
        base: u64,
        len: u64,
    },
}

impl DmShared {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.memory {
            Bytes::Own(memory) => memory.len(),
            Bytes::Foreign { len, .. } => *len,
        }
    }

    pub(crate) fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len())
    }

    /// Where it is, if it is this process's.
    pub(crate) fn address(&self) -> Option<usize> {
        match &self.memory {
            Bytes::Own(memory) => Some(memory.address()),
            Bytes::Foreign { .. } => None,
        }
    }

    /// Where it is in the process that it belongs to, which keeps it as long as it is imported.
    pub(crate) fn reach(&self) -> Option<(&Arc<Foreign>, u64)> {
        match &self.memory {
            Bytes::Own(_) => None,
            Bytes::Foreign { process, base, .. } => Some((process, *base)),
        }
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> bool {
        match &self.memory {
            Bytes::Own(memory) => memory.write(offset, data),
            Bytes::Foreign { process, base, .. } => {
                self.contains(offset, data.len() as u64)
                    && process.write(DEVICE_SLOT, base.wrapping_add(offset), data)
            }
        }
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        match &self.memory {
            Bytes::Own(memory) => memory.read(offset, out),
            Bytes::Foreign { process, base, .. } => {
                self.contains(offset, out.len() as u64)
                    && process.read(DEVICE_SLOT, base.wrapping_add(offset), out)
            }
        }
    }
}

impl Drop for DmShared {
    fn drop(&mut self) {
        let mut all = lock_all();
        // An import has the number of another process's.
        let known = all.get(&self.number);
        if known.is_some_and(|known| std::ptr::eq(known.as_ptr(), self)) {
            all.remove(&self.number);
        }
    }
}

/// A piece of that context by number, for another process that uses it.
pub(crate) fn find_of(number: u32, context: u64) -> Option<Arc<DmShared>> {
    let found = lock_all().get(&number).and_then(Weak::upgrade);
    found.filter(|piece| piece.context == context)
}

/// The process's pieces by number, for `ibv_import_dm(3)`.
static ALL: Mutex<Pieces> = Mutex::new(BTreeMap::new());

type Pieces = BTreeMap<u32, Weak<DmShared>>;

pub(crate) type AllGuard = MutexGuard<'static, Pieces>;

/// Held across fork(2), so that the child finds it free.
pub(crate) fn lock_all() -> AllGuard {
    ALL.lock()
}

/// Any piece by number.
pub(crate) fn find(number: u32) -> Option<Arc<DmShared>> {
    lock_all().get(&number).and_then(Weak::upgrade)
}

/// Enters a piece of this process's.
pub(crate) fn enter(piece: &Arc<DmShared>) {
    lock_all().insert(piece.number, Arc::downgrade(piece));
}
