//! Where our library is, and the folder of names under which programs look for it.

use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::elf::{self, Kind};
use super::program::HEAD;
use crate::failure::{Failure, Result};
use crate::sys;

/// The drop-in library as cargo builds it.
const LIBRARY: &str = "librnic_verbs.so";
/// Names under which programs load it; one file, so the loader maps it once.
const NAMES: [&str; 4] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
];
/// The one to preload.
pub const PRELOAD: &str = "libibverbs.so.1";

/// Finds the library: `RNIC_LIB`, else near this program.
pub fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("RNIC_LIB").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return named(&path).map_err(|error| {
            Failure::new(format!(
                "RNIC_LIB names {}, which cannot be used",
                path.display()
            ))
            .cause(error.to_string())
            .next("unset RNIC_LIB, or build the library with `cargo build --release`")
        });
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places =
        ["", "deps", "..", "../lib", "../lib/rnic"].map(|place| folder.join(place).join(LIBRARY));
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(std::fs::canonicalize(place)?),
        None => Err(Failure::new(format!("{LIBRARY} is not here"))
            .cause(format!(
                "looked for {}; only this program has been built, or it was moved away from the library",
                places.map(|p| p.display().to_string()).join(", ")
            ))
            .next("`cargo build --release` builds both; or set RNIC_LIB to the library's path")),
    }
}

/// The loader would say of a wrong one no more than that the program cannot have it.
fn named(path: &Path) -> io::Result<PathBuf> {
    let path = std::fs::canonicalize(path)?;
    let mut head = Vec::new();
    std::fs::File::open(&path)?
        .take(HEAD)
        .read_to_end(&mut head)?;
    if elf::is_library(&head) {
        return Ok(path);
    }
    let why = match elf::kind(&head) {
        Kind::OtherMachine { machine, bits } => format!(
            "it is for another machine: {}, {bits} bit",
            elf::machine_name(machine)
        ),
        _ => format!("it is not a shared library ({LIBRARY} is one)"),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// The user's folder for such things, private to him.
pub fn runtime() -> Result<PathBuf> {
    let named = std::env::var_os("RNIC_RUNTIME_DIR")
        .filter(|d| !d.is_empty())
        .map(PathBuf::from);
    let session = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| {
            // Left over from another user by su or sudo, it is of no use; nor with a colon in it, which separates paths.
            let ours =
                std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == sys::effective_uid());
            ours && dir.is_absolute() && usable(dir)
        });
    let dir = match (named, session) {
        (Some(dir), _) => std::path::absolute(dir)?,
        (None, Some(dir)) => dir.join("rnic"),
        (None, None) => format!("/tmp/rnic-{}", sys::effective_uid()).into(),
    };
    let refused = |cause: String| {
        Failure::new(format!("cannot use the runtime folder {}", dir.display()))
            .cause(cause)
            .next("set RNIC_RUNTIME_DIR to a folder of yours")
    };
    if !usable(&dir) {
        return Err(refused(
            "its name has a space or a colon, which separate paths for the loader".into(),
        ));
    }
    private_dir(&dir).map_err(|error| refused(error.to_string()))?;
    Ok(dir)
}

fn usable(dir: &Path) -> bool {
    !dir.as_os_str()
        .as_bytes()
        .iter()
        .any(|b| matches!(b, b':' | b';') || b.is_ascii_whitespace())
}

/// Makes the folder, or checks that an existing one is ours alone: what lies in it is loaded into programs.
fn private_dir(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not through a link: somebody else could have laid it there.
    let meta = std::fs::symlink_metadata(dir)?;
    let problem = if !meta.is_dir() {
        "it is no folder".to_owned()
    } else if meta.uid() != sys::effective_uid() {
        format!("it belongs to uid {}", meta.uid())
    } else if meta.mode() & 0o022 != 0 {
        "other users may write to it".to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// The folder of links for this library, made if need be. Two runs at once make the same links.
pub fn folder(library: &Path) -> Result<PathBuf> {
    folder_in(&runtime()?, library).map_err(|error| {
        Failure::new("cannot prepare the folder of library names")
            .cause(error.to_string())
            .next("set RNIC_RUNTIME_DIR to a folder of yours")
    })
}

fn folder_in(runtime: &Path, library: &Path) -> io::Result<PathBuf> {
    // Without random keys: the same in every run, and for every build that lies at that place.
    let mut hasher = std::hash::DefaultHasher::new();
    library.as_os_str().as_bytes().hash(&mut hasher);
    let dir = runtime.join(format!("verbs-{:016x}", hasher.finish()));
    private_dir(&dir)?;
    for name in NAMES {
        let link = dir.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        // Under a name of our own first: another run finds either no link or a whole one.
        let fresh = dir.join(format!(".{name}.{}", std::process::id()));
        let _ = std::fs::remove_file(&fresh);
        symlink(library, &fresh)?;
        std::fs::rename(&fresh, &link)?;
    }
    prune(runtime, &dir);
    Ok(dir)
}

/// Removes folders of libraries that are gone. Failure does not matter.
fn prune(runtime: &Path, keep: &Path) {
    let Ok(entries) = std::fs::read_dir(runtime) else {
        return;
    };
    for entry in entries.flatten() {
        let dir = entry.path();
        let ours = entry.file_name().as_bytes().starts_with(b"verbs-");
        let link = dir.join(PRELOAD);
        let gone = std::fs::read_link(&link).is_ok_and(|target| !target.exists());
        if ours && dir != keep && gone {
            for name in NAMES {
                let _ = std::fs::remove_file(dir.join(name));
            }
            let _ = std::fs::remove_dir(&dir);
        }
    }
}

#[cfg(test)]
mod tests;
