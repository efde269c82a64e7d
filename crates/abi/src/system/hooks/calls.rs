//! The interposed functions of libc. Unversioned, so that they satisfy every version of the name.
//!
//! Each takes the same steps: redirect the path if it is one of ours, then do what libc does. Where
//! libc only makes a system call, so do we: finding libc's own function with dlsym(3) could come
//! too early in a process's life for some allocators, which call `open` before they can allocate.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use rnic_sys::path::{self, Links};

use super::next::{call_next, hook};
use super::{live, tree};
use crate::export::seam::{self, kernel_answer, set_errno};
use crate::system::counters;

/// First bytes of the paths that may be ours.
const PREFIXES: [&[u8]; 2] = [b"/sys/class/infiniband", b"/dev/infiniband"];

/// A path on its way to the kernel: redirected or as it came.
struct Target {
    redirected: Option<CString>,
    original: *const c_char,
}

impl Target {
    /// # Safety
    /// `path` is NULL or a C string.
    unsafe fn of(path: *const c_char) -> Target {
        // SAFETY: by contract.
        let redirected = match unsafe { may_be_ours(path) } {
            // SAFETY: not NULL, so a C string.
            true => seam::attempt(|| tree::redirect(unsafe { CStr::from_ptr(path) }.to_bytes())),
            false => None,
        };
        Target {
            redirected,
            original: path,
        }
    }

    /// For opening: a counter leads to its live file. `None` and EACCES for writing where that is
    /// not allowed.
    ///
    /// # Safety
    /// `path` is NULL or a C string.
    unsafe fn to_open(path: *const c_char, writes: bool) -> Option<Target> {
        // SAFETY: by contract.
        let mut target = unsafe { Target::of(path) };
        if target.redirected.is_some() {
            // SAFETY: redirected, so a C string.
            let text = unsafe { CStr::from_ptr(path) }.to_bytes();
            if writes && tree::is_read_only(text) {
                set_errno(libc::EACCES);
                return None;
            }
            let live = seam::attempt(|| counters::at(&tree::canonical(text)).and_then(live::path));
            target.redirected = live.or(target.redirected);
        }
        Some(target)
    }

    fn as_ptr(&self) -> *const c_char {
        self.redirected
            .as_ref()
            .map_or(self.original, |path| path.as_ptr())
    }
}

/// Compares the first bytes; stops at the first difference, so never reads past the end.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn may_be_ours(path: *const c_char) -> bool {
    !path.is_null()
        && PREFIXES.iter().any(|prefix| {
            // SAFETY: bytes up to and including the terminator.
            prefix
                .iter()
                .enumerate()
                .all(|(i, byte)| unsafe { *path.add(i) } as u8 == *byte)
        })
}

/// The mode argument of open(2): there only if a file may be created.
fn mode_for(flags: c_int, mode: c_uint) -> c_uint {
    match flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        true => mode,
        false => 0,
    }
}

/// # Safety
/// The arguments of openat(2).
unsafe fn open_file(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: by contract.
    unsafe {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY
            || flags & (libc::O_TRUNC | libc::O_CREAT) != 0;
        let Some(target) = Target::to_open(path, writes) else {
            return -1;
        };
        let mode = mode_for(flags, mode);
        kernel_answer(path::open(dir, target.as_ptr(), flags, mode)) as c_int
    }
}

/// # Safety
/// The arguments of fstatat(2); `buffer` has room for the kernel's `struct stat`, which is libc's
/// on 64-bit systems.
unsafe fn stat_file(dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: by contract.
    unsafe {
        let target = Target::of(path);
        kernel_answer(path::status(dir, target.as_ptr(), buffer, flags)) as c_int
    }
}

/// # Safety
/// The arguments of readlinkat(2).
unsafe fn read_link(dir: c_int, path: *const c_char, buffer: *mut c_char, size: usize) -> isize {
    // SAFETY: by contract.
    unsafe {
        let target = Target::of(path);
        kernel_answer(path::read_link(dir, target.as_ptr(), buffer, size))
    }
}

/// What fopen(3) and its kin open.
///
/// # Safety
/// `path` is NULL or a C string; `mode` is a C string.
unsafe fn target_of_stream(path: *const c_char, mode: *const c_char) -> Option<Target> {
    // SAFETY: by contract.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let reads = mode.first() == Some(&b'r') && !mode.contains(&b'+');
    // SAFETY: by contract.
    unsafe { Target::to_open(path, !reads) }
}

