//! What tests of the program share.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

pub fn rnic() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic"));
    for name in [
        "RNIC_FAULTS",
        "RNIC_PCAP",
        "RNIC_REPORT",
        "RNIC_STATS",
        "RNIC_LINT",
        "RNIC_WATCH",
        "RNIC_TRACE",
    ] {
        command.env_remove(name);
    }
    command
}

pub fn run(args: &[&str]) -> Output {
    rnic().args(args).output().expect("rnic starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn expect_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        stdout(output),
        stderr(output)
    );
}

/// A terminal of that size: the end of whoever looks at it and types, and the program's.
pub fn terminal(columns: u16, rows: u16) -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("ours");
    unlockpt(&ours).expect("ours");
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).expect("a size");
    let name = ptsname(&ours, Vec::new()).expect("a name");
    let theirs = File::options()
        .write(true)
        .read(true)
        .custom_flags(libc::O_NOCTTY)
        .open(name.to_str().expect("text"));
    (File::from(ours), theirs.expect("the other end"))
}

/// A private folder that removes itself.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rnic-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("a folder");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Any library that can be preloaded: what `run` does to a program can be seen without ours.
pub fn some_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let path = maps.lines().find_map(|line| {
        line.split_whitespace()
            .last()
            .filter(|p| p.contains("/libc.so"))
    });
    path.expect("this test uses the C library").into()
}

/// `rnic run` with that library, and a runtime folder of its own.
pub fn run_here(scratch: &Scratch) -> Command {
    let mut command = rnic();
    command
        .arg("run")
        .env("RNIC_LIB", some_library())
        .env("RNIC_RUNTIME_DIR", scratch.0.join("runtime"));
    command
}
