//! The memory of other processes.

use std::io;
use std::os::fd::RawFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use crate::Fd;
use crate::raw::raw;

/// Some bytes of memory, of this process or of another one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Span(libc::iovec);

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}..+{}", self.0.iov_base, self.0.iov_len)
    }
}

// SAFETY: an address and a length. Safe code can do nothing with them but read them as numbers; the
// unsafe functions that take a span as memory leave it to their callers that it is memory of this
// thread's to use.
unsafe impl Send for Span {}
// SAFETY: nothing changes it, and what is read through a shared reference are the same two numbers.
unsafe impl Sync for Span {}

impl Span {
    /// None.
    pub const EMPTY: Span = Span(libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    });

    /// `len` bytes at `at`.
    #[inline]
    pub fn new(at: usize, len: usize) -> Span {
        Span(libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: len,
        })
    }

    /// These words.
    pub fn of(words: &mut [u64]) -> Span {
        Span::new(words.as_mut_ptr() as usize, size_of_val(words))
    }

    /// Address of the first byte.
    #[inline]
    pub fn at(&self) -> usize {
        self.0.iov_base as usize
    }

    /// Bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a number of bytes")]
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// The first `n`, and the rest.
    pub fn split_at(self, n: usize) -> (Span, Span) {
        let (at, n) = (self.0.iov_base as usize, n.min(self.len()));
        (
            Span::new(at, n),
            Span::new(at.wrapping_add(n), self.len() - n),
        )
    }
}

/// The memory of a process, which the rules of ptrace(2) must let this one reach. The descriptor
/// stands for its address space of now, and reads nothing once that is gone.
pub fn open_memory(pid: u32) -> io::Result<Fd> {
    if pid == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let path = format!("/proc/{pid}/mem");
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into())
}

/// This process's memory, for somebody else: the descriptor is open, so its owner's permission is
/// not asked for again.
pub fn own_memory() -> io::Result<Fd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, c"/proc/self/mem", flags, Mode::empty())?.into())
}

/// A descriptor of procfs: not one of a file system whose server could keep a reader waiting.
pub fn is_proc(fd: &Fd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|stat| stat.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// Reads all of `out` at `at`.
pub fn read_words(memory: &Fd, at: u64, out: &mut [u64]) -> io::Result<()> {
    let len = size_of_val(out);
    let span = Span::of(out);
    // SAFETY: the span is `out`, which is borrowed to be written, and any bytes are words.
    let n = unsafe { read_spans(memory, at, &[span]) }?;
    if n == len {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads at `at` into spans, one after the other.
///
/// # Safety
/// The spans are memory that may be written.
#[inline]
pub unsafe fn read_spans(memory: &Fd, at: u64, spans: &[Span]) -> io::Result<usize> {
    // SAFETY: these calls write the spans, which they may by the caller's word.
    unsafe { transfer((libc::SYS_pread64, libc::SYS_preadv), memory, at, spans) }
}

/// Writes spans at `at`, one after the other.
///
/// # Safety
/// The spans are memory that may be read.
#[inline]
pub unsafe fn write_spans(memory: &Fd, at: u64, spans: &[Span]) -> io::Result<usize> {
    // SAFETY: these calls read the spans, which they may by the caller's word.
    unsafe { transfer((libc::SYS_pwrite64, libc::SYS_pwritev), memory, at, spans) }
}

/// One span, the usual case, spares the kernel to fetch a list.
///
/// # Safety
/// The spans are memory with which the calls may do what they do.
#[inline]
unsafe fn transfer(
    (one, list): (libc::c_long, libc::c_long),
    memory: &Fd,
    at: u64,
    spans: &[Span],
) -> io::Result<usize> {
    #[cfg(target_pointer_width = "64")]
    if let [span] = spans {
        // SAFETY: the call reads or writes the span's bytes, with which it may do so by the
        // caller's word.
        return unsafe { raw!(one, memory.0, span.0.iov_base, span.len(), at) };
    }
    #[cfg(not(target_pointer_width = "64"))]
    let _ = one;
    // Where words have 32 bits, the position comes in two.
    let (low, high) = (at as usize, (u128::from(at) >> usize::BITS) as usize);
    // SAFETY: the call reads the list, which is borrowed, and reads or writes the spans' bytes,
    // with which it may do so by the caller's word.
    unsafe { raw!(list, memory.0, spans.as_ptr(), spans.len(), low, high) }
}

/// Copies bytes to `at` of another process.
pub fn write_bytes(pid: u32, at: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = Span::new(bytes.as_ptr().expose_provenance(), bytes.len());
    // SAFETY: the span is `bytes`, which is borrowed to be read.
    unsafe { write_to(pid, &[local], &[Span::new(at as usize, bytes.len())]) }
}

/// Copies bytes from `at` of another process.
pub fn read_bytes(pid: u32, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = Span::new(bytes.as_mut_ptr().expose_provenance(), bytes.len());
    // SAFETY: the span is `bytes`, which is borrowed to be written, and any bytes are bytes.
    unsafe { read_from(pid, &[local], &[Span::new(at as usize, bytes.len())]) }
}

/// A descriptor of another process, by its number there.
pub fn take_descriptor(pid: u32, number: RawFd) -> io::Result<Fd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::NotFound)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let flags = PidfdGetfdFlags::empty();
    Ok(rustix::process::pidfd_getfd(process, number, flags)?.into())
}

/// process_vm_writev(2).
///
/// # Safety
/// `local` is memory that may be read.
#[inline]
pub unsafe fn write_to(pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
    // SAFETY: the call reads `local`, which it may by the caller's word.
    unsafe { vm(libc::SYS_process_vm_writev, pid, local, remote) }
}

/// process_vm_readv(2).
///
/// # Safety
/// `local` is memory that may be written.
#[inline]
pub unsafe fn read_from(pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
    // SAFETY: the call writes `local`, which it may by the caller's word.
    unsafe { vm(libc::SYS_process_vm_readv, pid, local, remote) }
}

/// # Safety
/// `local` is memory with which the call may do what it does.
#[inline]
unsafe fn vm(call: libc::c_long, pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
    let pid = pid as libc::pid_t;
    let (ours, theirs) = (local.as_ptr(), remote.as_ptr());
    // SAFETY: the lists are borrowed for the call. What it does to memory of this process the
    // caller has vouched for; memory of the other one is the kernel's to guard.
    unsafe { raw!(call, pid, ours, local.len(), theirs, remote.len()) }
}

/// What a process calls itself (proc(5), comm), without the newline. It may be anything, also what a
/// terminal takes for a command. `None`: there is no such process, or nobody may know.
pub fn name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The process of that number has ended; false also where nothing can be known (0).
pub fn has_ended(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        // Readable when all its threads have ended, whether or not its parent has noticed.
        Ok(fd) => crate::wait_readable(&Fd::from(fd), 0),
        Err(e) => e == Errno::SRCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read_and_written_through_its_descriptor() {
        let memory = own_memory().unwrap();
        assert!(is_proc(&memory));
        assert!(!is_proc(&crate::memory_file(8).unwrap()));
        let mut bytes = [1u8; 16];
        let at = bytes.as_mut_ptr() as u64;
        assert_eq!(crate::write_at(&memory, &[9; 16], at).unwrap(), 16);
        let mut copy = [0; 16];
        assert_eq!(crate::read_at(&memory, &mut copy, at).unwrap(), 16);
        assert_eq!((copy, std::hint::black_box(bytes)), ([9; 16], [9; 16]));
        assert!(crate::read_at(&memory, &mut copy, 8).is_err());
    }
}