hook! {
    extern "C";
    // The mode is variadic in C: a register that may hold anything when no file is created.
    open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open_file(libc::AT_FDCWD, path, flags, mode);
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open_file(libc::AT_FDCWD, path, flags, mode);
    __open_2(path: *const c_char, flags: c_int) -> c_int = open_file(libc::AT_FDCWD, path, flags, 0);
    __open64_2(path: *const c_char, flags: c_int) -> c_int = open_file(libc::AT_FDCWD, path, flags, 0);
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open_file(dir, path, flags, mode);
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open_file(dir, path, flags, mode);
    __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int = open_file(dir, path, flags, 0);
    __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int = open_file(dir, path, flags, 0);

    stat(path: *const c_char, buffer: *mut c_void) -> c_int = stat_file(libc::AT_FDCWD, path, buffer, 0);
    stat64(path: *const c_char, buffer: *mut c_void) -> c_int = stat_file(libc::AT_FDCWD, path, buffer, 0);
    lstat(path: *const c_char, buffer: *mut c_void) -> c_int
        = stat_file(libc::AT_FDCWD, path, buffer, libc::AT_SYMLINK_NOFOLLOW);
    lstat64(path: *const c_char, buffer: *mut c_void) -> c_int
        = stat_file(libc::AT_FDCWD, path, buffer, libc::AT_SYMLINK_NOFOLLOW);
    fstatat(dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int
        = stat_file(dir, path, buffer, flags);
    fstatat64(dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int
        = stat_file(dir, path, buffer, flags);
    // What programs built against glibc before 2.33 call for the six above.
    __xstat(_version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int
        = stat_file(libc::AT_FDCWD, path, buffer, 0);
    __xstat64(_version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int
        = stat_file(libc::AT_FDCWD, path, buffer, 0);
    __lxstat(_version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int
        = stat_file(libc::AT_FDCWD, path, buffer, libc::AT_SYMLINK_NOFOLLOW);
    __lxstat64(_version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int
        = stat_file(libc::AT_FDCWD, path, buffer, libc::AT_SYMLINK_NOFOLLOW);
    __fxstatat(_version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int
        = stat_file(dir, path, buffer, flags);
    __fxstatat64(_version: c_int, dir: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int
        = stat_file(dir, path, buffer, flags);
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int = {
        let target = Target::of(path);
        kernel_answer(path::extended_status(dir, target.as_ptr(), flags, mask, buffer)) as c_int
    };

    access(path: *const c_char, mode: c_int) -> c_int = {
        let target = Target::of(path);
        kernel_answer(path::access(target.as_ptr(), mode)) as c_int
    };
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = {
        let path = Target::of(path);
        call_next!(c"faccessat" as fn(c_int, *const c_char, c_int, c_int) -> c_int,
            (dir, path.as_ptr(), mode, flags), -1)
    };
    eaccess(path: *const c_char, mode: c_int) -> c_int = {
        let path = Target::of(path);
        call_next!(c"eaccess" as fn(*const c_char, c_int) -> c_int, (path.as_ptr(), mode), -1)
    };

    readlink(path: *const c_char, buffer: *mut c_char, size: usize) -> isize
        = read_link(libc::AT_FDCWD, path, buffer, size);
    readlinkat(dir: c_int, path: *const c_char, buffer: *mut c_char, size: usize) -> isize
        = read_link(dir, path, buffer, size);
    __readlink_chk(path: *const c_char, buffer: *mut c_char, size: usize, room: usize) -> isize
        = read_link(libc::AT_FDCWD, path, buffer, size.min(room));

    // ls(1) asks for these of every file that it lists.
    getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize = {
        let target = Target::of(path);
        kernel_answer(path::attribute(target.as_ptr(), Links::Followed, name, value, size))
    };
    lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize = {
        let target = Target::of(path);
        kernel_answer(path::attribute(target.as_ptr(), Links::Taken, name, value, size))
    };
    listxattr(path: *const c_char, list: *mut c_char, size: usize) -> isize = {
        let target = Target::of(path);
        kernel_answer(path::attributes(target.as_ptr(), Links::Followed, list, size))
    };
    llistxattr(path: *const c_char, list: *mut c_char, size: usize) -> isize = {
        let target = Target::of(path);
        kernel_answer(path::attributes(target.as_ptr(), Links::Taken, list, size))
    };

    fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE = {
        match target_of_stream(path, mode) {
            Some(path) => call_next!(c"fopen" as fn(*const c_char, *const c_char) -> *mut libc::FILE,
                (path.as_ptr(), mode), null_mut()),
            None => null_mut(),
        }
    };
    fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE = {
        match target_of_stream(path, mode) {
            Some(path) => call_next!(c"fopen64" as fn(*const c_char, *const c_char) -> *mut libc::FILE,
                (path.as_ptr(), mode), null_mut()),
            None => null_mut(),
        }
    };
    opendir(path: *const c_char) -> *mut libc::DIR = {
        let path = Target::of(path);
        call_next!(c"opendir" as fn(*const c_char) -> *mut libc::DIR, (path.as_ptr()), null_mut())
    };
    scandir(path: *const c_char, list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int = {
        let path = Target::of(path);
        call_next!(c"scandir" as fn(*const c_char, *mut c_void, *const c_void, *const c_void) -> c_int,
            (path.as_ptr(), list, filter, compare), -1)
    };
    scandir64(path: *const c_char, list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int = {
        let path = Target::of(path);
        call_next!(c"scandir64" as fn(*const c_char, *mut c_void, *const c_void, *const c_void) -> c_int,
            (path.as_ptr(), list, filter, compare), -1)
    };

    // Shells glob there.
    chdir(path: *const c_char) -> c_int = {
        let path = Target::of(path);
        kernel_answer(path::change_folder(path.as_ptr())) as c_int
    };
    glob(pattern: *const c_char, flags: c_int, failed: *const c_void, found: *mut Glob) -> c_int
        = with_our_folders(pattern, flags, found, |flags| {
            call_next!(c"glob" as fn(*const c_char, c_int, *const c_void, *mut Glob) -> c_int,
                (pattern, flags, failed, found), libc::GLOB_ABORTED)
        });
    glob64(pattern: *const c_char, flags: c_int, failed: *const c_void, found: *mut Glob) -> c_int
        = with_our_folders(pattern, flags, found, |flags| {
            call_next!(c"glob64" as fn(*const c_char, c_int, *const c_void, *mut Glob) -> c_int,
                (pattern, flags, failed, found), libc::GLOB_ABORTED)
        });

    realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char = match virtual_path(path) {
        Some(found) => found.and_then(|path| give(&path, resolved)).unwrap_or(null_mut()),
        None => call_next!(c"realpath" as fn(*const c_char, *mut c_char) -> *mut c_char, (path, resolved), null_mut()),
    };
    __realpath_chk(path: *const c_char, resolved: *mut c_char, room: usize) -> *mut c_char = match virtual_path(path) {
        Some(found) => found.and_then(|path| give(&path, resolved)).unwrap_or(null_mut()),
        None => call_next!(c"__realpath_chk" as fn(*const c_char, *mut c_char, usize) -> *mut c_char,
            (path, resolved, room), null_mut()),
    };
    canonicalize_file_name(path: *const c_char) -> *mut c_char = match virtual_path(path) {
        Some(found) => found.and_then(|path| give(&path, null_mut())).unwrap_or(null_mut()),
        None => call_next!(c"canonicalize_file_name" as fn(*const c_char) -> *mut c_char, (path), null_mut()),
    };
}

/// `glob_t` of glibc, and the functions that glob(3) calls with GLOB_ALTDIRFUNC in the place of its
/// own.
#[repr(C)]
struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    closedir: *const c_void,
    readdir: *const c_void,
    opendir: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

/// glob(3) calls the functions of libc itself, not by their names: for a pattern that begins where
/// something may be ours it is given these.
///
/// # Safety
/// The arguments of glob(3).
unsafe fn with_our_folders(
    pattern: *const c_char,
    flags: c_int,
    found: *mut Glob,
    glob: impl FnOnce(c_int) -> c_int,
) -> c_int {
    const GLOB_ALTDIRFUNC: c_int = 1 << 9;
    // SAFETY: by contract.
    if found.is_null() || flags & GLOB_ALTDIRFUNC != 0 || !unsafe { may_be_ours(pattern) } {
        return glob(flags);
    }
    // SAFETY: by contract, the caller's structure, of which these fields are the implementation's.
    unsafe {
        (*found).closedir = libc::closedir as *const c_void;
        (*found).readdir = libc::readdir as *const c_void;
        (*found).opendir = opendir as *const c_void;
        (*found).lstat = lstat as *const c_void;
        (*found).stat = stat as *const c_void;
    }
    let result = glob(flags | GLOB_ALTDIRFUNC);
    // SAFETY: as above.
    unsafe { (*found).flags &= !GLOB_ALTDIRFUNC };
    result
}

/// The canonical form of a redirected path, as programs are to see it. `None`: the path is not
/// redirected; `Some(None)`: it does not exist, and errno says so.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn virtual_path(path: *const c_char) -> Option<Option<CString>> {
    // SAFETY: by contract.
    let target = unsafe { Target::of(path) };
    let real = target.redirected.as_ref()?;
    let mut resolved = [0u8; libc::PATH_MAX as usize];
    let found = call_next!(
        c"realpath" as fn(*const c_char, *mut c_char) -> *mut c_char,
        (real.as_ptr(), resolved.as_mut_ptr().cast()),
        null_mut()
    );
    if found.is_null() {
        return Some(None);
    }
    let resolved = CStr::from_bytes_until_nul(&resolved).ok()?.to_bytes();
    // SAFETY: redirected, so not NULL.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let shown = seam::attempt(|| Some(tree::shown(text, real.to_bytes(), resolved)));
    Some(shown.and_then(|shown| CString::new(shown).ok()))
}

/// Puts a path where realpath(3) does: into the caller's `PATH_MAX` bytes, or into new memory.
fn give(path: &CStr, resolved: *mut c_char) -> Option<*mut c_char> {
    let bytes = path.to_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        set_errno(libc::ENAMETOOLONG);
        return None;
    }
    let to = match resolved.is_null() {
        // SAFETY: a size; the caller frees it.
        true => unsafe { libc::malloc(bytes.len()) }.cast(),
        false => resolved,
    };
    if !to.is_null() {
        // SAFETY: room for that many bytes, by the contract of realpath(3) or just allocated.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    }
    Some(to)
}
