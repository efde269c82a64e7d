//! Runs the program with the recorders in it, and reads what they wrote.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rnic_sys::signal::without_file_size_signal;
use rnic_sys::tally;
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};

use super::evidence::{Evidence, Sockets, Verbs};
use crate::commands::run::environment::{self, Environment};
use crate::commands::run::report::{Collector, Report, Wishes};
use crate::commands::run::{self, folders, library, program};
use crate::platform::failure::{Failure, Result};
use crate::platform::signals;

/// A program and its arguments.
pub struct Program<'a> {
    line: &'a [OsString],
    path: PathBuf,
}

impl<'a> Program<'a> {
    pub fn find(line: &'a [OsString]) -> Result<Program<'a>> {
        let Some(name) = line.first() else {
            return Err(Failure::new("no program given").next("`rnic advise -- PROGRAM ARGS...`"));
        };
        let path = program::find(name)?;
        program::check(&path)?;
        Ok(Program { line, path })
    }

    pub fn name(&self) -> String {
        let name = Path::new(&self.line[0]).file_name();
        name.unwrap_or(&self.line[0]).to_string_lossy().into_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.line[0]).args(&self.line[1..]);
        signals::keep_signals(&mut command);
        for name in [
            rnic_settings::TRACE.name,
            rnic_settings::WATCH.name,
            rnic_settings::RECORD.name,
            rnic_settings::USAGE.name,
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// How a run went.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub status: ExitStatus,
    /// From its start to its end.
    pub seconds: f64,
    /// It was ended, as it took too long.
    pub stopped: bool,
    /// Somebody asked it to end.
    pub interrupted: bool,
    /// Established TCP connections were seen in it.
    saw_connections: bool,
}

impl Run {
    /// How it failed by itself; `None`: it did not.
    pub fn failure(&self) -> Option<String> {
        (!self.stopped && !self.status.success()).then(|| format!("it failed ({})", self.status))
    }
}

/// The file that the recorder counts in. Removed when dropped; one whose owner was killed is nobody's
/// lock, and the next run removes it.
struct Tally {
    path: PathBuf,
    _lock: File,
}

/// What its name begins with.
const PREFIX: &str = "advise-";

impl Tally {
    fn new(folder: &Path) -> Result<Tally> {
        let failed = |error: std::io::Error| {
            Failure::new(format!("cannot make a file in {}", folder.display()))
                .cause(error.to_string())
                .next(
                    "set RNIC_RUNTIME_DIR to another folder of yours, with four megabytes of room",
                )
        };
        Tally::prune(folder);
        let name = std::hash::RandomState::new().build_hasher().finish();
        // Others see it only once it is locked.
        let draft = folder.join(format!(".{PREFIX}{name:016x}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&draft).map_err(failed)?;
        let path = folder.join(format!("{PREFIX}{name:016x}"));
        let made = (|| {
            file.lock()?;
            file.write_all(&tally::blank())?;
            std::fs::rename(&draft, &path)
        })();
        if made.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
        made.map_err(failed)?;
        Ok(Tally { path, _lock: file })
    }

    fn prune(folder: &Path) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        {
            let path = entry.path();
            let unlocked = File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
            if unlocked {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What a run has beside the recorders.
#[derive(Clone, Copy, Default)]
pub struct With<'a> {
    /// One more variable.
    pub variable: Option<(&'static str, &'static str)>,
    /// One more library, behind all others.
    pub preload: Option<&'a Path>,
    /// The program is ended after so long.
    pub limit: Option<Duration>,
    /// What it prints is of no interest.
    pub silent: bool,
}

/// Runs the program, and says what it did.
pub fn recorded(program: &Program<'_>, with: With<'_>) -> Result<(Evidence, Run)> {
    let Environment {
        variables,
        library: _verbs,
    } = without_file_size_signal(|| environment::of(&run::Args::default()))?;
    let recorder = library::recorder()?;
    let runtime = folders::runtime()?;
    let tally = without_file_size_signal(|| Tally::new(&runtime))?;
    let collector = Collector::new(&runtime)?;
    let mut command = program.command();
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let verbs = variables.iter().find(|(name, _)| *name == "LD_PRELOAD");
    let libraries = [
        Some(recorder.path.as_os_str()),
        verbs.map(|(_, value)| value.as_os_str()),
        with.preload.map(Path::as_os_str),
    ];
    command.env("LD_PRELOAD", joined(libraries));
    let wishes = Wishes {
        stats: true,
        ..Wishes::default()
    };
    collector.prepare(&mut command, wishes);
    command.env(rnic_settings::USAGE.name, "1");
    command.env(rnic_settings::RECORD.name, &tally.path);
    let run = start(program, command, with)?;
    let lines = std::fs::read_to_string(collector.file()).unwrap_or_default();
    let counted = tally::read(&std::fs::read(&tally.path)?);
    let sockets = Sockets::of(&counted);
    let report = collector.read();
    let calls = [&sockets.asks, &sockets.serves].map(|lane| lane.calls());
    let evidence = Evidence {
        program: program.name(),
        seconds: run.seconds,
        processes: counted.processes,
        hidden_sockets: run.saw_connections && calls == [0, 0],
        sockets,
        verbs: verbs_of(&report, &lines),
    };
    Ok((evidence, run))
}

/// Runs the program without a recorder, with the NIC or as it is.
pub fn bare(program: &Program<'_>, with_nic: bool, with: With<'_>) -> Result<Run> {
    let mut command = program.command();
    let kept;
    if with_nic {
        kept = environment::of(&run::Args::default())?;
        let verbs = kept
            .variables
            .iter()
            .find(|(name, _)| *name == "LD_PRELOAD");
        let preload = joined([
            verbs.map(|(_, value)| value.as_os_str()),
            with.preload.map(Path::as_os_str),
        ]);
        command.envs(kept.variables.iter().map(|(name, value)| (name, value)));
        command.env("LD_PRELOAD", preload);
    }
    start(program, command, with)
}

/// Paths as the loader wants them.
fn joined<'a>(paths: impl IntoIterator<Item = Option<&'a OsStr>>) -> OsString {
    let paths: Vec<&OsStr> = paths.into_iter().flatten().collect();
    paths.join(OsStr::new(":"))
}

fn start(program: &Program<'_>, mut command: Command, with: With<'_>) -> Result<Run> {
    if let Some((name, value)) = with.variable {
        command.env(name, value);
    }
    if with.silent {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    }
    if with.limit.is_some() {
        // What becomes a daemon is a child of this process then, and is found. Where that cannot be
        // had, it stays.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
    }
    let began = Instant::now();
    let ward = signals::start_ward(&mut command)
        .map_err(|error| program::not_started(&program.path, &error))?;
    let (over, ended) = channel::<()>();
    let watch = std::thread::spawn(move || watch(&ended, with.limit));
    let ended = ward.wait();
    drop(over);
    let (stopped, saw_connections) = watch.join().unwrap_or_default();
    let ended = ended?;
    Ok(Run {
        status: ended.status,
        interrupted: ended.interrupted,
        seconds: began.elapsed().as_secs_f64(),
        stopped,
        saw_connections,
    })
}

/// Looks at the program until its end, and ends it and all that it started if it takes longer than
/// that. Says whether it was ended, and whether it had TCP connections.
fn watch(ended: &Receiver<()>, limit: Option<Duration>) -> (bool, bool) {
    const LOOKS: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(3);
    let began = Instant::now();
    let (mut told, mut connections) = (None::<Instant>, false);
    let tell = |signal| {
        // Who has ended meanwhile needs no signal.
        let all = descendants().into_iter();
        for pid in all.filter_map(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, signal);
        }
    };
    while ended.recv_timeout(LOOKS) == Err(RecvTimeoutError::Timeout) {
        connections = connections || descendants().into_iter().any(has_connections);
        let signal = match told {
            None if limit.is_some_and(|limit| began.elapsed() >= limit) => Signal::TERM,
            Some(since) if since.elapsed() >= PATIENCE => Signal::KILL,
            _ => continue,
        };
        told = told.or_else(|| Some(Instant::now()));
        tell(signal);
    }
    // Its daemons, if it has become one itself, have the same time.
    let Some(limit) = limit else {
        return (false, connections);
    };
    while told.is_none() && began.elapsed() < limit && !descendants().is_empty() {
        std::thread::sleep(LOOKS);
        connections = connections || descendants().into_iter().any(has_connections);
    }
    if told.is_none() && !descendants().is_empty() {
        told = Some(Instant::now());
        tell(Signal::TERM);
    }
    while let Some(since) = told.filter(|_| !descendants().is_empty()) {
        rnic_sys::child::reap_others(0);
        if since.elapsed() >= PATIENCE {
            tell(Signal::KILL);
        }
        std::thread::sleep(LOOKS / 10);
    }
    rnic_sys::child::reap_others(0);
    (told.is_some(), connections)
}

/// The processes that this one has started, and theirs, as far as they have not left it. Those that
/// have ended and that nobody has waited for are none.
fn descendants() -> Vec<u32> {
    let mut all = vec![std::process::id()];
    let mut at = 0;
    while let Some(parent) = all.get(at) {
        let threads = std::fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        at += 1;
    }
    all.drain(..1);
    all.retain(|pid| !has_ended(*pid));
    all
}

/// The state of a process is that of one that has ended (proc_pid_stat(5)).
fn has_ended(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = text
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

/// The process has established TCP connections.
fn has_connections(pid: u32) -> bool {
    let mut established = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let mut words = line.split_whitespace();
            // The state stands after number, local and remote address; the inode six words later.
            if words.nth(3) == Some("01")
                && let Some(inode) = words.nth(5)
            {
                established.insert(format!("socket:[{inode}]"));
            }
        }
    }
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let links = entries.into_iter().flatten().flatten();
    let mut names = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names.any(|name| established.contains(&*name.to_string_lossy()))
}

/// What the NIC's lines say; `None`: no process opened the device.
fn verbs_of(report: &Report, lines: &str) -> Option<Verbs> {
    if !report.processes.iter().any(|process| process.opened) {
        return None;
    }
    let mut verbs = Verbs::read(lines);
    let (mut pairs, mut longer) = (0u64, 0u64);
    for qp in &report.qps {
        let (requested, served) = (&qp.counters.requested, &qp.counters.served);
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        for kind in [
            &requested.send,
            &requested.write,
            &requested.read,
            &requested.atomic,
        ] {
            add(&mut verbs.requested_bytes, kind.bytes);
        }
        let all = [requested, served].map(|by| {
            let kinds = [by.send, by.write, by.read, by.atomic];
            kinds
                .iter()
                .fold(0, |sum: u64, kind| sum.saturating_add(kind.messages))
        });
        // Through shared memory nobody tells the peer of a WRITE: it may be in this trace, too.
        let peer = report.qps.iter().find(|other| {
            other.ends.peer_qpn == Some(qp.ends.qpn) && qp.ends.peer_qpn == Some(other.ends.qpn)
        });
        let written = peer.map_or(0, |peer| peer.counters.requested.write.messages);
        let back = all[1].max(written);
        add(&mut pairs, all[0].min(back));
        add(&mut longer, all[0].max(back));
        add(&mut verbs.served_sends, served.send.messages);
        add(&mut verbs.served_bytes, served.send.bytes);
        for kind in [&served.write, &served.read, &served.atomic] {
            add(&mut verbs.served_others, kind.messages);
            add(&mut verbs.served_bytes, kind.bytes);
        }
        let event = |name: &str| qp.counters.events.get(name).copied().unwrap_or(0);
        add(&mut verbs.rnr_naks, event("rnr_naks_received"));
        add(&mut verbs.retransmitted, event("retransmitted_packets"));
        verbs.path_mtu = match (verbs.path_mtu, qp.path_mtu.unwrap_or(0)) {
            (0, mtu) | (mtu, 0) => mtu,
            (a, b) => a.min(b),
        };
    }
    verbs.both_ways = pairs as f64 / longer.max(1) as f64;
    Some(verbs)
}
