//! The learner's folder: the programs, and how far the learner is. Nothing is kept elsewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::exercises::{Exercise, HEADER};
use crate::platform::failure::{Failure, Result};

/// Where the course is unless `--folder` says otherwise.
pub const USUAL: &str = "rnic-course";
/// In that folder: which exercises are done, and how many hints were given.
const PROGRESS: &str = ".progress";

/// What the learner has reached in one exercise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub done: bool,
    pub hints: usize,
}

/// The folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| {
        Failure::new(format!("cannot write {}", path.display()))
            .cause(error.to_string())
            .next("`rnic course --folder FOLDER` takes another place")
    }
}

impl Folder {
    /// That one, or the usual one; here, if this is it.
    pub fn new(named: Option<PathBuf>) -> Folder {
        let path = named.unwrap_or_else(|| match Path::new(PROGRESS).is_file() {
            true => PathBuf::from("."),
            false => PathBuf::from(USUAL),
        });
        Folder { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The learner's program.
    pub fn program(&self, exercise: &Exercise) -> PathBuf {
        self.path.join(exercise.folder).join(exercise.file)
    }

    pub fn readme(&self, exercise: &Exercise) -> PathBuf {
        self.path.join(exercise.folder).join("README.md")
    }

    /// Whether the learner has begun with it.
    pub fn has(&self, exercise: &Exercise) -> bool {
        self.program(exercise).is_file()
    }

    /// Writes an exercise. A program that is there is kept under another name; gives that.
    pub fn write(&self, exercise: &Exercise) -> Result<Option<PathBuf>> {
        let program = self.program(exercise);
        let folder = self.path.join(exercise.folder);
        fs::create_dir_all(&folder).map_err(unwritable(&folder))?;
        let mut kept = None;
        if program.exists() {
            // As many as the learner makes: none is lost.
            let free = (1..).map(|n| program.with_extension(format!("c.{n}")));
            kept = free.into_iter().find(|name| !name.exists());
            if let Some(name) = &kept {
                fs::rename(&program, name).map_err(unwritable(name))?;
            }
        }
        for (name, text) in [
            ("README.md", exercise.readme),
            ("course.h", HEADER),
            (exercise.file, exercise.broken),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(unwritable(&path))?;
        }
        let progress = self.path.join(PROGRESS);
        if !progress.exists() {
            fs::write(&progress, "").map_err(unwritable(&progress))?;
        }
        Ok(kept)
    }

    /// How far the learner is with it.
    pub fn reached(&self, exercise: &Exercise) -> Reached {
        let text = fs::read_to_string(self.path.join(PROGRESS)).unwrap_or_default();
        of_line(&text, exercise.number)
    }

    /// Keeps that.
    pub fn keep(&self, exercise: &Exercise, reached: Reached) -> Result<()> {
        let path = self.path.join(PROGRESS);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| number(line) != Some(exercise.number))
            .map(str::to_owned)
            .collect();
        let state = if reached.done { "done" } else { "open" };
        lines.push(format!(
            "{} {state}, hints {}",
            exercise.number, reached.hints
        ));
        lines.sort_by_key(|line| number(line));
        fs::write(&path, lines.join("\n") + "\n").map_err(unwritable(&path))
    }
}

fn number(line: &str) -> Option<usize> {
    line.split(' ').next()?.parse().ok()
}

/// A line is "3 done, hints 2".
fn of_line(text: &str, wanted: usize) -> Reached {
    let line = text.lines().find(|line| number(line) == Some(wanted));
    let line = line.unwrap_or_default();
    let hints = line.rsplit(' ').next().and_then(|n| n.parse().ok());
    Reached {
        done: line.contains(" done"),
        hints: hints.filter(|_| line.contains("hints")).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::exercises::ALL;
    use super::*;

    /// Promise: progress is what was kept, and a program of the learner's is never lost.
    #[test]
    fn progress_and_programs_are_kept() {
        let path = std::env::temp_dir().join(format!("rnic-course-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let folder = Folder::new(Some(path.clone()));
        let (first, tenth) = (&ALL[0], &ALL[9]);
        assert!(!folder.has(first));
        assert_eq!(folder.reached(first), Reached::default());
        assert_eq!(folder.write(first).unwrap(), None);
        assert!(folder.has(first) && folder.readme(first).is_file());
        let (done, hinted) = (
            Reached {
                done: true,
                hints: 0,
            },
            Reached {
                done: false,
                hints: 2,
            },
        );
        folder.keep(tenth, done).unwrap();
        folder.keep(first, hinted).unwrap();
        assert_eq!(
            (folder.reached(first), folder.reached(tenth)),
            (hinted, done)
        );
        folder.keep(first, done).unwrap();
        assert_eq!((folder.reached(first), folder.reached(tenth)), (done, done));
        for mine in ["mine", "mine too"] {
            fs::write(folder.program(first), mine).unwrap();
            let kept = folder.write(first).unwrap().expect("a name");
            assert_eq!(fs::read_to_string(kept).unwrap(), mine);
        }
        assert_eq!(
            fs::read_to_string(folder.program(first)).unwrap(),
            first.broken
        );
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_file_that_somebody_changed_is_no_trouble() {
        for text in [
            "",
            "x",
            "1",
            "1 done",
            "1 done, hints",
            "1 done, hints x",
            "\n\n1 done\n",
        ] {
            let reached = of_line(text, 1);
            assert_eq!(reached.hints, 0);
            assert_eq!(reached.done, text.contains("done"), "{text}");
        }
    }
}
