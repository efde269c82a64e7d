//! Says, never silently, what cannot be tested on this machine.

use std::ffi::OsStr;
use std::path::PathBuf;

pub use rnic_skip::skipped;

/// The program's path, looked up in `PATH` and the system folders that an unprivileged `PATH`
/// leaves out.
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
