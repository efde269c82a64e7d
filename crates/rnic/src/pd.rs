//! Protection domains and the memory registered in them.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::device;
use crate::endpoint::RemoteMemory;
use crate::error::{Error, Result};
use crate::nic::Access;
use crate::qp::{QueuePairBuilder, Transport};
use crate::raw::given::{SharedMemory, StableMemory};
use crate::raw::memory::{AdoptError, Buffer, ReadableRegion, Rights, WritableRegion};
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
    ///
    /// # Errors
    /// It cannot be registered. The buffer comes back.
    pub fn share(&self, buffer: Buffer) -> std::result::Result<ReadableRegion, AdoptError<Buffer>> {
        ReadableRegion::register(self.raw(), buffer, None)
    }

    /// The same, and peers name the first byte by `iova` (`ibv_reg_mr_iova`). 0 is what
    /// `IBV_ACCESS_ZERO_BASED` means; kernels take no notice of that for memory.
    ///
    /// # Errors
    /// As [`ProtectionDomain::share`]; `iova` lies at another place of its page than the buffer's
    /// first byte.
    pub fn share_at(
        &self,
        buffer: Buffer,
        iova: u64,
    ) -> std::result::Result<ReadableRegion, AdoptError<Buffer>> {
        ReadableRegion::register(self.raw(), buffer, Some(iova))
    }

    /// Registers `len` zeroed bytes that peers may write (`ibv_reg_mr` with `REMOTE_WRITE`), and
    /// more if the builder is told so.
    pub fn writable(&self, len: usize) -> WritableRegionBuilder {
        self.region_of(Zeroed(len))
    }

    /// Registers memory that the program has made, where it lies, as memory that peers may write.
    /// [`WritableRegion::into_memory`] gives it back.
    ///
    /// ```
    /// # fn main() -> rnic::Result<()> {
    /// # let pd = rnic::Context::open()?.alloc_pd()?;
    /// let region = pd.adopt_writable(vec![0; 4096]).readable().build()?;
    /// region.copy_in(8, b"mine")?;
    /// let bytes: Vec<u8> = region.into_memory().expect("no other handle");
    /// assert_eq!(&bytes[8..12], b"mine");
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt_writable<M: SharedMemory>(&self, memory: M) -> WritableRegionBuilder<Given<M>> {
        self.region_of(Given(memory))
    }

    fn region_of<S>(&self, source: S) -> WritableRegionBuilder<S> {
        WritableRegionBuilder {
            pd: self.clone(),
            source,
            rights: Rights::from(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        }
    }

    /// Registers a part of a dmabuf, memory that another driver owns (`ibv_reg_dmabuf_mr`), such as
    /// that of a GPU. Peers name its first byte by `iova`; with rights to write or to execute
    /// atomics it is registered with `LOCAL_WRITE`, too.
    ///
    /// # Errors
    /// The descriptor is no dmabuf; the device cannot do that, or refuses the range or the rights.
    pub fn register_dmabuf(
        &self,
        file: impl AsFd,
        range: std::ops::Range<u64>,
        iova: u64,
        access: Access,
    ) -> Result<DmabufRegion> {
        let len = range.end.checked_sub(range.start);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len
            .filter(|len| *len > 0)
            .ok_or_else(|| Error::InvalidArgument(format!("{range:?} is no range of a dmabuf")))?;
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let access = match access.intersects(writes) {
            true => access | Access::LOCAL_WRITE,
            false => access,
        };
        let fd = file.as_fd().as_raw_fd();
        let mr = self
            .raw()
            .reg_dmabuf_mr(fd, range.start, len, iova, access)?;
        Ok(DmabufRegion {
            mr,
            len: len as u64,
            _pd: self.clone(),
        })
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

/// Memory that a [`WritableRegionBuilder`] makes: zeroed, of so many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Zeroed(usize);

/// Memory that a [`WritableRegionBuilder`] was given.
#[derive(Debug)]
pub struct Given<M>(M);

/// Memory and rights of a [`WritableRegion`] before it is registered.
#[derive(Debug)]
pub struct WritableRegionBuilder<S = Zeroed> {
    pd: ProtectionDomain,
    source: S,
    rights: Rights,
}

impl<S> WritableRegionBuilder<S> {
    pub(crate) fn allow(mut self, access: Access) -> Self {
        self.rights.access = self.rights.access | access;
        self
    }

    /// Peers may also read it (`REMOTE_READ`).
    pub fn readable(self) -> Self {
        self.allow(Access::REMOTE_READ)
    }

    /// Peers may also execute atomics on it (`REMOTE_ATOMIC`).
    pub fn atomic(self) -> Self {
        self.allow(Access::REMOTE_ATOMIC)
    }

    /// Peers may also FLUSH what they wrote (`FLUSH_GLOBAL`).
    pub fn flushable(self) -> Self {
        self.allow(Access::FLUSH_GLOBAL)
    }

    /// Memory windows may be bound to it (`MW_BIND`).
    pub fn bindable(self) -> Self {
        self.allow(Access::MW_BIND)
    }

    /// Memory windows may be bound to it, and without one peers reach nothing of it.
    pub fn only_through_windows(mut self) -> Self {
        self.rights.access = Access::LOCAL_WRITE | Access::MW_BIND;
        self
    }

    /// Peers name the first byte by this address (`ibv_reg_mr_iova`), which lies at the same place
    /// of its page as the memory: memory of [`ProtectionDomain::writable`] begins with a page.
    pub fn iova(mut self, address: u64) -> Self {
        self.rights.iova = Some(address);
        self
    }

    /// Peers name the first byte by 0, which is what `IBV_ACCESS_ZERO_BASED` means. It takes the
    /// way of [`WritableRegionBuilder::iova`]: kernels take no notice of that bit for memory.
    pub fn zero_based(self) -> Self {
        self.iova(0)
    }
}

impl WritableRegionBuilder {
    /// Registers it.
    pub fn build(self) -> Result<WritableRegion> {
        WritableRegion::allocate(self.pd.raw(), self.source.0, self.rights)
    }
}

impl<M: SharedMemory> WritableRegionBuilder<Given<M>> {
    /// Registers it.
    ///
    /// # Errors
    /// It has no bytes, or cannot be registered. The memory comes back.
    pub fn build(self) -> std::result::Result<WritableRegion, AdoptError<M>> {
        WritableRegion::adopt(self.pd.raw(), self.source.0, self.rights)
    }
}

/// A part of a dmabuf that peers reach ([`ProtectionDomain::register_dmabuf`]), until it is dropped.
/// The program cannot: what it is mapped as is its owner's to say.
pub struct DmabufRegion {
    mr: device::Mr,
    len: u64,
    _pd: ProtectionDomain,
}

impl DmabufRegion {
    /// What peers need to know to reach it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.mr.addr(),
            len: self.len,
            rkey: self.mr.rkey(),
        }
    }
}

impl Drop for DmabufRegion {
    fn drop(&mut self) {
        // If the device does not let go, the kernel keeps what it is of.
        self.mr.end();
    }
}

impl std::fmt::Debug for DmabufRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DmabufRegion({:?})", self.remote())
    }
}

#[cfg(test)]
mod tests;
