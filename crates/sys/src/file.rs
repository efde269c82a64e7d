//! Files: open, read, write, lock.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use rustix::fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::raw::raw;
use crate::{Fd, blame};

fn or_here(dir: Option<&Fd>) -> BorrowedFd<'_> {
    dir.map_or(CWD, AsFd::as_fd)
}

/// openat(2) relative to `dir` (or the working directory), always close-on-exec and never through a
/// symbolic link.
pub fn open_at(dir: Option<&Fd>, path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    open(or_here(dir), path, flags | libc::O_NOFOLLOW, mode)
}

/// open(2), close-on-exec, through symbolic links: for files that the user names.
pub fn open_at_following(path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    open(CWD, path, flags, mode)
}

fn open(dir: BorrowedFd<'_>, path: &CStr, flags: i32, mode: u32) -> io::Result<Fd> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    let opened = fs::openat(dir, path, flags, Mode::from_raw_mode(mode));
    Ok(blame::of("openat", opened)?.into())
}

/// mkdirat(2).
pub fn make_dir_at(dir: Option<&Fd>, path: &CStr, mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(or_here(dir), path, Mode::from_raw_mode(mode))?)
}

/// unlinkat(2) of a file.
pub fn unlink_at(dir: &Fd, path: &CStr) -> io::Result<()> {
    Ok(fs::unlinkat(dir, path, AtFlags::empty())?)
}

/// The same of what may be there or not.
pub fn remove_at(dir: &Fd, name: &str) {
    let _ = fs::unlinkat(dir, name, AtFlags::empty());
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
    let st = fs::fstat(fd)?;
    Ok(Stat {
        uid: st.st_uid,
        mode: st.st_mode,
        size: u64::try_from(st.st_size).unwrap_or(0),
        modified: (st.st_mtime as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(st.st_mtime_nsec as u64),
        removed: st.st_nlink == 0,
        id: (st.st_dev, st.st_ino),
    })
}

/// utimensat(2): now, for both times.
const NOW: Timestamps = {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: fs::UTIME_NOW,
    };
    Timestamps {
        last_access: now,
        last_modification: now,
    }
};

/// Sets access and modification time to now, so that cleaners of temporary folders leave the file
/// alone.
pub fn touch(fd: &Fd) {
    let _ = fs::futimens(fd, &NOW);
}

/// The same of a file by its name, as of a socket, which has no descriptor to its name.
pub fn touch_at(dir: &Fd, name: &str) {
    let _ = fs::utimensat(dir, name, &NOW, AtFlags::empty());
}

/// No file may be that long (`ulimit -f`): a call that needs it would end the process by a signal.
fn check_file_size(len: u64) -> Result<(), Errno> {
    match getrlimit(Resource::Fsize).current {
        Some(most) if most < len => Err(Errno::FBIG),
        _ => Ok(()),
    }
}

/// ftruncate(2). Above the limit of a file's size an error, and not the signal.
pub fn truncate(fd: &Fd, len: u64) -> io::Result<()> {
    let done = check_file_size(len).and_then(|()| fs::ftruncate(fd, len));
    blame::of("ftruncate", done)
}

/// Where the next bytes lie that are not a hole, from `offset` on (lseek SEEK_DATA; it moves the
/// file's position); `None`: there are none.
pub fn next_data(fd: &Fd, offset: u64) -> io::Result<Option<u64>> {
    match fs::seek(fd, fs::SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        // A file system that knows no holes.
        Err(Errno::INVAL) => Ok(Some(offset)),
        Err(e) => Err(e.into()),
    }
}

/// pread(2); short at the end of the file.
pub fn read_at(fd: &Fd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(fd, buffer, offset)?)
}

/// pwrite(2). Above the limit of a file's size an error, and not the signal.
pub fn write_at(fd: &Fd, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let written = check_file_size(offset.saturating_add(bytes.len() as u64))
        .and_then(|()| rustix::io::pwrite(fd, bytes, offset));
    blame::of("pwrite", written)
}

/// write(2).
pub fn write(fd: &Fd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, bytes)?)
}

/// flock(2) exclusively, without waiting; false: somebody else holds it.
pub fn try_lock_file(fd: &Fd) -> io::Result<bool> {
    match fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => blame::of("flock", Err(e)),
    }
}

/// Gives the lock of [`try_lock_file`] back.
pub fn unlock_file(fd: &Fd) {
    let _ = fs::flock(fd, FlockOperation::Unlock);
}

/// A lock of one byte; rustix has those of whole files alone.
fn byte_lock(kind: i32, offset: u64) -> libc::flock {
    // SAFETY: `flock` is a C struct of integers, for which all zero bytes are a value; OFD locks
    // demand l_pid 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = offset as _;
    lock.l_len = 1;
    lock
}

/// fcntl(2) with a lock.
fn about_lock(fd: &Fd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: these commands read and write a `struct flock`, which is lent to the call.
    let done = unsafe { raw!(libc::SYS_fcntl, fd.0, command, &raw mut *lock) };
    blame::of("fcntl", done.map(drop))
}

/// Locks the byte at `offset` for this open file description (fcntl F_OFD_SETLK); false: another
/// one holds it. The kernel drops the lock when the last copy of the descriptor is closed, be it by
/// SIGKILL.
pub fn try_lock_byte(fd: &Fd, offset: u64) -> io::Result<bool> {
    try_lock_byte_as(fd, offset, false)
}

/// Locks the byte at `offset` for this open file description: shared with others that do the same,
/// or exclusively. False: another one has it in a way that excludes this.
pub fn try_lock_byte_as(fd: &Fd, offset: u64, shared: bool) -> io::Result<bool> {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    match about_lock(fd, libc::F_OFD_SETLK, &mut byte_lock(kind, offset)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives the lock of [`try_lock_byte`] back.
pub fn unlock_byte(fd: &Fd, offset: u64) {
    let _ = about_lock(fd, libc::F_OFD_SETLK, &mut byte_lock(libc::F_UNLCK, offset));
}

/// Does another open file description hold the lock on the byte at `offset`?
pub fn byte_is_locked(fd: &Fd, offset: u64) -> io::Result<bool> {
    let mut lock = byte_lock(libc::F_WRLCK, offset);
    about_lock(fd, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Is this the number of an open descriptor?
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: the number is only used in the call, which fails if no descriptor has it.
    fd >= 0 && rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok()
}

/// Which file a descriptor refers to. Holds on to the file, so that no other one gets its number.
#[derive(Debug)]
pub struct FileIdentity {
    held: Fd,
    numbers: (u64, u64),
}

impl FileIdentity {
    /// Of a descriptor of somebody else's.
    pub fn of(fd: RawFd) -> io::Result<FileIdentity> {
        FileIdentity::of_owned(Fd::duplicate_of(fd)?)
    }

    /// Keeps the descriptor.
    pub fn of_owned(held: Fd) -> io::Result<FileIdentity> {
        let numbers = stat(&held)?.id;
        Ok(FileIdentity { held, numbers })
    }

    /// One more descriptor of the file.
    pub fn descriptor(&self) -> io::Result<Fd> {
        self.held.duplicate()
    }

    /// Device and inode.
    pub fn numbers(&self) -> (u64, u64) {
        self.numbers
    }

    /// Both are the same file.
    pub fn same(&self, other: &FileIdentity) -> bool {
        self.numbers == other.numbers
    }
}
