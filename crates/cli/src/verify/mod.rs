//! `rnic verify`: random operations of random sizes, every byte checked; for tests under fault injection.

mod client;
mod pattern;
mod plan;
mod server;

use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use rnic::exchange::{self, Exchange};
use rnic::{
    CompletionQueue, Context, Endpoint, GidEntry, PathMtu, PreparedQueuePair, ProtectionDomain,
    QueuePair, Rc,
};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::gid::{Choice, same_way};
use crate::node::{self, Peer};
use plan::Kind;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --server and --client, both ends run on this host. Between hosts:
  hostA$ rnic verify --server 0.0.0.0:18515
  hostB$ rnic verify --client hostA:18515

Exit status: 0 if every byte and every value was right, 1 if not or if the connection failed.")]
pub struct Args {
    /// Queue pairs, all used at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    qps: u32,
    /// Stop after this time
    #[arg(
        long,
        default_value_t = 3.0,
        value_name = "S",
        conflicts_with = "iterations"
    )]
    seconds: f64,
    /// Stop after so many operations on each queue pair
    #[arg(long, value_name = "N")]
    iterations: Option<u64>,
    /// Longest message, bytes; times QPS 256 MiB at most
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=MAX_SIZE as i64))]
    max_size: u32,
    /// Operations to use
    #[arg(long, value_delimiter = ',', default_value = "send,write,read,atomic")]
    ops: Vec<Operation>,
    /// Seed of sizes, operations and data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; as large as the way allows if not given
    #[arg(long, value_parser = node::parse_mtu)]
    mtu: Option<PathMtu>,
    /// Local ACK timeout, 4.096 us x 2^N
    #[arg(long, default_value_t = 14, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=31))]
    timeout: u8,
    /// Bad wire for what is sent, with --server or --client by this side alone: drop=1%,dup=1%,reorder=5%,corrupt=1%,seed=42
    #[arg(long, value_name = "SPEC")]
    faults: Option<String>,
    /// Wait for a client at this TCP address, ADDRESS:PORT; what is done, the client says
    #[arg(
        long,
        value_name = "ADDR",
        conflicts_with_all = ["client", "qps", "seconds", "iterations", "max_size", "ops", "seed", "mtu", "timeout"]
    )]
    server: Option<String>,
    /// Call a server at this TCP address, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    client: Option<String>,
    #[command(flatten)]
    gid: Choice,
}

/// Kinds of operations on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    Send,
    Write,
    Read,
    Atomic,
}

impl Operation {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Operation::Send => &[Kind::Send, Kind::SendImm],
            Operation::Write => &[Kind::Write, Kind::WriteImm],
            Operation::Read => &[Kind::Read],
            Operation::Atomic => &[Kind::FetchAdd, Kind::CompareSwap],
        }
    }
}

const MAX_SIZE: u32 = 64 << 20;
/// Of all queue pairs: each side takes some eleven times as much memory.
const MAX_TOTAL: u64 = 256 << 20;
/// Operations in flight on one queue pair.
const WINDOW: usize = 4;
/// Bytes around every slot of the server's region that nothing may touch.
const GUARD: usize = 64;
/// Filling of memory that nothing has been written to.
const UNTOUCHED: u8 = 0xee;
/// Immediate data of the last message of a queue pair.
const LAST: [u8; 4] = [0xff; 4];

/// What both sides have to know; the client says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Task {
    qps: u32,
    max_size: u32,
    seed: u64,
    kinds: Vec<Kind>,
    timeout: u8,
    mtu: Option<u32>,
}

impl Task {
    /// The client may be anybody.
    fn check(&self) -> Result<()> {
        let total = u64::from(self.qps) * u64::from(self.max_size);
        if total > MAX_TOTAL {
            return Err(Failure::new(format!(
                "{} queue pairs with messages of {} bytes take too much memory",
                self.qps, self.max_size
            ))
            .next("--qps N times --max-size BYTES: 268435456 at most"));
        }
        let sound = (1..=256).contains(&self.qps)
            && (1..=MAX_SIZE).contains(&self.max_size)
            && !self.kinds.is_empty()
            && self.timeout < 32;
        match sound {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the client asks for something impossible: {self:?}"
            ))),
        }
    }

    fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu.and_then(PathMtu::from_ibv)
    }

    /// Bytes from one of the server's slots to the next.
    fn slot(&self) -> usize {
        (self.max_size as usize + 2 * GUARD + plan::MAX_SHIFT).next_multiple_of(64)
    }

    /// Bytes that the client may read.
    fn readable(&self) -> usize {
        self.max_size as usize + 4096
    }
}

