//! A server at one end and a client at the other.

use crate::lab::{End, Lab, Way};
use rnic_programs::pair::Outcome;
use rnic_programs::process::Process;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long a case may take: the machine is emulated, perhaps by a busy one.
pub const LONG: Duration = Duration::from_secs(180);
/// How long one may take that moves gigabytes.
pub const VERY_LONG: Duration = Duration::from_secs(900);

/// A TCP port that nothing else of this run uses.
pub fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What a program is told at either end.
pub struct Pair<'a> {
    /// The program: a name, or a path in the machine.
    pub program: &'a str,
    /// Arguments of both.
    pub args: Vec<String>,
    /// The options that select device and GID.
    pub select: Select,
    /// Options of `rnic run`.
    pub options: &'a [&'a str],
}

/// How programs are told device, GID and port.
#[derive(Clone, Copy, Debug)]
pub enum Select {
    /// perftest: `-d DEVICE -x INDEX -p PORT [HOST]`
    Perftest,
    /// rdma-core's pingpongs: `-d DEVICE -g INDEX -p PORT [HOST]`
    Pingpong,
    /// Ours: `server|client PORT INDEX [HOST]`, the device in `RC_DEVICE`.
    Ours,
}

impl Pair<'_> {
    /// Starts both: the client as soon as the server listens.
    ///
    /// # Panics
    /// When the server does not get that far.
    pub fn start(&self, lab: &Lab, way: Way) -> (Process, Process) {
        let port = port();
        let mut server = Process::spawn(self.command(lab, way, way.server(), port));
        server.wait_for_listener(port, LONG);
        let client = Process::spawn(self.command(lab, way, way.client, port));
        (server, client)
    }

    /// Runs both to their end.
    ///
    /// # Panics
    /// When either is still running when the time is over.
    pub fn run(&self, lab: &Lab, way: Way) -> Outcome {
        self.run_within(LONG, lab, way)
    }

    /// Runs both to their end, which may take so long.
    ///
    /// # Panics
    /// When either is still running when the time is over.
    pub fn run_within(&self, time: Duration, lab: &Lab, way: Way) -> Outcome {
        let began = Instant::now();
        let (server, client) = self.start(lab, way);
        finish(server, client, began, time)
    }

    fn command(&self, lab: &Lab, way: Way, end: End, port: u16) -> Command {
        let mut command = lab.command_with(end, self.options, self.program);
        let (port, gid) = (port.to_string(), lab.gid(end, way.family));
        let option = match self.select {
            Select::Perftest => "-x",
            Select::Pingpong => "-g",
            Select::Ours => "",
        };
        if let Select::Ours = self.select {
            let role = if end == way.client {
                "client"
            } else {
                "server"
            };
            command
                .env("RC_DEVICE", end.device())
                .args([role, &port, &gid]);
        } else {
            command.args(["-d", end.device(), option, &gid, "-p", &port]);
            command.args(&self.args);
        }
        if end == way.client {
            // They meet over TCP on IPv4, whatever carries the packets: not all of them can do
            // otherwise.
            command.arg(way.server().address(crate::lab::Family::V4));
        }
        if let Select::Ours = self.select {
            command.args(&self.args);
        }
        command
    }
}

/// Waits for the end of both.
///
/// # Panics
/// When either is still running when the time is over; the message has what both printed.
pub fn finish(server: Process, client: Process, began: Instant, within: Duration) -> Outcome {
    try_finish(server, client, began, within).unwrap_or_else(|why| panic!("{why}"))
}

/// As [`finish`].
///
/// # Errors
/// What both printed, when either was still running when the time was over. Neither is any more.
pub fn try_finish(
    server: Process,
    client: Process,
    began: Instant,
    within: Duration,
) -> Result<Outcome, String> {
    let grace = Duration::from_secs(30);
    let mut outcome = Outcome::try_of(server, client, within, [grace; 2])?;
    outcome.took = began.elapsed();
    Ok(outcome)
}
