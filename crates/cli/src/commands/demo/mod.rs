//! `rnic demo`: two processes do every operation, check every byte, and measure.

mod recorded;
mod steps;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rnic::Context;

use crate::commands::dissect::Operation as Told;
use crate::peer::bulk::usual_depth;
use crate::peer::measure::{self, Operation};
use crate::peer::node::{self, Peer, REGION, Station};
use crate::platform::failure::{Failure, Result};
use crate::platform::out;
use crate::text::count;
use crate::text::gid::Choice;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic demo                      every operation between two processes, and how fast they are
  rnic demo --html demo.html     the same as a page, with the packets of each operation
  rnic demo --addr 10.0.0.1      over that address of this host")]
pub struct Args {
    #[command(flatten)]
    gid: Choice,
    /// Skip the measurements
    #[arg(long)]
    no_bench: bool,
    /// Write a page for any browser: each operation with its explanation and its packets, the words,
    /// and in the end the sequence diagram. Packets go over UDP then, and nothing is measured
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub use recorded::record;

fn connect(exchange: rnic::exchange::Exchange, gid: &Choice) -> Result<Station> {
    Station::connect(
        exchange,
        |context| gid.resolve(context, Context::loopback_gid),
        None,
        REGION,
    )
}

/// The second process.
pub fn follow(gid: &Choice) -> Result<()> {
    let mut station = connect(node::parent()?, gid)?;
    steps::follow(&mut station)?;
    measure::follow(&mut station)
}

pub fn main(args: Args) -> Result<()> {
    match &args.html {
        Some(page) => recorded::page(page, &args.gid),
        None => lead(&args.gid, !args.no_bench).map(drop),
    }
}

/// The first process: gives what it said of each operation.
fn lead(gid: &Choice, measures: bool) -> Result<Vec<Told>> {
    let began = Instant::now();
    let (peer, exchange) = Peer::start("demo", &gid.to_args())?;
    let mut station = connect(exchange, gid)?;
    introduce(&station, &peer);
    let before = station.qp.counters();
    let operations = steps::lead(&mut station)?;
    let after = station.qp.counters();
    crate::say!(
        "\nEvery byte was checked. {} left this process and {} came in; {} sent again.",
        count(after.packets_sent - before.packets_sent, "packet"),
        after.packets_received - before.packets_received,
        match after.retransmitted_packets - before.retransmitted_packets {
            1 => "1 was".to_owned(),
            n => format!("{n} were"),
        }
    );
    if measures {
        table(&mut station)?;
    }
    measure::end(&mut station)?;
    let Station { exchange, qp, .. } = station;
    // Its last acknowledgement is out: the peer waits for the end of the channel only.
    drop(qp);
    peer.finish(exchange)?;
    crate::say!("\nDone in {:.1} s. Next:", began.elapsed().as_secs_f64());
    for (command, what) in NEXT {
        say(&format!("  {command:<40} "), "      ", what);
    }
    Ok(operations)
}

const NEXT: [(&str, &str); 4] = [
    (
        "rnic run -- PROGRAM",
        "your program; if it fails, rnic says what failed and why",
    ),
    ("rnic explain 12", "what a status, errno or event means"),
    ("rnic run --pcap trace.pcap -- PROGRAM", "see the packets"),
    ("rnic course", "learn it: ten broken programs that you mend"),
];

fn say(first: &str, rest: &str, text: &str) {
    let width = out::columns().map_or(out::WIDTH, |columns| columns.min(out::WIDTH));
    crate::say!("{}", out::paragraph(width, first, rest, text));
}

fn introduce(station: &Station, peer: &Peer) {
    let (local, remote) = (&station.gid, station.qp.remote());
    say(
        "",
        "",
        "Two processes, each with a queue pair (QP) of the software NIC rnic0, connected as RC (reliable).",
    );
    let text = format!(
        "Packets are RoCEv2, here with addresses of {}. Between processes of one host they go through shared \
         memory, up to 16 KiB in one; with RNIC_HOST_PATH=off, and to other hosts, by UDP port 4791 and as long \
         as the path MTU of {} bytes allows.",
        local.ifname,
        station.qp.path_mtu().bytes()
    );
    say("", "", &text);
    crate::say!();
    crate::say!(
        "  this process  pid {:<8} QP {:#08x}  GID {} = {}",
        std::process::id(),
        station.qp.qpn(),
        local.index,
        local.addr
    );
    crate::say!(
        "  the peer      pid {:<8} QP {:#08x}  {}\n",
        peer.id(),
        remote.qpn,
        remote.addr()
    );
}

const LATENCY_SIZES: [usize; 4] = [8, 1024, 4096, 65536];
const BANDWIDTH_SIZES: [usize; 2] = [65536, 1 << 20];
/// Of one cell of the table.
const CELL: Duration = Duration::from_millis(120);

fn table(station: &mut Station) -> Result<()> {
    let size = |bytes: usize| match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    };
    let head = || {
        crate::say!(
            "{:>24}  {:>10}  {:>10}  {:>10}",
            "",
            "send",
            "write",
            "read"
        )
    };
    crate::say!(
        "\nLatency, median (send and write one way, read there and back; both sides poll):"
    );
    head();
    for bytes in LATENCY_SIZES {
        let mut cells = Vec::new();
        for operation in Operation::SIZED {
            let times = measure::latency_for(station, operation, bytes, CELL)?;
            cells.push(format!("{:.2} us", times.median()));
        }
        crate::say!(
            "{:>24}  {:>10}  {:>10}  {:>10}",
            size(bytes),
            cells[0],
            cells[1],
            cells[2]
        );
    }
    crate::say!("\nBandwidth, several operations at once:");
    head();
    for bytes in BANDWIDTH_SIZES {
        let mut cells = Vec::new();
        for operation in Operation::SIZED {
            let depth = usual_depth(bytes);
            let rate = measure::bandwidth_for(station, operation, bytes, depth, CELL)?;
            cells.push(format!("{:.2} GB/s", rate / 1e9));
        }
        crate::say!(
            "{:>24}  {:>10}  {:>10}  {:>10}",
            size(bytes),
            cells[0],
            cells[1],
            cells[2]
        );
    }
    Ok(())
}

impl From<steps::Mismatch> for Failure {
    fn from(mismatch: steps::Mismatch) -> Failure {
        Failure::new(mismatch.to_string())
            .cause("this is a bug of rnic")
            .next("please report it, with the packets: RNIC_PCAP=bug.pcap rnic demo")
    }
}
