//! The three kinds of registered memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix_futex_sync::Mutex;

use crate::device;
use crate::endpoint::RemoteMemory;
use crate::error::{Error, Result};
use crate::nic::Access;
use crate::raw::given::{SharedMemory, StableMemory};
use crate::raw::words::Changing;

/// Pages: so that no two regions share one, and atomics are aligned.
const ALIGN: usize = 4096;

/// Zeroed bytes of our own.
struct Own {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes as a Box<[u8]> would; who may touch them is decided by the types that
// hold it.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

/// What a registration's bytes belong to.
enum Storage {
    Own(#[allow(dead_code, reason = "kept alive")] Own),
    Given(Box<dyn Any + Send + Sync>),
}

impl Own {
    fn new(len: usize) -> Result<Own> {
        let invalid =
            || Error::InvalidArgument(format!("memory regions have 1 .. 2^63 bytes, not {len}"));
        if len == 0 {
            return Err(invalid());
        }
        let layout = Layout::from_size_align(len, ALIGN).map_err(|_| invalid())?;
        // SAFETY: the layout's size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| Error::Verb {
            verb: "ibv_reg_mr",
            reason: format!("there is no memory of {len} bytes"),
            source: std::io::Error::from_raw_os_error(libc::ENOMEM),
        })?;
        Ok(Own { ptr, layout })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. `Registered` drops it only when the NIC has
        // let go.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}

/// A registration with its memory, which is freed when the NIC has let go of it.
struct Registered {
    mr: device::Mr,
    first: NonNull<u8>,
    len: usize,
    /// There until it is given back.
    storage: Option<Storage>,
}

// SAFETY: the bytes are its storage's, which is; who may touch them is decided by the types that
// hold it.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// What a peer that is stopped in the middle of a copy may go on to write to. Never freed, and
/// listed so that tools that look for leaks know of it.
static KEPT: Mutex<Vec<Storage>> = Mutex::new(Vec::new());
/// The same of buffers that a device goes on to read.
static KEPT_BUFFERS: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

impl Drop for Registered {
    fn drop(&mut self) {
        let free = self.mr.end();
        let storage = self.storage.take();
        if !free {
            KEPT.lock().extend(storage);
        }
    }
}

impl Registered {
    fn new(pd: &device::Pd, len: usize, rights: Rights) -> Result<Registered> {
        let own = Own::new(len)?;
        let first = own.ptr;
        // SAFETY: `own` lives as long as the registration (`drop` above). Its bytes are reached
        // by nobody else while the NIC may touch them: see the types below.
        let mr = unsafe { register(pd, first.as_ptr(), len, rights) }?;
        Ok(Registered {
            mr,
            first,
            len,
            storage: Some(Storage::Own(own)),
        })
    }

    /// Of memory that the program gives, which comes back if it cannot be registered.
    fn given<M: SharedMemory>(
        pd: &device::Pd,
        memory: M,
        rights: Rights,
    ) -> std::result::Result<Registered, AdoptError<M>> {
        let mut memory = Box::new(memory);
        let (first, len) = memory.place();
        if len == 0 {
            return Err(AdoptError {
                error: Error::InvalidArgument("a memory region has 1 byte at least".to_owned()),
                memory: *memory,
            });
        }
        // SAFETY: the memory lives as long as the registration (`drop` above), and does not move,
        // by the contracts of its traits. Its bytes are reached by nobody else: as with `new`.
        match unsafe { register(pd, first.as_ptr(), len, rights) } {
            Ok(mr) => Ok(Registered {
                mr,
                first,
                len,
                storage: Some(Storage::Given(memory)),
            }),
            Err(error) => Err(AdoptError {
                error,
                memory: *memory,
            }),
        }
    }

    /// All of it is memory of this type that the program gave.
    fn is_given<M: Any>(&self) -> bool {
        match &self.storage {
            Some(Storage::Given(memory)) => memory.is::<M>(),
            _ => false,
        }
    }

    /// Ends the registration, and gives the memory back that it was made of; itself if that is
    /// something else, if there are other handles, or if the device does not let go.
    fn into_given<M: Any>(self: Arc<Registered>) -> std::result::Result<M, Arc<Registered>> {
        if !self.is_given::<M>() {
            return Err(self);
        }
        let mut region = Arc::try_unwrap(self)?;
        if !region.mr.end() {
            return Err(Arc::new(region));
        }
        let Some(Storage::Given(memory)) = region.storage.take() else {
            unreachable!("looked at above");
        };
        match memory.downcast::<M>() {
            Ok(memory) => Ok(*memory),
            Err(_) => unreachable!("looked at above"),
        }
    }

