//! `rnic verify`: random operations of random sizes, every byte checked; for tests under fault
//! injection.

mod client;
mod pattern;
mod plan;
mod server;

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use rnic::exchange::Exchange;
use rnic::{
    Completion, CompletionQueue, Context, Endpoint, GidEntry, PathMtu, PreparedQueuePair,
    ProtectionDomain, QueuePair, Rc, Status,
};
use serde::{Deserialize, Serialize};

use crate::peer::meet::VERIFY;
use crate::peer::node::{self, Peer};
use crate::platform::failure::{Failure, Result};
use crate::text::count;
use crate::text::gid::{Choice, same_way};
use crate::text::{size, time};
use plan::Kind;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic verify                               for 3 seconds, between two processes of this host
  rnic verify --faults drop=1%,seed=42      the same over a bad wire
  hostA$ rnic verify --server               between two hosts, by TCP port 18517 of hostA
  hostB$ rnic verify --connect hostA

Exit status: 0 if every byte and every value was right; 1 if not, if the connection failed, or if there was nothing to \
check; 2 for arguments that make no sense.")]
pub struct Args {
    /// Queue pairs, all used at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    qps: u32,
    /// Stop after this time
    #[arg(
        long,
        default_value = "3",
        value_name = "S",
        conflicts_with_all = ["milliseconds", "iterations"],
        value_parser = time::parse_seconds
    )]
    seconds: Duration,
    /// The same in milliseconds
    #[arg(long, value_name = "MS", conflicts_with = "iterations", value_parser = clap::value_parser!(u64).range(1..))]
    milliseconds: Option<u64>,
    /// Stop after this many operations on each queue pair
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Longest message in bytes, K or M; times the number of queue pairs at most 256M
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = size::parse)]
    max_size: usize,
    /// Operations to use
    #[arg(
        long,
        visible_alias = "op",
        value_name = "OP",
        value_delimiter = ',',
        default_value = "send,write,read,atomic"
    )]
    ops: Vec<Operation>,
    /// Seed of sizes, operations and data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest that the path allows]
    #[arg(long, value_parser = node::parse_mtu)]
    mtu: Option<PathMtu>,
    /// Local ACK timeout, 4.096 us x 2^N
    #[arg(long, default_value_t = 14, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=31))]
    timeout: u8,
    /// Damage what is sent: drop=1%,dup=1%,reorder=5%,corrupt=1%,seed=42. With --server or
    /// --connect, what this side sends
    #[arg(long, value_name = "SPEC")]
    faults: Option<String>,
    /// Wait for a client, which says what to do. ADDR is ADDRESS, PORT or ADDRESS:PORT of this host
    /// [default: port 18517 of all addresses]
    #[arg(
        long,
        value_name = "ADDR",
        conflicts_with_all = ["connect", "qps", "seconds", "milliseconds", "iterations", "max_size", "ops", "seed", "mtu", "timeout"]
    )]
    server: Option<Option<String>>,
    /// Verify with the server at HOST or HOST:PORT
    #[arg(long, visible_alias = "client", value_name = "HOST")]
    connect: Option<String>,
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

const MAX_SIZE: u32 = size::LARGEST as u32;
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
                "{} with messages of {} would take too much memory",
                count(self.qps as u64, "queue pair"),
                count(self.max_size as u64, "byte")
            ))
            .next("--qps N times --max-size SIZE: 256M at most"));
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
    /// It sends with faults.
    faults: bool,
}

/// What this process sends is damaged on purpose.
fn has_faults() -> bool {
    rnic_settings::FAULTS.text().is_some()
}

impl Report {
    fn new() -> Report {
        Report {
            faults: has_faults(),
            ..Report::default()
        }
    }

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

/// What one side tells the other one beside the network.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    /// The connection of this queue pair is lost.
    Lost(usize),
    /// The server is done: what it found, and the words in the end.
    Done(Report, Vec<(u64, u64)>),
    /// The last.
    Bye,
}

