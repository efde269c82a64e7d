//! From evidence to a verdict and parameters. Pure: what has to be measured comes as a number.

mod sockets;
pub use sockets::trip_sizes;
#[cfg(test)]
mod tests;
mod verbs;

use serde::Serialize;

use super::evidence::Evidence;
use super::rules::Rule;
use crate::commands::study::questions::Metric;
use crate::commands::study::setup::{Operation, Setup, Waiting};

/// What suits the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The trace does not tell.
    Unknown,
    NoGain,
    Rsockets,
    TwoSided,
    OneSided,
    Rpc,
}

impl Verdict {
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Unknown => "I do not know",
            Verdict::NoGain => "no gain",
            Verdict::Rsockets => "rsockets",
            Verdict::TwoSided => "two-sided",
            Verdict::OneSided => "one-sided",
            Verdict::Rpc => "RPC over RDMA",
        }
    }
}

/// A change of one parameter that a cost model, and a measurement, can put a number to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    pub before: Setup,
    pub after: Setup,
    pub metric: Metric,
}

/// What leaving TCP would do, in the terms that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "limit")]
pub enum Move {
    /// Each turn waits for the network once there and once back.
    Turns {
        /// Of one turn, with what both sides do in it.
        period_us: f64,
        /// Bytes there and back.
        out: usize,
        back: usize,
        /// By rsockets.
        shim: bool,
    },
    /// Bytes of one direction are what takes the time.
    Bytes {
        /// Of the time, what goes into moving them.
        share: f64,
        size: usize,
    },
    /// The calls themselves take a processor's time.
    Calls {
        /// Of a processor's time for one turn, all and that in calls.
        turn_us: f64,
        calls_us: f64,
        size: usize,
    },
}

/// A parameter, as it is and as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub parameter: &'static str,
    /// What to do.
    pub then: String,
    pub rule: &'static Rule,
    /// The counts that say so.
    pub counts: String,
    pub change: Option<Change>,
    /// rnic can make the change itself: by this variable.
    pub by_itself: Option<(&'static str, &'static str)>,
    /// The program does otherwise now; false: it is a value to begin with.
    pub is_change: bool,
}

impl Advice {
    fn new(
        parameter: &'static str,
        rule: &'static Rule,
        then: impl Into<String>,
        counts: impl Into<String>,
    ) -> Advice {
        Advice {
            parameter,
            then: then.into(),
            rule,
            counts: counts.into(),
            change: None,
            by_itself: None,
            is_change: true,
        }
    }

    /// A value for a program that is still to be written.
    fn begin(mut self) -> Advice {
        self.is_change = false;
        self
    }

    fn with(mut self, before: Setup, after: Setup, metric: Metric) -> Advice {
        self.change = Some(Change {
            before,
            after,
            metric,
        });
        self
    }
}

/// The verdict, why, and what follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    pub rule: &'static Rule,
    /// A sentence with the counts.
    pub why: String,
    pub advice: Vec<Advice>,
    /// What it would gain by leaving TCP.
    pub leave: Option<Move>,
    /// Seconds from one message to the next, as they follow each other now.
    pub each: Option<f64>,
    /// Bytes of one.
    pub size: f64,
}

impl Judgement {
    /// Of a program that failed and used no network to speak of nobody knows what it would have
    /// done.
    pub fn of_run(self, failure: Option<String>) -> Judgement {
        match failure {
            Some(failure) if self.verdict == Verdict::NoGain => {
                let why = format!("{failure}; {}", self.why);
                Judgement::new(Verdict::Unknown, &super::rules::THIN, why)
            }
            _ => self,
        }
    }

    /// What a message takes in the program, in the unit of the metric.
    pub fn own(&self, metric: Metric) -> Option<f64> {
        let each = self.each.filter(|each| *each > 0.0)?;
        Some(match metric {
            Metric::Latency | Metric::Processor => each * 1e6,
            Metric::Messages => 1.0 / each,
            Metric::Bytes => self.size / each,
        })
    }

    fn new(verdict: Verdict, rule: &'static Rule, why: impl Into<String>) -> Judgement {
        Judgement {
            verdict,
            rule,
            why: why.into(),
            advice: Vec::new(),
            leave: None,
            each: None,
            size: 0.0,
        }
    }
}

/// Messages below which nothing is said.
const FEW: u64 = 200;

/// Judges. `trip_us`: a round trip by TCP on this machine, with messages as long as the program's.
pub fn judge(evidence: &Evidence, trip_us: f64) -> Judgement {
    match &evidence.verbs {
        Some(verbs) if verbs.messages() > 0 => {
            let window = Some(verbs.seconds).filter(|seconds| *seconds > 0.0);
            verbs::judge(verbs, window.unwrap_or(evidence.seconds))
        }
        Some(_) if evidence.sockets.asks.calls() + evidence.sockets.serves.calls() == 0 => {
            Judgement::new(
                Verdict::Unknown,
                &super::rules::THIN,
                "it opened the device and moved no message",
            )
        }
        _ => sockets::judge(evidence, trip_us),
    }
}

/// A size that can be measured.
fn measurable(bytes: f64) -> usize {
    (bytes.round() as usize).clamp(1, crate::commands::study::setup::LARGEST)
}

/// What one turn of a program looks like to the cost model.
fn ping_pong(operation: Operation, size: usize, waiting: Waiting) -> Setup {
    let mut setup = Setup::ping_pong(operation, size);
    setup.waiting = waiting;
    setup
}
