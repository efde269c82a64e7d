//! Errors of the verbs: which verb, which errno, why in words.

use std::borrow::Cow;
use std::fmt;

/// errno(3); the same number on every architecture of Linux.
const EINVAL: i32 = 22;

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
        Error::new(verb, EINVAL, reason)
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
