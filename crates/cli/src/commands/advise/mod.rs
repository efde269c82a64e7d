//! `rnic advise`: runs a program, counts what it does with sockets or verbs, and judges whether RDMA
//! suits it.
//!
//! From the bottom up: [`evidence`] is what a trace says, as numbers, and [`trace`] makes it.
//! [`rules`] is the table of rules, and [`judge`] applies them. [`measure`] has figures of this
//! machine, from which [`gain`] says what a change would gain; [`attempt`] makes the change and
//! measures. [`words`] shows it all.

mod attempt;
mod evidence;
mod gain;
mod judge;
mod measure;
mod rules;
mod trace;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::commands::study::card::Card;
use crate::platform::failure::Result;
use crate::platform::signals;
use crate::text::time;
use measure::Cells;
use trace::{Program, With};
use words::{Advised, Opinion};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "rnic advise [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "\
Examples:
  rnic advise -- ./my_client server            a program that uses sockets, or verbs
  rnic advise --for 10 -- redis-server         a server: it is ended after ten seconds
  rnic advise -- sh -c './server & ./client'   both sides, in one trace
  rnic advise --try -- ib_send_lat -e host     and makes the change itself, where rnic can

The verdict is one of: no gain, rsockets, two-sided, one-sided, RPC over RDMA; or that the trace \
does not tell. Each comes with the counts that say so, the rule, its number and source, and with \
parameters.

Gains are predicted from what rnic and TCP do on this machine, measured after the run, and for a \
card from its cost model (docs/study.md). They are no measurement of the program: --try is.

The program runs with a recorder of socket calls (librnic_record.so) and with rnic's NIC in front \
of the machine's. What it says goes to standard error, behind what the program says; the exit \
status is the program's. docs/advise.md has the rules."
)]
pub struct Args {
    /// End the program and all that it started after so many seconds (SIGTERM): servers run for
    /// ever
    #[arg(long = "for", value_name = "S", value_parser = time::parse_seconds)]
    limit: Option<Duration>,
    /// Run the program again with each change that rnic can make itself, and measure: how threads
    /// wait (once more), or rsockets instead of TCP (twice more: over TCP and over rsockets)
    #[arg(long = "try")]
    attempt: bool,
    /// Measure nothing on this machine: no gains on rnic
    #[arg(long)]
    no_measure: bool,
    /// Take the parameters of the card's cost model from FILE (rnic study --print-card)
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,
    /// Answer in JSON: one line, the last of standard error (docs/json.md)
    #[arg(long)]
    json: bool,
    /// The program and its arguments. All that follows PROGRAM belongs to it, options included
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub fn main(args: Args) -> Result<()> {
    let card = Card::read(args.card.as_deref())?;
    let program = Program::find(&args.program)?;
    let with = With {
        limit: args.limit,
        ..With::default()
    };
    let (evidence, run) = trace::recorded(&program, with)?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok());
    let load: f64 = load.unwrap_or(0.0);
    let mut cells = Cells::new();
    let trip_us = match args.no_measure
        || evidence.sockets.asks.calls() + evidence.sockets.serves.calls() == 0
    {
        true => USUAL_TRIP_US,
        false => {
            let (out, back) = judge::trip_sizes(&evidence.sockets);
            measure::tcp_trip_us(out, back).unwrap_or(USUAL_TRIP_US)
        }
    };
    let judgement = judge::judge(&evidence, trip_us).of_run(run.failure());
    let mut advised: Vec<Advised> = Vec::new();
    for advice in judgement.advice.iter().cloned() {
        let card_gain = advice
            .change
            .and_then(|change| gain::by_card(&card, &change));
        let here = match advice.change.filter(|_| !args.no_measure) {
            // A figure that cannot be had is left out.
            Some(change) => {
                let own = judgement.own(change.metric);
                gain::here(&mut cells, &change, own).ok().flatten()
            }
            None => None,
        };
        advised.push(Advised {
            advice,
            card: card_gain,
            here,
        });
    }
    advised.sort_by(Advised::order);
    let leaving = match judgement.leave.filter(|_| !args.no_measure) {
        Some(how) => gain::of_leaving(&card, &mut cells, how).unwrap_or_default(),
        None => gain::Leaving::default(),
    };
    drop(cells);
    let attempts = match args.attempt {
        true => attempt::all(&program, &judgement, &evidence, &run, args.limit),
        false => Vec::new(),
    };
    let opinion = Opinion {
        card: card.name,
        evidence,
        judgement,
        advised,
        leaving,
        attempts,
        load: (load, rnic_sys::child::allowed_cpus().len()),
    };
    match args.json {
        true => crate::remark!("{}", words::json(&opinion)),
        false => crate::remark!("{}", words::text(&opinion)),
    }
    signals::end_like(run.status)
}

/// A round trip by TCP within a host where none is measured, us.
const USUAL_TRIP_US: f64 = 25.0;
