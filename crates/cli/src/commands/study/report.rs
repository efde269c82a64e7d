//! What was measured, as data. docs/json.md has the fields.

use rnic::BackEnd;
use serde::Serialize;

use super::card::Card;
use super::measure::Outcome;
use super::model;
use super::questions::{Metric, Panel, Question, Varied};
use super::setup::Setup;
use super::statistics::{Estimate, confidence};
use super::{code, seen};
use crate::peer::between::Between;
use crate::platform::machine::Machine;
use crate::text::{self, size};

/// Of one run of one point.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub value: f64,
    /// Percentiles within the run, where times of single operations were taken.
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub lost: u64,
}

impl Run {
    pub fn new(metric: Metric, outcome: &Outcome) -> Run {
        let seconds = outcome.time.as_secs_f64().max(1e-9);
        let of_all = outcome.all.max(1) as f64;
        let value = match metric {
            Metric::Latency => outcome.times.median(),
            Metric::Processor => outcome.processor_time.as_secs_f64() * 1e6 / of_all,
            Metric::Messages | Metric::Bytes => outcome.count as f64 / seconds,
        };
        let times = Some(&outcome.times).filter(|_| metric == Metric::Latency);
        Run {
            value,
            p90: times.map(|times| times.quantile(0.9)),
            p99: times.map(|times| times.quantile(0.99)),
            lost: outcome.lost,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub x: u64,
    #[serde(flatten)]
    pub value: Estimate,
    /// Medians, over the rounds, of percentiles within a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The value of each round.
    pub rounds: Vec<f64>,
    /// Messages that were lost, in all rounds.
    pub lost: u64,
    /// What the model of a card says.
    pub model: Option<f64>,
    /// What the teaching texts say of a ConnectX-3.
    pub texts: Option<f64>,
    pub setup: Setup,
}

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<Point>,
}

impl Line {
    pub fn at(&self, x: u64) -> Option<&Point> {
        self.points.iter().find(|point| point.x == x)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    pub title: String,
    pub metric: Metric,
    pub unit: &'static str,
    pub x_title: String,
    #[serde(skip)]
    pub varied: Varied,
    #[serde(skip)]
    pub log: bool,
    pub series: Vec<Line>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub question: String,
    pub title: String,
    /// What is seen, computed from the points.
    pub seen: String,
    pub why: String,
    /// What a software NIC cannot show.
    pub note: String,
    pub code: code::Lines,
    pub charts: Vec<Chart>,
}

/// The back end that is rnic's own.
const SOFTWARE: &str = "software";

#[derive(Debug, Serialize)]
pub struct Report {
    /// Of this format. Fields may be added to it.
    pub version: u32,
    /// Of the program.
    pub rnic: &'static str,
    #[serde(flatten)]
    pub machine: Machine,
    pub path: Between,
    /// What did the NIC's work: `software`, or `libibverbs`.
    pub backend: &'static str,
    pub device: String,
    /// Questions that the devices cannot answer, each with what is lacking.
    pub left_out: Vec<String>,
    pub load_average: f64,
    pub processors: usize,
    /// How often each point was measured, in turn with all others.
    pub rounds: usize,
    pub run_seconds: f64,
    /// How sure the intervals are: a share.
    pub confidence: f64,
    pub card: Card,
    pub questions: Vec<Answer>,
}

impl Report {
    /// What is known before measuring.
    pub fn new(
        path: Between,
        (back_end, device): (BackEnd, String),
        processors: usize,
        card: Card,
    ) -> Report {
        Report {
            version: 1,
            rnic: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            path,
            backend: match back_end {
                BackEnd::Software => SOFTWARE,
                _ => "libibverbs",
            },
            device,
            left_out: Vec::new(),
            load_average: crate::platform::machine::load_average(),
            processors,
            rounds: 0,
            run_seconds: 0.0,
            confidence: 0.0,
            card,
            questions: Vec::new(),
        }
    }

    /// What a software NIC cannot show is to be said.
    pub fn is_of_software(&self) -> bool {
        self.backend == SOFTWARE
    }

    /// What to think of before believing the figures.
    pub fn warning(&self) -> Option<&'static str> {
        crate::platform::machine::warning(self.processors, self.load_average)
    }

