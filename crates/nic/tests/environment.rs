//! The environment of tests whose device is to have other settings than the others'.

use std::ffi::OsStr;

/// Sets a variable before the device opens. That is the whole process's, so the test has to have
/// one to itself, as `cargo nextest` gives it.
///
/// # Panics
/// When there are other tests in this process.
pub fn set(name: &str, value: impl AsRef<OsStr>) {
    let alone =
        std::env::var_os("NEXTEST").is_some() || std::env::args().any(|arg| arg == "--exact");
    assert!(
        alone,
        "{name} is for a whole process: cargo nextest run, or --exact"
    );
    // SAFETY: the only test of this process, which begins with it: no other thread reads the
    // environment.
    unsafe { std::env::set_var(name, value) };
}
