//! System calls on paths, with the arguments as a C program gave them, for who stands in front of
//! libc's functions: what is wrong with the arguments is the kernel's to say.

use std::ffi::{c_char, c_void};
use std::io;
use std::os::fd::RawFd;

use crate::raw::raw;

/// openat(2): the new descriptor, which is the caller's to close.
///
/// # Safety
/// `path` is a C string, or an address that may not be read.
pub unsafe fn open(dir: RawFd, path: *const c_char, flags: i32, mode: u32) -> io::Result<usize> {
    // SAFETY: the kernel reads the path.
    unsafe { raw!(libc::SYS_openat, dir, path, flags, mode) }
}

/// fstatat(2).
///
/// # Safety
/// As for [`open`]. `buffer` has room for the kernel's `struct stat`, which is libc's on 64-bit
/// systems.
pub unsafe fn status(
    dir: RawFd,
    path: *const c_char,
    buffer: *mut c_void,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the kernel reads the path and fills the buffer.
    unsafe { raw!(libc::SYS_newfstatat, dir, path, buffer, flags) }
}

/// statx(2).
///
/// # Safety
/// As for [`open`]. `buffer` has room for a `struct statx`.
pub unsafe fn extended_status(
    dir: RawFd,
    path: *const c_char,
    flags: i32,
    mask: u32,
    buffer: *mut c_void,
) -> io::Result<usize> {
    // SAFETY: the kernel reads the path and fills the buffer.
    unsafe { raw!(libc::SYS_statx, dir, path, flags, mask, buffer) }
}

/// access(2), by the real ids of the process.
///
/// # Safety
/// As for [`open`].
pub unsafe fn access(path: *const c_char, mode: i32) -> io::Result<usize> {
    // SAFETY: the kernel reads the path.
    unsafe { raw!(libc::SYS_faccessat, libc::AT_FDCWD, path, mode) }
}

/// readlinkat(2): bytes of the target that were written.
///
/// # Safety
/// As for [`open`]. `buffer` has room for `size` bytes.
pub unsafe fn read_link(
    dir: RawFd,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> io::Result<usize> {
    // SAFETY: the kernel reads the path, and writes so many bytes at most.
    unsafe { raw!(libc::SYS_readlinkat, dir, path, buffer, size) }
}

/// Whether a call on an attribute follows a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// To what it leads to.
    Followed,
    /// The link itself is meant.
    Taken,
}

/// getxattr(2) or lgetxattr(2): bytes of the value.
///
/// # Safety
/// As for [`open`], also `name`. `value` has room for `size` bytes.
pub unsafe fn attribute(
    path: *const c_char,
    links: Links,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> io::Result<usize> {
    let call = match links {
        Links::Followed => libc::SYS_getxattr,
        Links::Taken => libc::SYS_lgetxattr,
    };
    // SAFETY: the kernel reads path and name, and writes so many bytes at most.
    unsafe { raw!(call, path, name, value, size) }
}

/// listxattr(2) or llistxattr(2): bytes of the names.
///
/// # Safety
/// As for [`open`]. `list` has room for `size` bytes.
pub unsafe fn attributes(
    path: *const c_char,
    links: Links,
    list: *mut c_char,
    size: usize,
) -> io::Result<usize> {
    let call = match links {
        Links::Followed => libc::SYS_listxattr,
        Links::Taken => libc::SYS_llistxattr,
    };
    // SAFETY: the kernel reads the path, and writes so many bytes at most.
    unsafe { raw!(call, path, list, size) }
}

/// chdir(2).
///
/// # Safety
/// As for [`open`].
pub unsafe fn change_folder(path: *const c_char) -> io::Result<usize> {
    // SAFETY: the kernel reads the path.
    unsafe { raw!(libc::SYS_chdir, path) }
}
