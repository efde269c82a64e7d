//! The libraries inside this program, and how it becomes a file that the loader can map.
//!
//! A release has the library in itself, compressed (`build.rs`), so that one file is all that has
//! to be copied. The first run writes it to a folder that only this user can write to; each later
//! run checks that file and uses it. The check is for damage: what others could have laid there is
//! refused by owner and mode. Where nothing may be written or executed, the library is a file in
//! memory that lives as long as this process.
//!
//! lzip, because it makes the library a fifth smaller than gzip would; its trailer has CRC and length
//! of the content, which is the whole check.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Crc;
use lzma_rust2::LzipReader;
use rustix::fs::{
    MemfdFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, memfd_create, statvfs,
};
use rustix::io::Errno;

use super::folders::{self, Unusable};

/// A compressed library.
#[derive(Clone, Copy)]
pub struct Embedded<'a> {
    /// Its file's name, without the ending.
    stem: &'a str,
    lzip: &'a [u8],
    /// Differs from that of any other content.
    id: &'a str,
}

/// Where it is now.
pub enum Laid {
    /// In a file, for all runs to come.
    File(PathBuf),
    /// In memory, under a name that holds as long as the descriptor is open.
    Memory(PathBuf, OwnedFd),
}

/// Files that nobody finished, as their process was killed, go after so many seconds.
const UNFINISHED: u64 = 3600;

/// The library that this program was built with.
pub fn own() -> Option<Embedded<'static>> {
    #[cfg(rnic_embedded)]
    return Some(Embedded {
        stem: "librnic_verbs",
        lzip: include_bytes!(concat!(env!("OUT_DIR"), "/library.lz")),
        id: env!("RNIC_LIBRARY_ID"),
    });
    #[cfg(not(rnic_embedded))]
    None
}

/// The recorder of `rnic advise` that this program was built with.
pub fn recorder() -> Option<Embedded<'static>> {
    #[cfg(rnic_embedded_recorder)]
    return Some(Embedded {
        stem: "librnic_record",
        lzip: include_bytes!(concat!(env!("OUT_DIR"), "/recorder.lz")),
        id: env!("RNIC_RECORDER_ID"),
    });
    #[cfg(not(rnic_embedded_recorder))]
    None
}

impl Embedded<'_> {
    /// Length and CRC of the content, as the trailer has them.
    fn expected(&self) -> (u64, u32) {
        // CRC, length of the content, length of all.
        let trailer = self.lzip.last_chunk::<20>().copied().unwrap_or_default();
        let [c0, c1, c2, c3, l0, l1, l2, l3, l4, l5, l6, l7, ..] = trailer;
        (
            u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
            u32::from_le_bytes([c0, c1, c2, c3]),
        )
    }

    /// The content of this file is the library.
    pub fn is(&self, file: &mut impl Read, len: u64) -> io::Result<bool> {
        let (expected_len, expected_crc) = self.expected();
        if len != expected_len {
            return Ok(false);
        }
        let mut crc = Crc::new();
        let mut piece = vec![0; 1 << 16];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                n => crc.update(&piece[..n]),
            }
        }
        Ok(crc.sum() == expected_crc && u64::from(crc.amount()) == expected_len)
    }

    /// The same library lies at that place already, as packages leave it beside the program.
    pub fn lies_at(&self, place: &Path) -> bool {
        let same = || {
            let mut file = File::open(place)?;
            let meta = file.metadata()?;
            Ok::<_, io::Error>(meta.is_file() && self.is(&mut file, meta.len())?)
        };
        same().unwrap_or(false)
    }

    /// Makes it a file in the first of these folders that can have it, else in memory.
    pub fn lay(&self, places: &[PathBuf]) -> Result<Laid, Unusable> {
        for folder in places {
            match folders::private(folder) {
                Err(Unusable::Unwritable(..)) => continue,
                Err(strange) => return Err(strange),
                Ok(()) => {}
            }
            if forbids_execution(folder) {
                continue;
            }
            match self.write_in(folder) {
                Ok(path) => return Ok(Laid::File(path)),
                Err(error) if folders::is_no_room(&error) => continue,
                Err(error) => return Err(Unusable::Strange(folder.clone(), error.to_string())),
            }
        }
        let held = |error: io::Error| Unusable::Unwritable("a file in memory".into(), error);
        let (path, file) = self.hold().map_err(held)?;
        Ok(Laid::Memory(path, file))
    }

    /// The file in a folder that is ours alone, written if it is not there or not as it should be.
    fn write_in(&self, folder: &Path) -> io::Result<PathBuf> {
        let (stem, version, id) = (self.stem, env!("CARGO_PKG_VERSION"), self.id);
        let name = format!("{stem}-{version}-{id}.so");
        let path = folder.join(&name);
        if self.is_sound(&path)? {
            return Ok(path);
        }
        sweep(folder);
        // Under a name of its own first: another run finds either no file or a whole one.
        let (fresh, mut file) = loop {
            let fresh = folder.join(format!(".{name}.{:016x}", random()));
            let mut options = File::options();
            match options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&fresh)
            {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => break (fresh, file?),
            }
        };
        let written = self
            .unpack(&mut file)
            .and_then(|()| std::fs::rename(&fresh, &path));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&fresh);
            return Err(match error.kind() {
                io::ErrorKind::IsADirectory => {
                    io::Error::other(format!("{name} is a folder; remove it"))
                }
                _ => error,
            });
        }
        Ok(path)
    }

    /// There is a file, it is ours, no other user may write to it, and it has the right content. A
    /// link is none of these.
    fn is_sound(&self, path: &Path) -> io::Result<bool> {
        // A pipe would keep the open waiting.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut options = File::options();
        let Ok(mut file) = options.read(true).custom_flags(flags).open(path) else {
            return Ok(false);
        };
        let meta = file.metadata()?;
        let ours = meta.is_file()
            && meta.uid() == rnic_sys::effective_uid()
            && meta.mode() & 0o022 == 0
            && meta.nlink() == 1;
        Ok(ours && self.is(&mut file, meta.len())?)
    }

    fn unpack(&self, file: &mut impl Write) -> io::Result<()> {
        // Its end checks the CRC.
        io::copy(&mut LzipReader::new(self.lzip), file)?;
        file.flush()
    }

    /// In memory. The name leads through this process, as the program may close what it inherits.
    fn hold(&self) -> io::Result<(PathBuf, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let name = format!("{}.so", self.stem);
        let name = name.as_str();
        // Some systems allow no other; Linux before 6.3 does not know it.
        let fd = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(name, flags)?,
            fd => fd?,
        };
        let mut file = File::from(fd);
        self.unpack(&mut file)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok((path.into(), file.into()))
    }
}

/// The file system is mounted so that nothing on it can be mapped as code.
fn forbids_execution(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Removes what killed runs left half written. Failure does not matter.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let unfinished = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b".librnic_");
        let age = |meta: std::fs::Metadata| meta.modified().ok()?.elapsed().ok();
        let old = entry.metadata().ok().and_then(age);
        if unfinished && old.is_some_and(|age| age.as_secs() > UNFINISHED) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
