//! Files of memory that processes share.

use std::io;

use super::{Fd, check};

/// `f_type` of memory files (statfs(2)).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A memory file of `len` bytes that can neither shrink nor grow any more, all of which is there.
pub fn memory_file(len: usize) -> io::Result<Fd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is a terminated string that lives through the call, and the descriptor is new.
        unsafe {
            Fd::from_call(libc::syscall(
                libc::SYS_memfd_create,
                c"rnic".as_ptr(),
                flags,
            ))
        }
    };
    // Some systems insist on the first (vm.memfd_noexec), older ones do not know it.
    let fd = create(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| create(flags))?;
    super::truncate(&fd, len as u64)?;
    // So that it is there: where memory is not overcommitted (vm.overcommit_memory), a hole that cannot be filled is SIGBUS.
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_fallocate, fd.0, 0, 0usize, len) })?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_ADD_SEALS, seals) })?;
    Ok(fd)
}

/// Is it a memory file of `len` bytes that nobody can make shorter? Only such a one may be mapped that came from another
/// process: access behind the end of a file is SIGBUS. Files of huge pages are none, since there may be no page for them.
pub fn is_safe_memory_file(fd: &Fd, len: usize) -> bool {
    // SAFETY: no pointers. Other files than those of memory have no seals and fail.
    let seals = check(unsafe { libc::syscall(libc::SYS_fcntl, fd.0, libc::F_GET_SEALS) });
    if !seals.is_ok_and(|seals| seals & libc::F_SEAL_SHRINK as usize != 0) {
        return false;
    }
    // SAFETY: `statfs` is a C struct of integers, for which all zero bytes are a value.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the local struct.
    let asked = check(unsafe { libc::syscall(libc::SYS_fstatfs, fd.0, &raw mut fs) });
    #[allow(
        clippy::unnecessary_cast,
        reason = "its type differs between C libraries"
    )]
    let plain = asked.is_ok() && fs.f_type as i64 == TMPFS_MAGIC;
    // The seal was looked at first: from then on the length holds.
    plain && super::stat(fd).is_ok_and(|stat| stat.size == len as u64)
}
