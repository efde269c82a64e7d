//! Linux's Soft-RoCE against rnic: runs in the virtual machine that `interop/run` boots, as root.
//!
//! - [`lab`] joins the two ends by a virtual Ethernet link: Linux with Soft-RoCE, and rnic in a
//!   network namespace.
//! - [`pair`] runs a server at one end and a client at the other.
//! - [`matrix`] is what is tried, and which ways round.
//! - [`beside`] compares the two, each with itself as the peer.
//! - [`report`] is what came out: lines while it runs, a table, and JSON for machines.
#![forbid(unsafe_code)]

mod beside;
mod drops;
mod lab;
mod matrix;
mod pair;
mod report;

use clap::Parser;
use lab::Lab;
use report::Report;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Runs programs between Linux's Soft-RoCE and rnic.
#[derive(Debug, Parser)]
struct Args {
    /// Only the subset that `./test full` runs
    #[arg(long)]
    core: bool,
    /// Only cases whose name contains one of these; side by side, or whose command line does
    #[arg(long, value_name = "PART", allow_hyphen_values = true)]
    only: Vec<String>,
    /// Only ways whose name contains one of these: the columns of the table, e.g. IPv6
    #[arg(long, value_name = "PART")]
    way: Vec<String>,
    /// Only a part of the cases: the K-th of N
    #[arg(long, value_name = "K/N", value_parser = part, default_value = "1/1")]
    part: (usize, usize),
    /// In place of the matrix: the table of these results.jsonl
    #[arg(long, value_name = "FILE", num_args = 1..)]
    merge: Vec<PathBuf>,
    /// Keeps rnic's packets: out/N.pcap, where N is the line in out/results.jsonl
    #[arg(long)]
    pcap: bool,
    /// Names the cases, or what is measured side by side, and ends
    #[arg(long)]
    list: bool,
    /// In place of the matrix, Soft-RoCE and rnic side by side
    #[arg(long, value_name = "WHERE")]
    side_by_side: Option<beside::Where>,
    /// How often each is measured; the table has medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Side by side on two hosts: rnic's card reads and writes packets by itself, if its driver can
    #[arg(long)]
    zero_copy: bool,
    /// The second machine of `--side-by-side two-hosts`
    #[arg(long)]
    second: bool,
    /// Folder with the binaries under test and our C programs; results go to `out` in it
    #[arg(long, default_value = "/job")]
    job: PathBuf,
}

/// K/N, with K from 1 to N.
fn part(text: &str) -> Result<(usize, usize), String> {
    text.split_once('/')
        .and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)))
        .filter(|&(k, n)| (1..=n).contains(&k))
        .ok_or_else(|| "not K/N".to_owned())
}

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    let args = Args::parse();
    if args.second {
        return beside::serve(&args.job);
    }
    if let Some(place) = args.side_by_side {
        if args.list {
            return beside::list(place, &args.only);
        }
        let zero_copy = args.zero_copy;
        return beside::run(&args.job, place, zero_copy, args.rounds.into(), &args.only);
    }
    if !args.merge.is_empty() {
        let order: Vec<String> = matrix::all().into_iter().map(|case| case.name).collect();
        return report::merge(&args.merge, &order);
    }
    let chosen: Vec<_> = matrix::all()
        .into_iter()
        .map(|mut case| {
            case.ways.retain(|way| {
                let name = report::words(*way);
                (!args.core || case.core.contains(way))
                    && (args.way.is_empty() || args.way.iter().any(|part| name.contains(part)))
            });
            case
        })
        .filter(|case| !case.ways.is_empty())
        .filter(|case| {
            args.only.is_empty() || args.only.iter().any(|part| case.name.contains(part))
        })
        .enumerate()
        .filter(|(number, _)| number % args.part.1 == args.part.0 - 1)
        .map(|(_, case)| case)
        .collect();
    if args.list {
        for case in &chosen {
            println!("{} ({} ways)", case.name, case.ways.len());
        }
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        eprintln!("interop: no case is called that; --list names them");
        return ExitCode::from(2);
    }
    let mut lab = Lab::set_up(&args.job);
    let mut report = Report::new(&args.job.join("out"));
    // A case fails by a panic, whose message is all there is to tell; it is printed with the case.
    panic::set_hook(Box::new(|_| {}));
    let mut number = 0;
    for case in &chosen {
        for &way in &case.ways {
            lab.calm();
            number += 1;
            if args.pcap {
                lab.capture(args.job.join(format!("out/{number}.pcap")));
            }
            let began = Instant::now();
            let result = panic::catch_unwind(AssertUnwindSafe(|| (case.run)(&lab, way)));
            let why = result.err().map(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text
                    .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                    .unwrap_or_else(|| "panicked".to_owned());
                format!("{text}\n{}", lab.drops())
            });
            report.add(&case.name, way, began.elapsed(), why);
        }
    }
    report.finish()
}
