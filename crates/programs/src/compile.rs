//! Small C programs of our own, compiled against the system's headers like any program of a user.

use crate::skip;
use crate::trial::Trial;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `c/NAME.c` into the trial's folder; None, said in words, where there is no compiler or
/// no header.
///
/// # Panics
/// When it does not compile.
pub fn c_program(trial: &Trial, name: &str) -> Option<PathBuf> {
    c_program_with(trial, name, &[])
}

/// The same, linked with more than libibverbs.
///
/// # Panics
/// When it does not compile.
pub fn c_program_with(trial: &Trial, name: &str, libraries: &[&str]) -> Option<PathBuf> {
    if !skip::have_programs(trial.name(), &["gcc"]) {
        return None;
    }
    for (header, package) in [
        ("infiniband/verbs.h", "libibverbs-dev"),
        ("rdma/rdma_cma.h", "librdmacm-dev"),
    ] {
        if !Path::new("/usr/include").join(header).exists() {
            skip::skipped(trial.name(), &format!("{package} is not installed"));
            return None;
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let program = trial.folder().join(name);
    let output = Command::new("gcc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
        ])
        .arg(&program)
        .arg(folder.join(name).with_extension("c"))
        .args(libraries)
        .args(["-libverbs", "-lpthread"])
        .output()
        .expect("gcc is installed");
    assert!(
        output.status.success(),
        "{name}.c: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(program)
}
