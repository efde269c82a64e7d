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
    /// Its check has passed.
    pub done: bool,
    /// The program is another one since.
    pub changed: bool,
    pub hints: usize,
}

/// What a program is known by: FNV-1a, 64 bits. Not a seal: whoever wants to fool himself can.
fn mark(program: &[u8]) -> u64 {
    program.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
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
        of_line(&text, exercise.number, self.mark(exercise))
    }

    /// Of the program as it is now.
    fn mark(&self, exercise: &Exercise) -> u64 {
        mark(&fs::read(self.program(exercise)).unwrap_or_default())
    }

    /// Keeps that the check of the program as it is now has passed.
    pub fn keep_done(&self, exercise: &Exercise) -> Result<()> {
        let hints = self.reached(exercise).hints;
        let state = format!("done {:016x}", self.mark(exercise));
        self.keep(exercise, &state, hints)
    }

    /// Keeps how many hints were given.
    pub fn keep_hints(&self, exercise: &Exercise, hints: usize) -> Result<()> {
        let text = fs::read_to_string(self.path.join(PROGRESS)).unwrap_or_default();
        let state = line_of(&text, exercise.number)
            .and_then(|line| done(line).map(|mark| format!("done {mark:016x}")));
        self.keep(exercise, state.as_deref().unwrap_or("open"), hints)
    }

    fn keep(&self, exercise: &Exercise, state: &str, hints: usize) -> Result<()> {
        let path = self.path.join(PROGRESS);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| number(line) != Some(exercise.number))
            .map(str::to_owned)
            .collect();
        lines.push(format!("{} {state}, hints {hints}", exercise.number));
        lines.sort_by_key(|line| number(line));
        fs::write(&path, lines.join("\n") + "\n").map_err(unwritable(&path))
    }
}

fn number(line: &str) -> Option<usize> {
    line.split(' ').next()?.parse().ok()
}

fn line_of(text: &str, wanted: usize) -> Option<&str> {
    text.lines().find(|line| number(line) == Some(wanted))
}

/// The mark of the program that passed. A line without one was not written by a check.
fn done(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(" done ")?;
    let mark = rest.split(',').next()?;
    (mark.len() == 16).then(|| u64::from_str_radix(mark, 16).ok())?
}

/// A line is "3 done 0123456789abcdef, hints 2".
fn of_line(text: &str, wanted: usize, now: u64) -> Reached {
    let line = line_of(text, wanted).unwrap_or_default();
    let hints = line.rsplit(' ').next().and_then(|n| n.parse().ok());
    let done = done(line);
    Reached {
        done: done.is_some(),
        changed: done.is_some_and(|mark| mark != now),
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
        folder.keep_done(tenth).unwrap();
        folder.keep_hints(first, 2).unwrap();
        let of = |exercise| {
            let Reached {
                done,
                changed,
                hints,
            } = folder.reached(exercise);
            (done, changed, hints)
        };
        assert_eq!(
            (of(first), of(tenth)),
            ((false, false, 2), (true, false, 0))
        );
        folder.keep_done(first).unwrap();
        folder.keep_hints(first, 3).unwrap();
        assert_eq!((of(first), of(tenth)), ((true, false, 3), (true, false, 0)));
        // What was checked is another program than this.
        fs::write(folder.program(first), "another").unwrap();
        assert_eq!(of(first), (true, true, 3));
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

    /// Promise: an exercise is done if its check has passed, and not because the file says so.
    #[test]
    fn a_file_that_somebody_changed_is_no_trouble() {
        for text in [
            "",
            "x",
            "1",
            "1 done",
            "1 done, hints",
            "1 done, hints x",
            "1 done yes, hints 0",
            "\n\n1 done\n",
        ] {
            assert_eq!(of_line(text, 1, 0), Reached::default(), "{text}");
        }
        let text = "1 done 00000000000000ff, hints 2";
        let (same, other) = (of_line(text, 1, 0xff), of_line(text, 1, 0xfe));
        assert!(same.done && !same.changed && same.hints == 2);
        assert!(other.done && other.changed);
    }
}