/// What one side found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Report {
    checked_bytes: u64,
    checked_operations: u64,
    /// In words; the first few.
    mismatches: Vec<String>,
    mismatch_count: u64,
}

impl Report {
    fn mismatch(&mut self, text: impl FnOnce() -> String) {
        self.mismatch_count += 1;
        if self.mismatches.len() < 10 {
            self.mismatches.push(text());
        }
    }

    fn check(&mut self, what: impl FnOnce() -> String, seed: u64, offset: usize, bytes: &[u8]) {
        self.checked_operations += 1;
        self.checked_bytes += bytes.len() as u64;
        if let Some(at) = pattern::first_difference(seed, offset, bytes) {
            self.mismatch(|| format!("{}: wrong from byte {at} of {} on", what(), bytes.len()));
        }
    }
}

/// The queue pairs of one side.
struct Ends {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    prepared: Vec<PreparedQueuePair<Rc>>,
}

impl Ends {
    fn prepare(context: &Context, gid: GidEntry, task: &Task) -> Result<Ends> {
        let pd = context.alloc_pd()?;
        let depth = 4 * WINDOW as u32;
        let cq = context.create_cq(2 * depth * task.qps).build()?;
        let prepare = |_| {
            let mut builder = pd
                .create_qp::<Rc>(&cq, &cq)
                .gid(&gid)
                .max_send_wr(depth)
                .max_recv_wr(depth)
                .timeout(task.timeout)
                .min_rnr_timer(1)
                .max_rd_atomic(4, 4);
            if let Some(mtu) = task.path_mtu() {
                builder = builder.path_mtu(mtu);
            }
            builder.build()
        };
        let prepared = (0..task.qps).map(prepare).collect::<rnic::Result<_>>()?;
        Ok(Ends { pd, cq, prepared })
    }

    /// Connects all of them to the peer's, in order.
    fn connect(&mut self, exchange: &mut Exchange) -> Result<Vec<QueuePair<Rc>>> {
        let own: Vec<u8> = self
            .prepared
            .iter()
            .flat_map(|qp| qp.endpoint().to_bytes())
            .collect();
        let peer = exchange.swap(&own)?;
        if peer.len() != own.len() {
            return Err(Failure::new("the peer has another number of queue pairs"));
        }
        let remotes = peer.chunks_exact(Endpoint::BYTES).map(Endpoint::from_bytes);
        let connected = self
            .prepared
            .drain(..)
            .zip(remotes)
            .map(|(qp, remote)| qp.handshake(remote?));
        Ok(connected.collect::<rnic::Result<_>>()?)
    }
}

/// The server on the same host.
pub fn follow(gid: &Choice) -> Result<()> {
    serve(node::parent()?, gid, Context::loopback_gid).map(drop)
}

fn serve(
    mut exchange: Exchange,
    gid: &Choice,
    default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
) -> Result<Report> {
    let task: Task = decode(&exchange.recv()?)?;
    task.check()?;
    let context = Context::open()?;
    let gid = gid.resolve(&context, default)?;
    server::run(&mut exchange, &context, gid, &task)
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::new("the peer speaks something else")
            .cause(error.to_string())
            .next("use the same rnic on both sides")
    })
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Failure::new(error.to_string()))
}

pub fn main(args: Args) -> Result<()> {
    if let Some(text) = &args.faults {
        return restart_with_faults(text);
    }
    if let Some(addr) = &args.server {
        let listener = TcpListener::bind(addr)
            .map_err(|error| Failure::from(error).during(&format!("listening on {addr}")))?;
        crate::remark!("rnic: waiting for a client on {}", listener.local_addr()?);
        let (stream, _) = listener.accept()?;
        let way = same_way(stream.local_addr()?.ip());
        let report = serve(Exchange::from_tcp(stream)?, &args.gid, way)?;
        return finish(&[("this side", &report)]);
    }
    let task = Task {
        qps: args.qps,
        max_size: args.max_size,
        seed: args.seed,
        kinds: args.ops.iter().flat_map(|op| op.kinds()).copied().collect(),
        timeout: args.timeout,
        mtu: args.mtu.map(PathMtu::to_ibv),
    };
    task.check()?;
    let stop = match args.iterations {
        Some(iterations) => client::Stop::Iterations(iterations),
        None => client::Stop::After(Duration::try_from_secs_f64(args.seconds).map_err(|_| {
            Failure::new(format!("{} is no number of seconds", args.seconds)).status(2)
        })?),
    };
    match &args.client {
        Some(addr) => {
            let known = addr.to_socket_addrs().map_err(|error| {
                Failure::new(format!("{addr} is no address"))
                    .cause(error.to_string())
                    .next("HOST:PORT, as the server says")
            })?;
            let stream = exchange::call(&known.collect::<Vec<_>>()[..], Duration::from_secs(10))
                .map_err(|error| Failure::from(error).during(&format!("connecting to {addr}")))?;
            let way = same_way(stream.local_addr()?.ip());
            let exchange = Exchange::from_tcp(stream)?;
            drive(exchange, &args.gid, way, &task, stop)?;
            Ok(())
        }
        None => {
            let (mut peer, exchange) = Peer::start("verify", &args.gid.to_args())?;
            let outcome = drive(exchange, &args.gid, Context::loopback_gid, &task, stop);
            let exchange = outcome.map_err(|failure| peer.blame(failure))?;
            peer.finish(exchange)
        }
    }
}

