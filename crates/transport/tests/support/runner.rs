//! Runs every script of a folder; each is a test of its own. Shared with the tests of `rnic-cm`.

use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};
use std::{fs, process};

/// `run` gets a script's path, for messages, and its text.
pub fn main(
    package: &str,
    extension: &str,
    run: fn(&str, &str) -> Result<(), String>,
) -> process::ExitCode {
    let folder = Path::new(package).join("tests/scripts");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("tests/scripts can be read")
        .map(|entry| entry.expect("tests/scripts can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no scripts in {}", folder.display());
    let trials = files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().expect("a file").to_string_lossy();
            Trial::test(name.into_owned(), move || {
                let text = fs::read_to_string(&path)?;
                let shown = Path::new("tests/scripts").join(path.file_name().expect("a file"));
                run(&shown.display().to_string(), &text).map_err(Into::into)
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
