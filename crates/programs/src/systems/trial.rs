//! Types a system's lines in a network namespace of its own, over rnic and over TCP in turn.

use super::read;
use super::results::{Measured, Outcome};
use super::{Line, Ready, System};
use crate::netns::Netns;
use crate::process::{self, Finished, Process};
use crate::skip::find_program;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Longer than any line takes, also on a busy machine.
const TIME: Duration = Duration::from_secs(240);

/// For what was asked to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What all trials of a run share.
#[derive(Debug)]
pub struct Machine {
    /// What `crates/programs/systems/fetch` fetched.
    pub fetched: PathBuf,
    /// The folder of `rnic` and its library.
    pub binaries: PathBuf,
    /// Of this run, empty at first.
    pub scratch: PathBuf,
    /// How often each mode is measured.
    pub repetitions: usize,
    /// When, where and what, in words.
    pub when: String,
}

/// Counters are asked for, whatever the line says: they tell that the bytes went over rnic.
const WRAPPER: &str = r#"#!/bin/sh
[ "$1" = run ] || exec "$RNIC_SYSTEMS_BINARY" "$@"
shift
exec "$RNIC_SYSTEMS_BINARY" run --stats "$@"
"#;

type Result<T> = std::result::Result<T, String>;

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Machine {
    /// Where programs are looked for: `rnic` first, what was fetched, and the machine's own.
    fn path(&self) -> OsString {
        let own = [
            "bin",
            "python/bin",
            "root/usr/bin",
            "root/usr/sbin",
            "ceph/usr/bin",
        ];
        let own = own.iter().map(|name| self.fetched.join(name));
        let old = env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
        let all = [self.scratch.join("bin")].into_iter().chain(own);
        let all = all.chain(system).chain(env::split_paths(&old));
        env::join_paths(all).unwrap_or(old)
    }

    fn libraries(&self) -> OsString {
        let machine = format!("{}-linux-gnu", env::consts::ARCH);
        let mut all = Vec::new();
        for root in ["root", "ceph"] {
            let root = self.fetched.join(root);
            all.push(root.join("usr/lib").join(&machine));
            all.push(root.join("lib").join(&machine));
            all.push(root.join("usr/lib").join(&machine).join("ceph"));
        }
        env::join_paths(all).unwrap_or_default()
    }

    /// Why a system is not there.
    fn lacks(&self, system: &System) -> Option<String> {
        let is_there = |name: &&&str| match name.contains('/') {
            true => self.fetched.join(name).exists() || Path::new(name).is_file(),
            false => env::split_paths(&self.path()).any(|folder| folder.join(name).is_file()),
        };
        let missing = system.needs.iter().find(|name| !is_there(name))?;
        let log = self.fetched.join(format!("log.{}", system.fetched_as));
        let why = fs::read_to_string(log).ok().and_then(|text| {
            let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
            Some(format!(": {}", line.trim()))
        });
        Some(format!("{missing} is not there{}", why.unwrap_or_default()))
    }

    /// The whole trial of one system.
    ///
    /// # Errors
    /// When a line failed, bytes were wrong, or nothing went over rnic: with all that was printed.
    pub fn measure(&self, system: &System) -> Result<Outcome> {
        if let Some(why) = self.lacks(system) {
            return Ok(Outcome::Skipped(why));
        }
        if find_program("ip").is_none() {
            return Ok(Outcome::Skipped("ip is not installed".into()));
        }
        let mut measured = Measured {
            rdma: Vec::new(),
            tcp: Vec::new(),
            moved: String::new(),
            when: self.when.clone(),
        };
        let bin = self.scratch.join("bin");
        fs::create_dir_all(&bin).map_err(words)?;
        let wrapper = bin.join("rnic");
        fs::write(&wrapper, WRAPPER).map_err(words)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).map_err(words)?;
        for nth in 0..self.repetitions {
            let (value, said) = self.run(system, system.rdma, &format!("rdma-{nth}"))?;
            measured.rdma.push(value);
            measured.moved =
                read::moved(&said).ok_or_else(|| format!("nothing went over rnic:\n{said}"))?;
            let (value, said) = self.run(system, system.tcp, &format!("tcp-{nth}"))?;
            measured.tcp.push(value);
            if said.contains("over rnic0") {
                return Err(format!("the TCP mode used rnic:\n{said}"));
            }
        }
        Ok(Outcome::Ran(measured))
    }

    /// One mode, once: the throughput, and all that was said.
    fn run(&self, system: &System, lines: &[Line], label: &str) -> Result<(f64, String)> {
        let folder = self.scratch.join(format!("{}-{label}", system.key()));
        fs::create_dir_all(&folder).map_err(words)?;
        for name in system.files {
            fs::copy(super::folder().join(name), folder.join(name)).map_err(words)?;
        }
        let netns = Netns::new()?;
        // Libraries that leave the loopback interface out have this one.
        netns.ip("link add rn0 mtu 9000 type veth peer name rn1 mtu 9000");
        netns.ip("addr add 10.0.0.1/24 dev rn0");
        netns.ip("link set rn1 up");
        netns.ip("link set rn0 up");
        let start = |text: &str| {
            let mut command = netns.enter("bash");
            self.furnish(&mut command, &folder);
            command.args(["-e", "-o", "pipefail", "-c", text]);
            Process::spawn(command)
        };
        for line in system.before {
            let finished = finish(start(line))?;
            if !finished.ok() {
                return Err(finished.describe());
            }
        }
        let mut background = Vec::new();
        let mut said = String::new();
        for line in lines {
            match *line {
                Line::Runs(text) => {
                    let finished = finish_beside(start(text), &mut background)?;
                    said += &finished.stdout;
                    said += &finished.stderr;
                }
                Line::Serves(text, ready) | Line::Beside(text, ready) => {
                    let mut process = start(text);
                    self.wait_until(&netns, &mut process, ready, &folder)?;
                    background.push((process, matches!(line, Line::Beside(..))));
                }
            }
        }
        for (mut process, ends) in background.into_iter().rev() {
            if !ends {
                end(&mut process);
                said += &process.output_after_end();
            } else {
                let finished = finish(process)?;
                said += &finished.stdout;
                said += &finished.stderr;
                if !finished.ok() {
                    return Err(finished.describe());
                }
            }
        }
        let rate = read::rate(&said, system.rate)
            .ok_or_else(|| format!("no throughput in what was said:\n{said}"))?;
        fs::remove_dir_all(&folder).map_err(words)?;
        Ok((rate, said))
    }

    /// Waits for what the next line needs.
    fn wait_until(
        &self,
        netns: &Netns,
        process: &mut Process,
        ready: Ready,
        folder: &Path,
    ) -> Result<()> {
        let deadline = Instant::now() + TIME;
        loop {
            let is_ready = match ready {
                Ready::Says(words) => process.output().contains(words),
                Ready::Listens(port) => process.listens(port),
                Ready::Accepts => self.has_cm_listener(netns),
                Ready::Has(name) => folder.join(name).exists(),
            };
            if is_ready {
                return Ok(());
            }
            if process.ended() || Instant::now() > deadline {
                return Err(format!("not ready:\n{}", process.output_after_end()));
            }
            thread::sleep(process::GLANCE);
        }
    }

    /// Whether an id of rdma_cm listens there, as `rdma resource` of iproute2 has it.
    fn has_cm_listener(&self, netns: &Netns) -> bool {
        let mut command = netns.enter(self.binaries.join("rnic"));
        command.args(["run", "-q", "--", "rdma", "resource", "show", "cm_id"]);
        let output = command.output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("LISTEN"))
    }

    fn furnish(&self, command: &mut Command, folder: &Path) {
        command
            .current_dir(folder)
            .env("PATH", self.path())
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("SYSTEMS", &self.fetched)
            .env("RNIC_SYSTEMS_BINARY", self.binaries.join("rnic"));
        // As root Open MPI wants to be asked twice.
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
    }
}

/// What serves is asked to end, as at a terminal: its counters are of interest.
fn end(process: &mut Process) {
    process.interrupt();
    if !process.ends_within(PATIENCE) {
        process.kill();
    }
    process.ends_within(TIME);
}

/// Waits for its end.
fn finish(mut process: Process) -> Result<Finished> {
    match process.ends_within(TIME) {
        true => Ok(process.wait(TIME)),
        false => Err(format!("not ended after {TIME:?}:\n{}", process.output())),
    }
}

/// The same, without an error. What runs beside it may know why there was one.
fn finish_beside(process: Process, background: &mut [(Process, bool)]) -> Result<Finished> {
    let why = match finish(process) {
        Ok(finished) if finished.ok() => return Ok(finished),
        Ok(finished) => finished.describe(),
        Err(why) => why,
    };
    let others: Vec<String> = background
        .iter_mut()
        .map(|(process, _)| process.output())
        .collect();
    let others = others.join("\n");
    Err(format!("{why}\nin the background:\n{others}"))
}
