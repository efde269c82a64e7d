//! The memory of other processes.

use std::io;

use super::{Fd, check};

/// Some bytes of memory, of this process or of another one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Span(libc::iovec);

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}..+{}", self.0.iov_base, self.0.iov_len)
    }
}

// SAFETY: an address and a length, which nobody uses as a pointer but by contract.
unsafe impl Send for Span {}
// SAFETY: as above.
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

/// The memory of a process, which the rules of ptrace(2) must let this one reach. The descriptor stands for its address space
/// of now, and reads nothing once that is gone.
pub fn open_memory(pid: u32) -> io::Result<Fd> {
    if pid == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let path = std::ffi::CString::new(format!("/proc/{pid}/mem"))?;
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a terminated string that lives through the call.
    let fd =
        check(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) })?;
    Ok(Fd(fd as i32))
}

/// Reads all of `out` at `at`.
pub fn read_words(memory: &Fd, at: u64, out: &mut [u64]) -> io::Result<()> {
    let len = size_of_val(out);
    // SAFETY: the kernel writes at most `len` bytes to `out`, of which any are words.
    let n =
        check(unsafe { libc::syscall(libc::SYS_pread64, memory.0, out.as_mut_ptr(), len, at) })?;
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
    // SAFETY: by contract.
    unsafe { transfer((libc::SYS_pread64, libc::SYS_preadv), memory, at, spans) }
}

/// Writes spans at `at`, one after the other.
///
/// # Safety
/// The spans are memory that may be read.
#[inline]
pub unsafe fn write_spans(memory: &Fd, at: u64, spans: &[Span]) -> io::Result<usize> {
    // SAFETY: by contract.
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
        // SAFETY: by contract.
        return check(unsafe {
            libc::syscall(one, memory.0, span.0.iov_base, span.len(), at as usize)
        });
    }
    #[cfg(not(target_pointer_width = "64"))]
    let _ = one;
    // Where words have 32 bits, the position comes in two.
    let (low, high) = (at as usize, (u128::from(at) >> usize::BITS) as usize);
    // SAFETY: by contract; the list itself lives through the call.
    check(unsafe { libc::syscall(list, memory.0, spans.as_ptr(), spans.len(), low, high) })
}

/// process_vm_writev(2).
///
/// # Safety
/// `local` is memory that may be read.
#[inline]
pub unsafe fn write_to(pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
    // SAFETY: by contract.
    unsafe { vm(libc::SYS_process_vm_writev, pid, local, remote) }
}

/// process_vm_readv(2).
///
/// # Safety
/// `local` is memory that may be written.
#[inline]
pub unsafe fn read_from(pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
    // SAFETY: by contract.
    unsafe { vm(libc::SYS_process_vm_readv, pid, local, remote) }
}

/// # Safety
/// `local` is memory with which the call may do what it does.
#[inline]
unsafe fn vm(call: i64, pid: u32, local: &[Span], remote: &[Span]) -> io::Result<usize> {
    // SAFETY: by contract; the lists live through the call, and the kernel checks the other side.
    check(unsafe {
        libc::syscall(
            call as _,
            pid as libc::pid_t,
            local.as_ptr(),
            local.len(),
            remote.as_ptr(),
            remote.len(),
            0usize,
        )
    })
}

/// The process of that number has ended; false also where nothing can be known (0).
pub fn has_ended(pid: u32) -> bool {
    let Ok(pid @ 1..) = libc::pid_t::try_from(pid) else {
        return false;
    };
    // SAFETY: no pointers.
    match check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0usize) }) {
        // Readable when all its threads have ended, whether or not its parent has noticed.
        Ok(fd) => super::wait_readable(&Fd(fd as i32), 0),
        Err(e) => e.raw_os_error() == Some(libc::ESRCH),
    }
}
