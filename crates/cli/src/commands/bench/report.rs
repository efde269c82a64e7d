//! The figures, for programs (JSON) and for a terminal.

use std::fmt;

use serde::Serialize;

use crate::peer::between::Between;
use crate::peer::bulk::Moved;
use crate::peer::measure::Operation;
use crate::peer::measure::stats::{Distribution, Step};
use crate::platform::machine::{self, Machine};
use crate::text::{gigabytes, micros, rate, size};

/// Steps of a histogram.
const STEPS: usize = 12;
/// Characters of the longest bar.
const BAR: f64 = 40.0;

pub fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "send",
        Operation::Write => "write",
        Operation::Read => "read",
        Operation::Atomic => "atomic",
    }
}

#[derive(Debug, Serialize)]
pub struct Latency {
    pub operation: &'static str,
    pub size: usize,
    /// There and back, not one way.
    pub round_trip: bool,
    pub samples: u64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub mean_us: f64,
    pub histogram: Vec<Step>,
}

impl Latency {
    pub fn new(operation: Operation, size: usize, times: &Distribution) -> Latency {
        Latency {
            operation: name(operation),
            size,
            round_trip: operation.returns(),
            samples: times.samples(),
            min_us: times.quantile(0.0),
            p50_us: times.median(),
            p90_us: times.quantile(0.9),
            p99_us: times.quantile(0.99),
            p999_us: times.quantile(0.999),
            max_us: times.quantile(1.0),
            mean_us: times.mean(),
            histogram: times.steps(STEPS),
        }
    }
}

impl Latency {
    /// Microseconds: least, 50%, 90%, 99%, 99.9%, most.
    pub fn quantiles(&self) -> [f64; 6] {
        [
            self.min_us,
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p999_us,
            self.max_us,
        ]
    }
}

/// A latency beside RDMA WRITEs of another queue pair.
#[derive(Debug, Serialize)]
pub struct Beside {
    #[serde(flatten)]
    pub latency: Latency,
    pub bulk_size: usize,
    pub bulk_bytes_per_second: f64,
    /// What of them completed per sample.
    pub bulk_bytes_per_sample: f64,
}

impl Beside {
    pub fn new(latency: Latency, bulk_size: usize, moved: Moved) -> Beside {
        Beside {
            bulk_size,
            bulk_bytes_per_second: moved.bytes_per_second,
            bulk_bytes_per_sample: moved.bytes as f64 / latency.samples.max(1) as f64,
            latency,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Bandwidth {
    pub operation: &'static str,
    pub size: usize,
    pub depth: usize,
    pub bytes_per_second: f64,
    pub operations_per_second: f64,
}

impl Bandwidth {
    pub fn new(operation: Operation, size: usize, depth: usize, rate: f64) -> Bandwidth {
        Bandwidth {
            operation: name(operation),
            size,
            depth,
            bytes_per_second: rate,
            operations_per_second: rate / size as f64,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    /// Of this format, which docs/json.md describes. Fields may be added to it.
    pub version: u32,
    /// Of the program.
    pub rnic: &'static str,
    #[serde(flatten)]
    pub machine: Machine,
    pub path: Between,
    /// Of the minute before, on this side.
    pub load_average: f64,
    pub processors: usize,
    pub latency: Vec<Latency>,
    #[serde(rename = "latency_beside_bulk", skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    pub bandwidth: Vec<Bandwidth>,
}

impl Report {
    pub fn new(path: Between, processors: usize) -> Report {
        Report {
            version: 1,
            rnic: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            path,
            load_average: machine::load_average(),
            processors,
            latency: Vec::new(),
            beside: Vec::new(),
            bandwidth: Vec::new(),
        }
    }

    /// What to think of before believing the figures.
    pub fn warning(&self) -> Option<&'static str> {
        machine::warning(self.processors, self.load_average)
    }

    /// Of each operation the one whose histogram is shown: its shortest message.
    pub fn shown(&self) -> impl Iterator<Item = &Latency> {
        self.latency.iter().enumerate().filter_map(|(n, row)| {
            let first = self.latency[..n]
                .iter()
                .all(|other| other.operation != row.operation);
            first.then_some(row)
        })
    }
}

/// A bar of eighths of characters.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR * 8.0).round() as usize;
    let mut text = "\u{2588}".repeat(eighths / 8);
    if let Some(part) = [
        "", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}",
    ]
    .get(eighths % 8)
    {
        text.push_str(part);
    }
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        writeln!(
            f,
            "{}",
            path.circumstances(self.processors, self.load_average)
        )?;
        if let Some(warning) = self.warning() {
            writeln!(f, "{warning}")?;
        }
        if !self.latency.is_empty() {
            writeln!(
                f,
                "\nLatency in us: send and write one way, read and atomic there and back\n"
            )?;
            heading(f)?;
            for row in &self.latency {
                line(f, row)?;
                writeln!(f)?;
            }
            if let Some(beside) = self.beside.first() {
                let size = size::show(beside.bulk_size);
                writeln!(
                    f,
                    "\nThe same beside RDMA WRITEs of {size} over another queue pair\n"
                )?;
                heading(f)?;
            }
            for row in &self.beside {
                line(f, &row.latency)?;
                writeln!(f, "   {} meanwhile", gigabytes(row.bulk_bytes_per_second))?;
            }
            for row in self.shown() {
                histogram(f, row)?;
            }
        }
        if !self.bandwidth.is_empty() {
            writeln!(f, "\nBandwidth, many at once\n")?;
            let rates = self.bandwidth.iter().map(|row| row.bytes_per_second);
            let most = rates.fold(f64::MIN_POSITIVE, f64::max);
            for row in &self.bandwidth {
                writeln!(
                    f,
                    "{:<8}{:>9}{:>5} at once{:>14}{:>13}  {}",
                    row.operation,
                    size::show(row.size),
                    row.depth,
                    gigabytes(row.bytes_per_second),
                    rate(row.operations_per_second),
                    bar(row.bytes_per_second / most)
                )?;
            }
        }
        Ok(())
    }
}

fn heading(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "{:<8}{:>9}{:>11}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "size", "samples", "least", "50%", "90%", "99%", "99.9%", "most"
    )
}

