//! The seam between Rust and C: results become errno, panics stop here.
//!
//! Every exported function runs its body through one of these wrappers, which differ in how the verb reports failure.
//! All of them also set `errno`. A panic is a bug of ours; it is reported as EIO and never unwinds into C.

use core::ffi::{c_int, c_uint};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// An errno value on its way to C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// What verbs return inside.
pub type Result<T> = std::result::Result<T, Errno>;

pub const EINVAL: Errno = Errno(libc::EINVAL);
pub const ENOMEM: Errno = Errno(libc::ENOMEM);
pub const EBUSY: Errno = Errno(libc::EBUSY);
pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);

impl From<rnic_nic::Error> for Errno {
    /// The words are kept for those who asked for them (`RNIC_LOG`): C has room for the number only.
    fn from(error: rnic_nic::Error) -> Errno {
        if log_enabled() && error.errno() != libc::EAGAIN {
            quiet(|| {
                rnic_link::tell(format_args!("{error}"));
                Ok(())
            });
        }
        if error.errno() != libc::EAGAIN {
            rnic_nic::refused_verb(&error);
        }
        Errno(error.errno())
    }
}

/// `RNIC_LOG` is set to something other than `0` or `off`.
fn log_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        std::env::var_os("RNIC_LOG").is_some_and(|v| !v.is_empty() && v != "0" && v != "off")
    })
}

/// Sets the thread's errno.
pub fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn guard<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // Objects that a panic leaves half-changed stay memory-safe: their state is in the nic crate, behind its locks.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Errno(libc::EIO)))
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `guard` with cancellation off. What the standard library calls in between (open, read, write, close) are cancellation
/// points: a thread with a `pthread_cancel(3)` ahead of it would be unwound there, through our frames and with our locks,
/// which ends the process. It is cancelled later, at the next point of its own or in `cancel::event`.
fn shielded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    const PTHREAD_CANCEL_DISABLE: c_int = 1;
    let mut old = 0;
    // SAFETY: `old` is a place for the state before.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut old) };
    let outcome = guard(body);
    // SAFETY: a state that the C library gave; it may take NULL.
    unsafe { pthread_setcancelstate(old, null_mut()) };
    outcome
}

fn as_status(outcome: Result<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// Verbs that return 0 or a positive errno.
pub fn status(body: impl FnOnce() -> Result<()>) -> c_int {
    as_status(shielded(body))
}

/// The same for the data path, whose system calls are raw ones and so no cancellation points.
pub fn data_status(body: impl FnOnce() -> Result<()>) -> c_int {
    as_status(guard(body))
}

/// Verbs that return a pointer, or NULL and errno.
pub fn pointer<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    shielded(body).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        null_mut()
    })
}

/// Verbs that return a number, or -1 and errno.
pub fn number(body: impl FnOnce() -> Result<c_int>) -> c_int {
    shielded(body).unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

fn as_count(outcome: Result<usize>) -> isize {
    match outcome {
        Ok(n) => n as isize,
        Err(Errno(errno)) => {
            set_errno(errno);
            -(errno as isize)
        }
    }
}

/// Verbs that return a count, or a negative errno (`_ibv_query_gid_table`).
pub fn count(body: impl FnOnce() -> Result<usize>) -> isize {
    as_count(shielded(body))
}

/// The same for the data path (`ibv_poll_cq`), see [`data_status`].
pub fn data_count(body: impl FnOnce() -> Result<usize>) -> isize {
    as_count(guard(body))
}

/// Functions without a result.
pub fn quiet(body: impl FnOnce() -> Result<()>) {
    let _ = shielded(body);
}

/// The same for the data path, see [`data_status`].
pub fn data_quiet(body: impl FnOnce() -> Result<()>) {
    let _ = guard(body);
}

/// Cleans up after a failure that `errno` tells of.
pub fn keeping_errno(body: impl FnOnce()) {
    // SAFETY: the address of this thread's errno is always valid.
    let errno = unsafe { *libc::__errno_location() };
    quiet(|| {
        body();
        Ok(())
    });
    set_errno(errno);
}

/// An attempt that may come to nothing.
#[cfg(not(test))]
pub fn attempt<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    shielded(|| Ok(body())).ok().flatten()
}

/// A C string argument as text; NULL and what is not UTF-8 are EINVAL.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives as long as the result is used.
pub unsafe fn text<'a>(text: *const core::ffi::c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: not NULL, terminated and alive by contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| EINVAL)
}

/// An `int` argument that must not be negative.
pub fn unsigned(value: c_int) -> Result<c_uint> {
    c_uint::try_from(value).map_err(|_| EINVAL)
}
