//! What the numbers depend on: the machine, how far apart its two processors are at the moment,
//! what the kernel and memory cost, and who else ran.
//!
//! A virtual machine's processors may lie on one or on two L3 complexes of the host, and move; the
//! round trip of a cache line between them tells. All numbers here depend on it, by up to five
//! times. And the host's other guests may take the L3: then a load that would find its line there
//! goes to memory, which no counter of this guest shows.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::processors;
use crate::stats;

/// Above this the processors are taken to be on different complexes.
const FAR_NS: f64 = 250.0;
/// The ball flies for so long.
const LOOK: Duration = Duration::from_millis(15);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpus: usize,
    pub model: String,
    pub kernel: String,
    /// Of the minute before the run.
    pub load_average: f64,
    pub root: bool,
    /// Not in the files of older runs.
    #[serde(default)]
    pub costs: Option<Costs>,
}

/// What a single thing costs right before the run, ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Costs {
    /// Into the kernel and back.
    pub system_call: f64,
    /// A load whose address the one before it gave, somewhere in 4 MiB: more than an L2 holds, and
    /// less than an L3.
    pub load_4m: f64,
    /// The same in 64 MiB: memory.
    pub load_64m: f64,
}

impl Costs {
    fn measure() -> Costs {
        const CALLS: u32 = 100_000;
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        Costs {
            system_call: start.elapsed().as_nanos() as f64 / f64::from(CALLS),
            load_4m: load(4 << 20),
            load_64m: load(64 << 20),
        }
    }
}

/// Nanoseconds for a load from so many bytes, a power of two, in an order that no prefetcher knows.
fn load(bytes: usize) -> f64 {
    const LOADS: u32 = 200_000;
    /// Numbers in a cache line.
    const STEP: usize = 16;
    let lines = bytes / (STEP * size_of::<u32>());
    let mut chain = vec![0; lines * STEP];
    for line in 0..lines {
        // Of full period (Hull and Dobell): all lines in one circle.
        let next = line.wrapping_mul(0x9e37_79b5).wrapping_add(0x7f4a_7c15) % lines;
        chain[line * STEP] = next as u32;
    }
    let mut at = 0;
    let mut go = |loads: u32| {
        for _ in 0..loads {
            at = chain[at as usize * STEP];
        }
        std::hint::black_box(at);
    };
    go(lines.min(LOADS as usize) as u32);
    let start = Instant::now();
    go(LOADS);
    start.elapsed().as_nanos() as f64 / f64::from(LOADS)
}

impl Machine {
    pub fn look() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = read("/proc/loadavg");
        Machine {
            cpus: rnic_sys::child::allowed_cpus().len(),
            model: model.map_or("unknown processor".into(), |(_, name)| name.to_owned()),
            // Without what its builder calls it.
            kernel: read("/proc/sys/kernel/osrelease")
                .chars()
                .take_while(|&c| c.is_ascii_digit() || c == '.')
                .collect(),
            load_average: load
                .split(' ')
                .next()
                .and_then(|first| first.parse().ok())
                .unwrap_or(0.0),
            root: rnic_sys::effective_uid() == 0,
            costs: Some(Costs::measure()),
        }
    }
}

/// How far apart the processors were while something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    Near,
    Far,
    /// It changed meanwhile.
    Mixed,
    /// There is one processor only.
    Unknown,
}

impl State {
    /// From the round trips before and after, ns.
    pub fn of(before: Option<f64>, after: Option<f64>) -> State {
        match (before, after) {
            (Some(a), Some(b)) if a <= FAR_NS && b <= FAR_NS => State::Near,
            (Some(a), Some(b)) if a > FAR_NS && b > FAR_NS => State::Far,
            (Some(_), Some(_)) => State::Mixed,
            _ => State::Unknown,
        }
    }
}

/// On its own cache line.
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds for a cache line to the other processor and back; `None` with one processor only.
pub fn core_round_trip() -> Option<f64> {
    let (a, b) = processors::pair()?;
    let ball = Line(AtomicU32::new(0));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Even numbers are for the one side, odd ones for the other.
        scope.spawn(|| {
            let _ = rnic_sys::child::pin_thread(b);
            loop {
                let seen = ball.0.load(Ordering::Acquire);
                if seen % 2 == 1 {
                    ball.0.store(seen.wrapping_add(1), Ordering::Release);
                } else if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let lead = scope.spawn(|| {
            let _ = rnic_sys::child::pin_thread(a);
            let mut batches = Vec::new();
            let start = Instant::now();
            while start.elapsed() < LOOK {
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
            stats::median(batches)
        });
        lead.join().ok()
    })
}

/// Processor time until now, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    wall: Instant,
    busy: f64,
    stolen: f64,
    own: f64,
}

impl Usage {
    pub fn now() -> Usage {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let (busy, stolen) = busy_and_stolen(&text).unwrap_or((0, 0));
        let second = rnic_sys::child::ticks_per_second() as f64;
        Usage {
            wall: Instant::now(),
            busy: busy as f64 / second,
            stolen: stolen as f64 / second,
            own: rnic_sys::child::processor_time().as_secs_f64(),
        }
    }

    /// Since then: what others used of a processor, and what the hypervisor took from all, as
    /// shares of one processor.
    pub fn others_since(self) -> (f64, f64) {
        let now = Usage::now();
        let wall = now.wall.duration_since(self.wall).as_secs_f64().max(0.01);
        let others = (now.busy - self.busy) - (now.own - self.own);
        (
            (others / wall).max(0.0),
            ((now.stolen - self.stolen) / wall).max(0.0),
        )
    }
}

/// Ticks of the first line of proc_stat(5).
fn busy_and_stolen(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let [user, nice, system, _, _, irq, soft, steal, ..] = ticks[..] else {
        return None;
    };
    Some((user + nice + system + irq + soft, steal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        assert_eq!(State::of(Some(100.0), Some(120.0)), State::Near);
        assert_eq!(State::of(Some(470.0), Some(480.0)), State::Far);
        assert_eq!(State::of(Some(100.0), Some(480.0)), State::Mixed);
        assert_eq!(State::of(None, None), State::Unknown);
    }

    #[test]
    fn the_kernels_line() {
        let text = "cpu  10 1 5 100 7 2 3 9 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_and_stolen(text), Some((21, 9)));
        assert_eq!(busy_and_stolen("cpu 1 2"), None);
        assert_eq!(busy_and_stolen(""), None);
    }

    #[test]
    fn costs_are_those_of_single_things() {
        let costs = Costs::measure();
        for ns in [costs.system_call, costs.load_4m, costs.load_64m] {
            assert!(ns > 0.2 && ns < 1e6, "{costs:?}");
        }
    }

    #[test]
    fn the_ball_comes_back() {
        match core_round_trip() {
            Some(ns) => assert!(ns > 1.0 && ns < 1e9, "{ns}"),
            None => assert!(rnic_sys::child::allowed_cpus().len() < 2),
        }
    }
}
