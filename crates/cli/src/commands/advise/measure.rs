//! Figures of this machine: what a round trip and a transfer by TCP take, and a setup on rnic.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rnic::Context;

use crate::commands::study::measure::Side;
use crate::commands::study::questions::Metric;
use crate::commands::study::setup::Setup;
use crate::peer::measure::stats::Distribution;
use crate::peer::node::{Peer, pin};
use crate::platform::failure::{Failure, Result};
use crate::text::gid::Choice;

/// Of one measurement.
const TIME: Duration = Duration::from_millis(120);
/// Times that each is measured, in turn with what it is compared with.
const ROUNDS: usize = 5;

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let asks = TcpStream::connect(listener.local_addr()?)?;
    let (serves, _) = listener.accept()?;
    asks.set_nodelay(true)?;
    serves.set_nodelay(true)?;
    Ok((asks, serves))
}

/// Microseconds of a message there and one back by TCP within this host: the mean, as what is known
/// of the program is one.
pub fn tcp_trip_us(out: usize, back: usize) -> Result<f64> {
    let (mut asks, mut serves) = pair()?;
    let server = std::thread::spawn(move || {
        let (mut request, answer) = (vec![0; out], vec![0; back]);
        while serves.read_exact(&mut request).is_ok() && serves.write_all(&answer).is_ok() {}
    });
    let (request, mut answer) = (vec![0; out], vec![0; back]);
    let mut times = Distribution::default();
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        let start = Instant::now();
        asks.write_all(&request)?;
        asks.read_exact(&mut answer)?;
        times.record(start.elapsed().as_nanos() as u64);
    }
    drop(asks);
    let _ = server.join();
    Ok(times.mean())
}

/// Bytes a second by TCP within this host, by writes of so many bytes.
pub fn tcp_bytes(size: usize) -> Result<f64> {
    let (mut asks, mut serves) = pair()?;
    let sender = std::thread::spawn(move || {
        let bytes = vec![0; size];
        while serves.write_all(&bytes).is_ok() {}
    });
    let mut room = vec![0; size];
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < TIME {
        bytes += asks.read(&mut room)?;
    }
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    drop(asks);
    let _ = sender.join();
    Ok(rate)
}

type Question = (Setup, Metric);

/// Two processes of rnic that measure setups, started when the first is asked for. The thread that
/// leads ties itself to a processor; this one floats.
pub struct Cells {
    lead: Option<Lead>,
}

/// The thread that leads: where it is asked, where it answers.
type Lead = (Sender<Question>, Receiver<Result<f64>>, JoinHandle<()>);

impl Cells {
    pub fn new() -> Cells {
        Cells { lead: None }
    }

    /// One value of a setup: microseconds, messages or bytes a second.
    fn ask(&mut self, setup: Setup, metric: Metric) -> Result<f64> {
        let (asks, answers, _) = self.lead.get_or_insert_with(|| {
            let (asks, questions) = channel();
            let (answer, answers) = channel();
            let thread = std::thread::spawn(move || {
                if let Err(failure) = lead(&questions, &answer) {
                    let _ = answer.send(Err(failure));
                }
            });
            (asks, answers, thread)
        });
        let gone = || Failure::new("the processes that measure have ended");
        asks.send((setup, metric)).map_err(|_| gone())?;
        answers.recv().map_err(|_| gone())?
    }

    /// The values of two setups, measured in turn: the best of each, as other programs make a run
    /// slower and none faster.
    pub fn compare(&mut self, before: Setup, after: Setup, metric: Metric) -> Result<(f64, f64)> {
        let (mut all, mut others) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            all.push(self.ask(before, metric)?);
            others.push(self.ask(after, metric)?);
        }
        Ok((best(all, metric), best(others, metric)))
    }

    /// The value of one.
    pub fn value(&mut self, setup: Setup, metric: Metric) -> Result<f64> {
        let all: Result<Vec<f64>> = (0..ROUNDS).map(|_| self.ask(setup, metric)).collect();
        Ok(best(all?, metric))
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        if let Some((asks, answers, thread)) = self.lead.take() {
            drop((asks, answers));
            let _ = thread.join();
        }
    }
}

fn best(values: Vec<f64>, metric: Metric) -> f64 {
    match metric {
        Metric::Latency | Metric::Processor => values.into_iter().fold(f64::INFINITY, f64::min),
        Metric::Messages | Metric::Bytes => values.into_iter().fold(0.0, f64::max),
    }
}

fn lead(questions: &Receiver<Question>, answer: &Sender<Result<f64>>) -> Result<()> {
    let gid = Choice::default();
    let (peer, exchange) = Peer::start("study", &gid.to_args())?;
    let mut side = Side::new(exchange, None, &gid, Context::loopback_gid)?;
    // Now that the NIC's own thread runs, and may float.
    pin(Some(0));
    while let Ok((setup, metric)) = questions.recv() {
        let outcome = side.lead(&setup, TIME)?;
        let seconds = outcome.time.as_secs_f64().max(1e-9);
        let per_second = outcome.count as f64 / seconds;
        let value = match metric {
            // What the program itself shows is a mean, too.
            Metric::Latency => outcome.times.mean(),
            Metric::Processor => outcome.processor_time.as_secs_f64() * 1e6 / outcome.all as f64,
            Metric::Messages => per_second,
            Metric::Bytes => per_second * setup.size as f64,
        };
        if answer.send(Ok(value)).is_err() {
            break;
        }
    }
    side.end()?;
    peer.finish(side.exchange)
}
