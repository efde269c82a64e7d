//! The numbers side by side.

use std::fmt;

use serde::Serialize;

use super::machine::Machine;
use super::{Measurement, Row};

/// A ratio that matters.
#[derive(Debug, Serialize)]
struct Ratio {
    what: &'static str,
    value: f64,
    /// What is aimed for.
    goal: f64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    machine: Machine,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

impl Report {
    pub fn new(rows: Vec<Row>, machine: Machine) -> Report {
        let ratio = |what, over: Measurement, under: Measurement, goal| {
            let median = |m: Measurement| {
                rows.iter()
                    .find(|row| row.measurement == m.to_text())
                    .map(|row| row.summary.median)
            };
            let value = median(over)? / median(under)?;
            Some(Ratio { what, value, goal })
        };
        let ratios = [
            ratio(
                "10 B send latency / UDP ping-pong, unconnected",
                Measurement::Send,
                Measurement::UdpPingPong { connected: false },
                1.3,
            ),
            ratio(
                "64 KiB write bandwidth / UDP stream, path MTU 1024",
                Measurement::Write { mtu: 1024 },
                Measurement::UdpStream {
                    mtu: 1024,
                    copy: false,
                },
                0.6,
            ),
            ratio(
                "64 KiB write bandwidth / UDP stream, path MTU 4096",
                Measurement::Write { mtu: 4096 },
                Measurement::UdpStream {
                    mtu: 4096,
                    copy: false,
                },
                0.6,
            ),
        ];
        Report {
            machine,
            ratios: ratios.into_iter().flatten().collect(),
            rows,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        writeln!(
            f,
            "{:<46} {:>12}  {:>24}",
            "", "median", "least .. most of the runs"
        )?;
        for row in &self.rows {
            let show = |value: f64| match row.unit {
                "ns" => format!("{:.2} us", value / 1e3),
                _ => format!("{:.2} GB/s", value / 1e9),
            };
            let s = &row.summary;
            let spread = format!("{} .. {}", show(s.min), show(s.max));
            writeln!(
                f,
                "{:<46} {:>12}  {spread:>24}",
                row.description,
                show(s.median)
            )?;
        }
        writeln!(
            f,
            "\nLatency is half a round trip, busy polling on both sides. Bandwidth counts payload only.\n"
        )?;
        for ratio in &self.ratios {
            let sign = if ratio.goal > 1.0 { "<=" } else { ">=" };
            writeln!(
                f,
                "{:<54} {:>6.2}  (goal {sign} {})",
                ratio.what, ratio.value, ratio.goal
            )?;
        }
        writeln!(f, "\nmeasured by: cargo run --release -p rnic-cli -- bench")
    }
}
