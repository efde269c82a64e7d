//! `rnic bench`: the NIC against a bare UDP socket, in one run, with the state of the machine beside the numbers.
//!
//! Each measurement has two processes of its own, which spin on two processors. All of them are repeated in turn, so that
//! a change of the machine's state hits all; medians over the repetitions count. A pair that was hit by such a change in
//! mid-measurement shows up in the spread.

mod floor;
mod machine;
mod report;

use std::io::IsTerminal;
use std::process::{Command, Stdio};
use std::time::Duration;

use rnic::{Context, PathMtu};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::gid::Choice;
use crate::measure::{self, Operation, stats::Summary};
use crate::node::{self, Peer, Station};
use crate::part::Side;
use crate::sys;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Run it on an idle machine. The command for BENCHMARKS.md:
  cargo run --release -p rnic-cli -- bench")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Repetitions of every measurement
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Measure each time for so long, milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    milliseconds: u32,
    #[command(flatten)]
    gid: Choice,
}

/// Bytes of the small message.
const SMALL: usize = 10;
/// Bytes of the large write.
const LARGE: usize = 64 << 10;
/// BTH and ICRC: what RoCEv2 adds to the payload of a packet in the middle of a message.
const OVERHEAD: usize = 12 + 4;

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measurement {
    /// RC SEND of [`SMALL`] bytes, half a round trip in ns.
    Send,
    /// Datagrams as long as that SEND's, on unconnected or connected sockets; the same.
    UdpPingPong { connected: bool },
    /// RDMA WRITE of [`LARGE`] bytes with this path MTU; bytes per second.
    Write { mtu: usize },
    /// UDP with GSO and GRO, segments as long as that WRITE's packets; payload bytes per second.
    UdpStream { mtu: usize, copy: bool },
}

impl Measurement {
    const ALL: [Measurement; 9] = [
        Measurement::UdpPingPong { connected: false },
        Measurement::Send,
        Measurement::UdpPingPong { connected: true },
        Measurement::UdpStream {
            mtu: 1024,
            copy: false,
        },
        Measurement::Write { mtu: 1024 },
        Measurement::UdpStream {
            mtu: 1024,
            copy: true,
        },
        Measurement::UdpStream {
            mtu: 4096,
            copy: false,
        },
        Measurement::Write { mtu: 4096 },
        Measurement::UdpStream {
            mtu: 4096,
            copy: true,
        },
    ];

    /// Bytes of UDP payload that the NIC sends for the small message: BTH, data padded to four, ICRC.
    const DATAGRAM: usize = OVERHEAD + SMALL.next_multiple_of(4);

    fn to_text(self) -> String {
        match self {
            Measurement::Send => "send".into(),
            Measurement::UdpPingPong { connected: false } => "udp-ping-pong".into(),
            Measurement::UdpPingPong { connected: true } => "udp-ping-pong-connected".into(),
            Measurement::Write { mtu } => format!("write-{mtu}"),
            Measurement::UdpStream { mtu, copy: false } => format!("udp-stream-{mtu}"),
            Measurement::UdpStream { mtu, copy: true } => format!("udp-stream-copy-{mtu}"),
        }
    }

    fn from_text(text: &str) -> Option<Measurement> {
        Measurement::ALL.into_iter().find(|m| m.to_text() == text)
    }

    pub fn describe(self) -> String {
        match self {
            Measurement::Send => format!("rnic RC send, {SMALL} B, inline"),
            Measurement::UdpPingPong { connected: false } => {
                format!(
                    "UDP ping-pong, {} B datagrams, unconnected",
                    Measurement::DATAGRAM
                )
            }
            Measurement::UdpPingPong { connected: true } => "the same, connected sockets".into(),
            Measurement::Write { mtu } => format!("rnic RDMA write, 64 KiB, path MTU {mtu}"),
            Measurement::UdpStream { mtu, copy: false } => {
                format!("UDP GSO/GRO stream, {} B segments", mtu + OVERHEAD)
            }
            Measurement::UdpStream { copy: true, .. } => {
                "the same, and one copy at the receiver".into()
            }
        }
    }

    pub fn is_latency(self) -> bool {
        matches!(self, Measurement::Send | Measurement::UdpPingPong { .. })
    }
}

/// Seconds a measurement takes; both sides are told by the environment of the first.
const TIME: &str = "RNIC_BENCH_MS";

fn time() -> Duration {
    let millis = std::env::var(TIME).ok().and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(300))
}