    /// As bytes that a peer may change.
    ///
    /// # Safety
    /// No references to them are made as long as the registration stands.
    unsafe fn changing(&self) -> Changing<'_> {
        // SAFETY: the storage is initialised, and lives as long as `self`; else by contract.
        unsafe { Changing::new(self.first, self.len) }
    }
}

/// What a registration allows, and by which address its first byte goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    pub(crate) access: Access,
    /// `None`: that of the memory.
    pub(crate) iova: Option<u64>,
}

impl From<Access> for Rights {
    fn from(access: Access) -> Rights {
        Rights { access, iova: None }
    }
}

/// Registers memory with either back end.
///
/// # Safety
/// The memory stays until [`device::Mr::end`] has given true, or for ever. Nothing in the program
/// takes bytes for its own that the device may write, or for constant.
unsafe fn register(
    pd: &device::Pd,
    ptr: *mut u8,
    len: usize,
    Rights { access, iova }: Rights,
) -> Result<device::Mr> {
    Ok(match pd {
        device::Pd::Software(pd) => {
            let iova = iova.unwrap_or(ptr as u64);
            // SAFETY: by contract.
            device::Mr::Software(unsafe { pd.reg_mr(ptr, len, iova, access) }?)
        }
        device::Pd::System(pd) => {
            // SAFETY: by contract.
            device::Mr::System(unsafe { pd.reg_mr(ptr, len, iova, access) }?)
        }
    })
}

/// Local memory: a byte slice as long as you hold it. Posting moves it away, the completion gives
/// it back.
/// ```compile_fail,E0382
/// # fn f(qp: rnic::QueuePair, mut buffer: rnic::Buffer) {
/// qp.post_recv(buffer, 0);
/// buffer[0] = 1; // it belongs to the NIC now
/// # }
/// ```
///
/// Like `BytesMut`, a buffer is one piece of a registration: [`Buffer::split_off`] and
/// [`Buffer::split_to`] divide it without a copy, [`Buffer::unsplit`] puts neighbours together
/// again. The registration ends with its last piece.
pub struct Buffer {
    region: Arc<Registered>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn allocate(pd: &device::Pd, len: usize) -> Result<Buffer> {
        Ok(Buffer {
            region: Arc::new(Registered::new(pd, len, Access::LOCAL_WRITE.into())?),
            start: 0,
            len,
        })
    }

    pub(crate) fn adopt<M: StableMemory>(
        pd: &device::Pd,
        memory: M,
    ) -> std::result::Result<Buffer, AdoptError<M>> {
        let region = Registered::given(pd, memory, Access::LOCAL_WRITE.into())?;
        Ok(Buffer {
            start: 0,
            len: region.len,
            region: Arc::new(region),
        })
    }

    /// Ends the registration and gives the memory back that the buffer was made of
    /// ([`ProtectionDomain::adopt`](crate::ProtectionDomain::adopt)). The buffer is returned if it
    /// was not made of such memory, if it is not all of it or other pieces are left, and if the
    /// device refuses to end the registration: then the memory stays for ever.
    pub fn into_memory<M: StableMemory>(self) -> std::result::Result<M, Buffer> {
        let Buffer { region, start, len } = self;
        match (start, len) == (0, region.len) {
            true => region.into_given(),
            false => Err(region),
        }
        .map_err(|region| Buffer { region, start, len })
    }

    /// Divides it: `self` keeps the first `at` bytes, the rest is returned.
    ///
    /// # Panics
    /// If `at` is larger than the buffer.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Buffer {
        assert!(at <= self.len, "split at {at} of a buffer of {}", self.len);
        let rest = Buffer {
            region: self.region.clone(),
            start: self.start + at,
            len: self.len - at,
        };
        self.len = at;
        rest
    }

    /// Divides it: the first `at` bytes are returned, `self` keeps the rest.
    ///
    /// # Panics
    /// If `at` is larger than the buffer.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Buffer {
        let rest = self.split_off(at);
        std::mem::replace(self, rest)
    }

    /// Puts two neighbouring pieces together; gives both back if they are not neighbours.
    pub fn unsplit(mut self, next: Buffer) -> std::result::Result<Buffer, (Buffer, Buffer)> {
        if Arc::ptr_eq(&self.region, &next.region) && self.start + self.len == next.start {
            self.len += next.len;
            Ok(self)
        } else {
            Err((self, next))
        }
    }

    /// Address of the first byte, as work requests name it.
    pub(crate) fn addr(&self) -> u64 {
        self.region.mr.addr() + self.start as u64
    }

    /// Key of the registration.
    pub fn lkey(&self) -> u32 {
        self.region.mr.lkey()
    }

    fn ptr(&self) -> *mut u8 {
        // SAFETY: start <= length of the storage, kept by allocate and split_off.
        unsafe { self.region.first.as_ptr().add(self.start) }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the storage and initialised; this piece owns it alone
        // (split_off hands out disjoint ranges), and the NIC is not told of it before the buffer
        // has moved into a work queue.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(), self.len) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Buffer({:#x}+{}, lkey {:#x})",
            self.addr(),
            self.len,
            self.lkey()
        )
    }
}

