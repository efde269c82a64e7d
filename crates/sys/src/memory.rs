//! Files of memory that processes share.

use std::io;

use rustix::fs::{self, FallocateFlags, MemfdFlags, SealFlags};

use crate::Fd;
use crate::blame;

/// `f_type` of memory files (statfs(2)).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A memory file of `len` bytes that can neither shrink nor grow any more, all of which is there.
pub fn memory_file(len: usize) -> io::Result<Fd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let create = |flags| fs::memfd_create(c"rnic", flags);
    // Some systems insist on the first (vm.memfd_noexec), older ones do not know it.
    let made = create(flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| create(flags));
    let fd: Fd = blame::of("memfd_create", made)?.into();
    crate::truncate(&fd, len as u64)?;
    // So that it is there: where memory is not overcommitted (vm.overcommit_memory), a hole that
    // cannot be filled is SIGBUS.
    let filled = fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64);
    blame::of("fallocate", filled)?;
    fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Is it a memory file of `len` bytes that nobody can make shorter? Only such a one may be mapped
/// that came from another process: access behind the end of a file is SIGBUS. Files of huge pages
/// are none, since there may be no page for them.
pub fn is_safe_memory_file(fd: &Fd, len: usize) -> bool {
    // Other files than those of memory have no seals and fail.
    let seals = fs::fcntl_get_seals(fd);
    if !seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return false;
    }
    let plain = fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 == TMPFS_MAGIC);
    // The seal was looked at first: from then on the length holds.
    plain && crate::stat(fd).is_ok_and(|stat| stat.size == len as u64)
}
