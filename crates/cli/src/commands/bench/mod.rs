//! `rnic bench`: latency and bandwidth of every operation by size, between two processes of this
//! host or two hosts.
//!
//! How that compares with what the machine can do at most is measured by `bench/run` of the
//! checkout, not here.

mod chart;
mod page;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use rnic::exchange::Exchange;
use rnic::{Context, GidEntry, PathMtu};
use serde::{Deserialize, Serialize};

use crate::peer::bulk::usual_depth;
use crate::peer::measure::{self, ATOMIC, Operation};
use crate::peer::meet::BENCH;
use crate::peer::node::{self, DEPTH, Peer, Station, pin};
use crate::platform::failure::{Failure, Result};
use crate::platform::files;
use crate::platform::progress::Progress;
use crate::text::gid::{Choice, same_way};
use crate::text::{size, time};
use report::{Bandwidth, Beside, Latency, Report};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic bench                                everything, between two processes of this host
  rnic bench --op write --size 8,64K,1M     one operation, three sizes
  rnic bench --what latency --size all      the latency of each power of two
  rnic bench --what latency --beside 1M     the latency beside a bulk transfer
  rnic bench --html bench.html              charts, histograms and tables as one page
  hostA$ rnic bench --server                between two hosts, by TCP port 18516 of hostA
  hostB$ rnic bench --connect hostA

Latency is measured one operation at a time: half a round trip for send and write, a whole one for read and atomic. \
Both sides poll. Bandwidth is measured with many operations at once. Two processes on one host need two idle processors.

Exit status: 0 if everything was measured, 1 if not, 2 for arguments that make no sense.")]
pub struct Args {
    /// Operations
    #[arg(
        long = "op",
        visible_alias = "ops",
        value_name = "OP",
        value_delimiter = ',',
        default_value = "send,write,read,atomic"
    )]
    operations: Vec<Op>,
    /// Message sizes in bytes, K or M; `all` for every power of two (atomics always have 8 bytes)
    #[arg(long = "size", value_name = "SIZE", default_value = "8,64,1K,4K,64K,1M", value_parser = size::parse_list)]
    sizes: size::List,
    /// What to measure
    #[arg(long, value_delimiter = ',', default_value = "latency,bandwidth")]
    what: Vec<What>,
    /// Time to spend on each figure
    #[arg(long, default_value_t = 200, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    milliseconds: u32,
    /// The same in seconds
    #[arg(long, value_name = "S", conflicts_with = "milliseconds", value_parser = parse_time)]
    seconds: Option<Duration>,
    /// Operations in flight, for bandwidth [default: as many as fill the pipe]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=DEPTH as i64))]
    depth: Option<u32>,
    /// Measure each latency a second time, while RDMA WRITEs of this size run on another queue pair
    /// of the same two processes
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    beside: Option<usize>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that the path allows]
    #[arg(long, value_parser = node::parse_mtu)]
    mtu: Option<PathMtu>,
    /// Print JSON (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Write one page with charts, histograms and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the charts
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Wait for a client, which says what to measure. ADDR is ADDRESS, PORT or ADDRESS:PORT of this
    /// host [default: port 18516 of all addresses]
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["connect", "operations", "sizes", "what", "milliseconds", "seconds", "depth", "beside", "mtu", "json", "html", "svg"])]
    server: Option<Option<String>>,
    /// Measure with the server at HOST or HOST:PORT
    #[arg(long, visible_alias = "client", value_name = "HOST")]
    connect: Option<String>,
    #[command(flatten)]
    gid: Choice,
}

impl Args {
    /// For each figure.
    fn time(&self) -> Duration {
        let milliseconds = Duration::from_millis(self.milliseconds.into());
        self.seconds.unwrap_or(milliseconds)
    }
}

/// In the same limits as the milliseconds.
fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    let time = time::parse_seconds(text)?;
    match (1..=20_000).contains(&time.as_millis()) {
        true => Ok(time),
        false => Err("from 0.001 to 20 seconds".to_owned()),
    }
}

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
                "the client asks for messages of {}",
                crate::text::count(*size as u64, "byte")
            ))),
        }
    }

    fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu.and_then(PathMtu::from_ibv)
    }

    /// What is measured uses the front, what goes on beside it the end, from a page on: AMD's
    /// processors copy to a place a few bytes further into its page than the source is at a fifth
    /// of their speed.
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

pub fn main(args: Args) -> Result<()> {
    if let Some(addr) = &args.server {
        return server(addr.as_deref(), &args.gid);
    }
    let task = Task {
        version: VERSION,
        largest: args.sizes.largest(),
        beside: args.beside,
        mtu: args.mtu.map(PathMtu::to_ibv),
    };
    // Before minutes of measuring.
    for file in args.svg.iter().chain(&args.html) {
        files::can_write(file)?;
    }
    let report = match &args.connect {
        Some(host) => {
            let stream = BENCH.call(host)?;
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
    if let Some(file) = &args.svg {
        files::write(file, &chart::all(&report)?)?;
    }
    if let Some(file) = &args.html {
        files::write(file, &page::page(&report)?)?;
    }
    match args.json {
        true => crate::say!(
            "{}",
            serde_json::to_string_pretty(&report).map_err(|e| Failure::new(e.to_string()))?
        ),
        false => crate::platform::out::answer(format_args!("{report}")),
    }
    Ok(())
}

fn server(addr: Option<&str>, gid: &Choice) -> Result<()> {
    let stream = BENCH.wait(addr)?;
    let own = stream.local_addr()?.ip();
    serve(Exchange::from_tcp(stream)?, gid, same_way(own), None)
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
    let mut report = Report::new(station.between(peer), rnic_sys::child::allowed_cpus().len());
    // Now that the NIC's own thread runs, and may float.
    pin(processor);
    let time = args.time();
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
    let mut progress = Progress::new(cells.len());
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
                let depth = args.depth.map_or(usual_depth(size), |n| n as usize);
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
}