/// Memory could not be registered; it comes back.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct AdoptError<M> {
    /// Why not.
    #[source]
    pub error: Error,
    /// The memory.
    pub memory: M,
}

impl<M> std::fmt::Debug for AdoptError<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdoptError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<M> From<AdoptError<M>> for Error {
    fn from(error: AdoptError<M>) -> Error {
        error.error
    }
}

/// A buffer that peers may read. It is read-only for everybody, so slices of it are sound.
#[derive(Clone)]
pub struct ReadableRegion {
    inner: Arc<Shared>,
}

/// A registration of a buffer's memory, which goes after it.
struct Shared {
    mr: device::Mr,
    /// There until it is given back.
    buffer: Option<Buffer>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let free = self.mr.end();
        let buffer = self.buffer.take();
        if !free {
            KEPT_BUFFERS.lock().extend(buffer);
        }
    }
}

impl Shared {
    fn bytes(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl ReadableRegion {
    pub(crate) fn register(
        pd: &device::Pd,
        buffer: Buffer,
        iova: Option<u64>,
    ) -> std::result::Result<ReadableRegion, AdoptError<Buffer>> {
        let (ptr, len) = (buffer.ptr(), buffer.len);
        let rights = Rights {
            access: Access::REMOTE_READ,
            iova,
        };
        // SAFETY: the buffer moves into the region and is given back only after the registration
        // has ended; without LOCAL_WRITE and REMOTE_WRITE nobody writes it meanwhile.
        match unsafe { register(pd, ptr, len, rights) } {
            Ok(mr) => Ok(ReadableRegion {
                inner: Arc::new(Shared {
                    mr,
                    buffer: Some(buffer),
                }),
            }),
            Err(error) => Err(AdoptError {
                error,
                memory: buffer,
            }),
        }
    }

    /// What peers need to know to read it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.inner.mr.addr(),
            len: self.inner.bytes().len() as u64,
            rkey: self.inner.mr.rkey(),
        }
    }

    /// Ends the registration and gives the buffer back: peers that read it from now on get a remote
    /// access error. Other clones of the handle must be gone, else this one is returned. So it is if
    /// the device refuses to end the registration, or a peer that is stopped may go on to read: then
    /// the memory stays as it is for ever, and no peer begins anew.
    pub fn reclaim(mut self) -> std::result::Result<Buffer, ReadableRegion> {
        let only = Arc::get_mut(&mut self.inner);
        let ended = only.and_then(|shared| shared.mr.end().then(|| shared.buffer.take()));
        ended.flatten().ok_or(self)
    }
}

impl Deref for ReadableRegion {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.inner.bytes()
    }
}

impl std::fmt::Debug for ReadableRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadableRegion({:?})", self.remote())
    }
}

/// Memory that peers may write (and read, and change by atomics) at any moment.
///
/// There are no slices of it: bytes are copied out and in, words are loaded and stored atomically.
/// What a copy sees while a peer writes is some mixture of old and new bytes; to know that a write
/// is complete, let the peer use an immediate or a message after it, or poll the last word.
#[derive(Clone)]
pub struct WritableRegion {
    inner: Arc<Registered>,
}

impl WritableRegion {
    pub(crate) fn allocate(pd: &device::Pd, len: usize, rights: Rights) -> Result<WritableRegion> {
        Ok(WritableRegion {
            inner: Arc::new(Registered::new(pd, len, rights)?),
        })
    }

    pub(crate) fn adopt<M: SharedMemory>(
        pd: &device::Pd,
        memory: M,
        rights: Rights,
    ) -> std::result::Result<WritableRegion, AdoptError<M>> {
        Ok(WritableRegion {
            inner: Arc::new(Registered::given(pd, memory, rights)?),
        })
    }

