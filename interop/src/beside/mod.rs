//! rnic and Soft-RoCE side by side: the same programs in turns over Linux's driver and over rnic,
//! each to itself.
//!
//! - [`plan`] is what is measured, and how a number is found in what a program prints.
//! - [`one_host`]: two processes of one host. Soft-RoCE does not leave its driver then.
//! - [`two_hosts`]: two virtual machines, joined by an Ethernet link.
//! - [`table`]: medians and ratios.

mod one_host;
mod plan;
mod table;
mod two_hosts;

pub use two_hosts::serve;

use crate::lab::End;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How long one measurement may take. The longest take 40 seconds in slow hours; what takes so much
/// longer hangs, as Soft-RoCE of Linux 6.12 does now and then by events, and has no number.
const MEASUREMENT_TIMEOUT: Duration = Duration::from_secs(120);

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// Whose device.
    pub end: End,
    /// Added to the environment of both sides.
    pub environment: &'static [(&'static str, &'static str)],
    /// In the table.
    pub name: &'static str,
}

impl Contestant {
    /// Linux's driver.
    pub const SOFT_ROCE: Contestant = Contestant {
        end: End::Linux,
        environment: &[],
        name: "Soft-RoCE",
    };

    fn dress(&self, command: &mut Command) {
        command.envs(self.environment.iter().copied());
    }
}

/// Where they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Where {
    /// On one host.
    OneHost,
    /// On two.
    TwoHosts,
}

/// What is measured; `only`: what has one of these in its name or its command line.
fn chosen(place: Where, only: &[String]) -> Vec<plan::Measure> {
    plan::all(place)
        .into_iter()
        .filter(|measure| only.is_empty() || only.iter().any(|part| measure.has(part)))
        .collect()
}

/// Names what would be measured. That nothing would is a failure.
pub fn list(place: Where, only: &[String]) -> ExitCode {
    let measures = chosen(place, only);
    if measures.is_empty() {
        eprintln!(
            "interop: nothing measured has that in its name or its command line; --list names all"
        );
        return ExitCode::from(2);
    }
    for measure in measures {
        println!("{}: {}", measure.name, measure.line());
    }
    ExitCode::SUCCESS
}

/// Measures, and leaves the table in `out/side-by-side.md`.
///
/// # Panics
/// When the machine cannot be set up or the table cannot be written.
pub fn run(job: &Path, place: Where, zero_copy: bool, rounds: usize, only: &[String]) -> ExitCode {
    let measures = chosen(place, only);
    match place {
        Where::OneHost => one_host::run(job, &measures, rounds),
        Where::TwoHosts => two_hosts::run(job, zero_copy, &measures, rounds),
    }
}
