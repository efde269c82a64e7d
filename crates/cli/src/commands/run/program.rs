//! Finds the program as a shell would, and says beforehand why our library cannot get into it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, getxattr};
use rustix::io::Errno;

use super::elf::{self, Kind};
use crate::platform::failure::{Failure, Result};

/// As shells say it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Headers of programs and libraries lie in their first pages.
pub const HEAD: u64 = 1 << 20;
/// `#!` of a `#!`: Linux stops at four.
const SCRIPTS: usize = 4;

/// The file that `name` means: itself if it has a slash, else the first of that name in PATH.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return examine(Path::new(name));
    }
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let candidates = std::env::split_paths(&search).map(|folder| folder.join(name));
    let mut refused = None;
    for candidate in candidates.filter(|c| c.is_file() && !name.is_empty()) {
        match examine(&candidate) {
            Ok(path) => return Ok(path),
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let failure = Failure::new(format!("the program `{}` was not found", name.display()))
            .status(NOT_FOUND);
        let failure = failure.cause(format!("no folder of PATH has it: {}", search.display()));
        match Path::new(name).exists() {
            true => failure.next(format!(
                "for the file in this folder: rnic run -- ./{}",
                name.display()
            )),
            false => failure.next(match package(name) {
                Some(package) => format!(
                    "`apt install {package}` on Debian and its kin, or give the program's path"
                ),
                None => "install it, or give its path: rnic run -- /path/to/program".to_owned(),
            }),
        }
    }))
}

/// Debian packages of the programs that our documents name.
fn package(name: &OsStr) -> Option<&'static str> {
    let name = name.to_str()?;
    if ["ib_send_", "ib_write_", "ib_read_", "ib_atomic_"]
        .iter()
        .any(|p| name.starts_with(p))
    {
        return Some("perftest");
    }
    if name.starts_with("ibv_") {
        return Some("ibverbs-utils");
    }
    ["rping", "ucmatose", "rstream"]
        .contains(&name)
        .then_some("rdmacm-utils")
}

fn examine(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| {
        let found = error.kind() != io::ErrorKind::NotFound;
        Failure::new(format!(
            "the program {shown} {}",
            if found {
                "cannot be run"
            } else {
                "was not found"
            }
        ))
        .cause(error.to_string())
        .next("check the path")
        .status(if found { NOT_EXECUTABLE } else { NOT_FOUND })
    })?;
    if meta.is_dir() {
        return Err(
            Failure::new(format!("{shown} is a folder, not a program")).status(NOT_EXECUTABLE)
        );
    }
    if !may_execute(path) {
        return Err(Failure::new(format!("{shown} is not executable"))
            .cause("you may not execute it (permission bits, or a file system mounted noexec)")
            .next(format!("chmod +x {shown}"))
            .status(NOT_EXECUTABLE));
    }
    Ok(path.to_owned())
}

/// The file may be executed by this process.
fn may_execute(path: &Path) -> bool {
    match accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        // Where the user is another one than the effective, only exec itself knows.
        Ok(()) | Err(Errno::NOSYS) => true,
        Err(_) => false,
    }
}

/// The file gives capabilities to whoever executes it (setcap(8)).
fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    getxattr(path, "security.capability", &mut value).is_ok_and(|len| len > 0)
}

/// Says why interposition cannot work on this program, if so.
pub fn check(path: &Path) -> Result<()> {
    check_file(path, &[])
}

