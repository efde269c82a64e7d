//! Programs that sleep until there is work, each beside itself over TCP: `bench/run --asleep`.
//!
//! Nothing is tied to a processor here, as programs are not, and where the scheduler puts them is
//! part of what is measured. "Busy" rows have two endless loops beside them, one for each processor
//! of the machine that they were made for.

mod ceph;
mod programs;
mod small;

use std::path::PathBuf;
use std::process::Command;

use crate::pair::Running;
use crate::place::{End, Ends, Wire};
use crate::setting::{Figure, Setting, Unit, Way};
use crate::{Error, Result};

pub use ceph::Rados;
pub use programs::{Mpi, Valkey};
pub use small::{c_compiler, compiled};

/// Loops that do nothing, beside a busy row.
const LOOPS: usize = 2;

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// By sockets of the kernel, without rnic.
    Sockets(Wire),
    /// By RDMA.
    Rnic(Way),
    /// By RDMA, with `RNIC_WAIT=sleep`: the library has no part in how threads wait.
    Asleep(Way),
}

impl Over {
    fn wire(self) -> Wire {
        match self {
            Over::Sockets(wire) => wire,
            Over::Rnic(way) | Over::Asleep(way) => way.wire(),
        }
    }

    pub fn is_rdma(self) -> bool {
        !matches!(self, Over::Sockets(_))
    }

    pub fn describe(self) -> &'static str {
        match self {
            Over::Sockets(_) => "TCP",
            Over::Rnic(Way::Host) => "rnic, shared memory",
            Over::Rnic(_) => "rnic, UDP",
            Over::Asleep(Way::Host) => "rnic, shared memory, RNIC_WAIT=sleep",
            Over::Asleep(_) => "rnic, UDP, RNIC_WAIT=sleep",
        }
    }

    /// A command that runs a program there, under `rnic run` if it is RDMA; the program is yet to
    /// be added.
    fn command(self, setting: &Setting, end: &End) -> Command {
        let mut command = end.command("env");
        match self {
            Over::Sockets(_) => return command,
            Over::Rnic(_) => {}
            Over::Asleep(_) => drop(command.env("RNIC_WAIT", "sleep")),
        }
        let (Over::Rnic(way) | Over::Asleep(way)) = self else {
            return command;
        };
        crate::setting::rnic_run(setting, command, way)
    }
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Work {
    /// crates/programs/c/asleep.c, 64 bytes: how to send, and how to wait.
    PingPong(&'static str, &'static str),
    /// crates/programs/c/loops.c: so many connections, each with a thread and a loop of its own, or
    /// all in one loop.
    Loops(u32, bool),
    /// crates/programs/c/idle.c, with so many connections.
    Idle(u32),
    /// crates/programs/c/mixed.c; false: without a busy connection.
    Mixed(bool),
    Valkey(Valkey),
    /// iscsi-perf from a target of tgt: blocks of 512 bytes for a request, requests at once.
    Iscsi(u32, u32),
    /// ucx_perftest in its mode that sleeps, bytes.
    Ucx(u32),
    Mpi(Mpi),
    Ceph(Rados),
    /// curl from tcp_server.c, bytes.
    Curl(u32),
}

#[derive(Clone, Debug)]
pub struct Sleeper {
    pub work: Work,
    pub over: Over,
    pub busy: bool,
}

impl Sleeper {
    pub fn missing(&self, setting: &Setting) -> Option<String> {
        let ends = setting.places.ends(self.over.wire());
        let installed = match &self.work {
            Work::PingPong(..) | Work::Loops(..) | Work::Idle(_) | Work::Mixed(_) => c_compiler(),
            Work::Valkey(load) if load.stalls() && self.over.is_rdma() => {
                Err("Valkey's server falls asleep with replies unsent, on any NIC".into())
            }
            Work::Valkey(_) => programs::has(setting, "bin/valkey-benchmark"),
            Work::Iscsi(..) => programs::has(setting, "root/usr/sbin/tgtd"),
            Work::Ucx(_) => crate::setting::needs("ucx_perftest", "ucx-utils"),
            Work::Mpi(_) => programs::has_mpi(),
            Work::Ceph(..) => ceph::has(setting),
            Work::Curl(_) => programs::has_curl(),
        };
        let installed = installed.map_err(|error| error.to_string());
        ends.map(drop).and(installed).err()
    }