fn drive(
    mut exchange: Exchange,
    gid: &Choice,
    default: impl FnOnce(&Context) -> rnic::Result<GidEntry>,
    task: &Task,
    stop: client::Stop,
) -> Result<Exchange> {
    exchange.send(&encode(task)?)?;
    let context = Context::open()?;
    let gid = gid.resolve(&context, default)?;
    let outcome = client::run(&mut exchange, &context, gid, task, stop)?;
    outcome.print(task);
    finish(&[
        ("the client", &outcome.client),
        ("the server", &outcome.server),
    ])?;
    Ok(exchange)
}

fn finish(reports: &[(&str, &Report)]) -> Result<()> {
    for (side, report) in reports {
        for text in &report.mismatches {
            crate::remark!("rnic: {side} found: {text}");
        }
    }
    let wrong: u64 = reports
        .iter()
        .map(|(_, report)| report.mismatch_count)
        .sum();
    match wrong {
        0 => {
            let bytes: u64 = reports.iter().map(|(_, report)| report.checked_bytes).sum();
            let operations: u64 = reports.iter().map(|(_, report)| report.checked_operations).sum();
            crate::say!("verified {operations} operations, {bytes} bytes: all right");
            Ok(())
        }
        n => Err(Failure::new(format!("{n} mismatches"))
            .cause("data was lost, damaged, misplaced or delivered twice: a bug of rnic")
            .next("run it again with the same --seed, --faults (with its seed) and RNIC_PCAP=bug.pcap")),
    }
}

/// The NIC reads its faults from the environment, so the program starts itself again with them.
fn restart_with_faults(text: &str) -> Result<()> {
    let spec = crate::run::faults(text, None)?;
    crate::remark!("rnic: faults {spec}");
    let mut args = std::env::args_os().skip(1);
    let mut kept = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "--faults" {
            args.next();
        } else if !arg.to_string_lossy().starts_with("--faults=") {
            kept.push(arg);
        }
    }
    let error = Command::new(std::env::current_exe()?)
        .args(kept)
        .env("RNIC_FAULTS", spec.to_string())
        .exec();
    Err(Failure::from(error).during("starting again with faults"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_a_failure() {
        let mut report = Report::default();
        let mut bytes = vec![0; 100];
        pattern::fill(1, 0, &mut bytes);
        report.check(|| "a".into(), 1, 0, &bytes);
        assert!(finish(&[("one side", &report)]).is_ok());
        bytes[41] ^= 0x10;
        report.check(|| "b".into(), 1, 0, &bytes);
        assert_eq!(report.mismatches, ["b: wrong from byte 41 of 100 on"]);
        let failure =
            finish(&[("one side", &Report::default()), ("the other", &report)]).unwrap_err();
        assert_eq!(failure.status, 1);
    }

    #[test]
    fn impossible_tasks_are_refused() {
        let good = Task {
            qps: 1,
            max_size: 1,
            seed: 0,
            kinds: vec![Kind::Send],
            timeout: 14,
            mtu: None,
        };
        assert!(good.check().is_ok());
        let refused = |change: fn(&mut Task)| {
            let mut task = good.clone();
            change(&mut task);
            task.check().is_err()
        };
        assert!(refused(|t| t.qps = 0));
        assert!(refused(|t| t.qps = 100_000));
        assert!(refused(|t| t.max_size = u32::MAX));
        assert!(refused(|t| (t.qps, t.max_size) = (5, MAX_SIZE)));
        assert!(refused(|t| t.kinds.clear()));
        assert!(refused(|t| t.timeout = 32));
    }
}
