//! Where our library is, and the folder of names under which programs look for it.

use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::elf::{self, Kind};
use super::embedded::{self, Embedded, Laid};
use super::folders::{self, Unusable};
use super::program::HEAD;
use crate::platform::failure::{Failure, Result};

/// The drop-in library as cargo builds it.
const LIBRARY: &str = "librnic_verbs.so";
/// The recorder, likewise.
const RECORDER: &str = "librnic_record.so";
/// Names under which programs load it; one file, so the loader maps it once.
const NAMES: [&str; 4] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
];
/// The one to preload.
pub const PRELOAD: &str = "libibverbs.so.1";

/// The library as a file.
pub struct Library {
    /// Its place.
    pub path: PathBuf,
    /// The place holds only as long as this is open: the library is in memory.
    pub held: Option<OwnedFd>,
}

impl From<PathBuf> for Library {
    fn from(path: PathBuf) -> Library {
        Library { path, held: None }
    }
}

/// Finds the library: `RNIC_LIB`, else near this program, else inside it. A program that has one
/// inside takes one beside it only if the two are the same.
pub fn find() -> Result<Library> {
    if let Some(path) = rnic_settings::LIB.path() {
        return named(&path).map(Library::from).map_err(|error| {
            Failure::new(format!(
                "RNIC_LIB names {}, which cannot be used",
                path.display()
            ))
            .cause(error.to_string())
            .next("unset RNIC_LIB, or build the library with `cargo build --release`")
        });
    }
    near_or_inside(LIBRARY, embedded::own(), HOW_TO_GET_IT)
}

/// Finds the recorder of `rnic advise` likewise.
pub fn recorder() -> Result<Library> {
    near_or_inside(RECORDER, embedded::recorder(), HOW_TO_GET_THE_RECORDER)
}

fn near_or_inside(
    name: &str,
    inside: Option<Embedded<'static>>,
    how_to_get_it: &str,
) -> Result<Library> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let places =
        ["", "deps", "..", "../lib", "../lib/rnic"].map(|place| folder.join(place).join(name));
    let beside = places
        .iter()
        .find(|place| place.is_file() && inside.is_none_or(|embedded| embedded.lies_at(place)));
    match (beside, inside) {
        (Some(place), _) => Ok(std::fs::canonicalize(place)?.into()),
        (None, Some(embedded)) => match embedded.lay(&folders::candidates()?)? {
            Laid::File(path) => Ok(path.into()),
            Laid::Memory(path, held) => Ok(Library {
                path,
                held: Some(held),
            }),
        },
        (None, None) => Err(Failure::new(format!("{name} is not here"))
            .cause(format!(
                "this rnic was built without the library inside, and it is not in {}, nor in deps, .., ../lib or \
                 ../lib/rnic from there",
                folder.display()
            ))
            .next(how_to_get_it)),
    }
}

/// `cargo install` builds the program alone.
const HOW_TO_GET_IT: &str = "in the checkout: `cargo build --release -p rnic-abi && \
    RNIC_EMBED_LIBRARY=$PWD/target/release/librnic_verbs.so cargo install --path crates/cli`";

/// The same of the recorder.
const HOW_TO_GET_THE_RECORDER: &str =
    "in the checkout: `cargo build --release --workspace --lib`,     and run target/release/rnic";

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

/// The folder of links for this library, made if need be. Two runs at once make the same links.
/// `None` where nothing can be written: a library in memory needs no links to be preloaded.
pub fn folder(library: &Library) -> Result<Option<PathBuf>> {
    let runtime = match folders::runtime() {
        Err(_) if library.held.is_some() => return Ok(None),
        runtime => runtime?,
    };
    let folder = folder_in(&runtime, &library.path).map_err(|error| {
        Failure::new("cannot prepare the folder of library names")
            .cause(error.to_string())
            .next("set RNIC_RUNTIME_DIR to a folder of yours")
    })?;
    Ok(Some(folder))
}

fn folder_in(runtime: &Path, library: &Path) -> io::Result<PathBuf> {
    // Without random keys: the same in every run, and for every build that lies at that place.
    let mut hasher = std::hash::DefaultHasher::new();
    library.as_os_str().as_bytes().hash(&mut hasher);
    let dir = runtime.join(format!("verbs-{:016x}", hasher.finish()));
    match folders::private(&dir) {
        Err(Unusable::Unwritable(_, error)) => return Err(error),
        Err(Unusable::Strange(dir, cause)) => {
            let words = format!("{}: {cause}", dir.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
        }
        Ok(()) => {}
    }
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
