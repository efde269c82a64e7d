//! Says, never silently, what cannot be tested on this machine.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Prints `SKIPPED: what (why)` where the test harness cannot swallow it, and appends it to the file named by
/// `RNIC_SKIP_LOG`, if any.
///
/// # Panics
/// When `RNIC_TEST_NO_SKIP` is set to something else than `0`: then the machine is meant to be able to run everything.
pub fn skipped(what: &str, why: &str) {
    let line = format!("SKIPPED: {what} ({why})\n");
    let strict = std::env::var_os("RNIC_TEST_NO_SKIP").is_some_and(|v| v != "0" && !v.is_empty());
    assert!(!strict, "RNIC_TEST_NO_SKIP is set, but {line}");
    // Not eprint!: the harness captures that and drops it when the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("RNIC_SKIP_LOG")
        && let Ok(mut log) = OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = log.write_all(line.as_bytes());
    }
}

/// The program's path, looked up in `PATH` and the system folders that an unprivileged `PATH` leaves out.
pub fn find_program(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name.as_ref()))
        .find(|candidate| candidate.is_file())
}

/// Whether every program is installed; says which are not, and that `what` is skipped for it.
pub fn have_programs(what: &str, names: &[&str]) -> bool {
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| find_program(name).is_none())
        .collect();
    if !missing.is_empty() {
        skipped(what, &format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
