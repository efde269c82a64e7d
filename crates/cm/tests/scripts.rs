//! Runs every `tests/scripts/*.cm` against one endpoint; each is a test of its own. The language is documented in
//! `tests/scripts/README.md`.

#[path = "support/script.rs"]
mod script;

use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};
use std::{fs, process};

fn main() -> process::ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("tests/scripts can be read")
        .map(|entry| entry.expect("tests/scripts can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "cm"))
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
                script::run(&shown.display().to_string(), &text).map_err(Into::into)
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
