//! Files: open, read, write, lock.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;

use super::{Fd, check};

/// openat(2) relative to `dir` (or the working directory), always close-on-exec and never through a symbolic link.
pub fn open_at(dir: Option<&Fd>, path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    let at = dir.map_or(libc::AT_FDCWD, |d| d.0);
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `path` is a terminated string that lives through the call.
    let fd = check(unsafe { libc::syscall(libc::SYS_openat, at, path.as_ptr(), flags, mode) })?;
    Ok(Fd(fd as RawFd))
}

/// open(2), close-on-exec, through symbolic links: for files that the user names.
pub fn open_at_following(path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: `path` is a terminated string that lives through the call.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode)
    })?;
    Ok(Fd(fd as RawFd))
}

/// mkdirat(2).
pub fn make_dir_at(dir: Option<&Fd>, path: &CStr, mode: u32) -> io::Result<()> {
    let at = dir.map_or(libc::AT_FDCWD, |d| d.0);
    // SAFETY: `path` is a terminated string that lives through the call.
    check(unsafe { libc::syscall(libc::SYS_mkdirat, at, path.as_ptr(), mode) })?;
    Ok(())
}

/// unlinkat(2) of a file.
pub fn unlink_at(dir: &Fd, path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is a terminated string that lives through the call.
    check(unsafe { libc::syscall(libc::SYS_unlinkat, dir.0, path.as_ptr(), 0) })?;
    Ok(())
}

/// The same of what may be there or not.
pub fn remove_at(dir: &Fd, name: &str) {
    if let Ok(name) = CString::new(name) {
        let _ = unlink_at(dir, &name);
    }
}

/// Owner, mode and size of an open file.
pub struct Stat {
    /// Owner.
    pub uid: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// When it was written to, in nanoseconds since 1970, in steps of some milliseconds.
    pub modified: u64,
    /// No name leads to it any more.
    pub removed: bool,
    /// Device and inode: no other file that is there has these.
    pub id: (u64, u64),
}

/// fstat(2).
pub fn stat(fd: &Fd) -> io::Result<Stat> {
    // SAFETY: `stat` is a C struct of integers, for which all zero bytes are a value.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: libc's `fstat` fills the struct it declares; nobody interposes it.
    if unsafe { libc::fstat(fd.0, &raw mut st) } != 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(
        clippy::unnecessary_cast,
        reason = "its types differ between C libraries"
    )]
    let id = (st.st_dev as u64, st.st_ino as u64);
    Ok(Stat {
        uid: st.st_uid,
        mode: st.st_mode,
        size: u64::try_from(st.st_size).unwrap_or(0),
        modified: (st.st_mtime as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(st.st_mtime_nsec as u64),
        removed: st.st_nlink == 0,
        id,
    })
}

/// Sets access and modification time to now, so that cleaners of temporary folders leave the file alone.
pub fn touch(fd: &Fd) {
    // SAFETY: a null path with a descriptor means the descriptor itself, null times mean now; failure is harmless.
    unsafe { libc::syscall(libc::SYS_utimensat, fd.0, 0usize, 0usize, 0) };
}

/// The same of a file by its name, as of a socket, which has no descriptor to its name.
pub fn touch_at(dir: &Fd, name: &str) {
    let Ok(name) = CString::new(name) else {
        return;
    };
    // SAFETY: `name` is a terminated string that lives through the call; null times mean now; failure is harmless.
    unsafe { libc::syscall(libc::SYS_utimensat, dir.0, name.as_ptr(), 0usize, 0) };
}

/// ftruncate(2).
pub fn truncate(fd: &Fd, len: u64) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_ftruncate, fd.0, len) })?;
    Ok(())
}

/// Where the next bytes lie that are not a hole, from `offset` on (lseek SEEK_DATA; it moves the file's position);
/// `None`: there are none.
pub fn next_data(fd: &Fd, offset: u64) -> io::Result<Option<u64>> {
    // SAFETY: no pointers.
    match check(unsafe { libc::syscall(libc::SYS_lseek, fd.0, offset, libc::SEEK_DATA) }) {
        Ok(at) => Ok(Some(at as u64)),
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        // A file system that knows no holes.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(Some(offset)),
        Err(e) => Err(e),
    }
}

/// pread(2); short at the end of the file.
pub fn read_at(fd: &Fd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`.
    check(unsafe {
        libc::syscall(
            libc::SYS_pread64,
            fd.0,
            buffer.as_mut_ptr(),
            buffer.len(),
            offset,
        )
    })
}

/// pwrite(2).
pub fn write_at(fd: &Fd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    // SAFETY: `bytes` is only read.
    check(unsafe {
        libc::syscall(
            libc::SYS_pwrite64,
            fd.0,
            bytes.as_ptr(),
            bytes.len(),
            offset,
        )
    })
}

/// write(2).
pub fn write(fd: &Fd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is only read.
    check(unsafe { libc::syscall(libc::SYS_write, fd.0, bytes.as_ptr(), bytes.len()) })
}

/// flock(2) exclusively, without waiting; false: somebody else holds it.
pub fn try_lock_file(fd: &Fd) -> io::Result<bool> {
    // SAFETY: no pointers.
    match check(unsafe { libc::syscall(libc::SYS_flock, fd.0, libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EWOULDBLOCK) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives the lock of [`try_lock_file`] back.
pub fn unlock_file(fd: &Fd) {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_flock, fd.0, libc::LOCK_UN) };
}

pub(super) fn byte_lock(kind: i32, offset: u64) -> libc::flock {
    // SAFETY: `flock` is a C struct of integers, for which all zero bytes are a value; OFD locks demand l_pid 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = offset as _;
    lock.l_len = 1;
    lock
}

/// Locks the byte at `offset` for this open file description (fcntl F_OFD_SETLK); false: another one holds it.
/// The kernel drops the lock when the last copy of the descriptor is closed, be it by SIGKILL.
pub fn try_lock_byte(fd: &Fd, offset: u64) -> io::Result<bool> {
    try_lock_byte_as(fd, offset, false)
}

/// Locks the byte at `offset` for this open file description: shared with others that do the same, or exclusively. False:
/// another one has it in a way that excludes this.
pub fn try_lock_byte_as(fd: &Fd, offset: u64, shared: bool) -> io::Result<bool> {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    let lock = byte_lock(kind, offset);
    // SAFETY: `lock` is a local `struct flock` and only read.
    match check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_OFD_SETLK, &raw const lock) })
    {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives the lock of [`try_lock_byte`] back.
pub fn unlock_byte(fd: &Fd, offset: u64) {
    let lock = byte_lock(libc::F_UNLCK, offset);
    // SAFETY: as in `try_lock_byte`.
    unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_OFD_SETLK, &raw const lock) };
}

/// Does another open file description hold the lock on the byte at `offset`?
pub fn byte_is_locked(fd: &Fd, offset: u64) -> io::Result<bool> {
    let mut lock = byte_lock(libc::F_WRLCK, offset);
    // SAFETY: the kernel rewrites the local `struct flock`.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_OFD_GETLK, &raw mut lock) })?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}
