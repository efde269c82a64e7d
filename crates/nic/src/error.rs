//! Errors of the verbs: which verb, which errno, why in words.

use std::borrow::Cow;
use std::fmt;

/// A verb refused its arguments or could not do its work.
///
/// The errno is what the C verb returns; the reason is for people.
#[derive(Clone, Debug)]
pub struct Error {
    verb: &'static str,
    errno: i32,
    reason: Cow<'static, str>,
}

/// Result of a verb.
pub type Result<T> = std::result::Result<T, Error>;

/// What an errno of a system call of the device's own means, if that is certain.
pub(crate) fn meaning(errno: i32) -> &'static str {
    match errno {
        libc::EFBIG => "; the limit of a file's size is too small (`ulimit -f`)",
        libc::ENOSPC => "; that file system is full",
        libc::EMFILE => "; the process has too many descriptors (`ulimit -n`)",
        // The device closes none that it still uses.
        libc::EBADF => {
            "; the program has closed a descriptor of the device's: it may close only its own (close(2), closefrom(3))"
        }
        _ => "",
    }
}

impl Error {
    /// `verb` failed with `errno` because of `reason`.
    pub fn new(verb: &'static str, errno: i32, reason: impl Into<Cow<'static, str>>) -> Error {
        Error {
            verb,
            errno,
            reason: reason.into(),
        }
    }

    /// EINVAL.
    pub fn invalid(verb: &'static str, reason: impl Into<Cow<'static, str>>) -> Error {
        Error::new(verb, libc::EINVAL, reason)
    }

    /// ENOMEM: the system has no memory.
    pub(crate) fn no_memory(verb: &'static str) -> Error {
        Error::new(verb, libc::ENOMEM, crate::reserve::NO_MEMORY)
    }

    /// A system call failed.
    pub(crate) fn os(verb: &'static str, what: &'static str, source: &std::io::Error) -> Error {
        let errno = source.raw_os_error().unwrap_or(libc::EIO);
        let call = rnic_sys::failed_call(source).unwrap_or(what);
        Error::new(verb, errno, format!("{call}: {source}{}", meaning(errno)))
    }

    /// The errno of the C verb; of `rdma_getaddrinfo`, the code of getaddrinfo(3), which is negative.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The C name of the verb.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// Why, in words.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A code of getaddrinfo(3) is none of the system's errors.
        if self.errno < 0 {
            return write!(f, "{}: {} ({})", self.verb, self.reason, self.errno);
        }
        let os = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "{}: {} ({os})", self.verb, self.reason)
    }
}

impl std::error::Error for Error {}
