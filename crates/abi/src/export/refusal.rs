//! Why a verb failed, in words: C has room for the number only.
//!
//! The words go to those who asked for them (`RNIC_LOG`), and to `rnic run`, which names the last
//! refusal when a program that failed has ended. The calls of a program's data path (posting,
//! polling) keep to plain numbers.

use core::ffi::c_int;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rnic_nic::Error;

use crate::export::seam;

/// An errno value on its way to C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// What a failure says of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It wanted what it cannot have.
    Refused,
    /// It goes on after something else failed, if anything has: NULL instead of an object that
    /// could not be made, an object still in use at its end. Not what `rnic run` is to name if
    /// there is a refusal before it.
    Consequence,
    /// It got an answer: a table has ended, a peer has rejected. The call was as it should be.
    Answer,
    /// It was said by the code that has the words, or is nobody's business.
    Said,
}

/// A failure of a verb.
#[derive(Debug)]
pub struct Refusal {
    errno: c_int,
    kind: Kind,
    words: Cow<'static, str>,
}

pub const EINVAL: Refusal = Refusal::new(libc::EINVAL);
pub const ENOMEM: Refusal = Refusal::new(libc::ENOMEM);
pub const EBUSY: Refusal = Refusal::new(libc::EBUSY);
pub const EOPNOTSUPP: Refusal = Refusal::new(libc::EOPNOTSUPP);
/// For a structure or variable of the caller's that is not there.
pub const NULL: Refusal = Refusal::with(libc::EINVAL, "a pointer that it needs is NULL");
/// For an object of the parent's in a forked child.
pub const PARENTS: Refusal = Refusal::with(
    libc::ENODEV,
    "this object was made before fork() or daemon() and is the parent's: make it afterwards",
);

impl Refusal {
    /// With the reason, as it follows the verb's name and a colon.
    pub const fn with(errno: c_int, words: &'static str) -> Refusal {
        Refusal {
            errno,
            kind: Kind::Refused,
            words: Cow::Borrowed(words),
        }
    }

    /// Without words of its own; see [`Refusal::because`].
    pub const fn new(errno: c_int) -> Refusal {
        Refusal::with(errno, "")
    }

    /// An outcome of which nothing is to be said (any more).
    pub const fn silent(errno: c_int) -> Refusal {
        Refusal {
            errno,
            kind: Kind::Said,
            words: Cow::Borrowed(""),
        }
    }

    /// With the reason of this one case.
    #[cold]
    pub fn because(mut self, words: impl Into<Cow<'static, str>>) -> Refusal {
        self.words = words.into();
        self
    }

    /// The same reason, by another number.
    pub fn with_errno(mut self, errno: c_int) -> Refusal {
        self.errno = errno;
        self
    }

    /// Most likely the program goes on after another failure, see [`Kind::Consequence`].
    pub fn consequence(mut self) -> Refusal {
        self.kind = Kind::Consequence;
        self
    }

    /// An answer, not a refusal: the call was as it should be.
    pub fn answer(mut self) -> Refusal {
        self.kind = Kind::Answer;
        self
    }

    /// The number for C; a negative one is a code of getaddrinfo(3).
    pub const fn errno(&self) -> c_int {
        self.errno
    }

    fn words(&self) -> Cow<'static, str> {
        match (self.errno, &*self.words) {
            (libc::ENOMEM, "") => "no memory is left".into(),
            (libc::EOPNOTSUPP, "") => "the device does not have it".into(),
            (libc::EIO, "") => "an error of rnic itself: please report it".into(),
            (_, "") => "no more is known".into(),
            _ => self.words.clone(),
        }
    }

    /// Says that `verb` failed.
    #[cold]
    pub fn report(&self, verb: &'static str) {
        // Nothing was there, or a signal came: programs call again.
        if self.kind == Kind::Said || matches!(self.errno, libc::EAGAIN | libc::EINTR) {
            return;
        }
        report(&Error::new(verb, self.errno, self.words()), self.kind);
    }
}

impl From<Errno> for Refusal {
    /// A number alone is an object that is NULL (see `object::from_c`), or an error of the
    /// system's.
    fn from(Errno(errno): Errno) -> Refusal {
        match errno {
            libc::EINVAL => EINVAL.because("NULL in place of an object").consequence(),
            _ => Refusal::new(errno),
        }
    }
}

/// A verb of the device has refused: said at once, with its words.
#[cold]
fn said(error: &Error) -> c_int {
    if error.errno() != libc::EAGAIN {
        report(error, Kind::Refused);
    }
    error.errno()
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::silent(said(&error))
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(said(&error))
    }
}

/// A verb that makes or changes something has succeeded. So the program has survived what was
/// refused before, as one does that asks for less and less until it gets it.
#[inline]
pub fn went_on() {
    if REFUSED.load(Ordering::Relaxed) {
        went_on_after_all();
    }
}

#[cold]
fn went_on_after_all() {
    REFUSED.store(false, Ordering::Relaxed);
    seam::quiet(|| {
        rnic_nic::survived_refusals();
        Ok(())
    });
}

/// Something was refused that may be why the program fails.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Something was refused at all: what the program does wrong after that may follow from it.
static EVER_REFUSED: AtomicBool = AtomicBool::new(false);

fn report(error: &Error, kind: Kind) {
    let reported = match kind {
        Kind::Answer | Kind::Said => false,
        Kind::Consequence => !EVER_REFUSED.load(Ordering::Relaxed),
        Kind::Refused => {
            REFUSED.store(true, Ordering::Relaxed);
            EVER_REFUSED.store(true, Ordering::Relaxed);
            true
        }
    };
    // Shielded: writing is a cancellation point.
    seam::quiet(|| {
        log(error);
        if reported {
            rnic_nic::refused_verb(error);
        }
        Ok(())
    });
}

/// `RNIC_LOG` is set to something other than `0` or `off`.
fn log_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| rnic_settings::LOG.is_on())
}

/// Verb, errno and words of a line that was written.
type Lines = BTreeSet<(&'static str, c_int, String)>;

static LOGGED: Mutex<Lines> = Mutex::new(Lines::new());

/// Lines that are not written again, up to a number: their words may hold anything.
const MOST: usize = 1024;

/// The lines that were written, locked.
pub type LogGuard = MutexGuard<'static, Lines>;

/// Held across fork(2), so that the child finds it free.
pub fn lock_log() -> LogGuard {
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line on standard error, once: programs post to a full queue, and ask for what is not there,
/// again and again.
fn log(error: &Error) {
    if !log_enabled() {
        return;
    }
    let mut logged = lock_log();
    if logged.len() >= MOST {
        logged.clear();
    }
    let is_new = logged.insert((error.verb(), error.errno(), error.reason().to_owned()));
    drop(logged);
    if is_new {
        rnic_host::log(format_args!("{error}"));
    }
}

#[cfg(test)]
mod tests;
