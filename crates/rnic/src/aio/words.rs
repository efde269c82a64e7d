//! Memory for the results of atomics.

use std::sync::Arc;

use rustix_futex_sync::Mutex;

use super::core::Core;
use crate::error::Result;
use crate::pd::ProtectionDomain;
use crate::raw::memory::Buffer;

/// Bytes registered at once: 64 words.
const CHUNK: usize = 512;
const WORD: usize = 8;

/// Buffers of eight bytes, which are registered when they are first needed.
pub(super) struct Words {
    core: Arc<Core>,
    pd: ProtectionDomain,
    free: Mutex<Vec<Buffer>>,
}

impl Words {
    pub(super) fn new(core: &Arc<Core>, pd: &ProtectionDomain) -> Words {
        Words {
            core: core.clone(),
            pd: pd.clone(),
            free: Mutex::default(),
        }
    }

    pub(super) fn take(&self) -> Result<Buffer> {
        // In a forked child it fails here, and waits for no lock.
        self.core.check_alive()?;
        if let Some(word) = self.free.lock().pop() {
            return Ok(word);
        }
        let mut chunk = self.pd.buffer(CHUNK)?;
        let first = chunk.split_to(WORD);
        let mut free = self.free.lock();
        while !chunk.is_empty() {
            free.push(chunk.split_to(WORD));
        }
        Ok(first)
    }

    pub(super) fn put_all(&self, buffers: Vec<Buffer>) {
        if self.core.is_alive() {
            self.free.lock().extend(buffers);
        }
    }
}
