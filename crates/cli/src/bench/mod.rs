//! `rnic bench`: latency and bandwidth of every operation by size, between two processes of this host or two hosts.
//!
//! How that compares with what the machine can do at most is measured by `bench/run` of the checkout, not here.

mod chart;
mod page;
mod report;
mod size;

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rnic::exchange::{self, Exchange};
use rnic::{Context, GidEntry, PathMtu};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::gid::{Choice, same_way};
use crate::measure::{self, ATOMIC, Operation};
use crate::node::{self, DEPTH, Peer, Station};
use crate::sys;
use report::{Bandwidth, Beside, Latency, Path, Report};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic bench                                    everything, between two processes of this host
  rnic bench --op write --size 8,64K,1M         one operation, three sizes
  rnic bench --what latency --size all          the latency of each power of two
  rnic bench --what latency --beside 1M         the latency beside a bulk transfer
  rnic bench --html bench.html                  tables, charts and histograms as one page
  hostA$ rnic bench --server                    between two hosts
  hostB$ rnic bench --connect hostA

Latency is that of one operation at a time: half a round trip for send and write, there and back for read and atomic. Both
sides poll. Bandwidth is that of many at once. Two processes of one host want two idle processors.

Exit status: 0 when everything was measured, 1 when not, 2 for arguments that make no sense.")]
pub struct Args {
    /// Operations
    #[arg(
        long = "op",
        value_name = "OP",
        value_delimiter = ',',
        default_value = "send,write,read,atomic"
    )]
    operations: Vec<Op>,
    /// Sizes of messages in bytes, with K or M; `all`: each power of two (atomics have 8 bytes)
    #[arg(long = "size", value_name = "SIZE", default_value = "8,64,1K,4K,64K,1M", value_parser = size::parse_list)]
    sizes: size::List,
    /// What to measure
    #[arg(long, value_delimiter = ',', default_value = "latency,bandwidth")]
    what: Vec<What>,
    /// Measure each figure for so long
    #[arg(long, default_value_t = 200, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    milliseconds: u32,
    /// Operations at once, for bandwidth; as many as fill the pipe if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=DEPTH as i64))]
    depth: Option<u32>,
    /// Measure each latency a second time, with RDMA WRITEs of so many bytes going on beside it, over another queue pair
    /// of the same two processes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    beside: Option<usize>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; as large as the way allows if not given
    #[arg(long, value_parser = node::parse_mtu)]
    mtu: Option<PathMtu>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write one page with tables, charts and histograms
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the charts
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Wait for a client at this TCP address, ADDRESS:PORT; what is measured, the client says
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = ANY, conflicts_with_all = ["connect", "operations", "sizes", "what", "milliseconds", "depth", "beside", "mtu", "json", "html", "svg"])]
    server: Option<String>,
    /// Measure with the server at HOST or HOST:PORT
    #[arg(long, value_name = "HOST")]
    connect: Option<String>,
    #[command(flatten)]
    gid: Choice,
}

/// Where servers listen.
const PORT: u16 = 18516;
/// All addresses of this host.
const ANY: &str = "[::]:18516";
/// The same where there is no IPv6.
const ANY_V4: &str = "0.0.0.0:18516";
/// A server that has just been started may not listen yet.
const CALL: Duration = Duration::from_secs(5);

/// Operations on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Op {
    Send,
    Write,
    Read,
    /// Fetch-and-add
    Atomic,
}

impl From<Op> for Operation {
    fn from(op: Op) -> Operation {
        match op {
            Op::Send => Operation::Send,
            Op::Write => Operation::Write,
            Op::Read => Operation::Read,
            Op::Atomic => Operation::Atomic,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Latency,
    Bandwidth,
}

/// What the client tells first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Task {
    /// Of what follows.
    version: u32,
    largest: usize,
    /// Of the RDMA WRITEs beside it.
    beside: Option<usize>,
    /// As in `enum ibv_mtu`.
    mtu: Option<u32>,
}

const VERSION: u32 = 2;

impl Task {
    /// The client may be anybody.
    fn check(&self) -> Result<()> {
        if self.version != VERSION {
            return Err(another_version());
        }
        let sizes = [Some(self.largest), self.beside];
        match sizes
            .iter()
            .flatten()
            .find(|size| !(1..=size::LARGEST).contains(size))
        {
            None => Ok(()),
            Some(size) => Err(Failure::new(format!(
                "the client asks for messages of {size} bytes"
            ))),
        }
    }

    fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu.and_then(PathMtu::from_ibv)
    }

    /// What is measured uses the front, what goes on beside it the end, from a page on: AMD's processors copy to a place a
    /// few bytes further into its page than the source is at a fifth of their speed.
    fn region(&self) -> usize {
        const PAGE: usize = 4096;
        let front = self.largest.max(ATOMIC);
        match self.beside {
            Some(size) => front.next_multiple_of(PAGE) + size,
            None => front,
        }
    }
}

