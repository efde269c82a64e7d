//! Two virtual machines with two Ethernet links between them: one for Linux's device, one for rnic.
//!
//! The second machine waits for orders: one connection for each program, a line of JSON that says
//! what to start, "ready" when it listens, and another line of JSON when it has ended.

use super::plan::Measure;
use super::{Contestant, MEASUREMENT_TIMEOUT, table};
use crate::lab::{self, End};
use crate::pair::{LONG, port};
use rnic_programs::process::Process;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const CONTESTANTS: [Contestant; 3] = [
    Contestant::SOFT_ROCE,
    Contestant {
        end: End::Rnic,
        environment: &[],
        name: "rnic, UDP",
    },
    // Takes what Soft-RoCE takes, too: root.
    Contestant {
        end: End::Rnic,
        environment: &[("RNIC_XDP", RNIC_LINK)],
        name: "rnic, XDP",
    },
];

/// The last of them with `--zero-copy`.
const ZERO_COPY: Contestant = Contestant {
    end: End::Rnic,
    environment: &[("RNIC_XDP", "eth1:zerocopy")],
    name: "rnic, XDP, zero copy",
};

/// rnic's link; Linux's is the other one.
const RNIC_LINK: &str = "eth1";

/// Where the second machine takes orders: over Linux's link.
const ORDERS: u16 = 4000;

/// Which of the two machines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    Client,
    Server,
}

impl Host {
    fn address(self, end: End) -> &'static str {
        match (self, end) {
            (Host::Client, End::Linux) => "10.80.0.1",
            (Host::Server, End::Linux) => "10.80.0.2",
            (Host::Client, End::Rnic) => "10.81.0.1",
            (Host::Server, End::Rnic) => "10.81.0.2",
        }
    }

    /// The devices and their links. Gives the index of each end's GID.
    fn set_up(self, job: &Path) -> impl Fn(End) -> u32 {
        lab::make_room();
        for (end, interface) in [(End::Linux, "eth0"), (End::Rnic, RNIC_LINK)] {
            if end == End::Rnic {
                lab::move_to_rnic(interface);
            }
            let address = format!("{}/24", self.address(end));
            lab::furnish(end, interface, &[&address]);
        }
        lab::add_soft_roce("eth0");
        let index = |end| {
            let address = self.address(end).parse().expect("an address");
            lab::find_gid(job, end, address)
        };
        let (linux, rnic) = (index(End::Linux), index(End::Rnic));
        move |end| match end {
            End::Linux => linux,
            End::Rnic => rnic,
        }
    }
}

/// What the second machine is to start.
#[derive(Serialize, Deserialize)]
struct Order {
    linux: bool,
    environment: Vec<(String, String)>,
    program: String,
    args: Vec<String>,
    port: u16,
}

/// How it ended.
#[derive(Serialize, Deserialize)]
struct Ended {
    ok: bool,
    text: String,
}

/// The second machine. It stops when it is told nothing any more.
///
/// # Panics
/// When it cannot be set up.
pub fn serve(job: &Path) -> ExitCode {
    let gid = Host::Server.set_up(job);
    let listener = TcpListener::bind(("0.0.0.0", ORDERS)).expect("nobody else is here");
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let mut lines = BufReader::new(&stream).lines();
        let Some(Ok(line)) = lines.next() else {
            continue;
        };
        if line == "bye" {
            break;
        }
        let order: Order = serde_json::from_str(&line).expect("an order");
        let end = if order.linux { End::Linux } else { End::Rnic };
        let mut command = lab::command(job, end, &[], &order.program);
        command
            .envs(order.environment)
            .args(order.args)
            .args(["-x", &gid(end).to_string()]);
        let mut process = Process::spawn(command);
        // Why it does not, its output says below.
        let _ = process.try_listener(order.port, LONG);
        let _ = writeln!(&stream, "ready");
        // Told that the client has ended: this side has a while to end as well.
        let _ = lines.next();
        let ended = Ended {
            ok: process.ends_within(Duration::from_secs(10)) && !process.failed(),
            text: process.output(),
        };
        drop(process);
        let text = serde_json::to_string(&ended).expect("plain text");
        let _ = writeln!(&stream, "{text}");
    }
    ExitCode::SUCCESS
}

/// The first machine.
pub fn run(job: &Path, zero_copy: bool, measures: &[Measure], rounds: usize) -> ExitCode {
    let gid = Host::Client.set_up(job);
    let title = "two hosts, path MTU 1024";
    let mut contestants = CONTESTANTS.to_vec();
    contestants.extend(zero_copy.then_some(ZERO_COPY));
    let status = table::fill(job, title, &contestants, measures, rounds, |who, what| {
        one(job, &gid, who, what)
    });
    let _ = writeln!(orders(), "bye");
    status
}

/// A connection to the second machine, which may not have booted yet.
fn orders() -> TcpStream {
    let deadline = Instant::now() + LONG;
    loop {
        match TcpStream::connect((Host::Server.address(End::Linux), ORDERS)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "the second machine: {error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn one(
    job: &Path,
    gid: &impl Fn(End) -> u32,
    who: &Contestant,
    what: &Measure,
) -> Result<f64, String> {
    let port = port();
    let mut args = what.args.clone();
    args.extend(["-d", who.end.device(), "-p"].map(str::to_owned));
    args.push(port.to_string());
    let order = Order {
        linux: who.end == End::Linux,
        environment: who
            .environment
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        program: what.path(job),
        args: args.clone(),
        port,
    };
    let stream = orders();
    let text = serde_json::to_string(&order).expect("plain text");
    writeln!(&stream, "{text}").map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(&stream).lines();
    let mut line = || match lines.next() {
        Some(Ok(line)) => Ok(line),
        _ => Err("the second machine is gone".to_owned()),
    };
    line()?;
    let mut command: Command = lab::command(job, who.end, &[], &what.path(job));
    who.dress(&mut command);
    command
        .args(args)
        .args(["-x", &gid(who.end).to_string()])
        .arg(Host::Server.address(who.end));
    let mut client = Process::spawn(command);
    // Whoever looked now and then would take the one processor from it.
    let ok = client.ends_within(MEASUREMENT_TIMEOUT) && !client.failed();
    let _ = writeln!(&stream, "ended");
    let ended: Ended = serde_json::from_str(&line()?).map_err(|error| error.to_string())?;
    let output = client.output();
    what.read(&client.stdout())
        .filter(|_| ok && ended.ok)
        .ok_or_else(|| format!("client: {output}server: {}", ended.text))
}
