//! Errors of the verbs that come from the system.

pub use rnic_types::{Error, Result};

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
