//! Memory that the program has made itself, and gives to a buffer or a region.

use std::any::Any;
use std::ptr::NonNull;

/// Memory that a program owns alone, and the device may use where it lies
/// ([`ProtectionDomain::adopt`](crate::ProtectionDomain::adopt)): `Vec<u8>`,
/// [`Mapping`](crate::Mapping), [`RawMemory`], or a type of the program's own, for memory of an
/// allocator for example. It cannot be a box, of which Rust takes each move for the end of all
/// pointers into it: `into_vec()` makes a vector of a `Box<[u8]>` without a copy.
///
/// # Safety
/// * [`StableMemory::bytes`] gives the same address and length each time, wherever the value is
///   moved meanwhile. The bytes are initialised and valid for reads and writes until it is dropped.
/// * As long as the value exists, nobody reaches the bytes but through it. What may change by
///   itself, such as memory that other processes map, is not such memory: see [`SharedMemory`].
pub unsafe trait StableMemory: Any + Send + Sync {
    /// The first byte, and how many there are.
    fn bytes(&mut self) -> (NonNull<u8>, usize);
}

// SAFETY: the bytes of a vector are on the heap, and do not move with it. It owns them alone.
unsafe impl StableMemory for Vec<u8> {
    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        let len = self.len();
        let first = NonNull::new(self.as_mut_ptr()).unwrap_or(NonNull::dangling());
        (first, len)
    }
}

/// Memory that others may change at any time, such as other processes that map it; a
/// [`WritableRegion`](crate::WritableRegion) can be made of it
/// ([`ProtectionDomain::adopt_writable`](crate::ProtectionDomain::adopt_writable)), and no buffer.
/// What is [`StableMemory`] will do, too.
///
/// # Safety
/// * [`SharedMemory::place`] gives the same address and length each time, wherever the value is
///   moved meanwhile. The bytes are initialised and valid for reads and writes until it is dropped.
/// * As long as the value exists, no reference to the bytes does, and the program reaches them by
///   atomic operations alone.
pub unsafe trait SharedMemory: Any + Send + Sync {
    /// The first byte, and how many there are.
    fn place(&mut self) -> (NonNull<u8>, usize);
}

// SAFETY: it asks for less, and whoever has the value alone has the bytes alone.
unsafe impl<M: StableMemory> SharedMemory for M {
    fn place(&mut self) -> (NonNull<u8>, usize) {
        self.bytes()
    }
}

/// A range of memory that the program answers for, whoever owns it: what `ibv_reg_mr` takes in C.
/// [`ProtectionDomain::adopt`](crate::ProtectionDomain::adopt) makes a buffer of it, and
/// [`Buffer::into_memory`](crate::Buffer::into_memory) gives it back.
///
/// ```
/// # fn main() -> rnic::Result<()> {
/// use std::ptr::NonNull;
/// # let pd = rnic::Context::open()?.alloc_pd()?;
/// let mut page = [7u8; 4096];
/// let first = NonNull::from(&mut page).cast();
/// // SAFETY: nobody uses `page` until the memory is back.
/// let buffer = pd.adopt(unsafe { rnic::RawMemory::new(first, page.len()) })?;
/// assert_eq!(buffer[0], 7);
/// let memory: rnic::RawMemory = buffer.into_memory().expect("nothing of it is in use");
/// assert_eq!(memory.len(), page.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RawMemory {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: by the contract of `new`, it has its bytes alone.
unsafe impl Send for RawMemory {}
// SAFETY: as above.
unsafe impl Sync for RawMemory {}

impl RawMemory {
    /// Takes the range.
    ///
    /// # Safety
    /// Until this value is dropped, and as long as what is made of it may exist: the bytes are
    /// initialised, and valid for reads and writes; nobody reaches them but through it; they are
    /// not freed, unmapped or remapped. A buffer that a peer or a device may go on to use is kept
    /// for ever ([`Buffer::into_memory`](crate::Buffer::into_memory) does not give it back then):
    /// so is the range. A queue pair that is dropped lets go of what was posted to it.
    pub unsafe fn new(first: NonNull<u8>, len: usize) -> RawMemory {
        RawMemory { first, len }
    }

    /// The first byte.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

// SAFETY: by the contract of `new`.
unsafe impl StableMemory for RawMemory {
    fn bytes(&mut self) -> (NonNull<u8>, usize) {
        (self.first, self.len)
    }
}
