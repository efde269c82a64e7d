//! The seam between Rust and C: results become errno, panics stop here.
//!
//! Every exported function runs its body through one of these wrappers, which differ in how the
//! verb reports failure. All of them also set `errno`, and [`Verb`] says in words what failed. A
//! panic is a bug of ours; it is reported as EIO and never unwinds into C.
//!
//! Without memory Rust aborts, unless it has the allocator of [`rnic_nic::reserve`] and code that
//! makes an object asks there: verbs that do are run by [`Verb::makes`] and its like.

use core::ffi::{c_int, c_uint};
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_nic::reserve;

use crate::export::refusal;

pub use crate::export::refusal::{
    EBUSY, EINVAL, ENOMEM, EOPNOTSUPP, Errno, NULL, PARENTS, Refusal,
};

/// What verbs return inside.
pub type Result<T> = std::result::Result<T, Refusal>;

/// What those of the data path return inside: of them only the device's own words are told.
pub type DataResult<T> = std::result::Result<T, Errno>;

/// Sets the thread's errno.
pub fn set_errno(errno: c_int) {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

/// What the kernel says, in the way of libc's functions: a number, or -1 and errno.
pub fn kernel_answer(said: std::io::Result<usize>) -> isize {
    match said {
        Ok(number) => number as isize,
        Err(error) => {
            set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            -1
        }
    }
}

fn guard<T, E: From<Errno>>(
    body: impl FnOnce() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    // Objects that a panic leaves half-changed stay memory-safe: their state is in the nic crate,
    // behind its locks.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err(Errno(libc::EIO).into()))
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `guard` with cancellation off. What the standard library calls in between (open, read, write,
/// close) are cancellation points: a thread with a `pthread_cancel(3)` ahead of it would be unwound
/// there, through our frames and with our locks, which ends the process. It is cancelled later, at
/// the next point of its own or in `cancel::event`.
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

fn as_status(outcome: DataResult<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(errno)) => {
            set_errno(errno);
            errno
        }
    }
}

/// For the data path, whose system calls are raw ones and so no cancellation points: 0 or a
/// positive errno.
pub fn data_status(body: impl FnOnce() -> DataResult<()>) -> c_int {
    as_status(guard(body))
}

fn as_count(outcome: DataResult<usize>) -> isize {
    match outcome {
        Ok(n) => n as isize,
        Err(Errno(errno)) => {
            set_errno(errno);
            -(errno as isize)
        }
    }
}

/// A count, or a negative errno (`ibv_poll_cq`), see [`data_status`].
pub fn data_count(body: impl FnOnce() -> DataResult<usize>) -> isize {
    as_count(guard(body))
}

fn as_pointer<T>(outcome: DataResult<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        null_mut()
    })
}

fn as_number(outcome: DataResult<c_int>) -> c_int {
    outcome.unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        -1
    })
}

/// Makes something by `body`, all of it with memory of the system's. If that has none, what was
/// made is given to `undo`, and the failure is ENOMEM (see [`rnic_nic::reserve`]).
pub fn make<T>(
    verb: &'static str,
    body: impl FnOnce() -> Result<T>,
    undo: impl FnOnce(T),
) -> Result<T> {
    let begun = reserve::begin(verb)?;
    let made = body()?;
    match begun.has_drawn() {
        false => Ok(made),
        true => {
            undo(made);
            Err(ENOMEM)
        }
    }
}

/// The verb that destroys what another one makes.
pub type Destroys<T, R> = unsafe extern "C" fn(*mut T) -> R;

