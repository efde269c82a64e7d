//! What is said when the program has ended: why it failed, what it moved, what would fail on
//! hardware.

mod cm;
mod drops;
mod injected;
mod lint;
mod local;
mod partitions;
mod peer;
mod peers;
mod reached;
mod record;
mod refused;
mod refused_verbs;
mod stats;
mod story;
mod unanswered;
mod waits;
mod watch;
mod why;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};

use super::folders;
use crate::text::printable;
use injected::Injected;
use peers::PREFIX;
pub use watch::Watch;

use record::{
    Attempt, Connected, Device, Dropped, Failure, Flushed, Left, Lint, Overrun, Partition, Qp,
    Record, Refusal, Stopped, Unheard, Verb, Wait, Waiting,
};

/// What was asked for beside the closing words.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    pub quiet: bool,
    pub stats: bool,
    pub lint: bool,
    pub json: bool,
}

impl Wishes {
    /// Nothing is wanted: the program may take the place of this process.
    pub fn none(self) -> bool {
        self.quiet && !self.stats && !self.lint && !self.json
    }
}

/// The file that the program's NIC appends to. Removed when dropped.
#[derive(Debug)]
pub struct Collector {
    file: PathBuf,
    /// Locked, if it is in a folder, as long as this run lives. A process number would not tell:
    /// containers may share the folder.
    _lock: File,
    /// Other runs may want to read it when this one has ended.
    keep: Cell<bool>,
}

impl Collector {
    /// A file in the runtime folder, which is the user's alone.
    pub fn new(runtime: &Path) -> std::io::Result<Collector> {
        peers::prune(runtime);
        loop {
            let name = std::hash::RandomState::new().build_hasher().finish();
            let draft = runtime.join(format!(".{PREFIX}{name:016x}"));
            let created = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&draft);
            let lock = match created {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            // Others see it only once it is locked.
            lock.lock()?;
            let file = runtime.join(format!("{PREFIX}{name:016x}"));
            std::fs::rename(&draft, &file)?;
            return Ok(Collector {
                file,
                _lock: lock,
                keep: Cell::new(false),
            });
        }
    }

    /// A file in memory, where no folder can be written to. Its name leads through this process,
    /// which outlives the program.
    pub fn in_memory() -> std::io::Result<Collector> {
        let memory = File::from(memfd_create("rnic-report", MemfdFlags::CLOEXEC)?);
        let file = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        Ok(Collector {
            file: file.into(),
            _lock: memory,
            keep: Cell::new(false),
        })
    }

