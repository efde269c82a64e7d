//! Files of results.

use std::path::Path;

use super::failure::{Failure, Result};

fn failed(file: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::from(error).during(&format!("writing {}", file.display()))
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

/// Makes a folder, unless it is there.
pub fn folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(failed(folder))
}
