//! Folders of the user's that nobody else can write to: what lies in them is loaded into programs.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::platform::failure::{Failure, Result};

/// Why a folder is not used.
#[derive(Debug)]
pub enum Unusable {
    /// Nothing can be written there, so another place will do.
    Unwritable(PathBuf, io::Error),
    /// Something is there that should not be: the user has to know.
    Strange(PathBuf, String),
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Failure {
        let (dir, cause) = match unusable {
            Unusable::Unwritable(dir, error) => (dir, error.to_string()),
            Unusable::Strange(dir, cause) => (dir, cause),
        };
        Failure::new(format!("cannot use the runtime folder {}", dir.display()))
            .cause(cause)
            .next("set RNIC_RUNTIME_DIR to a folder of yours")
    }
}

/// The variable that names the folder, if it does.
fn named() -> Option<PathBuf> {
    rnic_settings::RUNTIME_DIR.path()
}

/// Where `rnic run` may keep files, the best first. One that the user names is the only one.
pub fn candidates() -> io::Result<Vec<PathBuf>> {
    if let Some(dir) = named() {
        return Ok(vec![std::path::absolute(dir)?]);
    }
    let of_user = |variable: &str, below: &str| {
        let dir = PathBuf::from(std::env::var_os(variable)?);
        // Left over from another user by su or sudo, it is of no use; nor with a colon in it, which
        // separates paths.
        let ours = std::fs::metadata(&dir)
            .is_ok_and(|m| m.is_dir() && m.uid() == rnic_sys::effective_uid());
        (ours && dir.is_absolute() && usable(&dir)).then(|| dir.join(below))
    };
    let session = of_user("XDG_RUNTIME_DIR", "rnic");
    let home = of_user("XDG_CACHE_HOME", "rnic").or_else(|| of_user("HOME", ".cache/rnic"));
    let common = [common("/tmp"), common("/dev/shm")];
    Ok(session.into_iter().chain(common).chain(home).collect())
}

fn common(parent: &str) -> PathBuf {
    format!("{parent}/rnic-{}", rnic_sys::effective_uid()).into()
}

/// The first of them that can be written to.
pub fn runtime() -> Result<PathBuf> {
    let mut first = None;
    for dir in candidates()? {
        match private(&dir) {
            Ok(()) => return Ok(dir),
            Err(strange @ Unusable::Strange(..)) => return Err(strange.into()),
            Err(unwritable) => first = first.or(Some(unwritable)),
        }
    }
    // There is at least the one in /tmp.
    Err(first.map_or_else(|| Failure::new("no runtime folder"), Failure::from))
}

/// All of them that are there and are ours alone.
pub fn existing() -> Vec<PathBuf> {
    let ours = |dir: &PathBuf| {
        std::fs::symlink_metadata(dir).is_ok_and(|meta| {
            meta.is_dir() && meta.uid() == rnic_sys::effective_uid() && meta.mode() & 0o022 == 0
        })
    };
    candidates()
        .unwrap_or_default()
        .into_iter()
        .filter(ours)
        .collect()
}

/// Where processes of the program share the NIC, if not at the usual place, as nothing can be
/// written there.
pub fn instead_of_tmp() -> Option<PathBuf> {
    if named().is_some() {
        return None;
    }
    let unwritable = |dir: &Path| matches!(private(dir), Err(Unusable::Unwritable(..)));
    let other = common("/dev/shm");
    (unwritable(&common("/tmp")) && private(&other).is_ok()).then_some(other)
}

/// No space or colon in it: they separate paths for the loader.
pub fn usable(dir: &Path) -> bool {
    !dir.as_os_str()
        .as_bytes()
        .iter()
        .any(|b| matches!(b, b':' | b';') || b.is_ascii_whitespace())
}

/// Makes the folder, or checks that an existing one is ours alone and can be written to.
pub fn private(dir: &Path) -> std::result::Result<(), Unusable> {
    let strange = |cause: &str| Unusable::Strange(dir.into(), cause.into());
    let unwritable = |error: io::Error| Unusable::Unwritable(dir.into(), error);
    if !usable(dir) {
        return Err(strange(
            "its name has a space or a colon, which separate paths for the loader",
        ));
    }
    let make = || std::fs::DirBuilder::new().mode(0o700).create(dir);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // ~/.cache may be missing, and nothing else.
            let parent = dir.parent().filter(|parent| parent.ends_with(".cache"));
            let parent = parent.ok_or(error).map_err(unwritable)?;
            let made = std::fs::DirBuilder::new().mode(0o700).create(parent);
            made.and_then(|()| make()).map_err(unwritable)?;
        }
        // Of a folder that is there, some systems say first that they are read-only.
        Err(error) if std::fs::symlink_metadata(dir).is_err() => return Err(unwritable(error)),
        _ => {}
    }
    // Not through a link: somebody else could have laid it there.
    let meta = std::fs::symlink_metadata(dir).map_err(unwritable)?;
    if !meta.is_dir() {
        return Err(strange("it is no folder"));
    }
    if meta.uid() != rnic_sys::effective_uid() {
        return Err(strange(&format!("it belongs to uid {}", meta.uid())));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(strange("other users may write to it"));
    }
    access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unwritable(error.into()))
}

/// Another place may have room for a file.
pub fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::scratch::Scratch;
    use super::*;

    /// Promise: no other user chooses what `rnic run` loads into a program.
    #[test]
    fn folders_of_others_are_refused() {
        let scratch = Scratch::new("private");
        let strange = |dir: &Path| matches!(private(dir), Err(Unusable::Strange(..)));
        let open = scratch.0.join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(strange(&open), "everybody may write there");
        let link = scratch.0.join("link");
        symlink(&scratch.0, &link).unwrap();
        assert!(strange(&link), "a link is no folder of ours");
        std::fs::write(scratch.0.join("file"), "").unwrap();
        assert!(strange(&scratch.0.join("file")));
        assert!(private(&scratch.0.join("fresh")).is_ok());
        let mode = std::fs::metadata(scratch.0.join("fresh")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    /// Promise: where nothing can be written another place is taken, and a strange folder is an
    /// error all the same.
    #[test]
    fn what_cannot_be_written_is_not_strange() {
        let scratch = Scratch::new("unwritable");
        for dir in ["/proc/rnic", "/no/such/folder/rnic"] {
            let answer = private(Path::new(dir));
            assert!(matches!(answer, Err(Unusable::Unwritable(..))), "{dir}");
        }
        // Only the folder of caches is made if it is missing.
        assert!(private(&scratch.0.join(".cache/rnic")).is_ok());
        assert!(private(&scratch.0.join("other/rnic")).is_err());
    }

    /// Promise: the path is one path for the loader.
    #[test]
    fn folders_that_the_loader_would_split_are_not_used() {
        assert!(usable(Path::new("/run/user/1000")));
        assert!(!usable(Path::new("/home/a b")));
        assert!(!usable(Path::new("/home/a:b")));
    }
}
