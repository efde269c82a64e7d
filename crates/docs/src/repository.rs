//! The files of a repository: which are there, and which of them are documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that hold no sources.
const LEFT_OUT: [&str; 3] = [".git", "target", "node_modules"];

/// Written by programs.
const WRITTEN_BY_PROGRAMS: [&str; 3] = ["bench/results/", "docs/interop-table", "docs/programs.md"];

/// The files of a repository, on a disk or in memory.
#[derive(Debug, Default)]
pub struct Repository {
    root: Option<PathBuf>,
    texts: BTreeMap<String, String>,
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl Repository {
    /// Lists the files below `root`, but for what builds leave there.
    pub fn open(root: &Path) -> io::Result<Repository> {
        let mut repository = Repository {
            root: Some(root.to_owned()),
            ..Repository::default()
        };
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let path = if folder.is_empty() {
                    name.clone()
                } else {
                    format!("{folder}/{name}")
                };
                // A link is what it points at.
                let kind = fs::metadata(entry.path());
                if kind.is_ok_and(|kind| kind.is_dir()) {
                    let is_link = entry.file_type()?.is_symlink();
                    if !LEFT_OUT.contains(&name.as_str()) && !is_link {
                        folders.push(path.clone());
                        repository.folders.insert(path);
                    }
                } else {
                    repository.files.insert(path);
                }
            }
        }
        Ok(repository)
    }

    /// A repository in memory, of paths and texts.
    pub fn of(files: &[(&str, &str)]) -> Repository {
        let mut repository = Repository::default();
        for (path, text) in files {
            repository.files.insert((*path).to_owned());
            repository
                .texts
                .insert((*path).to_owned(), (*text).to_owned());
            for (at, _) in path.match_indices('/') {
                repository.folders.insert(path[..at].to_owned());
            }
        }
        repository
    }

    /// The text of a file, if it is there and is text.
    pub fn read(&self, path: &str) -> Option<String> {
        match &self.root {
            Some(root) => fs::read_to_string(root.join(path)).ok(),
            None => self.texts.get(path).cloned(),
        }
    }

    /// All documents: files in Markdown.
    pub fn documents(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().map(String::as_str);
        files.filter(|path| path.ends_with(".md"))
    }

    /// Whether a document is written by a program, or is a note beside a crate's tests: these are
    /// looked up, not read.
    pub fn is_looked_up(path: &str) -> bool {
        let is_written = WRITTEN_BY_PROGRAMS
            .iter()
            .any(|start| path.starts_with(start));
        is_written || (path.starts_with("crates/") && path.contains("/tests/"))
    }

    /// Whether there is a file or folder at exactly this path from the root.
    pub fn has(&self, path: &str) -> bool {
        path.is_empty() || self.files.contains(path) || self.folders.contains(path)
    }

    /// Whether the path of some file or folder ends with these components.
    pub fn has_ending(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let all = self.files.iter().chain(&self.folders);
        all.into_iter().any(|there| {
            there
                .strip_suffix(path)
                .is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
    }

    /// Whether a name is one that paths of this repository begin with: a folder of the root, or one
    /// of `crates`.
    pub fn is_start(&self, name: &str) -> bool {
        self.folders.contains(name) || self.folders.contains(&format!("crates/{name}"))
    }
}
