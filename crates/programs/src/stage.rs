//! The binaries under test, where any user can execute them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What a checkout's release build leaves that programs need.
const BINARIES: [&str; 2] = ["rnic", "librnic_verbs.so"];

/// The folder with the release build of `rnic` and the library: `RNIC_BIN_DIR`, or the workspace's own, built if need be.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(folder) = std::env::var_os("RNIC_BIN_DIR") {
            return PathBuf::from(folder);
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(&cargo)
            .args([
                "build",
                "--release",
                "--quiet",
                "-p",
                "rnic-cli",
                "-p",
                "rnic-abi",
            ])
            .current_dir(&workspace)
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the release build of rnic failed");
        // A test's executable lies in TARGET/PROFILE/deps.
        let executable = std::env::current_exe().expect("a test knows its executable");
        let target = executable
            .ancestors()
            .nth(3)
            .expect("tests lie three folders deep in the target folder");
        target.join("release")
    })
}

/// Copies the binaries into `folder`, executable by everybody: a checkout may be unreadable to other users. A process of its own
/// does: what another test starts meanwhile would inherit a descriptor that we write to, and until that is closed nobody can
/// execute the copy (ETXTBSY).
///
/// # Panics
/// When one is missing: nothing can be tested then.
pub fn copy_into(folder: &Path) {
    for name in BINARIES {
        let from = built().join(name);
        let to = folder.join(name);
        let copied = Command::new("cp").args([&from, &to]).output();
        let copied = copied.expect("cp is installed");
        assert!(
            copied.status.success(),
            "{} (cargo build --release)",
            String::from_utf8_lossy(&copied.stderr).trim()
        );
        fs::set_permissions(&to, Permissions::from_mode(0o755)).expect("own file");
    }
}
