//! All measurements of a study, in turn.

use std::time::Duration;

use super::card::Card;
use super::measure::Side;
use super::questions::{self, Question};
use super::report::{Answer, Report, Run, Runs, close, no_runs};
use crate::peer::between::Between;
use crate::platform::failure::{Failure, Result};
use crate::platform::progress::Progress;

/// How often, and for how long, each point is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    pub rounds: usize,
    pub run: Duration,
}

/// What it takes to make and connect the queue pairs of a run.
const SETTING_UP: Duration = Duration::from_millis(15);
/// No run is shorter.
const SHORTEST: Duration = Duration::from_millis(1);

impl Pace {
    /// `seconds`: for all that was asked. Without it, a question takes its share of the time for
    /// all questions.
    pub fn new(
        asked: &[Question],
        quick: bool,
        rounds: Option<u32>,
        seconds: Option<Duration>,
    ) -> Pace {
        let rounds = rounds.map_or(if quick { 6 } else { 9 }, |rounds| rounds as usize);
        let runs = |questions: &[Question]| {
            let points: usize = questions.iter().map(|q| q.setups().count()).sum();
            (points * rounds).max(1) as u32
        };
        let each = match seconds {
            Some(time) => time / runs(asked),
            None => Duration::from_secs(if quick { 60 } else { 300 }) / runs(&questions::all()),
        };
        Pace {
            rounds,
            run: each.saturating_sub(SETTING_UP).max(SHORTEST),
        }
    }
}

/// Measures everything and puts it together. `peer`: what the other side is called; `processors`:
/// those of this side, of which it may have taken one for itself since.
pub fn run(
    side: &mut Side,
    mut asked: Vec<Question>,
    pace: Pace,
    card: Card,
    peer: String,
    processors: usize,
) -> Result<Report> {
    let path = Between::new(&side.gid, side.peer_addr, peer, 0);
    let device = (side.back_end(), side.device());
    let mut report = Report::new(path, device, processors, card);
    leave_out(side, &mut asked, &mut report)?;
    let asked = &asked[..];
    let mut runs: Vec<Runs> = asked.iter().map(no_runs).collect();
    let places = places(asked);
    let mut progress = Progress::new(places.len() * pace.rounds);
    for round in 0..pace.rounds {
        // What grows warm or busy within a round does so in both directions.
        let mut order: Vec<&Place> = places.iter().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let question = &asked[at.question];
            let panel = &question.panels[at.panel];
            let series = &panel.series[at.series];
            let (x, setup) = &series.points[at.point];
            progress.step(&format!(
                "round {} of {}: {}, {}, {x}",
                round + 1,
                pace.rounds,
                question.id,
                series.name
            ));
            let outcome = side.lead(setup, pace.run).map_err(|failure| {
                failure.during(&format!("{}, {}, {x}", question.id, series.name))
            })?;
            let used = outcome.path_mtu.unwrap_or(0);
            report.path.path_mtu = report.path.path_mtu.max(used);
            let run = Run::new(panel.metric, &outcome);
            runs[at.question][at.panel][at.series][at.point].push(run);
        }
    }
    drop(progress);
    side.end()?;
    close(&mut report, pace.rounds, pace.run.as_secs_f64());
    let answers = asked.iter().zip(&runs);
    report.questions = answers
        .map(|(question, runs)| Answer::new(question, runs, &report))
        .collect();
    Ok(report)
}

/// Leaves out what the devices of both sides cannot answer.
fn leave_out(side: &Side, asked: &mut Vec<Question>, report: &mut Report) -> Result<()> {
    asked.retain(|question| {
        let lacking = question.setups().find_map(|setup| side.lacks(setup));
        let words = lacking.map(|lacking| format!("{}: a device lacks {lacking}", question.id));
        report.left_out.extend(words);
        lacking.is_none()
    });
    match asked.is_empty() {
        true => Err(Failure::new("no question can be answered").cause(report.left_out.join("; "))),
        false => Ok(()),
    }
}

/// One point of one chart.
struct Place {
    question: usize,
    panel: usize,
    series: usize,
    point: usize,
}

/// Points of different series at the same place are next to each other: they are compared.
fn places(asked: &[Question]) -> Vec<Place> {
    let mut places = Vec::new();
    for (q, question) in asked.iter().enumerate() {
        for (p, panel) in question.panels.iter().enumerate() {
            let lengths = panel.series.iter().map(|series| series.points.len());
            for point in 0..lengths.max().unwrap_or(0) {
                for (s, series) in panel.series.iter().enumerate() {
                    if point < series.points.len() {
                        places.push(Place {
                            question: q,
                            panel: p,
                            series: s,
                            point,
                        });
                    }
                }
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each point is measured once in a round.
    #[test]
    fn a_round_has_all_points() {
        let all = questions::all();
        let points: usize = all.iter().map(|question| question.setups().count()).sum();
        let places = places(&all);
        assert_eq!(places.len(), points);
        let mut seen: Vec<_> = places
            .iter()
            .map(|at| (at.question, at.panel, at.series, at.point))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), points);
    }

    /// Everything takes as long as the help says, and a part of it its part.
    #[test]
    fn time_is_shared_out() {
        let all = questions::all();
        let total = |pace: Pace, asked: &[Question]| {
            let points: usize = asked.iter().map(|question| question.setups().count()).sum();
            (pace.run + SETTING_UP).as_secs_f64() * (points * pace.rounds) as f64
        };
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.01;
        let usual = Pace::new(&all, false, None, None);
        assert!(usual.rounds == 9 && near(total(usual, &all), 300.0));
        let quick = Pace::new(&all, true, None, None);
        assert!(quick.rounds == 6 && near(total(quick, &all), 60.0));
        let part = Pace::new(&all[..1], false, None, None);
        assert_eq!(part, usual);
        let told = Pace::new(&all[..1], false, Some(3), Some(Duration::from_secs(7)));
        assert!(told.rounds == 3 && near(total(told, &all[..1]), 7.0));
        let short = Pace::new(&all, false, None, Some(Duration::from_millis(1)));
        assert_eq!(short.run, SHORTEST);
    }
}