    pub fn run(&self, setting: &Setting) -> Result<Vec<Figure>> {
        let loops: Result<Vec<Running>> = (0..if self.busy { LOOPS } else { 0 })
            .map(|_| {
                let mut shell = Command::new("sh");
                shell.args(["-c", "while :; do :; done"]);
                Running::start(shell, std::process::Stdio::null())
            })
            .collect();
        let _loops = loops?;
        match &self.work {
            Work::PingPong(what, how) => small::ping_pong(setting, what, how, self.over),
            Work::Loops(count, one) => small::loops(setting, *count, *one, self.over),
            Work::Idle(count) => small::idle(setting, *count, self.over),
            Work::Mixed(has_busy) => small::mixed(setting, *has_busy, self.over),
            Work::Valkey(valkey) => programs::valkey(setting, valkey, self.over),
            Work::Iscsi(blocks, at_once) => programs::iscsi(setting, *blocks, *at_once, self.over),
            Work::Ucx(bytes) => programs::ucx(setting, *bytes, self.over),
            Work::Mpi(mpi) => programs::mpi(setting, mpi, self.over),
            Work::Ceph(load) => ceph::run(setting, load, self.over),
            Work::Curl(bytes) => programs::curl(setting, *bytes, self.over),
        }
    }

    /// Of the figure that counts.
    pub fn unit(&self) -> Unit {
        match self.work {
            Work::Idle(_) => Unit::Percent,
            Work::Valkey(_) | Work::Iscsi(..) | Work::Ceph(..) => Unit::Thousands,
            _ => Unit::Micros,
        }
    }
}

/// Names of figures.
pub const MEAN: &str = "mean";
pub const P99: &str = "99%";
pub const MEDIAN: &str = "median";
/// Of all processes together.
pub const PROCESSOR: &str = "processor time per million";

/// Milliseconds of a run, of what a full one takes.
fn milliseconds(setting: &Setting, full: u64) -> String {
    ((full as f64 * setting.effort) as u64).max(50).to_string()
}

fn ends(setting: &Setting, over: Over) -> Result<&Ends> {
    setting.places.ends(over.wire()).map_err(Error::from)
}

/// The number that follows some words.
fn after(text: &str, words: &str) -> Result<f64> {
    let number = text.split_once(words).and_then(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        rest[..end.unwrap_or(rest.len())].parse().ok()
    });
    number.ok_or_else(|| format!("no number after `{words}`").into())
}

/// Processor time of a server and of clients that end meanwhile, in seconds.
struct Meter {
    server: u32,
    server_before: f64,
    own_before: f64,
}

impl Meter {
    fn start(server: &Running) -> Result<Meter> {
        let server = server.id();
        Ok(Meter {
            server,
            server_before: time_of(server)?,
            own_before: rnic_sys::child::processor_time().as_secs_f64(),
        })
    }

    fn seconds(self) -> Result<f64> {
        let own = rnic_sys::child::processor_time().as_secs_f64() - self.own_before;
        Ok(own + time_of(self.server)? - self.server_before)
    }
}

/// Of a process with all of its threads, and of those that it started (`rnic run` waits for its
/// program): proc_pid_stat(5), the parent and fields 14 and 15.
fn time_of(process: u32) -> Result<f64> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // It may have ended just now.
        let Ok(text) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name before may hold anything.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
        if let (Some(parent), Some(user), Some(system)) = (number(1), number(11), number(12)) {
            all.push((id, parent, user + system));
        }
    }
    let mut family = vec![process];
    let mut ticks = 0;
    let mut next = 0;
    while let Some(one) = family.get(next).copied() {
        ticks += all
            .iter()
            .find(|(id, ..)| *id == one)
            .map_or(0, |(_, _, ticks)| *ticks);
        family.extend(
            all.iter()
                .filter(|(_, parent, _)| *parent == u64::from(one))
                .map(|(id, ..)| *id),
        );
        next += 1;
    }
    Ok(ticks as f64 / rnic_sys::child::ticks_per_second() as f64)
}

/// Where bench/programs puts what it gets.
pub fn programs_folder(binaries: &std::path::Path) -> PathBuf {
    match std::env::var_os("RNIC_BENCH_PROGRAMS") {
        Some(folder) => folder.into(),
        None => binaries.join("../bench-programs"),
    }
}

pub const HOST: Over = Over::Rnic(Way::Host);
pub const LO: Over = Over::Rnic(Way::Udp(Wire::Lo));
pub const TCP: Over = Over::Sockets(Wire::Lo);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_after_words() {
        let text = "tcp epoll: median 16.2 us, 99% 22.8 us";
        assert_eq!(after(text, "median ").unwrap(), 16.2);
        assert_eq!(after(text, "99% ").unwrap(), 22.8);
        assert!(after(text, "mean ").is_err());
        assert!(after(text, "tcp ").is_err());
    }

    /// `rnic run` is a process that waits for its program, which is the one that counts.
    #[test]
    fn processor_time_is_that_of_started_processes_too() {
        let mut outer = Command::new("sh");
        outer.args(["-c", "sh -c 'while :; do :; done'; :"]);
        let mut outer = Running::start(outer, std::process::Stdio::null()).unwrap();
        let id = outer.id();
        outer
            .wait_until(|| time_of(id).is_ok_and(|seconds| seconds > 0.1))
            .unwrap();
    }
}
