//! The three kinds of registered memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use rustix_futex_sync::Mutex;

use crate::device;
use crate::endpoint::RemoteMemory;
use crate::error::{Error, Result};
use crate::nic::Access;
use crate::raw::given::StableMemory;

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
    Given(Box<dyn StableMemory>),
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
    fn new(pd: &device::Pd, len: usize, access: Access) -> Result<Registered> {
        let own = Own::new(len)?;
        let first = own.ptr;
        // SAFETY: `own` lives as long as the registration (`drop` above). Its bytes are reached
        // by nobody else while the NIC may touch them: see the types below.
        let mr = unsafe { register(pd, first.as_ptr(), len, access) }?;
        Ok(Registered {
            mr,
            first,
            len,
            storage: Some(Storage::Own(own)),
        })
    }

    /// Of memory that the program gives, which comes back if it cannot be registered.
    fn given<M: StableMemory>(
        pd: &device::Pd,
        mut memory: Box<M>,
        access: Access,
    ) -> std::result::Result<Registered, (Error, Box<M>)> {
        let (first, len) = memory.bytes();
        if len == 0 {
            let empty = Error::InvalidArgument("a memory region has 1 byte at least".to_owned());
            return Err((empty, memory));
        }
        // SAFETY: the memory lives as long as the registration (`drop` above), and does not move,
        // by the contract of `StableMemory`. Its bytes are reached by nobody else: as with `new`.
        match unsafe { register(pd, first.as_ptr(), len, access) } {
            Ok(mr) => Ok(Registered {
                mr,
                first,
                len,
                storage: Some(Storage::Given(memory)),
            }),
            Err(error) => Err((error, memory)),
        }
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
    access: Access,
) -> Result<device::Mr> {
    Ok(match pd {
        device::Pd::Software(pd) => {
            // SAFETY: by contract.
            device::Mr::Software(unsafe { pd.reg_mr(ptr, len, ptr as u64, access) }?)
        }
        device::Pd::System(pd) => {
            // SAFETY: by contract.
            device::Mr::System(unsafe { pd.reg_mr(ptr, len, access) }?)
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
            region: Arc::new(Registered::new(pd, len, Access::LOCAL_WRITE)?),
            start: 0,
            len,
        })
    }

    pub(crate) fn adopt<M: StableMemory>(
        pd: &device::Pd,
        memory: M,
    ) -> std::result::Result<Buffer, AdoptError<M>> {
        match Registered::given(pd, Box::new(memory), Access::LOCAL_WRITE) {
            Ok(region) => Ok(Buffer {
                start: 0,
                len: region.len,
                region: Arc::new(region),
            }),
            Err((error, memory)) => Err(AdoptError {
                error,
                memory: *memory,
            }),
        }
    }

    /// Ends the registration and gives the memory back that the buffer was made of
    /// ([`ProtectionDomain::adopt`](crate::ProtectionDomain::adopt)). The buffer is returned if it
    /// was not made of such memory, if it is not all of it or other pieces are left, and if the
    /// device refuses to end the registration: then the memory stays for ever.
    pub fn into_memory<M: StableMemory>(self) -> std::result::Result<M, Buffer> {
        let Buffer { region, start, len } = self;
        let again = |region| Err(Buffer { region, start, len });
        let is_its = |region: &Registered| match &region.storage {
            Some(Storage::Given(memory)) => (&**memory as &dyn Any).is::<M>(),
            _ => false,
        };
        if (start, len) != (0, region.len) || !is_its(&region) {
            return again(region);
        }
        let mut region = match Arc::try_unwrap(region) {
            Ok(region) => region,
            Err(shared) => return again(shared),
        };
        if !region.mr.end() {
            return again(Arc::new(region));
        }
        let Some(Storage::Given(memory)) = region.storage.take() else {
            unreachable!("looked at above");
        };
        let memory: Box<dyn Any> = memory;
        match memory.downcast::<M>() {
            Ok(memory) => Ok(*memory),
            Err(_) => unreachable!("looked at above"),
        }
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
    pub(crate) fn register(pd: &device::Pd, buffer: Buffer) -> Result<ReadableRegion> {
        let (ptr, len) = (buffer.ptr(), buffer.len);
        // SAFETY: the buffer moves into the region and is given back only after the registration
        // has ended; without LOCAL_WRITE and REMOTE_WRITE nobody writes it meanwhile.
        let mr = unsafe { register(pd, ptr, len, Access::REMOTE_READ) }?;
        Ok(ReadableRegion {
            inner: Arc::new(Shared {
                mr,
                buffer: Some(buffer),
            }),
        })
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
    pub(crate) fn allocate(pd: &device::Pd, len: usize, access: Access) -> Result<WritableRegion> {
        Ok(WritableRegion {
            inner: Arc::new(Registered::new(pd, len, access)?),
        })
    }

    /// What peers need to know to reach it.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            addr: self.inner.mr.addr(),
            len: self.len() as u64,
            rkey: self.inner.mr.rkey(),
        }
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

    fn check(&self, what: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => {
                // SAFETY: offset <= length of the storage.
                Ok(unsafe { self.inner.first.as_ptr().add(offset) })
            }
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
        let from = self.check("copy out of a writable region", offset, into.len())?;
        let head = from.align_offset(8).min(into.len());
        let (first, rest) = into.split_at_mut(head);
        for (i, byte) in first.iter_mut().enumerate() {
            *byte = load_byte(from, i);
        }
        let words = rest.len() / 8;
        let (middle, last) = rest.split_at_mut(words * 8);
        for (i, word) in middle.chunks_exact_mut(8).enumerate() {
            // SAFETY: head + 8 * (i + 1) <= the length that `check` saw; the address is a multiple
            // of 8. Peers write through the engine; words are read atomically so that no reference
            // to changing bytes exists.
            let value = unsafe { AtomicU64::from_ptr(from.add(head + 8 * i).cast()) }
                .load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
        }
        for (i, byte) in last.iter_mut().enumerate() {
            *byte = load_byte(from, head + words * 8 + i);
        }
        // Later loads are not moved before the copy.
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Copies `bytes` in at `offset`. A peer that writes the same range at the same time leaves a
    /// mixture.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.check("copy into a writable region", offset, bytes.len())?;
        fence(Ordering::Release);
        let head = to.align_offset(8).min(bytes.len());
        let (first, rest) = bytes.split_at(head);
        for (i, byte) in first.iter().enumerate() {
            store_byte(to, i, *byte);
        }
        let words = rest.len() / 8;
        let (middle, last) = rest.split_at(words * 8);
        for (i, word) in middle.chunks_exact(8).enumerate() {
            let mut value = [0; 8];
            value.copy_from_slice(word);
            // SAFETY: as in `copy_out`.
            unsafe { AtomicU64::from_ptr(to.add(head + 8 * i).cast()) }
                .store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        for (i, byte) in last.iter().enumerate() {
            store_byte(to, head + words * 8 + i, *byte);
        }
        Ok(())
    }

    /// The word at `offset`, in host order, which is what peers' atomics work on.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64> {
        Ok(self.word(offset)?.load(order))
    }

    /// Stores the word at `offset`.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Result<()> {
        self.word(offset)?.store(value, order);
        Ok(())
    }

    /// The byte at `offset`, with acquire ordering: to poll the last byte of an expected write.
    pub fn load_u8(&self, offset: usize) -> Result<u8> {
        let at = self.check("byte of a writable region", offset, 1)?;
        let value = load_byte(at, 0);
        fence(Ordering::Acquire);
        Ok(value)
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64> {
        let at = self.check("word of a writable region", offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(Error::InvalidArgument(format!(
                "words are loaded and stored at multiples of 8, not at {offset}"
            )));
        }
        // SAFETY: inside the storage, aligned (storage is page aligned), and alive as long as
        // `self`. Everybody else reaches these bytes atomically or through the engine.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }
}

fn load_byte(base: *mut u8, offset: usize) -> u8 {
    // SAFETY: callers pass a range that `check` has seen; bytes are accessed atomically because
    // peers may write.
    unsafe { AtomicU8::from_ptr(base.add(offset)) }.load(Ordering::Relaxed)
}

fn store_byte(base: *mut u8, offset: usize, value: u8) {
    // SAFETY: as in `load_byte`.
    unsafe { AtomicU8::from_ptr(base.add(offset)) }.store(value, Ordering::Relaxed);
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
