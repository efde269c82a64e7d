//! Memory that this process shares with another, or with the kernel: the one place that touches it.
//!
//! The other side may change any byte at any time. So nothing here gives out a reference to plain
//! bytes: words are atomic, and bytes are copied between shared and private memory. What was copied
//! may be torn or nonsense, but it does not change any more once it is private, and only then is it
//! looked at.
//!
//! # Why the `unsafe` in here is sound
//! A [`Segment`] owns a mapping of `len` bytes, which stays until it is dropped. The file behind it
//! can never become shorter (a seal, looked at before it is mapped; or it is a ring of a socket, or
//! a map of eBPF), so no access within it can raise SIGBUS. Every access is checked against `len`.
//! [`Words`] is one of which only the atomic words are used, so threads may share it.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{Fd, guarded};

/// A mapping of a memory file.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is no thread's own, and what is done to it through `&Segment` is atomic, or a
// copy of bytes that this process's engine, which holds a lock, is the only one to make.
unsafe impl Send for Segment {}

impl Segment {
    /// A new one, all zero, and the file behind it, which is `whole` bytes long.
    pub fn create(len: usize, whole: usize) -> io::Result<(Segment, Fd)> {
        let file = crate::memory_file(whole)?;
        Ok((Segment::map(&file, 0, len)?, file))
    }

    /// The first `len` bytes of one of another process, which is `whole` bytes long.
    pub fn attach(file: &Fd, len: usize, whole: usize) -> io::Result<Segment> {
        if !crate::is_safe_memory_file(file, whole) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Segment::map(file, 0, len)
    }

    /// `len` bytes at `at`, a multiple of the page size, of a file that is known to be that long,
    /// or of a socket that has rings there or a map of eBPF, which cannot be mapped if they are
    /// shorter.
    pub fn map(file: &Fd, at: usize, len: usize) -> io::Result<Segment> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses changes none that exists.
        let base = unsafe { mmap(anywhere, len, protection, flags, file, at as u64)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Segment { base, len })
    }

    /// Has an AF_XDP socket receive into it and send from it, by frames of so many bytes.
    pub fn lend_to(&self, socket: &Fd, frame: u32) -> io::Result<()> {
        // SAFETY: a shared mapping, of which nothing here gives out more than copies. The kernel
        // holds the pages by itself, so they outlive the mapping if the socket does.
        unsafe { crate::register_frames(socket, self.base.as_ptr(), self.len, frame) }
    }

    /// Bytes of it.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a number of bytes")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where `len` bytes at `at` lie, all of them inside.
    #[inline]
    fn bytes(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "inside the segment");
        // SAFETY: the offset is within the mapping, as was just checked, so that the sum does not
        // overflow.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// The word at `at`, a multiple of 8.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "aligned");
        let word = self.bytes(at, 8).cast();
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; all access to it
        // is atomic.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// The half word at `at`, a multiple of 4.
    #[inline]
    pub fn flag(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "aligned");
        let word = self.bytes(at, 4).cast();
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; all access to it
        // is atomic.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// The cache line at `at` will be looked at soon.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: every x86-64 processor has the instruction; it is a hint, which faults
            // nowhere.
            unsafe { _mm_prefetch(self.bytes(at, 1).cast(), _MM_HINT_T0) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = self.bytes(at, 1);
    }

    /// The cache line at `at` will be written soon.
    #[inline]
    pub fn prefetch_to_write(&self, at: usize) {
        let line = self.bytes(at, 1);
        // SAFETY: a hint, which faults nowhere and changes nothing; a processor that does not know
        // it does nothing.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Copies private bytes into it.
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) {
        let to = self.bytes(at, from.len());
        // SAFETY: `to` has room for as many bytes, and no private memory overlaps a mapping of our
        // own. Should the other process write there at the same time, the bytes are arbitrary, for
        // it alone to read.
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// [`Segment::write`] of bytes that the application may change at the same time, so that no
    /// reference to them may be made. False: their memory is gone ([`guarded`]).
    ///
    /// # Safety
    /// `[from, from + len)` is memory for [`guarded::copy`] to read, and no part of this mapping.
    #[inline]
    pub unsafe fn write_from(&self, at: usize, from: *const u8, len: usize) -> bool {
        let to = self.bytes(at, len);
        // SAFETY: `from` is what the caller says, and none of this mapping; `to` has room for as
        // many bytes. Should the other process write there at the same time, the bytes are
        // arbitrary, for it alone to read.
        unsafe { guarded::copy(from, to, len) }
    }

    /// Copies bytes out of it.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.bytes(at, to.len());
        // SAFETY: `to` is ours to write, and none of this mapping; as many bytes are at `from`.
        // Should the other process write there at the same time, the bytes are arbitrary, and any
        // bytes are a value of `u8`.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
    }

    /// [`Segment::read`] to memory that the application may use at the same time, so that no
    /// reference to it may be made. False: that memory is gone ([`guarded`]).
    ///
    /// # Safety
    /// `[to, to + len)` is memory for [`guarded::copy`] to write, and no part of this mapping.
    #[inline]
    pub unsafe fn read_to(&self, at: usize, to: *mut u8, len: usize) -> bool {
        let from = self.bytes(at, len);
        // SAFETY: `to` is what the caller says, and the rest as in `read`.
        unsafe { guarded::copy(from, to, len) }
    }
}

/// `std::ptr::copy_nonoverlapping`, without a call for what fits into the first cache line of a
/// record.
///
/// # Safety
/// As that function's.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    const BLOCK: usize = 16;
    /// One block, wherever it lies.
    #[inline]
    unsafe fn block(from: *const u8, to: *mut u8, at: usize) {
        // SAFETY: the caller has that many bytes behind `at` in both places.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), BLOCK) };
    }
    // SAFETY: all blocks lie within `len` bytes; the last overlaps the one before.
    unsafe {
        match len {
            BLOCK..=32 => {
                block(from, to, 0);
                block(from, to, len - BLOCK);
            }
            33..=64 => {
                block(from, to, 0);
                block(from, to, BLOCK);
                block(from, to, len - 2 * BLOCK);
                block(from, to, len - BLOCK);
            }
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is `self`'s alone, of this length, and no reference into it outlives
        // `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A part of which only words are used.
#[derive(Debug)]
pub struct Words(Segment);

// SAFETY: words are atomic, and nothing else is done through `&Words`.
unsafe impl Sync for Words {}

impl Words {
    /// `len` bytes at `at` of a file that a [`Segment`] was made of or attached to, and that is at
    /// least as long.
    pub fn map(file: &Fd, at: usize, len: usize) -> io::Result<Words> {
        Ok(Words(Segment::map(file, at, len)?))
    }

    /// `len` bytes, all zero, of a new file.
    pub fn create(len: usize) -> io::Result<(Words, Fd)> {
        let (segment, file) = Segment::create(len, len)?;
        Ok((Words(segment), file))
    }

    /// All of a file of `len` bytes that another process made.
    pub fn attach(file: &Fd, len: usize) -> io::Result<Words> {
        Ok(Words(Segment::attach(file, len, len)?))
    }

    /// The word at `at`, a multiple of 8.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        self.0.word(at)
    }

    /// The half word at `at`, a multiple of 4.
    #[inline]
    pub fn flag(&self, at: usize) -> &AtomicU32 {
        self.0.flag(at)
    }
}
