//! Random scenarios for hours.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rnic_fabric::{ConnectionShape, NetworkCounters, Scenario, Shape};
use rnic_fabric::{connections, run, script, shrink};

/// Long scenarios: to set one up takes as long as some hundred packets.
pub const SHAPE: Shape = Shape {
    flows: 6,
    ops: 600,
    largest: 20_000,
    harm: 0.2,
    incidents: 3,
};

/// How far it is. Written to a file now and then.
#[derive(Default)]
struct Progress {
    /// Seeds below it were played, but for those under way.
    next: u64,
    under_way: BTreeSet<u64>,
    packets: u64,
    /// Of these, those that went through shared memory, and those that the network harmed.
    in_memory: u64,
    harmed: u64,
    failed: Vec<(u64, String)>,
}

impl Progress {
    fn read(file: &Path) -> Result<Progress, String> {
        let mut progress = Progress::default();
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(progress),
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        for (line, at) in text.lines().zip(1..) {
            let wrong = || format!("{}: line {at}: {line:?} makes no sense", file.display());
            let mut words = line.splitn(3, ' ');
            let (word, number) = (words.next(), words.next());
            let number = number.and_then(|number| number.parse().ok());
            let number: u64 = number.ok_or_else(wrong)?;
            match word {
                Some("next") => progress.next = number,
                Some("packets") => progress.packets = number,
                Some("memory") => progress.in_memory = number,
                Some("harmed") => progress.harmed = number,
                Some("failed") => {
                    let why = words.next().unwrap_or_default().to_owned();
                    progress.failed.push((number, why));
                }
                _ => return Err(wrong()),
            }
        }
        Ok(progress)
    }

    fn write(&self, file: &Path) -> Result<(), String> {
        // What is under way is played again.
        let next = self.under_way.first().copied().unwrap_or(self.next);
        let mut text = format!(
            "next {next}\npackets {}\nmemory {}\nharmed {}\n",
            self.packets, self.in_memory, self.harmed
        );
        for (seed, why) in &self.failed {
            let _ = writeln!(text, "failed {seed} {why}");
        }
        // Whole, or as it was.
        let new = file.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
        written.map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// Plays the scenario of a seed.
pub type Play = fn(u64) -> Played;

/// How it went.
pub struct Played {
    network: NetworkCounters,
    /// Packets through shared memory.
    in_memory: u64,
    /// Why it failed, and what to look at then.
    failed: Option<(String, String)>,
}

/// The random scenario of a seed.
pub fn scenario(seed: u64) -> Played {
    let scenario = Scenario::random(seed, &SHAPE);
    let outcome = run(&scenario);
    let failed = outcome.failure.as_ref().map(|failure| {
        let smallest = shrink(&scenario, 5_000).0;
        (failure.to_string(), script::print(&smallest))
    });
    Played {
        network: outcome.network,
        in_memory: outcome.links.iter().map(|link| link.tx_host_packets).sum(),
        failed,
    }
}

/// The random connections of a seed.
pub fn connections_of(seed: u64) -> Played {
    let outcome = connections(seed, &ConnectionShape::default());
    let failed = outcome.failure.as_ref().map(|failure| {
        let look = format!("cargo run -p rnic-fabric -- connections {seed}");
        (failure.to_string(), look)
    });
    Played {
        network: outcome.network,
        in_memory: 0,
        failed,
    }
}

/// Plays until so many packets were sent. True: nothing has failed.
pub fn soak(play: Play, packets: u64, file: &Path, jobs: Option<usize>) -> Result<bool, String> {
    let progress = Mutex::new(Progress::read(file)?);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = jobs.unwrap_or(cores).max(1);
    let begin = Instant::now();
    let before = {
        let progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "seed {} on, {} packets so far, {jobs} threads",
            progress.next, progress.packets
        );
        progress.packets
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|_| scope.spawn(|| work(play, packets, &progress)))
            .collect();
        let mut written = Instant::now();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(200));
            if written.elapsed() > Duration::from_secs(10) {
                written = Instant::now();
                let progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(why) = progress.write(file) {
                    eprintln!("{why}");
                }
            }
        }
    });
    let progress = progress
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    progress.write(file)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} packets, {} of them through memory, {:.1}% of the others harmed, {} scenarios, {} failed; \
         {:.0} packets a second",
        progress.packets,
        progress.in_memory,
        100.0 * progress.harmed as f64
            / progress.packets.saturating_sub(progress.in_memory).max(1) as f64,
        progress.next,
        progress.failed.len(),
        (progress.packets - before) as f64 / seconds
    );
    Ok(progress.failed.is_empty())
}

fn work(play: Play, packets: u64, progress: &Mutex<Progress>) {
    loop {
        let seed = {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            if progress.packets >= packets {
                return;
            }
            let seed = progress.next;
            progress.next += 1;
            progress.under_way.insert(seed);
            seed
        };
        let played = play(seed);
        if let Some((failure, look)) = &played.failed {
            println!("seed {seed}: {failure}\n{look}");
        }
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.under_way.remove(&seed);
        progress.packets += played.network.sent + played.in_memory;
        progress.in_memory += played.in_memory;
        progress.harmed += played.network.harmed();
        if let Some((failure, _)) = played.failed {
            progress.failed.push((seed, failure));
        }
    }
}