/// Connections that gave up.
///
/// A reliable connection that gets no answer to so many transmissions as it may make ends with
/// status 12, as it has to (IBTA vol. 1, 9.9.2.1.1). Where packets are lost on purpose that is no
/// mistake: what came before counts, and the other connections go on.
#[derive(Debug)]
struct Losses {
    lost: Vec<bool>,
    /// Notes for later: the other side may be done while this one still waits for acknowledgements.
    kept: VecDeque<Note>,
}

/// How long a side waits for a completion before it looks for notes.
const SLICE: Duration = Duration::from_millis(20);

impl Losses {
    fn new(task: &Task) -> Losses {
        Losses {
            lost: vec![false; task.qps as usize],
            kept: VecDeque::new(),
        }
    }

    fn has(&self, lane: usize) -> bool {
        self.lost[lane]
    }

    fn count(&self) -> usize {
        self.lost.iter().filter(|lost| **lost).count()
    }

    /// This side's one gave up; the other side hears of it.
    fn give_up(&mut self, lane: usize, exchange: &mut Exchange) -> Result<()> {
        if !std::mem::replace(&mut self.lost[lane], true) {
            exchange.send(&encode(&Note::Lost(lane))?)?;
        }
        Ok(())
    }

    /// The next note that is not of a lost connection.
    fn next_note(&mut self, exchange: &mut Exchange) -> Result<Note> {
        if let Some(note) = self.kept.pop_front() {
            return Ok(note);
        }
        loop {
            match decode(&exchange.recv()?)? {
                Note::Lost(lane) => self.hear(lane)?,
                note => return Ok(note),
            }
        }
    }

    /// Hears of the lost connections of which notes have come, and keeps the other notes.
    fn listen(&mut self, exchange: &mut Exchange) -> Result<()> {
        while exchange.is_readable() && !exchange.is_closed() {
            match decode(&exchange.recv()?)? {
                Note::Lost(lane) => self.hear(lane)?,
                note => self.kept.push_back(note),
            }
        }
        Ok(())
    }

    fn hear(&mut self, lane: usize) -> Result<()> {
        let lost = self.lost.get_mut(lane);
        *lost.ok_or_else(|| Failure::new(format!("the peer has no queue pair {lane}")))? = true;
        Ok(())
    }

    /// Both sides have said all.
    fn part(&mut self, exchange: &mut Exchange) -> Result<()> {
        exchange.send(&encode(&Note::Bye)?)?;
        match self.next_note(exchange)? {
            Note::Bye => Ok(()),
            note => Err(Failure::new(format!("the peer says {note:?} in the end"))),
        }
    }

