//! Files of results, and files that other processes may have made.

use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::failure::{Failure, Result};

fn failed(file: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| {
        Failure::new(format!("cannot write {}", file.display()))
            .cause(error.to_string())
            .next("choose a name in a folder that you may write to, such as /tmp")
    }
}

/// Fails if the file cannot be written: better before minutes of measuring than after them.
pub fn can_write(file: &Path) -> Result<()> {
    let options = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(file);
    options.map(drop).map_err(failed(file))
}

pub fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(file, content).map_err(failed(file))
}

/// A plain file of this user's, to be read: opened without being led elsewhere or made to wait.
/// `None`: it is none.
pub fn own(path: &Path) -> Option<(File, Metadata)> {
    let mut options = File::options();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    let ours = meta.is_file() && meta.uid() == rnic_sys::effective_uid();
    ours.then_some((file, meta))
}

/// Makes a folder, unless it is there.
pub fn folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(failed(folder))
}
