//! Memory that the program has made itself, and gives to a buffer.

use std::any::Any;
use std::ptr::NonNull;

/// Memory that a program owns, and the device may use where it lies
/// ([`ProtectionDomain::adopt`](crate::ProtectionDomain::adopt)): `Vec<u8>`, or a type of the
/// program's own, for huge pages, mappings or memory of an allocator. It cannot be a box, of which
/// Rust takes each move for the end of all pointers into it.
///
/// # Safety
/// * [`StableMemory::bytes`] gives the same address and length each time, wherever the value is
///   moved meanwhile. The bytes are initialised and valid for reads and writes until it is dropped.
/// * As long as the value exists, nobody reaches the bytes but through it. What may change by
///   itself, such as memory that other processes map, is not such memory.
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