fn another_version() -> Failure {
    Failure::new("the other side speaks something else")
        .cause("it is no `rnic bench`, or one of another version")
        .next("use the same rnic on both sides")
}

/// The second process on this host.
pub fn follow(gid: &Choice) -> Result<()> {
    serve(node::parent()?, gid, Context::loopback_gid, Some(1))
}

fn serve(
    mut exchange: Exchange,
    gid: &Choice,
    default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
    processor: Option<usize>,
) -> Result<()> {
    let task: Task = serde_json::from_slice(&exchange.recv()?).map_err(|_| another_version())?;
    task.check()?;
    let mut station = connect(exchange, &task, gid, default)?;
    pin(processor);
    measure::follow(&mut station)
}

/// This side's queue pairs, connected to the other's.
fn connect(
    exchange: Exchange,
    task: &Task,
    gid: &Choice,
    default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
) -> Result<Station> {
    let mut station = Station::connect(
        exchange,
        |context| gid.resolve(context, default),
        task.path_mtu(),
        task.region(),
    )?;
    task.beside.map_or(Ok(()), |size| station.add_bulk(size))?;
    Ok(station)
}

/// Ties the calling thread, and it alone, to one of the two processors that a pair of processes takes.
fn pin(processor: Option<usize>) {
    if let (Some(processor), cpus @ [_, _, ..]) = (processor, &sys::allowed_cpus()[..]) {
        // Not being allowed to is no reason not to measure.
        let _ = sys::pin_thread(cpus[processor]);
    }
}

pub fn main(args: Args) -> Result<()> {
    if let Some(addr) = &args.server {
        return server(addr, &args.gid);
    }
    let task = Task {
        version: VERSION,
        largest: args.sizes.largest(),
        beside: args.beside,
        mtu: args.mtu.map(PathMtu::to_ibv),
    };
    // Before minutes of measuring.
    let open = |file: &PathBuf| {
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .map(drop)
            .map_err(|error| Failure::from(error).during(&format!("writing {}", file.display())))
    };
    for file in args.svg.iter().chain(&args.html) {
        open(file)?;
    }
    let report = match &args.connect {
        Some(host) => {
            let stream = call(host)?;
            let own = stream.local_addr()?.ip();
            let peer = stream.peer_addr()?.to_string();
            let exchange = Exchange::from_tcp(stream)?;
            run(&args, &task, exchange, peer, None, same_way(own))?.0
        }
        None => {
            let (mut peer, exchange) = Peer::start("bench", &args.gid.to_args())?;
            let name = format!("pid {}", peer.id());
            let outcome = run(&args, &task, exchange, name, Some(0), Context::loopback_gid);
            let (report, exchange) = outcome.map_err(|failure| peer.blame(failure))?;
            peer.finish(exchange)?;
            report
        }
    };
    let write = |file: &PathBuf, text: String| {
        std::fs::write(file, text)
            .map_err(|error| Failure::from(error).during(&format!("writing {}", file.display())))
    };
    if let Some(file) = &args.svg {
        write(file, chart::all(&report)?)?;
    }
    if let Some(file) = &args.html {
        write(file, page::page(&report)?)?;
    }
    match args.json {
        true => crate::say!(
            "{}",
            serde_json::to_string_pretty(&report).map_err(|e| Failure::new(e.to_string()))?
        ),
        false => crate::out::answer(format_args!("{report}")),
    }
    Ok(())
}

fn server(addr: &str, gid: &Choice) -> Result<()> {
    let listener = TcpListener::bind(addr)
        .or_else(|error| match addr {
            ANY => TcpListener::bind(ANY_V4),
            _ => Err(error),
        })
        .map_err(|error| {
            Failure::from(error)
                .during(&format!("listening on {addr}"))
                .next("ADDRESS:PORT of this host, with a port that is free")
        })?;
    let local = listener.local_addr()?;
    crate::remark!(
        "rnic: waiting for a client on {local}; there: rnic bench --connect {}",
        callable(local)
    );
    let (stream, client) = listener.accept()?;
    crate::remark!("rnic: measuring with {client}");
    let own = stream.local_addr()?.ip();
    serve(Exchange::from_tcp(stream)?, gid, same_way(own), None)
}

/// What a client calls, of whatever kind the address is.
fn callable(local: SocketAddr) -> String {
    if !local.ip().is_unspecified() {
        return local.to_string();
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match (name.trim(), local.port()) {
        ("", port) => format!("ADDRESS:{port}, with an address of this host"),
        (name, PORT) => name.to_owned(),
        (name, port) => format!("{name}:{port}"),
    }
}

/// The addresses that HOST or HOST:PORT stands for.
fn addresses(host: &str) -> std::io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // An address of IPv6 has colons of its own.
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![(ip, PORT).into()]);
    }
    let known = host.to_socket_addrs();
    Ok(known.or_else(|_| (bare, PORT).to_socket_addrs())?.collect())
}

