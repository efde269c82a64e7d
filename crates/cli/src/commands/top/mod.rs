//! `rnic top`: what all rnic processes of this user do, as it happens.

mod frame;
mod prometheus;
mod screen;
mod text;
mod web;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic::monitor::{self, Look};

use crate::platform::failure::{Failure, Result};
use crate::text::{printable, time};
use frame::Frame;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Seconds between two looks
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Look once, over one interval, and print the tables; so it does where the output is no
    /// terminal
    #[arg(long)]
    once: bool,
    /// Print JSON (docs/json.md): a line for each interval, or one with --once
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print the counters in the text format of Prometheus, once
    #[arg(long)]
    prometheus: bool,
    /// Show the same as a page, at this port of 127.0.0.1, and the counters for Prometheus at
    /// /metrics; 0: any free port
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "9118",
          conflicts_with_all = ["once", "json", "prometheus"])]
    web: Option<u16>,
}

const EXAMPLES: &str = "\
Examples:
  rnic top                     all processes of this user, once a second; q ends it
  rnic top --once              the tables, once, for a log
  rnic top --json | jq         a line of JSON each second
  rnic top --web               the same as a page, at http://127.0.0.1:9118
  rnic top --prometheus        the counters, for a scraper

Each process is asked, and answers for itself. Latencies are measured while somebody looks: from the
post of a signaled send work request to its completion.

Exit status: 0 if it could look, 1 if not, 2 for arguments that make no sense.";

/// Between 0.1 s and an hour: less would be seen by nobody, and processes answer each time.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let interval = time::parse_seconds(text)?;
    match (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        true => Ok(interval),
        false => Err("an interval has 0.1 to 3600 seconds".to_owned()),
    }
}

/// Looks again and again.
struct Looker {
    last: Look,
    at: Instant,
}

impl Looker {
    fn new() -> Looker {
        let at = Instant::now();
        let last = monitor::look();
        Looker { last, at }
    }

    /// What happened since the last look.
    fn look(&mut self) -> Frame {
        let at = Instant::now();
        let look = monitor::look();
        // A clock that stood still divides nothing.
        let time = (at - self.at).max(Duration::from_millis(1));
        let frame = Frame::between(&self.last, &look, time, &program);
        (self.last, self.at) = (look, at);
        frame
    }
}

/// What a process calls itself.
fn program(pid: u32) -> String {
    let name = rnic_sys::process::name(pid).unwrap_or_default();
    match name.is_empty() {
        true => "?".to_owned(),
        false => printable(&name),
    }
}

pub fn main(args: Args) -> Result<()> {
    if args.prometheus {
        crate::say!(
            "{}",
            prometheus::text(&monitor::look(), &program).trim_end()
        );
        return Ok(());
    }
    let mut looker = Looker::new();
    if let Some(port) = args.web {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        return web::serve(address, args.interval, looker);
    }
    if args.json {
        loop {
            std::thread::sleep(args.interval);
            let line = serde_json::to_string(&looker.look())
                .map_err(|e| Failure::new(format!("cannot be put into JSON: {e}")))?;
            crate::say!("{line}");
            if args.once {
                return Ok(());
            }
        }
    }
    if !args.once && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return screen::show(args.interval, looker);
    }
    std::thread::sleep(args.interval);
    print(&looker.look());
    Ok(())
}

fn print(frame: &Frame) {
    if frame.queue_pairs.is_empty() {
        crate::say!("{}, in another terminal.", text::NOBODY);
    } else {
        for table in [
            text::processes(frame),
            text::talks(frame),
            text::queue_pairs(frame),
        ] {
            crate::say!("{}", table.lines());
        }
    }
    if let Some(silent) = text::silent(frame) {
        crate::say!("{silent}");
    }
}