    /// Waits for a completion of any queue pair that is not lost. `None`: a note may have come, or
    /// a connection was lost.
    fn wait(
        &mut self,
        cq: &CompletionQueue,
        exchange: &mut Exchange,
        lane_of: impl Fn(u32) -> Option<usize>,
    ) -> Result<Option<Completion>> {
        let completion = match cq.wait(SLICE) {
            Err(rnic::Error::Timeout(_)) => {
                self.listen(exchange)?;
                return Ok(None);
            }
            waited => waited?,
        };
        match completion.ok() {
            Ok(completion) => Ok(Some(completion)),
            Err(error) => {
                let lane = lane_of(error.qpn);
                match (error.status, lane) {
                    (Status::RetryExceeded, Some(lane)) => self.give_up(lane, exchange)?,
                    // What was posted behind it.
                    (Status::WorkRequestFlushed, _) => {}
                    _ => {
                        return Err(Failure::from(error)
                            .during("an operation failed, which fault injection must not cause"));
                    }
                }
                Ok(None)
            }
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
        let stream = VERIFY.wait(addr.as_deref())?;
        let way = same_way(stream.local_addr()?.ip());
        let report = serve(Exchange::from_tcp(stream)?, &args.gid, way)?;
        return finish_server(&report);
    }
    let task = Task {
        qps: args.qps,
        max_size: args.max_size as u32,
        seed: args.seed,
        kinds: args.ops.iter().flat_map(|op| op.kinds()).copied().collect(),
        timeout: args.timeout,
        mtu: args.mtu.map(PathMtu::to_ibv),
    };
    task.check()?;
    let stop = match (args.iterations, args.milliseconds) {
        (Some(iterations), _) => client::Stop::Iterations(iterations),
        (None, Some(time)) => client::Stop::After(Duration::from_millis(time)),
        (None, None) => client::Stop::After(args.seconds),
    };
    match &args.connect {
        Some(host) => {
            let stream = VERIFY.call(host)?;
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
    outcome.judge_losses(task)?;
    finish(&[
        ("the client", &outcome.client),
        ("the server", &outcome.server),
    ])?;
    Ok(exchange)
}

fn finish(reports: &[(&str, &Report)]) -> Result<()> {
    match check(reports)? {
        (0, _) => Err(
            Failure::new("nothing was verified: not one operation was done")
                .cause("the time was over before the first of them")
                .next("a longer --seconds, or --iterations N"),
        ),
        (operations, bytes) => {
            crate::say!(
                "verified {}, {}: all right",
                count(operations, "operation"),
                count(bytes, "byte")
            );
            Ok(())
        }
    }
}

/// The server sees nothing of READs and atomics, which may be all there was: the client tells
/// whether that was something.
fn finish_server(report: &Report) -> Result<()> {
    let (operations, bytes) = check(&[("this side", report)])?;
    match operations {
        0 => crate::say!(
            "this side had nothing to verify: READs and atomics are checked by the client"
        ),
        n => crate::say!(
            "verified {}, {}: all right",
            count(n, "operation"),
            count(bytes, "byte")
        ),
    }
    Ok(())
}

/// Operations and bytes that were checked, none of which was wrong.
fn check(reports: &[(&str, &Report)]) -> Result<(u64, u64)> {
    for (side, report) in reports {
        for text in &report.mismatches {
            crate::remark!("rnic: {side} found: {text}");
        }
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(|(_, report)| of(report)).sum();
    match sum(|report| report.mismatch_count) {
        0 => Ok((
            sum(|report| report.checked_operations),
            sum(|report| report.checked_bytes),
        )),
        n => Err(Failure::new(format!("{n} mismatches"))
            .cause("data was lost, damaged, misplaced or delivered twice: a bug of rnic")
            .next("run it again with the same --seed, --faults (with its seed) and RNIC_PCAP=bug.pcap")),
    }
}

/// The NIC reads its faults from the environment, so the program starts itself again with them.
fn restart_with_faults(text: &str) -> Result<()> {
    let spec = crate::commands::run::faults(text, None)?;
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
        .env(rnic_settings::FAULTS.name, spec.to_string())
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
        assert!(finish_server(&report).is_err());
    }

    #[test]
    fn nothing_verified_is_not_all_right() {
        let nothing = Report::default();
        let failure = finish(&[("the client", &nothing), ("the server", &nothing)]).unwrap_err();
        assert_eq!(failure.status, 1);
        assert!(failure.to_string().contains("nothing was verified"));
        assert!(finish_server(&nothing).is_ok(), "the client may have read");
    }

    /// A connection gives up where packets are lost on purpose, on either side. Elsewhere it is a
    /// failure.
    #[test]
    fn a_connection_may_give_up_under_faults_alone() {
        let task = Task {
            qps: 4,
            max_size: 1,
            seed: 0,
            kinds: vec![Kind::Send],
            timeout: 14,
            mtu: None,
        };
        for (client, server, lost, is_well) in [
            (false, false, 0, true),
            (false, false, 1, false),
            (true, false, 1, true),
            (false, true, 4, true),
        ] {
            let outcome = client::Outcome::of_losses(lost, [client, server]);
            assert_eq!(outcome.judge_losses(&task).is_ok(), is_well, "{lost}");
        }
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
