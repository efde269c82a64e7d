//! `rnic study`: answers questions about RDMA by measuring, between two processes of this host or
//! two hosts.
//!
//! From the bottom up: a [`setup`] is what one measurement has set, and [`measure`] does it.
//! [`questions`] is the table of what is varied; [`session`] measures all of it in turn.
//! [`report`] has the data, with intervals ([`statistics`]), the [`model`] of a [`card`], the
//! sentence of what is [`seen`] and the lines of [`code`]. [`text`], [`draw`] and [`page`] show it.

pub mod card;
mod code;
mod draw;
pub mod measure;
pub mod model;
mod page;
pub mod questions;
mod report;
mod seen;
mod session;
pub mod setup;
mod statistics;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rnic::Context;
use rnic::exchange::Exchange;

use crate::charts::plot::Form;
use crate::charts::png;
use crate::peer::meet::STUDY;
use crate::peer::node::{self, Peer, pin};
use crate::platform::failure::{Failure, Result};
use crate::platform::files;
use crate::text::gid::{Choice, same_way};
use crate::text::time;
use card::Card;
use measure::Side;
use questions::Question;
use report::Report;
use session::Pace;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rnic study                                 all questions, between two processes of this host: five minutes
  rnic study --quick --html study.html       in about a minute, as a page to project
  rnic study inline polling                  two questions
  rnic study --list                          what can be asked
  rnic study --svg charts --json study.json  charts as files, and the data
  hostA$ rnic study --server                 between two hosts, by TCP port 18518 of hostA
  hostB$ rnic study --connect hostA
  rnic study --device mlx5_0 inline          on a card

Each point is measured once in each round, and rounds take all points in turn, so that what changes meanwhile meets all \
of them. A value is the median over the rounds; its interval is that of order statistics. Two processes on one host need \
two idle processors.

The NIC is rnic's own, in software, or a device of the system's libibverbs (--device): the data \
call that the back end. A cost model of a card is drawn beside it as a dashed line. docs/study.md \
has the questions, the method and the model.

Exit status: 0 if everything was measured, 1 if not, 2 for arguments or a card file that make no sense.")]
pub struct Args {
    /// What to study; see --list [default: everything]
    #[arg(value_name = "QUESTION", value_parser = known_question)]
    questions: Vec<String>,
    /// List the questions
    #[arg(long)]
    list: bool,
    /// Fewer and shorter rounds: everything in about a minute
    #[arg(long)]
    quick: bool,
    /// Time to spend on all questions asked [default: 300 for all of them, 60 with --quick]
    #[arg(long, value_name = "S", value_parser = time::parse_seconds)]
    seconds: Option<Duration>,
    /// Rounds [default: 9; 6 with --quick]. With fewer than 6, intervals are less than 95% sure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Take the parameters of the card's cost model from FILE
    #[arg(long, value_name = "FILE")]
    card: Option<PathBuf>,
    /// Print the parameters that are built in, in the form of such a file
    #[arg(long)]
    print_card: bool,
    /// Write one page: charts, sentences, lines of code, figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write each chart as SVG
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// Write each chart as PNG
    #[arg(long, value_name = "FOLDER")]
    png: Option<PathBuf>,
    /// Write JSON (docs/json.md)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a line for each point, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Wait for a client, which says what to measure. ADDR is ADDRESS, PORT or ADDRESS:PORT of this
    /// host [default: port 18518 of all addresses]
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["connect", "questions", "list", "quick", "seconds", "rounds", "card", "print_card", "html", "svg", "png", "json", "csv"])]
    server: Option<Option<String>>,
    /// Measure with the server at HOST or HOST:PORT
    #[arg(long, visible_alias = "client", value_name = "HOST")]
    connect: Option<String>,
    /// Measure this device: one of `rnic devices`, of libibverbs, on both sides of this host. Between
    /// hosts each side has its own [default: the software NIC, or RNIC_DEVICE]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    gid: Choice,
}

fn known_question(name: &str) -> std::result::Result<String, String> {
    let all = questions::all();
    match all.iter().any(|question| question.id == name) {
        true => Ok(name.to_owned()),
        false => {
            let names: Vec<&str> = all.iter().map(|question| question.id).collect();
            Err(format!("there are {}", names.join(", ")))
        }
    }
}

