//! The binaries under test, where any user can execute them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What a build leaves that programs need.
const BINARIES: [&str; 3] = ["rnic", "librnic_verbs.so", "librnic_record.so"];

/// The folder with `rnic` and the library: `RNIC_BIN_DIR`, or what the tests lie in, where cargo
/// builds both if need be.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(folder) = std::env::var_os("RNIC_BIN_DIR") {
            return PathBuf::from(folder);
        }
        // A test's executable lies in TARGET/PROFILE/deps.
        let executable = std::env::current_exe().expect("a test knows its executable");
        let folder = executable.ancestors().nth(2).expect("two folders deep");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "test",
            Some(other) => other,
        };
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // The whole workspace's, as of its tests: what both depend on is built once.
        let status = Command::new(&cargo)
            .args(["build", "--quiet", "--workspace", "--lib", "--bin", "rnic"])
            .args(["--profile", profile])
            .current_dir(&workspace)
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the build of rnic failed");
        folder.to_owned()
    })
}

/// Copies the binaries into `folder`, executable by everybody: a checkout may be unreadable to
/// other users. A process of its own does: what another test starts meanwhile would inherit a
/// descriptor that we write to, and until that is closed nobody can execute the copy (ETXTBSY).
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
            "{} (cargo build)",
            String::from_utf8_lossy(&copied.stderr).trim()
        );
        fs::set_permissions(&to, Permissions::from_mode(0o755)).expect("own file");
    }
}
