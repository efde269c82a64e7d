//! Copies as the compiler makes them: a fault ends the process.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use libc::ucontext_t;

use super::Word;

/// A fault in a copy is noticed.
pub(super) const NOTICES: bool = false;

/// # Safety
/// As [`super::copy`]'s.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: by contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    true
}

/// # Safety
/// As [`super::store`]'s.
#[inline]
pub(super) unsafe fn store(to: *mut u8, word: Word) -> bool {
    // SAFETY: by contract.
    unsafe {
        match word {
            Word::Byte(value) => AtomicU8::from_ptr(to).store(value, Ordering::Release),
            Word::Half(value) => AtomicU32::from_ptr(to.cast()).store(value, Ordering::Release),
            Word::Whole(value) => AtomicU64::from_ptr(to.cast()).store(value, Ordering::Release),
        }
    }
    true
}

/// # Safety
/// As [`super::store`]'s.
pub(super) unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    // SAFETY: by contract.
    Some(unsafe { AtomicU64::from_ptr(at) }.fetch_add(add, Ordering::AcqRel))
}

/// # Safety
/// As [`super::store`]'s.
pub(super) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    // SAFETY: by contract.
    let cell = unsafe { AtomicU64::from_ptr(at) };
    let swapped = cell.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
    Some(swapped.unwrap_or_else(|seen| seen))
}

/// No fault is of a copy, as far as is known.
///
/// # Safety
/// None; as that of the other kind of copies.
pub(super) unsafe fn leave(_: *mut ucontext_t) -> bool {
    false
}