impl Args {
    /// Those that were asked, in the usual order.
    fn asked(&self) -> Vec<Question> {
        let is_asked = |question: &Question| {
            self.questions.is_empty() || self.questions.iter().any(|name| name == question.id)
        };
        questions::all().into_iter().filter(is_asked).collect()
    }
}

/// The second process on this host.
pub fn follow(device: Option<&str>, gid: &Choice) -> Result<()> {
    let mut side = Side::new(node::parent()?, device, gid, Context::loopback_gid)?;
    pin(Some(1));
    side.follow()
}

fn server(addr: Option<&str>, device: Option<&str>, gid: &Choice) -> Result<()> {
    let stream = STUDY.wait(addr)?;
    let own = stream.local_addr()?.ip();
    Side::new(Exchange::from_tcp(stream)?, device, gid, same_way(own))?.follow()
}

pub fn main(args: Args) -> Result<()> {
    if let Some(addr) = &args.server {
        return server(addr.as_deref(), args.device.as_deref(), &args.gid);
    }
    let asked = args.asked();
    if args.list {
        crate::platform::out::answer(format_args!("{}", text::list(&asked)));
        return Ok(());
    }
    if args.print_card {
        crate::platform::out::answer(format_args!("{}", card::BUILT_IN));
        return Ok(());
    }
    let card = Card::read(args.card.as_deref())?;
    // Before minutes of measuring.
    let results = [&args.html, &args.json, &args.csv];
    (results.into_iter().flatten()).try_for_each(|file| files::can_write(file))?;
    let folders = [&args.svg, &args.png];
    (folders.into_iter().flatten()).try_for_each(|folder| files::folder(folder))?;
    if args.png.is_some() {
        png::can_draw()?;
    }
    let processors = rnic_sys::child::allowed_cpus().len();
    let pace = Pace::new(&asked, args.quick, args.rounds, args.seconds);
    let device = args.device.as_deref();
    let report = match &args.connect {
        Some(host) => {
            let stream = STUDY.call(host)?;
            let own = stream.local_addr()?.ip();
            let peer = stream.peer_addr()?.to_string();
            let exchange = Exchange::from_tcp(stream)?;
            let mut side = Side::new(exchange, device, &args.gid, same_way(own))?;
            session::run(&mut side, asked, pace, card, peer, processors)?
        }
        None => {
            let mut line = args.gid.to_args();
            line.extend(
                device
                    .into_iter()
                    .flat_map(|name| ["--device".into(), name.into()]),
            );
            let (mut peer, exchange) = Peer::start("study", &line)?;
            let name = format!("pid {}", peer.id());
            let outcome = (|| {
                let mut side = Side::new(exchange, device, &args.gid, Context::loopback_gid)?;
                // Now that the NIC's own thread runs, and may float.
                pin(Some(0));
                let report = session::run(&mut side, asked, pace, card, name, processors)?;
                Ok((report, side.exchange))
            })();
            let (report, exchange) = outcome.map_err(|failure| peer.blame(failure))?;
            peer.finish(exchange)?;
            report
        }
    };
    write(&args, &report)?;
    crate::platform::out::answer(format_args!("{}", text::tables(&report)));
    Ok(())
}

/// All files that were asked for.
fn write(args: &Args, report: &Report) -> Result<()> {
    if let Some(file) = &args.html {
        files::write(file, page::page(report))?;
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(report);
        let text = text.map_err(|error| Failure::new(error.to_string()))?;
        files::write(file, text + "\n")?;
    }
    if let Some(file) = &args.csv {
        files::write(file, text::csv(report))?;
    }
    for answer in &report.questions {
        for (number, chart) in (1..).zip(&answer.charts) {
            let name = match answer.charts.len() {
                1 => answer.question.clone(),
                _ => format!("{}-{number}", answer.question),
            };
            let title = match number {
                1 => &answer.title,
                _ => &chart.title,
            };
            let file = |folder: &Path, kind: &str| folder.join(format!("{name}.{kind}"));
            if args.svg.is_none() && args.png.is_none() {
                continue;
            }
            let svg = draw::plot(report, title, chart).svg(Form::File);
            if let Some(folder) = &args.svg {
                files::write(&file(folder, "svg"), &svg)?;
            }
            if let Some(folder) = &args.png {
                files::write(&file(folder, "png"), png::png(&svg)?)?;
            }
        }
    }
    Ok(())
}
