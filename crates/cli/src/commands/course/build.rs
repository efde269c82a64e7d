//! The learner's program and the check, made one by the C compiler of the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::exercises::{Exercise, HARNESS, HEADER};
use crate::commands::run::folders;
use crate::platform::failure::{Failure, Result};

const INSTALL: &str = "Debian, Ubuntu: `sudo apt install gcc libibverbs-dev librdmacm-dev`; Fedora, RHEL: \
     `sudo dnf install gcc rdma-core-devel`; no RDMA hardware is needed";

/// The program, in a folder that is removed with this.
#[derive(Debug)]
pub struct Built {
    folder: PathBuf,
    pub program: PathBuf,
    /// Where the check writes what is right and what is not.
    pub verdicts: PathBuf,
    /// What the compiler warned of.
    pub warnings: String,
}

impl Drop for Built {
    fn drop(&mut self) {
        // Of this process alone: nobody misses it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Builds what the learner wrote. What the compiler refuses is the learner's: its words are in the
/// failure.
pub fn build(exercise: &Exercise, source: &Path) -> Result<Built> {
    let learner = fs::read_to_string(source).map_err(|error| {
        Failure::new(format!("cannot read {}", source.display())).cause(error.to_string())
    })?;
    let folder = folders::runtime()?.join(format!("course-{}", std::process::id()));
    let name = exercise.program();
    let built = Built {
        program: folder.join(name),
        verdicts: folder.join("verdicts"),
        folder,
        warnings: String::new(),
    };
    // Left by a process of this number that was killed.
    let _ = fs::remove_dir_all(&built.folder);
    fs::create_dir(&built.folder)?;
    // Messages are about the file that the learner has.
    let shown = source.display().to_string().replace(['"', '\\'], "_");
    let learner = format!("#line 1 \"{shown}\"\n{learner}");
    let mut files = vec![
        ("course.h", HEADER),
        ("judge.c", exercise.judge),
        ("learner.c", &*learner),
    ];
    files.extend(HARNESS);
    for (name, text) in files {
        fs::write(built.folder.join(name), text)?;
    }
    fs::write(&built.verdicts, "")?;
    compile(built)
}

fn compile(mut built: Built) -> Result<Built> {
    let compiler = std::env::var_os("CC").filter(|name| !name.is_empty());
    let compiler = compiler.unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .current_dir(&built.folder)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-o"])
        .arg(&built.program)
        .args(["learner.c", "judge.c", "harness.c", "-lrdmacm", "-libverbs"])
        .output()
        .map_err(|error| {
            let name = compiler.to_string_lossy();
            Failure::new(format!("the C compiler `{name}` cannot be started"))
                .cause(error.to_string())
                .next(INSTALL)
        })?;
    built.warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(built);
    }
    let said = built.warnings.trim_end();
    let of_machine = [
        "infiniband/verbs.h: No such file",
        "rdma/rdma_cma.h: No such file",
        "'infiniband/verbs.h' file not found",
        "'rdma/rdma_cma.h' file not found",
        "-lrdmacm",
        "-libverbs",
    ];
    if of_machine.iter().any(|sign| said.contains(sign)) {
        return Err(
            Failure::new("programs that use libibverbs cannot be built here")
                .cause("the headers or libraries of rdma-core for building are not installed")
                .next(INSTALL),
        );
    }
    let failure = Failure::new(format!("the program does not compile\n{said}"));
    Err(match of_linker(said) {
        Some(why) => failure.cause(why),
        None => failure,
    })
}

/// What the linker misses or has twice, in words: its own ones are about files of the course.
fn of_linker(said: &str) -> Option<String> {
    let named = |line: &str| {
        let name = line
            .split(['`', '\'', '\u{2018}', '\u{2019}', '"'])
            .nth(1)?;
        Some(name.to_owned())
    };
    said.lines().find_map(|line| {
        // After the place, which has quoted names as well.
        if let Some((place, rest)) = line.split_once("undefined reference to ") {
            let name = named(rest)?;
            return place
                .contains("judge.c")
                .then(|| format!("the course calls {name}(), and your program does not have it"));
        }
        let (_, rest) = line.split_once("multiple definition of ")?;
        Some(match named(rest)?.as_str() {
            "main" => "your program has main(), and so has the course: yours is to have the function alone"
                .to_owned(),
            name => format!("{name}() is in the course, too: give yours another name, or make it static"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::of_linker;

    /// Promise: what the linker says of files that the learner does not have is said in words.
    #[test]
    fn the_linkers_words_are_explained() {
        let missing = "/usr/bin/ld: /tmp/a.o: in function `look_for':\n/tmp/judge.c:10: undefined reference to `find_gid'";
        let of = |said| of_linker(said).unwrap_or_default();
        assert!(of(missing).contains("calls find_gid()"), "{}", of(missing));
        let twice = "/usr/bin/ld: /tmp/b.o: in function `main':\nharness.c:1: multiple definition of `main'; learner.c:1: first";
        assert!(of(twice).contains("main()"), "{}", of(twice));
        // What the learner calls and nobody has is in the linker's own words.
        assert_eq!(of_linker("learner.c:1: undefined reference to `foo'"), None);
        assert_eq!(of_linker("x.c:1:2: error: expected ';'"), None);
    }
}
