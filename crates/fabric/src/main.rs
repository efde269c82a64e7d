//! Plays scenarios: random ones for as long as is wanted, one of a seed, or one of a file.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use rnic_fabric::{ConnectionShape, Failure, Outcome, connections, run, script, shrink};
use rnic_fabric::{Direction, Flow, HostSpec, Kind, Op, Scenario, Service, Shape};

mod soak;

/// Plays whole rnic devices in a simulated network.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays random scenarios on all cores until so many packets were sent. What fails is noted in
    /// the file, made smaller, and printed as a script. Started again, it goes on where it was.
    Soak {
        /// Scenarios of connections instead. Of one that fails, its seed is printed.
        #[arg(long)]
        connections: bool,
        /// Packets in all.
        #[arg(long, default_value_t = 1_000_000_000)]
        packets: u64,
        /// Where it notes how far it is; by default fabric-soak.txt, and of connections
        /// fabric-soak-connections.txt.
        #[arg(long)]
        file: Option<PathBuf>,
        /// Threads; by default one for each core.
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Plays the scenario of a seed.
    Seed {
        /// The seed.
        seed: u64,
        /// As `soak` plays it: longer.
        #[arg(long)]
        long: bool,
        /// So many seeds, from this one on.
        #[arg(long, default_value_t = 1)]
        count: u64,
        /// Prints it as a script.
        #[arg(long)]
        print: bool,
        /// If it fails, looks for the smallest scenario that does, and prints it.
        #[arg(long)]
        shrink: bool,
    },
    /// Plays the scenario of connections of a seed.
    Connections {
        /// The seed.
        seed: u64,
    },
    /// Plays a script.
    Play {
        /// The file.
        file: PathBuf,
    },
    /// Packets for each second of processor time, of devices that exchange messages without bytes.
    Speed,
}

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    let done = match Args::parse().command {
        Command::Soak {
            connections,
            packets,
            file,
            jobs,
        } => {
            let (play, usual): (soak::Play, _) = match connections {
                false => (soak::scenario, "fabric-soak.txt"),
                true => (soak::connections_of, "fabric-soak-connections.txt"),
            };
            let file = file.unwrap_or_else(|| PathBuf::from(usual));
            soak::soak(play, packets, &file, jobs)
        }
        Command::Seed {
            seed,
            long,
            count,
            print,
            shrink,
        } => {
            let shape = if long { soak::SHAPE } else { Shape::default() };
            (seed..seed.saturating_add(count)).try_fold(true, |good, seed| {
                let scenario = Scenario::random(seed, &shape);
                Ok(of_seed(seed, &scenario, print, shrink)? && good)
            })
        }
        Command::Connections { seed } => Ok(of_connections(seed)),
        Command::Play { file } => play(&file),
        Command::Speed => {
            speed();
            Ok(true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("rnic-fabric: {why}");
            ExitCode::from(2)
        }
    }
}

/// Says how it went; true: nothing failed.
fn tell(outcome: &Outcome) -> bool {
    let network = outcome.network;
    println!(
        "{} packets, {} of them harmed, in {} us; digest {:016x}",
        network.sent,
        network.harmed(),
        outcome.virtual_ns / 1000,
        outcome.digest
    );
    say(outcome.failure.as_ref())
}

fn of_seed(seed: u64, scenario: &Scenario, print: bool, smaller: bool) -> Result<bool, String> {
    if print {
        print!("{}", script::print(scenario));
    }
    print!("seed {seed}: ");
    let good = tell(&run(scenario));
    if !good && smaller {
        print!("{}", script::print(&shrink(scenario, 5_000).0));
    }
    Ok(good)
}

fn of_connections(seed: u64) -> bool {
    let outcome = connections(seed, &ConnectionShape::default());
    let (network, counts) = (outcome.network, outcome.counts);
    println!(
        "{} packets, {} of them harmed, in {} us; digest {:016x}",
        network.sent,
        network.harmed(),
        outcome.virtual_ns / 1000,
        outcome.digest
    );
    println!(
        "{} connections asked for: {} established, {} refused, {} without an answer; {} messages, \
         {} processes killed",
        counts.attempts,
        counts.established,
        counts.rejected,
        counts.unreachable,
        counts.messages,
        counts.killed
    );
    say(outcome.failure.as_ref())
}

/// Says how it ended; true: nothing failed.
fn say(failure: Option<&Failure>) -> bool {
    match failure {
        Some(failure) => println!("FAILED {failure}"),
        None => println!("all as it must be"),
    }
    failure.is_none()
}

fn play(file: &PathBuf) -> Result<bool, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let scenario = script::parse(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(tell(&run(&scenario)))
}

fn speed() {
    let host = |name: &str, last: u8, polls| HostSpec {
        polls,
        wake: 1_000,
        ..HostSpec::new(name, [10, 0, 0, last].into())
    };
    for polls in [false, true] {
        let op = Op {
            signaled: false,
            ..Op::new(Kind::Send, 0)
        };
        let direction = Direction {
            ops: vec![op; 100_000],
            ..Direction::default()
        };
        let scenario = Scenario {
            seed: 1,
            hosts: vec![host("a", 1, polls), host("b", 2, polls)],
            flows: vec![Flow {
                depth: 128,
                receives: 256,
                directions: [direction.clone(), direction],
                ..Flow::new(Service::Rc, [0, 1])
            }],
            ..Scenario::default()
        };
        let before = rnic_sys::child::processor_time();
        let begin = Instant::now();
        let outcome = run(&scenario);
        let took = rnic_sys::child::processor_time() - before;
        tell(&outcome);
        println!(
            "programs {}: {:.0} packets for each second of processor time, {:?} elapsed",
            if polls { "poll" } else { "sleep" },
            outcome.network.sent as f64 / took.as_secs_f64(),
            begin.elapsed()
        );
    }
}
