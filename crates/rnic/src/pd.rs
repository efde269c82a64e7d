//! Protection domains and the memory registered in them.

use std::sync::Arc;

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::device;
use crate::error::Result;
use crate::nic::Access;
use crate::qp::{QueuePairBuilder, Transport};
use crate::raw::given::StableMemory;
use crate::raw::memory::{AdoptError, Buffer, ReadableRegion, WritableRegion};
use crate::srq::SharedReceiveQueue;

/// A protection domain (`ibv_alloc_pd`): queue pairs can use the memory of their own domain only.
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

struct Inner {
    raw: device::Pd,
    context: Context,
}

impl std::fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProtectionDomain").finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    pub(crate) fn new(context: Context, raw: device::Pd) -> ProtectionDomain {
        ProtectionDomain {
            inner: Arc::new(Inner { raw, context }),
        }
    }

    pub(crate) fn raw(&self) -> &device::Pd {
        &self.inner.raw
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Registers `len` zeroed bytes for local use (`ibv_reg_mr` with `LOCAL_WRITE`).
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        Buffer::allocate(self.raw(), len)
    }

    /// Registers a copy of `bytes` for local use.
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Registers memory that the program has made, where it lies, for local use (`ibv_reg_mr` with
    /// `LOCAL_WRITE`). [`Buffer::into_memory`] gives it back.
    ///
    /// ```
    /// # fn main() -> rnic::Result<()> {
    /// # let pd = rnic::Context::open()?.alloc_pd()?;
    /// let buffer = pd.adopt(vec![7; 1 << 20])?;
    /// let bytes: Vec<u8> = buffer.into_memory().expect("nothing of it is in use");
    /// assert_eq!(bytes.len(), 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// It has no bytes, or cannot be registered. The memory comes back.
    pub fn adopt<M: StableMemory>(&self, memory: M) -> std::result::Result<Buffer, AdoptError<M>> {
        Buffer::adopt(self.raw(), memory)
    }

    /// Lets peers read a buffer (`ibv_reg_mr` with `REMOTE_READ`). Nobody can write it until it is
    /// taken back.
    pub fn share(&self, buffer: Buffer) -> Result<ReadableRegion> {
        ReadableRegion::register(self.raw(), buffer)
    }

    /// Registers `len` zeroed bytes that peers may write (`ibv_reg_mr` with `REMOTE_WRITE`), and
    /// more if the builder is told so.
    pub fn writable(&self, len: usize) -> WritableRegionBuilder {
        WritableRegionBuilder {
            pd: self.clone(),
            len,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        }
    }

    /// Creates a shared receive queue for at least `max_wr` receives (`ibv_create_srq`).
    pub fn create_srq(&self, max_wr: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, max_wr)
    }

    /// Builds a queue pair whose sends complete into `send_cq` and receives into `recv_cq`
    /// (`ibv_create_qp`).
    pub fn create_qp<T: Transport>(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(self.clone(), send_cq.clone(), recv_cq.clone())
    }
}

/// Rights of a [`WritableRegion`] before it is registered.
#[derive(Debug)]
pub struct WritableRegionBuilder {
    pub(crate) pd: ProtectionDomain,
    pub(crate) len: usize,
    pub(crate) access: Access,
}

impl WritableRegionBuilder {
    /// Peers may also read it (`REMOTE_READ`).
    pub fn readable(mut self) -> Self {
        self.access = self.access | Access::REMOTE_READ;
        self
    }

    /// Peers may also execute atomics on it (`REMOTE_ATOMIC`).
    pub fn atomic(mut self) -> Self {
        self.access = self.access | Access::REMOTE_ATOMIC;
        self
    }

    /// Peers may also FLUSH what they wrote (`FLUSH_GLOBAL`).
    pub fn flushable(mut self) -> Self {
        self.access = self.access | Access::FLUSH_GLOBAL;
        self
    }

    /// Registers it.
    pub fn build(self) -> Result<WritableRegion> {
        WritableRegion::allocate(self.pd.raw(), self.len, self.access)
    }
}

#[cfg(test)]
mod tests;
