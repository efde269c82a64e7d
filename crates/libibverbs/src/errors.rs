//! What a library's answers mean.

use core::ffi::c_int;
use std::io;

use rnic_types::{Error, Result};

/// Who refused, and why as far as the number tells.
pub fn refused(verb: &'static str, device: &str, errno: i32) -> Error {
    let why = match errno {
        libc::EIO | libc::ENODEV | libc::ENXIO => {
            "does not answer: it is gone, or its driver has failed"
        }
        libc::ENOMEM => {
            "has no room or memory for that; registered memory counts as locked (`ulimit -l`)"
        }
        libc::EINVAL => "takes other arguments",
        libc::ENOSYS | libc::EOPNOTSUPP => "cannot do that",
        libc::EPERM | libc::EACCES => "is not for this user",
        libc::EBUSY => "still uses it",
        _ => "refused",
    };
    Error::new(verb, errno, format!("the device {device} {why}"))
}

/// The calling thread's errno; one that tells nothing is EIO.
pub fn last_errno() -> i32 {
    match io::Error::last_os_error().raw_os_error() {
        Some(0) | None => libc::EIO,
        Some(errno) => errno,
    }
}

/// Of a verb that gives 0 or an errno. Old ones give -1 and set it, and some providers (rxe's) give
/// it negated.
pub fn outcome(verb: &'static str, device: &str, given: c_int) -> Result<()> {
    match given {
        0 => Ok(()),
        -1 => Err(refused(verb, device, last_errno())),
        _ => Err(refused(verb, device, given.saturating_abs())),
    }
}

/// Of an operation that the device's table lacks.
pub fn absent(verb: &'static str, device: &str) -> Error {
    refused(verb, device, libc::EOPNOTSUPP)
}

/// Of an object that is not this process's.
pub fn forked(verb: &'static str) -> Error {
    Error::new(
        verb,
        libc::ENODEV,
        "the object is the parent's; a forked child opens the device anew",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_found_however_it_is_given() {
        let errno = |given| outcome("ibv_post_send", "rxe0", given).map_err(|e| e.errno());
        assert_eq!(errno(0), Ok(()));
        assert_eq!(errno(libc::ENOMEM), Err(libc::ENOMEM));
        assert_eq!(errno(-libc::ENOMEM), Err(libc::ENOMEM));
        assert_eq!(errno(c_int::MIN), Err(c_int::MAX));
        let error = outcome("ibv_post_send", "rxe0", libc::EIO).expect_err("gone");
        assert!(
            error
                .to_string()
                .contains("the device rxe0 does not answer")
        );
    }
}