    /// Ends the registration and gives the memory back that the region was made of
    /// ([`ProtectionDomain::adopt_writable`](crate::ProtectionDomain::adopt_writable)). The region
    /// is returned if it was not made of such memory, if it has other handles, and if the device
    /// refuses to end the registration: then the memory stays for ever.
    pub fn into_memory<M: SharedMemory>(self) -> std::result::Result<M, WritableRegion> {
        (self.inner.into_given()).map_err(|inner| WritableRegion { inner })
    }

    /// What peers need to know to reach it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.inner.mr.addr(),
            len: self.len() as u64,
            rkey: self.inner.mr.rkey(),
        }
    }

    #[cfg(feature = "raw")]
    pub(crate) fn mr(&self) -> &device::Mr {
        &self.inner.mr
    }

    /// Both handles, if they are a system's device's.
    pub(crate) fn window_of<'a>(
        &'a self,
        mw: &'a device::Mw,
    ) -> Option<(&'a rnic_libibverbs::Mw, &'a rnic_libibverbs::Mr)> {
        device::system_window(mw, &self.inner.mr)
    }

    /// Key for local work requests and binds.
    pub(crate) fn lkey(&self) -> u32 {
        self.inner.mr.lkey()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Never: regions have at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, of which these are.
    fn check(&self, what: &'static str, offset: usize, len: usize) -> Result<Changing<'_>> {
        match offset.checked_add(len) {
            // SAFETY: there are no slices of a region that peers may write.
            Some(end) if end <= self.len() => Ok(unsafe { self.inner.changing() }),
            _ => Err(Error::OutOfRange {
                what,
                offset: offset as u64,
                len: len as u64,
                size: self.len() as u64,
            }),
        }
    }

    /// Copies `into.len()` bytes at `offset` out.
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let bytes = self.check("copy out of a writable region", offset, into.len())?;
        bytes.copy_out(offset, into);
        // Later loads are not moved before the copy.
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Copies `bytes` in at `offset`. A peer that writes the same range at the same time leaves a
    /// mixture.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.check("copy into a writable region", offset, bytes.len())?;
        fence(Ordering::Release);
        to.copy_in(offset, bytes);
        Ok(())
    }

    /// The word at `offset`, in host order, which is what peers' atomics work on.
    ///
    /// # Errors
    /// It lies outside, or not at a multiple of 8; an order that loads do not have.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64> {
        let word = self.word(offset)?;
        match order {
            Ordering::Relaxed | Ordering::Acquire | Ordering::SeqCst => Ok(word.load(order)),
            _ => Err(of_no_use(order, "load")),
        }
    }

    /// Stores the word at `offset`.
    ///
    /// # Errors
    /// It lies outside, or not at a multiple of 8; an order that stores do not have.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Result<()> {
        let word = self.word(offset)?;
        match order {
            Ordering::Relaxed | Ordering::Release | Ordering::SeqCst => word.store(value, order),
            _ => return Err(of_no_use(order, "store")),
        }
        Ok(())
    }

    /// The byte at `offset`, with acquire ordering: to poll the last byte of an expected write.
    pub fn load_u8(&self, offset: usize) -> Result<u8> {
        let mut byte = [0];
        let bytes = self.check("byte of a writable region", offset, 1)?;
        bytes.copy_out(offset, &mut byte);
        fence(Ordering::Acquire);
        Ok(byte[0])
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64> {
        let bytes = self.check("word of a writable region", offset, 8)?;
        bytes.word(offset).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "words are loaded and stored at addresses that are multiples of 8; offset {offset} is at {:?}",
                self.inner.first.as_ptr().wrapping_add(offset)
            ))
        })
    }
}

fn of_no_use(order: Ordering, what: &str) -> Error {
    Error::InvalidArgument(format!("a {what} cannot have the order {order:?}"))
}

impl std::fmt::Debug for WritableRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WritableRegion({:?})", self.remote())
    }
}

/// Resolves a range of a buffer to (start, length).
pub(crate) fn resolve_range(range: impl RangeBounds<usize>, size: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&n) => n,
        Bound::Excluded(&n) => n.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&n) => n.saturating_add(1),
        Bound::Excluded(&n) => n,
        Bound::Unbounded => size,
    };
    if start > end || end > size {
        return Err(Error::OutOfRange {
            what: "range of a buffer",
            offset: start as u64,
            len: end.saturating_sub(start) as u64,
            size: size as u64,
        });
    }
    Ok((start, end - start))
}
