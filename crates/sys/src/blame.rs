//! Which system call an error is of: an errno alone does not say it.

use std::cell::Cell;
use std::io;

thread_local! {
    /// The call of this thread that failed last, of those that make something, and its errno.
    static LAST: Cell<(&'static str, i32)> = const { Cell::new(("", 0)) };
}

/// Notes that it was this call, if it failed.
#[inline]
pub(crate) fn of<T, E: Into<io::Error>>(call: &'static str, result: Result<T, E>) -> io::Result<T> {
    result.map_err(|error| {
        let error = error.into();
        LAST.set((call, error.raw_os_error().unwrap_or(0)));
        error
    })
}

/// The system call that `error` is of, if it is one of this crate's that make something, and the
/// last of this thread that failed.
pub fn failed_call(error: &io::Error) -> Option<&'static str> {
    let (call, errno) = LAST.get();
    let is_it = error.raw_os_error().is_some_and(|raw| raw == errno);
    (is_it && !call.is_empty()).then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: a call is named only with the error that it gave.
    #[test]
    fn an_error_is_of_its_call() {
        let failed: io::Result<()> = of("timerfd_create", Err(rustix::io::Errno::PERM));
        let error = failed.expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert_eq!(failed_call(&error), Some("timerfd_create"));
        let other = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(failed_call(&other), None);
        let of_nobody = io::Error::other("words");
        assert_eq!(failed_call(&of_nobody), None);
    }
}