/// A verb by the name that programs call it by.
#[derive(Clone, Copy, Debug)]
pub struct Verb(pub &'static str);

impl Verb {
    /// Runs the body, and tells of its failure.
    fn run<T>(self, body: impl FnOnce() -> Result<T>) -> DataResult<T> {
        called();
        shielded(body).map_err(|refusal| {
            refusal.report(self.0);
            Errno(refusal.errno())
        })
    }

    /// Verbs that return 0 or a positive errno.
    pub fn status(self, body: impl FnOnce() -> Result<()>) -> c_int {
        as_status(self.run(body))
    }

    /// Verbs that return a pointer, or NULL and errno.
    pub fn pointer<T>(self, body: impl FnOnce() -> Result<*mut T>) -> *mut T {
        as_pointer(self.run(body))
    }

    /// Verbs that make an object, see [`make`]: its pointer, or NULL and errno.
    pub fn makes<T, R>(
        self,
        destroys: Destroys<T, R>,
        body: impl FnOnce() -> Result<*mut T>,
    ) -> *mut T {
        let undo = |object| {
            // SAFETY: what this verb has just made, which the program does not know of.
            unsafe { destroys(object) };
        };
        self.pointer(|| make(self.0, body, undo).inspect(|_| refusal::went_on()))
    }

    /// Verbs that make an object and say so by 0; -1 and errno if it was not made. `undo` destroys
    /// it again.
    pub fn makes_also(self, body: impl FnOnce() -> Result<c_int>, undo: impl FnOnce()) -> c_int {
        self.number(|| make(self.0, body, |_| undo()).inspect(|_| refusal::went_on()))
    }

    /// Verbs that change an object, for which it may need memory: 0 or a positive errno.
    pub fn changes(self, body: impl FnOnce() -> Result<()>) -> c_int {
        self.status(|| {
            reserve::begin(self.0)?;
            body().inspect(|()| refusal::went_on())
        })
    }

    /// The same with a number, or -1 and errno.
    pub fn does(self, body: impl FnOnce() -> Result<c_int>) -> c_int {
        self.number(|| {
            reserve::begin(self.0)?;
            body().inspect(|_| refusal::went_on())
        })
    }

    /// Like [`Verb::does`], of a verb that may return a code of getaddrinfo(3) as it is, which the
    /// inner refusal has.
    pub fn looks_up(
        self,
        body: impl FnOnce() -> Result<std::result::Result<(), Refusal>>,
    ) -> c_int {
        self.number(|| {
            reserve::begin(self.0)?;
            match body()? {
                Ok(()) => {
                    refusal::went_on();
                    Ok(0)
                }
                Err(refusal) => {
                    refusal.report(self.0);
                    Ok(refusal.errno())
                }
            }
        })
    }

    /// Verbs that return a number, or -1 and errno.
    pub fn number(self, body: impl FnOnce() -> Result<c_int>) -> c_int {
        as_number(self.run(body))
    }

    /// Verbs that return a count, or a negative errno (`_ibv_query_gid_table`).
    pub fn count(self, body: impl FnOnce() -> Result<usize>) -> isize {
        as_count(self.run(body))
    }
}

/// The program calls a verb: for `rnic run`, which is to know that it was reached.
#[inline]
fn called() {
    static CALLED: AtomicBool = AtomicBool::new(false);
    if !CALLED.load(Ordering::Relaxed) && !CALLED.swap(true, Ordering::Relaxed) {
        quiet(|| {
            rnic_nic::was_reached();
            Ok(())
        });
    }
}

fn nameless<T>(body: impl FnOnce() -> Result<T>) -> DataResult<T> {
    called();
    shielded(body).map_err(|refusal| Errno(refusal.errno()))
}

/// As [`Verb::status`] for functions that programs do not call, or that explain themselves: nothing
/// is told.
pub fn status(body: impl FnOnce() -> Result<()>) -> c_int {
    as_status(nameless(body))
}

/// [`Verb::pointer`] in the same way.
pub fn pointer<T>(body: impl FnOnce() -> Result<*mut T>) -> *mut T {
    as_pointer(nameless(body))
}

/// [`Verb::number`] in the same way.
pub fn number(body: impl FnOnce() -> Result<c_int>) -> c_int {
    as_number(nameless(body))
}

/// Functions without a result.
pub fn quiet(body: impl FnOnce() -> Result<()>) {
    let _ = shielded(body);
}

/// The same for the data path, see [`data_status`].
pub fn data_quiet(body: impl FnOnce() -> DataResult<()>) {
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
pub fn attempt<T>(body: impl FnOnce() -> Option<T>) -> Option<T> {
    shielded(|| Ok(body())).ok().flatten()
}

/// A C string argument as text; NULL and what is not UTF-8 are EINVAL.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives as long as the result is used.
pub unsafe fn text<'a>(text: *const core::ffi::c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(NULL);
    }
    // SAFETY: not NULL, terminated and alive by contract.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| EINVAL.because("a text is not UTF-8"))
}

/// An `int` argument that must not be negative; `what` it is called.
pub fn unsigned(what: &str, value: c_int) -> Result<c_uint> {
    c_uint::try_from(value).map_err(|_| EINVAL.because(format!("{what} is {value}")))
}