/// One process of a measurement; the leading one prints the result.
pub fn part(side: Side, text: &str, gid: &Choice) -> Result<()> {
    let measurement = Measurement::from_text(text)
        .ok_or_else(|| Failure::new(format!("no measurement `{text}`")).status(2))?;
    let (peer, exchange) = match side {
        Side::Lead => {
            let mut args = vec!["follow".to_owned(), text.to_owned()];
            args.extend(gid.to_args());
            let (peer, exchange) = Peer::start("bench", &args)?;
            (Some(peer), exchange)
        }
        Side::Follow => (None, node::parent()),
    };
    let lead = side == Side::Lead;
    let (value, exchange) = match measurement {
        Measurement::Send | Measurement::Write { .. } => nic(measurement, exchange, gid, lead)?,
        _ => {
            pin(lead);
            let mut exchange = exchange;
            (
                floor::run(measurement, &mut exchange, lead, time())?,
                exchange,
            )
        }
    };
    if let Some(peer) = peer {
        peer.finish(exchange)?;
        println!("{value}");
    }
    Ok(())
}

/// Ties the calling thread, and it alone, to one of the two processors.
fn pin(lead: bool) {
    if let [a, b, ..] = sys::allowed_cpus()[..] {
        // Not being allowed to is no reason not to measure.
        let _ = sys::pin_thread(if lead { a } else { b });
    }
}

fn nic(
    measurement: Measurement,
    exchange: rnic::exchange::Exchange,
    gid: &Choice,
    lead: bool,
) -> Result<(f64, rnic::exchange::Exchange)> {
    let mtu = match measurement {
        Measurement::Write { mtu } => PathMtu::ALL.into_iter().find(|m| m.bytes() == mtu),
        _ => None,
    };
    let mut station = Station::connect(
        exchange,
        |context| gid.resolve(context, Context::loopback_gid),
        mtu,
    )?;
    // Now that the NIC's own thread runs, and may float.
    pin(lead);
    let mut value = 0.0;
    if !lead {
        measure::follow(&mut station)?;
    } else {
        value = match measurement {
            Measurement::Send => {
                measure::latency_for(&mut station, Operation::Send, SMALL, time())?.median
            }
            _ => measure::bandwidth_for(&mut station, Operation::Write, LARGE, time())?,
        };
        measure::end(&mut station)?;
    }
    Ok((value, station.exchange))
}

/// Runs a pair of processes and takes the leading one's number.
fn measure_once(measurement: Measurement, args: &Args) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["part", "bench", "lead", &measurement.to_text()])
        .args(args.gid.to_args())
        .env(TIME, args.milliseconds.to_string())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.trim().parse().ok().filter(|_| output.status.success());
    value.ok_or_else(|| {
        Failure::new(format!(
            "the measurement `{}` failed",
            measurement.describe()
        ))
    })
}

/// All repetitions of a measurement.
#[derive(Debug, Serialize)]
pub struct Row {
    measurement: String,
    description: String,
    unit: &'static str,
    values: Vec<f64>,
    summary: Summary,
}

pub fn main(args: Args) -> Result<()> {
    let repetitions = args.repetitions as usize;
    let load = machine::load_average();
    let progress = std::io::stderr().is_terminal();
    let mut values = vec![Vec::new(); Measurement::ALL.len()];
    let mut round_trips = Vec::new();
    for repetition in 0..repetitions {
        round_trips.push(machine::core_round_trip());
        for (n, measurement) in Measurement::ALL.into_iter().enumerate() {
            if progress {
                eprint!(
                    "\r{}/{repetitions}  {:<60}",
                    repetition + 1,
                    measurement.describe()
                );
            }
            values[n].push(measure_once(measurement, &args)?);
        }
    }
    round_trips.push(machine::core_round_trip());
    if progress {
        eprint!("\r{:<70}\r", "");
    }
    let rows = Measurement::ALL
        .into_iter()
        .zip(values)
        .map(|(measurement, values)| Row {
            measurement: measurement.to_text(),
            description: measurement.describe(),
            unit: if measurement.is_latency() {
                "ns"
            } else {
                "bytes/s"
            },
            summary: Summary::of(values.clone()),
            values,
        });
    let report = report::Report::new(rows.collect(), machine::describe(load, round_trips));
    match args.json {
        true => println!(
            "{}",
            serde_json::to_string_pretty(&report).map_err(|e| Failure::new(e.to_string()))?
        ),
        false => print!("{report}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for measurement in Measurement::ALL {
            assert_eq!(
                Measurement::from_text(&measurement.to_text()),
                Some(measurement)
            );
        }
        assert_eq!(Measurement::from_text("x"), None);
        assert_eq!(Measurement::DATAGRAM, 28);
    }
}
