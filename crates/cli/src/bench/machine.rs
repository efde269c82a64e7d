//! What the numbers depend on: the machine, and how far apart its two processors are at the moment.
//!
//! A virtual machine's processors may lie on one or on two L3 complexes of the host, and move; the round trip of a cache
//! line between them tells. All numbers here depend on it, by up to two and a half times.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::measure::stats::Summary;
use crate::sys;

/// Above this the processors are taken to be on different complexes.
const FAR_NS: f64 = 300.0;

#[derive(Debug, Serialize)]
pub struct Machine {
    cpus: usize,
    model: String,
    kernel: String,
    /// Of the last minute, when the run began.
    load_average: f64,
    /// Cache-line round trips between the two processors before each repetition and after the last, ns.
    core_round_trips_ns: Vec<f64>,
    /// NEAR, FAR, MIXED (it changed in between) or UNKNOWN.
    state: &'static str,
}

/// On its own cache line.
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds for a cache line to the other processor and back; `None` with one processor only.
pub fn core_round_trip() -> Option<f64> {
    let cpus = sys::allowed_cpus();
    let [a, b, ..] = cpus[..] else { return None };
    let ball = Line(AtomicU32::new(0));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Even numbers are for the one side, odd ones for the other.
        scope.spawn(|| {
            let _ = sys::pin_thread(b);
            loop {
                let seen = ball.0.load(Ordering::Acquire);
                if seen % 2 == 1 {
                    ball.0.store(seen.wrapping_add(1), Ordering::Release);
                } else if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let near = scope.spawn(|| {
            let _ = sys::pin_thread(a);
            let mut batches = Vec::new();
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {
                const TRIPS: u32 = 1000;
                let batch = Instant::now();
                for _ in 0..TRIPS {
                    let next = ball.0.load(Ordering::Relaxed).wrapping_add(1);
                    ball.0.store(next, Ordering::Release);
                    while ball.0.load(Ordering::Acquire) == next {
                        std::hint::spin_loop();
                    }
                }
                batches.push(batch.elapsed().as_nanos() as f64 / f64::from(TRIPS));
            }
            over.store(true, Ordering::Relaxed);
            Summary::of(batches).median
        });
        near.join().ok()
    })
}

/// Programs that wanted to run in the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

pub fn describe(load_average: f64, round_trips: Vec<Option<f64>>) -> Machine {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let trips: Vec<_> = round_trips.into_iter().flatten().collect();
    let far = trips.iter().filter(|ns| **ns > FAR_NS).count();
    Machine {
        cpus: sys::allowed_cpus().len(),
        load_average,
        model: model
            .map_or("unknown processor", |(_, name)| name)
            .to_owned(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        state: match far {
            _ if trips.is_empty() => "UNKNOWN",
            0 => "NEAR",
            n if n == trips.len() => "FAR",
            _ => "MIXED",
        },
        core_round_trips_ns: trips,
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trips: Vec<_> = self
            .core_round_trips_ns
            .iter()
            .map(|ns| format!("{ns:.0}"))
            .collect();
        writeln!(f, "{} x {}, Linux {}", self.cpus, self.model, self.kernel)?;
        write!(
            f,
            "processors are {} (cache-line round trips: {} ns)",
            self.state,
            trips.join(", ")
        )?;
        // Both sides spin: whatever else wants a processor takes it from them for milliseconds.
        if self.load_average > 0.25 * self.cpus as f64 {
            write!(
                f,
                "\nTHE MACHINE WAS BUSY (load average {}): do not trust these numbers",
                self.load_average
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        let state = |trips: &[f64]| describe(0.0, trips.iter().map(|t| Some(*t)).collect()).state;
        assert_eq!(state(&[100.0, 120.0]), "NEAR");
        assert_eq!(state(&[470.0, 480.0]), "FAR");
        assert_eq!(state(&[100.0, 470.0]), "MIXED");
        assert_eq!(state(&[]), "UNKNOWN");
    }

    #[test]
    fn the_ball_comes_back() {
        match core_round_trip() {
            Some(ns) => assert!(ns > 1.0 && ns < 1e9, "{ns}"),
            None => assert!(sys::allowed_cpus().len() < 2),
        }
    }
}