fn call(host: &str) -> Result<TcpStream> {
    let nobody = |error: std::io::Error| {
        Failure::new(format!("no server at {host}: {error}"))
            .cause("nobody listens there, or a firewall drops TCP or UDP port 4791")
            .next("start one: `rnic bench --server`, there")
    };
    let known = addresses(host).map_err(|error| {
        Failure::new(format!("{host} is no address"))
            .cause(error.to_string())
            .next("HOST or HOST:PORT, as the server says")
    })?;
    exchange::call(&known[..], CALL).map_err(nobody)
}

/// Says on a terminal what is being done.
struct Progress {
    total: usize,
    done: usize,
    shown: bool,
}

impl Progress {
    fn step(&mut self, what: &str) {
        self.done += 1;
        if self.shown {
            crate::out::aside(format_args!("\r\x1b[K{}/{}  {what}", self.done, self.total));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            // The line is the result's now.
            crate::out::aside(format_args!("\r\x1b[K"));
        }
    }
}

/// Every figure.
fn run(
    args: &Args,
    task: &Task,
    mut exchange: Exchange,
    peer: String,
    processor: Option<usize>,
    default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
) -> Result<(Report, Exchange)> {
    let text = serde_json::to_vec(task).map_err(|error| Failure::new(error.to_string()))?;
    exchange.send(&text)?;
    let mut station = connect(exchange, task, &args.gid, default)?;
    let mut report = Report::new(Path::of(&station, peer), sys::allowed_cpus().len());
    // Now that the NIC's own thread runs, and may float.
    pin(processor);
    let time = Duration::from_millis(args.milliseconds.into());
    let mut cells = Vec::new();
    for what in &args.what {
        for op in &args.operations {
            let operation = Operation::from(*op);
            let atomic = [ATOMIC];
            let sizes = match operation {
                Operation::Atomic => &atomic[..],
                _ => args.sizes.sizes(),
            };
            cells.extend(sizes.iter().map(|size| (*what, operation, *size)));
        }
    }
    let mut progress = Progress {
        total: cells.len(),
        done: 0,
        shown: std::io::stderr().is_terminal(),
    };
    for (what, operation, size) in cells {
        let shown = size::show(size);
        match what {
            What::Latency => {
                progress.step(&format!("latency of {}, {shown}", report::name(operation)));
                let times = measure::latency_for(&mut station, operation, size, time)?;
                report.latency.push(Latency::new(operation, size, &times));
                if let Some(beside) = task.beside {
                    let (times, moved) =
                        measure::latency_beside(&mut station, operation, size, time)?;
                    let latency = Latency::new(operation, size, &times);
                    report.beside.push(Beside::new(latency, beside, moved));
                }
            }
            What::Bandwidth => {
                progress.step(&format!(
                    "bandwidth of {}, {shown}",
                    report::name(operation)
                ));
                let depth = args
                    .depth
                    .map_or(measure::usual_depth(size), |n| n as usize);
                let rate = measure::bandwidth_for(&mut station, operation, size, depth, time)?;
                report
                    .bandwidth
                    .push(Bandwidth::new(operation, size, depth, rate));
            }
        }
    }
    drop(progress);
    measure::end(&mut station)?;
    let Station { exchange, qp, .. } = station;
    // Its last acknowledgement is out: the peer waits for the end of the channel only.
    drop(qp);
    Ok((report, exchange))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_tasks_are_refused() {
        let good = Task {
            version: VERSION,
            largest: 1 << 20,
            beside: Some(1 << 20),
            mtu: Some(PathMtu::M1024.to_ibv()),
        };
        assert!(good.check().is_ok());
        assert_eq!(good.path_mtu(), Some(PathMtu::M1024));
        let refused = |change: fn(&mut Task)| {
            let mut task = good.clone();
            change(&mut task);
            task.check().is_err()
        };
        assert!(refused(|t| t.version = 0));
        assert!(refused(|t| t.largest = 0));
        assert!(refused(|t| t.largest = usize::MAX));
        assert!(refused(|t| t.beside = Some(usize::MAX)));
        assert!(refused(|t| t.beside = Some(0)));
    }

    #[test]
    fn hosts_and_ports() {
        let one = |host: &str| addresses(host).expect(host)[0].to_string();
        assert_eq!(one("127.0.0.1"), "127.0.0.1:18516");
        assert_eq!(one("127.0.0.1:7"), "127.0.0.1:7");
        // Its last group is no port.
        assert_eq!(one("fd00::1:2"), "[fd00::1:2]:18516");
        assert_eq!(one("[fd00::1]"), "[fd00::1]:18516");
        assert_eq!(one("[fd00::1]:2"), "[fd00::1]:2");
        assert!(addresses("").is_err());
        assert_eq!(
            callable("10.0.0.1:18516".parse().unwrap()),
            "10.0.0.1:18516"
        );
        assert!(!callable(ANY.parse().unwrap()).contains("::"));
    }
}
