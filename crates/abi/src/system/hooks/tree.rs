//! Which paths are redirected, and where to: real files in the user's runtime folder.
//!
//! A tree is never changed: its folder's name is a hash of its contents, it is made aside and
//! renamed into place, and another one is made when the interfaces of the host change. Processes
//! share them. Nothing is cached in memory, so there is no lock that a fork could leave taken.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_nic::DEVICE_NAME;

use crate::system::sysfs::{self, Contents, UVERBS_NAME};

/// What stands in for the character device: programs want one that can be opened for reading and
/// writing.
const CHARACTER_DEVICE: &str = "/dev/null";

/// Folders shared with real devices, and the entries in them that are ours.
const FOLDERS: [(&str, &[&str]); 3] = [
    ("/sys/class/infiniband", &[DEVICE_NAME]),
    ("/sys/class/infiniband_verbs", &[UVERBS_NAME, "abi_version"]),
    ("/dev/infiniband", &[UVERBS_NAME]),
];

/// Unused trees kept beside the one in use: programs may still read from them.
const SPARE_TREES: usize = 8;

/// Where a path leads that starts in one of the shared folders and stays in what is ours.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The character device.
    Device,
    /// This canonical path, in the tree.
    Tree(Vec<u8>),
    /// Out again by way of `..`: this canonical path, of the real system.
    Real(Vec<u8>),
}

/// The path that a redirected path really means; `None`: it is not ours.
pub fn redirect(path: &[u8]) -> Option<CString> {
    let real = match place(path)? {
        Place::Device => CHARACTER_DEVICE.into(),
        Place::Real(path) => path,
        Place::Tree(path) => {
            let root = ensure(&rnic_host::registry::runtime_dir()).ok()?;
            let mut real = root.into_os_string().into_encoded_bytes();
            real.extend_from_slice(&path);
            real
        }
    };
    CString::new(real).ok()
}

/// The path is in the tree, which nobody may write to: as in sysfs not even root, and processes
/// share it.
pub fn is_read_only(path: &[u8]) -> bool {
    matches!(place(path), Some(Place::Tree(_)))
}

/// What programs are to see as the canonical form of a redirected path, by what its real one
/// resolves to: by way of a link that may be out of the tree.
pub fn shown(path: &[u8], real: &[u8], resolved: &[u8]) -> Vec<u8> {
    let virtual_path = canonical(path);
    let Some(root) = real.strip_suffix(virtual_path.as_slice()) else {
        return match place(path) {
            Some(Place::Real(_)) => resolved.to_vec(),
            _ => virtual_path,
        };
    };
    let root = fs::canonicalize(OsStr::from_bytes(root)).map(PathBuf::into_os_string);
    let within = |root: &OsString| resolved.strip_prefix(root.as_bytes());
    match root.ok().as_ref().and_then(within) {
        Some(rest @ [b'/', ..]) => rest.to_vec(),
        _ => resolved.to_vec(),
    }
}

fn place(path: &[u8]) -> Option<Place> {
    enter(path)?;
    let path = canonical(path);
    Some(match enter(&path) {
        None => Place::Real(path),
        Some(("/dev/infiniband", [_, ..])) => Place::Device,
        Some(_) => Place::Tree(path),
    })
}

/// The shared folder that a path starts in and the rest of it; `None` if the rest begins with an
/// entry not ours.
fn enter(path: &[u8]) -> Option<(&'static str, &[u8])> {
    FOLDERS.iter().find_map(|(folder, entries)| {
        let rest = path.strip_prefix(folder.as_bytes())?;
        if !matches!(rest, [] | [b'/', ..]) {
            return None;
        }
        let ours =
            |entry: &[u8]| entry == b".." || entries.iter().any(|name| name.as_bytes() == entry);
        parts(rest)
            .next()
            .is_none_or(ours)
            .then_some((*folder, rest))
    })
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !matches!(part, [] | [b'.']))
}

/// A path without superfluous slashes, `.` and `..`. Right for paths in the tree: the links in it
/// all lead out of it, to interfaces.
pub fn canonical(path: &[u8]) -> Vec<u8> {
    let mut canonical = Vec::with_capacity(path.len());
    for part in parts(path) {
        if part == b".." {
            let parent = canonical
                .iter()
                .rposition(|byte| *byte == b'/')
                .unwrap_or(0);
            canonical.truncate(parent);
        } else {
            canonical.push(b'/');
            canonical.extend_from_slice(part);
        }
    }
    if canonical.is_empty() {
        canonical.push(b'/');
    }
    canonical
}

/// The folder of the tree as it is now, made if need be.
fn ensure(runtime: &Path) -> io::Result<PathBuf> {
    let files = sysfs::tree();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    private_dir(runtime)?;
    let root = runtime.join(format!("sysfs-{:016x}", hasher.finish()));
    if root.is_dir() {
        return Ok(root);
    }
    static ATTEMPT: AtomicU32 = AtomicU32::new(0);
    let attempt = ATTEMPT.fetch_add(1, Ordering::Relaxed);
    let draft = runtime.join(format!(".sysfs-{}-{attempt}", std::process::id()));
    let _ = fs::remove_dir_all(&draft);
    write(&draft, &files)?;
    match fs::rename(&draft, &root) {
        Ok(()) => forget_old(runtime, &root),
        // Another process was faster, or this one is not allowed.
        Err(error) => {
            let _ = fs::remove_dir_all(&draft);
            if !root.is_dir() {
                return Err(error);
            }
        }
    }
    Ok(root)
}

/// A folder of ours alone, made if need be.
fn private_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(dir)?;
    // SAFETY: no arguments, cannot fail.
    let ours = meta.uid() == unsafe { libc::geteuid() };
    match meta.is_dir() && ours && meta.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

fn write(root: &Path, files: &[sysfs::File]) -> io::Result<()> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    for (path, contents) in files {
        let path = below(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        match contents {
            Contents::Text(text) => fs::write(path, text)?,
            Contents::Link(to) => symlink(to, path)?,
        }
    }
    let devices = below("/dev/infiniband");
    fs::create_dir_all(&devices)?;
    symlink(CHARACTER_DEVICE, devices.join(UVERBS_NAME))
}

/// Removes the oldest trees; a program that still wants one makes it again.
fn forget_old(runtime: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(runtime) else {
        return;
    };
    let mut old: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"sysfs-"))
        .filter(|entry| entry.path() != current)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    old.sort();
    let surplus = old.len().saturating_sub(SPARE_TREES);
    for (_, path) in old.into_iter().take(surplus) {
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests;