    /// Tells the program where to.
    pub fn prepare(&self, command: &mut Command, wishes: Wishes) {
        command.env(rnic_settings::REPORT.name, &self.file);
        for (name, wanted) in [
            (rnic_settings::STATS.name, wishes.stats),
            (rnic_settings::LINT.name, wishes.lint),
        ] {
            if wanted {
                command.env(name, "1");
            } else {
                command.env_remove(name);
            }
        }
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads what has come, and what other runs of this user tell of the peers.
    pub fn read(&self) -> Report {
        let mut report = match File::open(&self.file) {
            Ok(file) => Report::read(file, 0),
            Err(_) => return Report::default(),
        };
        report.look_at_others(&folders::existing(), Some(&self.file));
        let told = !report.connected.is_empty()
            || !report.unheard.is_empty()
            || !report.dropped.is_empty();
        self.keep.set(told);
        report
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // A peer may fail later, and its run asks why.
        if !self.keep.get() {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

/// One process that used the device.
#[derive(Clone, Debug)]
pub struct Process {
    pub id: u64,
    pub pid: u32,
    pub program: String,
    pub opened: bool,
}

/// Everything that was recorded in a run.
#[derive(Debug, Default)]
pub struct Report {
    pub processes: Vec<Process>,
    pub failures: Vec<Failure>,
    pub refusals: Vec<Refusal>,
    pub partitions: Vec<Partition>,
    pub flushed: Vec<Flushed>,
    pub verbs: Vec<Verb>,
    /// Which process went on after all that it was refused, and when.
    survived: Vec<(u64, u64)>,
    pub waiting: Vec<Waiting>,
    pub stopped: Vec<Stopped>,
    pub dropped: Vec<Dropped>,
    pub overruns: Vec<Overrun>,
    /// Waits that go on, or ended as the process did.
    pub waits: Vec<Wait>,
    /// When it was read, ns.
    pub read_at: u64,
    /// The program was sent a signal that ends programs.
    pub interrupted: bool,
    pub attempts: Vec<Attempt>,
    /// The last news of each queue pair, in the order of their first.
    pub qps: Vec<Qp>,
    live: HashMap<(u64, u32), usize>,
    pub devices: HashMap<u64, Device>,
    pub lints: Vec<Lint>,
    pub connected: Vec<Connected>,
    pub left: Vec<Left>,
    pub unheard: Vec<Unheard>,
    /// What other runs of this user tell of the peers of this one's queue pairs.
    pub others: Option<Box<Report>>,
    /// Of those, the processes whose run has ended.
    ended: HashSet<u64>,
    /// What failed is a part of a program, a test: it has no exit status.
    pub of_a_part: bool,
}

impl Report {
    /// Reads the records from byte `from` on. Of those before it, it takes who the processes are and
    /// how their queue pairs were connected.
    pub fn read(file: File, from: u64) -> Report {
        let mut report = Report::default();
        let mut at = 0;
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            let before = at < from;
            at += line.len() as u64 + 1;
            // A line that cannot be read was written by something else: leave it.
            match serde_json::from_slice(&line) {
                Ok(
                    record
                    @ (Record::Process { .. } | Record::Opened { .. } | Record::Connected(_)),
                ) => report.add(record),
                Ok(record) if !before => report.add(record),
                _ => {}
            }
        }
        report.read_at = rnic_sys::now_ns();
        report.finish();
        report
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Process {
                process,
                pid,
                program,
            } => self.processes.push(Process {
                id: process,
                pid,
                program,
                opened: false,
            }),
            Record::Opened { process } => {
                if let Some(known) = self.processes.iter_mut().find(|p| p.id == process) {
                    known.opened = true;
                }
            }
            Record::Survived { process, ns } => self.survived.push((process, ns)),
            Record::Failure(failure) => self.failures.push(*failure),
            Record::Refusal(refusal) => self.refusals.push(*refusal),
            Record::Partition(partition) => self.partitions.push(partition),
            Record::Flushed(flushed) => self.flushed.push(flushed),
            Record::Verb(verb) => self.verbs.push(verb),
            Record::Overrun(overrun) => self.overruns.push(overrun),
            Record::Waiting(waiting) => self.waiting.push(waiting),
            Record::Stopped(stopped) => self.stopped.push(stopped),
            Record::Dropped(dropped) => {
                let same = |known: &&mut Dropped| {
                    (known.process, known.ends.qpn, &known.cause)
                        == (dropped.process, dropped.ends.qpn, &dropped.cause)
                };
                // The later one counts them all.
                match self.dropped.iter_mut().find(same) {
                    Some(known) => *known = dropped,
                    None => self.dropped.push(dropped),
                }
            }
            Record::Wait(wait) => self.waits.push(*wait),
            Record::Connection(attempt) => self.attempts.push(*attempt),
            Record::Qp(qp) => self.add_qp(*qp),
            Record::Device(device) => {
                self.devices.insert(device.process, device);
            }
            Record::Lint(lint) => {
                let same = |known: &&mut Lint| {
                    (known.process, &known.kind, known.object)
                        == (lint.process, &lint.kind, lint.object)
                };
                match self.lints.iter_mut().find(same) {
                    Some(known) => *known = lint,
                    None => self.lints.push(lint),
                }
            }
            Record::Connected(connected) => self.connected.push(connected),
            Record::Left(left) => self.left.push(left),
            Record::Unheard(unheard) => self.unheard.push(unheard),
            Record::Unknown => {}
        }
    }

    fn add_qp(&mut self, qp: Qp) {
        let key = (qp.process, qp.ends.qpn);
        let end = qp.end;
        match self.live.get(&key) {
            Some(&at) => {
                // A queue pair that was reset has forgotten its peer, the last one stays of
                // interest.
                let mut qp = qp;
                if qp.ends.peer.is_none() {
                    qp.ends = self.qps[at].ends.clone();
                }
                self.qps[at] = qp;
            }
            None => {
                self.live.insert(key, self.qps.len());
                self.qps.push(qp);
            }
        }
        if end {
            self.live.remove(&key);
        }
    }

    fn finish(&mut self) {
        // CLOCK_MONOTONIC is one clock for all processes of the host.
        self.failures.sort_by_key(|failure| failure.ns);
        self.refusals.sort_by_key(|refusal| refusal.ns);
        self.verbs.sort_by_key(|verb| verb.ns);
        refused_verbs::mark_survived(self);
        self.attempts.sort_by_key(|attempt| attempt.ns);
        for stopped in &mut self.stopped {
            stopped.still = rnic_nic::is_stopped(stopped.peer_pid);
        }
        lint::match_ends(self);
    }

    /// How the program ended, for sentences.
    pub fn ending(&self, status: ExitStatus) -> String {
        match status.signal() {
            _ if self.of_a_part => "failed".to_owned(),
            Some(signal) => format!("was ended by signal {signal}"),
            None => format!("ended with exit status {}", status.code().unwrap_or(0)),
        }
    }

    pub fn process(&self, id: u64) -> String {
        match self
            .all(|report| &report.processes)
            .find(|process| process.id == id)
        {
            Some(process) => named(&process.program, process.pid),
            None => "a process".to_owned(),
        }
    }

    /// Records of this run, and then those of other runs about its peers.
    pub fn all<'a, T: 'a>(
        &'a self,
        of: fn(&Report) -> &Vec<T>,
    ) -> impl DoubleEndedIterator<Item = &'a T> {
        let others = self.others.as_deref().map_or(&[][..], |others| of(others));
        of(self).iter().chain(others)
    }

    /// The run of another terminal that had this process has ended, and its programs with it.
    pub fn has_ended(&self, process: u64) -> bool {
        self.others
            .as_ref()
            .is_some_and(|others| others.ended.contains(&process))
    }
}

/// A process as people know it.
fn named(program: &str, pid: u32) -> String {
    const LONGEST: usize = 64;
    let name: String = program.chars().take(LONGEST).collect();
    format!("{name} (pid {pid})")
}

/// Of the format that docs/json.md describes. Fields may be added to it.
const VERSION: u32 = 1;

/// Everything for machines. `ended`: `None` if the program was never started, of which `failure`
/// tells.
fn document(
    report: &Report,
    program: &str,
    ended: Option<ExitStatus>,
    failure: Option<Value>,
    wishes: Wishes,
) -> Value {
    json!({
        "version": VERSION,
        "program": program,
        "started": ended.is_some(),
        "exit_status": ended.and_then(|status| status.code()),
        "signal": ended.and_then(|status| status.signal()),
        "failure": failure,
        "failures": report.failures,
        "refusals": report.refusals,
        "other_partitions": report.partitions,
        "refused_verbs": report.verbs,
        "waiting_for_receives": report.waiting,
        "waiting_for_stopped": report.stopped,
        "dropped_messages": report.dropped,
        "overruns": report.overruns,
        "waits": ended.map_or(Vec::new(), |status| waits::told(report, status)),
        "connections": missed(report),
        "faults": Injected::of_all(report).to_json(),
        "stats": wishes.stats.then(|| stats::to_json(report)),
        "reached": !report.processes.is_empty(),
        "lint": wishes.lint.then(|| lint::to_json(report)),
    })
}

/// Connections that did not come about at first; of those that this side was asked for only what it
/// refused.
fn missed(report: &Report) -> Vec<&Attempt> {
    let attempts = report.attempts.iter();
    attempts
        .filter(|attempt| !attempt.what.starts_with("request"))
        .collect()
}

/// The line for machines of a program that could not be started.
pub fn not_started(
    program: &str,
    failure: &crate::platform::failure::Failure,
    wishes: Wishes,
) -> String {
    let nothing = Report::default();
    document(&nothing, program, None, Some(failure.to_json()), wishes).to_string()
}

/// Prints what is to be said, to standard error: the program's own output stays what it is.
pub fn close(report: &Report, program: &str, status: ExitStatus, wishes: Wishes, faults: bool) {
    if wishes.json {
        let failure = why::tell(report, program, status, faults).map(|story| story.to_json());
        let document = document(report, program, Some(status), failure, wishes);
        crate::remark!("{document}");
        return;
    }
    if wishes.stats {
        stats::print(report);
    }
    if wishes.lint {
        lint::print(report);
    }
    if wishes.quiet {
        return;
    }
    if faults && let Some(words) = Injected::of_all(report).words() {
        crate::remark!("rnic: faults: {words}");
    }
    let failed = why::tell(report, program, status, faults);
    match failed.or_else(|| reached::tell(report, program, status)) {
        Some(story) => story.print(),
        // What a service may lose is no failure of the program, but often its reason.
        None => {
            for sentence in drops::sentences(report) {
                crate::remark!("rnic: {}", printable(&sentence));
            }
        }
    }
}

/// `rnic explain --report`: why `name`, a part of a program, failed, as far as the records from
/// byte `from` on tell. Empty if the NIC has nothing to say of it.
pub fn words(file: File, from: u64, name: &str, faults: bool) -> String {
    let mut report = Report::read(file, from);
    report.look_at_others(&folders::existing(), None);
    report.of_a_part = true;
    let failed = ExitStatus::from_raw(1 << 8);
    let story = why::tell(&report, name, failed, faults);
    story.map_or(String::new(), |story| story.to_string())
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting;