fn check_file(path: &Path, through: &[PathBuf]) -> Result<()> {
    let mut named = path.display().to_string();
    if let Some(script) = through.last() {
        named = format!("{named}, the interpreter of {},", script.display());
    }
    let impossible = |what: String| Failure::new(what).status(NOT_EXECUTABLE);
    let Ok(file) = File::open(path) else {
        // It may be executable without being readable: then the loader says what it has to say.
        return Ok(());
    };
    let meta = file.metadata()?;
    let ids = (rnic_sys::effective_uid(), rnic_sys::effective_gid());
    if (meta.mode() & 0o4000 != 0 && meta.uid() != ids.0)
        || (meta.mode() & 0o2000 != 0 && meta.gid() != ids.1)
    {
        return Err(impossible(format!("{named} is setuid or setgid: rnic cannot get into it"))
            .cause("the system's loader ignores LD_PRELOAD and LD_LIBRARY_PATH for programs that gain privileges")
            .next(format!("run a copy without the bit: cp {} /tmp/ && rnic run -- /tmp/...", path.display())));
    }
    if ids.0 != 0 && has_capabilities(path) {
        return Err(impossible(format!("{named} has capabilities (getcap shows them): rnic cannot get into it"))
            .cause("the system's loader ignores LD_PRELOAD and LD_LIBRARY_PATH for programs that gain privileges")
            .next(format!("run a copy, which has none: cp {} /tmp/ && rnic run -- /tmp/...", path.display())));
    }
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    match elf::kind(&head) {
        Kind::Dynamic { loader } => check_loader(&named, &loader),
        Kind::Static => Err(impossible(format!("{named} is statically linked: rnic cannot get into it"))
            .cause(
                "a static program has its libraries inside and asks no loader, so nothing can be put in front of \
                 them (Go programs without cgo and `-static` builds are such)",
            )
            .next(
                "link it dynamically against libibverbs (leave out -static, use CGO_ENABLED=1, the glibc target for \
                 Rust); `file PROGRAM` must say \"dynamically linked\"",
            )),
        Kind::OtherMachine { machine, bits } => Err(impossible(format!(
            "{named} is for another machine: {}, {bits} bit",
            elf::machine_name(machine)
        ))
        .cause("the library of this rnic is for the machine that rnic was built for")
        .next("use a build of the program for this machine")),
        Kind::NotAProgram(why) => Err(impossible(format!("{named} is not a program: {why}"))),
        Kind::Script { .. } if through.len() >= SCRIPTS => {
            Err(impossible(format!("{} leads through too many scripts", through[0].display())))
        }
        Kind::Script { interpreter, argument } => {
            let mut through = through.to_vec();
            through.push(path.to_owned());
            check_file(&resolve(path, &interpreter, argument.as_deref())?, &through)
        }
        Kind::Unknown => Err(impossible(format!("{named} is neither an ELF program nor a script"))
            .cause("it does not begin with an ELF header or `#!`")
            .next(format!("for a shell script without `#!`: rnic run -- sh {}", path.display()))),
    }
}

/// The program that runs a script; looks through `env`.
fn resolve(script: &Path, interpreter: &OsStr, argument: Option<&OsStr>) -> Result<PathBuf> {
    let env = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
    let name = argument.filter(|_| env).and_then(|text| {
        let words = text.as_bytes().split(|b| b.is_ascii_whitespace());
        // `env -S python3 -u`, `env NAME=value python3`
        let mut words =
            words.filter(|w| !w.is_empty() && !w.starts_with(b"-") && !w.contains(&b'='));
        words.next().map(|w| OsStr::from_bytes(w).to_owned())
    });
    let wanted: OsString = name.unwrap_or_else(|| interpreter.to_owned());
    find(&wanted)
        .map_err(|failure| failure.during(&format!("the interpreter of {}", script.display())))
}

fn check_loader(named: &str, loader: &OsStr) -> Result<()> {
    let path = Path::new(loader);
    let failure = |what: String| Failure::new(what).status(NOT_EXECUTABLE);
    if !path.exists() {
        return Err(failure(format!(
            "{named} needs the loader {}, which is not here",
            path.display()
        ))
        .cause("it was built for another distribution or C library")
        .next("use a build of the program for this system, or install that loader"));
    }
    let name = path.file_name().unwrap_or_default().as_bytes();
    if name.starts_with(b"ld-musl") && cfg!(target_env = "gnu") {
        return Err(failure(format!(
            "{named} uses the C library musl: rnic cannot get into it"
        ))
        .cause(
            "the library of this rnic is for glibc, and two C libraries do not go into one process",
        )
        .next("use a glibc build of the program, or build rnic on the musl system"));
    }
    Ok(())
}

/// exec failed although all looked well.
pub fn not_started(path: &Path, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    Failure::new(format!("cannot start {}", path.display()))
        .cause(error.to_string())
        .status(status)
}

#[cfg(test)]
mod tests;