/// A row, without its end.
fn line(f: &mut fmt::Formatter<'_>, row: &Latency) -> fmt::Result {
    let size = size::show(row.size);
    write!(f, "{:<8}{size:>9}{:>11}", row.operation, row.samples)?;
    for value in row.quantiles() {
        write!(f, "{:>10}", micros(value))?;
    }
    Ok(())
}

fn histogram(f: &mut fmt::Formatter<'_>, row: &Latency) -> fmt::Result {
    writeln!(
        f,
        "\n{}, {}: how often it took how long (us)",
        row.operation,
        size::show(row.size)
    )?;
    let most = row.histogram.iter().map(|step| step.count).max();
    let most = most.unwrap_or(0).max(1) as f64;
    for step in &row.histogram {
        let share = 100.0 * step.count as f64 / row.samples.max(1) as f64;
        writeln!(
            f,
            "{:>9} .. {:<9}{:>6.1}%  {}",
            micros(step.from_us),
            micros(step.to_us),
            share,
            bar(step.count as f64 / most)
        )?;
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two operations of two sizes each, and of other sizes for each figure.
    pub fn sample() -> Report {
        let path = Between::sample();
        let mut report = Report::new(path, 2);
        for (operation, faster) in [("send", 1.0), ("read", 3.0)] {
            for size in [8, 4096] {
                let us = faster * (1.0 + size as f64 / 4096.0);
                let step = |n: u32| Step {
                    from_us: us * f64::from(n),
                    to_us: us * f64::from(n + 1),
                    count: u64::from(10 / n),
                };
                let histogram: Vec<Step> = [1, 2, 5].map(step).into();
                report.latency.push(Latency {
                    operation,
                    size,
                    round_trip: operation == "read",
                    samples: histogram.iter().map(|step| step.count).sum(),
                    min_us: us,
                    p50_us: us * 1.1,
                    p90_us: us * 2.0,
                    p99_us: us * 3.0,
                    p999_us: us * 5.0,
                    max_us: us * 6.0,
                    mean_us: us * 1.5,
                    histogram,
                });
                report.bandwidth.push(Bandwidth {
                    operation,
                    size: size * 256,
                    depth: 16,
                    bytes_per_second: 1e9 / faster,
                    operations_per_second: 1e9 / faster / size as f64,
                });
            }
        }
        report
    }

    #[test]
    fn bars() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0).chars().count(), BAR as usize);
        assert_eq!(bar(2.0), bar(1.0));
        assert_eq!(bar(0.5 / BAR), "\u{258c}");
    }
}
