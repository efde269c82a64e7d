//! Memory that two processes have mapped.

use std::io;
use std::sync::atomic::AtomicU64;

use rnic_sys::Fd;
use rnic_sys::segment::Segment;

/// Some of it, and the file behind it.
pub struct Shared {
    segment: Segment,
    file: Fd,
}

impl Shared {
    /// Makes some, of zeros; a multiple of the page size.
    pub fn new(len: usize) -> io::Result<Shared> {
        let (segment, file) = Segment::create(len, len)?;
        Ok(Shared { segment, file })
    }

    /// Another process's, by its number there.
    pub fn of(pid: u32, number: i32, len: usize) -> io::Result<Shared> {
        let file = rnic_sys::process::take_descriptor(pid, number)?;
        let segment = Segment::attach(&file, len, len)?;
        Ok(Shared { segment, file })
    }

    /// Its number in this process.
    pub fn number(&self) -> i32 {
        self.file.raw()
    }

    /// A word, by how many are before it.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        self.segment.word(index * 8)
    }

    /// Copies into it. The caller's protocol keeps the peer away from there meanwhile.
    ///
    /// # Panics
    /// When the range is not within.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.segment.write(at, bytes);
    }

    /// Copies from it, likewise.
    ///
    /// # Panics
    /// When the range is not within.
    pub fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.segment.read(at, bytes);
    }
}
