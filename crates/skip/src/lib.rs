//! What tests of several crates need.
//!
//! A test that cannot test something on this machine says so, never silently. A test that returns
//! early counts as passed, and the test harness swallows what it prints. So a test that lacks a
//! tool or a right calls [`skipped`], which all of `./test` goes by: a line on standard error, a
//! line in the summary, and with `RNIC_TEST_NO_SKIP=1`, as in continuous integration, a failure.

mod process;

use std::io::Write;

pub use process::{Folder, all_descriptors, alone, in_another_namespace, without_options};

/// Writes `SKIPPED what: why` to standard error, past the test harness's capture, and appends it to
/// the file named by `RNIC_SKIP_LOG`, if any.
///
/// # Panics
/// When `RNIC_TEST_NO_SKIP` is set to something else than `0`: then the machine is meant to be able
/// to run everything.
#[track_caller]
pub fn skipped(what: &str, why: &str) {
    let line = format!("SKIPPED {what}: {why}\n");
    assert!(
        !is_forbidden(std::env::var_os("RNIC_TEST_NO_SKIP").as_deref()),
        "RNIC_TEST_NO_SKIP is set, but {line}"
    );
    // Not eprint!: the harness captures that and drops it when the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("RNIC_SKIP_LOG") {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
    }
}

fn is_forbidden(variable: Option<&std::ffi::OsStr>) -> bool {
    variable.is_some_and(|value| !value.is_empty() && value != "0")
}