    /// One line about how it was measured.
    pub fn manner(&self) -> String {
        format!(
            "{} of {} each, all points in turn; intervals of {:.0}%",
            text::count(self.rounds as u64, "round"),
            seconds(self.run_seconds),
            100.0 * self.confidence
        )
    }
}

fn seconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

/// The runs of one question: by panel, series, point and round.
pub type Runs = Vec<Vec<Vec<Vec<Run>>>>;

/// Room for them.
pub fn no_runs(question: &Question) -> Runs {
    let panels = question.panels.iter();
    let of = |panel: &Panel| {
        let series = panel.series.iter();
        series
            .map(|series| vec![Vec::new(); series.points.len()])
            .collect()
    };
    panels.map(of).collect()
}

impl Answer {
    pub fn new(question: &Question, runs: &Runs, report: &Report) -> Answer {
        let charts: Vec<Chart> = (question.panels.iter().zip(runs).enumerate())
            .map(|(number, (panel, runs))| chart(question, number, panel, runs, &report.card))
            .collect();
        Answer {
            question: question.id.to_owned(),
            title: question.title.to_owned(),
            seen: seen::sentences(&question.looks, &charts),
            why: question.why.to_owned(),
            note: question.note.to_owned(),
            code: code::lines(question.id),
            charts,
        }
    }
}

fn chart(
    question: &Question,
    number: usize,
    panel: &Panel,
    runs: &[Vec<Vec<Run>>],
    card: &Card,
) -> Chart {
    let series = panel.series.iter().zip(runs).map(|(series, runs)| {
        let points = series
            .points
            .iter()
            .zip(runs)
            .filter_map(|((x, setup), runs)| {
                let in_unit = |value: f64| match panel.metric {
                    Metric::Bytes => value * setup.size as f64,
                    _ => value,
                };
                let rounds: Vec<f64> = runs.iter().map(|run| in_unit(run.value)).collect();
                let median = |of: fn(&Run) -> Option<f64>| {
                    let values: Option<Vec<f64>> = runs.iter().map(of).collect();
                    Some(Estimate::of(&values?)?.median)
                };
                let figure = question.figures.iter().find(|figure| {
                    (figure.panel, figure.series, figure.x) == (number, series.name, *x)
                });
                Some(Point {
                    x: *x,
                    value: Estimate::of(&rounds)?,
                    p90: median(|run| run.p90),
                    p99: median(|run| run.p99),
                    rounds,
                    lost: runs.iter().map(|run| run.lost).sum(),
                    model: match series.model {
                        true => model::value(card, setup, panel.metric),
                        false => None,
                    },
                    texts: figure.map(|figure| figure.value),
                    setup: *setup,
                })
            });
        Line {
            name: series.name.to_owned(),
            points: points.collect(),
        }
    });
    Chart {
        title: panel.title.to_owned(),
        metric: panel.metric,
        unit: panel.metric.unit(),
        x_title: panel.x_title.to_owned(),
        varied: panel.varied,
        log: panel.log,
        series: series.collect(),
    }
}

/// What is known of the rounds once they are over.
pub fn close(report: &mut Report, rounds: usize, run_seconds: f64) {
    report.rounds = rounds;
    report.run_seconds = run_seconds;
    report.confidence = confidence(rounds);
}

/// A place on the horizontal axis, in words.
pub fn place(varied: Varied, x: u64) -> String {
    match varied {
        Varied::Size => size::show(x as usize),
        Varied::PathMtu => format!("{x} B"),
        Varied::Count => x.to_string(),
    }
}

/// A value with its unit.
pub fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Latency | Metric::Processor => format!("{} us", text::micros(value)),
        Metric::Messages => text::rate(value),
        Metric::Bytes => text::gigabytes(value),
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::card::tests::built_in;
    use super::super::questions;
    use super::*;

    /// Of all questions, with values that are easy to tell: no machine measured them.
    pub fn sample() -> Report {
        let path = Between::sample();
        let mut report = Report::new(path, (BackEnd::Software, "rnic0".to_owned()), 2, built_in());
        for question in questions::all() {
            let mut runs = no_runs(&question);
            for (panel, runs) in question.panels.iter().zip(&mut runs) {
                for (s, (series, runs)) in panel.series.iter().zip(runs).enumerate() {
                    for (n, (_, runs)) in series.points.iter().zip(runs).enumerate() {
                        for round in 0..9 {
                            let value = (s + 1) as f64 * (n + 2) as f64 + 0.01 * f64::from(round);
                            let is_latency = panel.metric == Metric::Latency;
                            runs.push(Run {
                                value: match matches!(
                                    panel.metric,
                                    Metric::Latency | Metric::Processor
                                ) {
                                    true => value,
                                    false => value * 1e5,
                                },
                                p90: is_latency.then_some(value * 2.0),
                                p99: is_latency.then_some(value * 3.0),
                                lost: 0,
                            });
                        }
                    }
                }
            }
            let answer = Answer::new(&question, &runs, &report);
            report.questions.push(answer);
        }
        close(&mut report, 9, 0.15);
        report
    }

    #[test]
    fn runs_become_points() {
        let report = sample();
        let inline = &report.questions[0];
        let [chart] = &inline.charts[..] else {
            panic!("one chart")
        };
        let first = chart.series[0].at(10).expect("the first size");
        assert_eq!(first.value.median, 2.04);
        assert_eq!((first.value.low, first.value.high), (2.01, 2.07));
        assert_eq!((first.p90, first.texts), (Some(4.08), Some(1.41)));
        assert!((first.model.expect("a model") - 1.41).abs() < 0.01);
        assert_eq!(first.rounds.len(), 9);
        let polling = report.questions.iter().find(|a| a.question == "polling");
        let processor = &polling.expect("there").charts[1].series[0].points[0];
        assert_eq!((processor.p90, processor.model), (None, None));
        let throughput = report.questions.iter().find(|a| a.question == "throughput");
        let point = throughput.expect("there").charts[0].series[0].at(1024);
        let point = point.expect("a size");
        assert!(
            (point.value.median / (4.04e5 * 1024.0) - 1.0).abs() < 0.2,
            "bytes, not messages"
        );
        assert!(
            report.manner().contains("9 rounds of 150 ms each"),
            "{}",
            report.manner()
        );
        assert!(report.manner().contains("96%"));
    }
}
