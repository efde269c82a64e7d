//! What was measured, as it is kept in JSON, and what it says about the aims.

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, State};
use crate::rows::{Aim, Role, Row};
use crate::setting::Unit;
use crate::stats::Summary;

/// One value, and what the machine was like.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub value: f64,
    /// Of which repetition.
    pub repetition: u32,
    pub state: State,
    /// Processor time of others, in processors.
    pub others: f64,
    /// What the hypervisor took.
    pub stolen: f64,
}

/// All samples of one figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub contender: String,
    pub role: Role,
    /// Which figure of the contender; empty for the one that counts.
    pub figure: String,
    pub unit: Unit,
    pub samples: Vec<Sample>,
    pub summary: Option<Summary>,
    /// Why there are no samples, or fewer.
    pub missing: Option<String>,
}

impl Series {
    /// Of the samples in one state of the machine.
    pub fn within(&self, state: State) -> Option<Summary> {
        let samples = self.samples.iter().filter(|sample| sample.state == state);
        Summary::of(samples.map(|sample| sample.value))
    }

    fn at(&self, repetition: u32) -> Option<f64> {
        let mut samples = self.samples.iter();
        samples
            .find(|sample| sample.repetition == repetition)
            .map(|sample| sample.value)
    }
}

/// Whether an aim was reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub aim: String,
    /// In words: the ratio or the figure.
    pub found: String,
    /// Ratio or figure; a ratio is the median of those of the repetitions.
    pub value: f64,
    /// What the aim sets.
    pub bound: f64,
    pub reached: bool,
    /// By how much not, in percent.
    pub short: f64,
    /// What would reach it, in the unit of rnic's figure: for charts.
    pub mark: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowResult {
    pub name: String,
    pub title: String,
    pub series: Vec<Series>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    /// The commit that was measured, if git knows it.
    pub commit: String,
    pub date: String,
    pub repetitions: u32,
    pub notes: Vec<String>,
    /// Cache-line round trips between the processors, in order, ns.
    pub core_round_trips_ns: Vec<f64>,
    pub rows: Vec<RowResult>,
}

impl RowResult {
    /// rnic's own figure by name.
    pub fn own(&self, figure: &str) -> Option<&Series> {
        let mut series = self.series.iter();
        series.find(|s| s.role == Role::Rnic && s.figure == figure)
    }

    /// The figure that counts of each contender.
    pub fn contenders(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|s| s.figure.is_empty())
    }

    /// Somebody's figure that counts.
    pub fn other(&self, contender: &str) -> Option<&Series> {
        let mut series = self.series.iter();
        series.find(|s| s.contender == contender && s.figure.is_empty())
    }

    /// Of values of one and the same repetition.
    fn ratios(&self, own: &Series, others: &[&Series], best: fn(f64, f64) -> f64) -> Vec<f64> {
        let ratio = |sample: &Sample| {
            let others = others.iter().map(|other| other.at(sample.repetition));
            // All of them, or the best may be the one that is not there.
            let values: Option<Vec<f64>> = others.collect();
            Some(sample.value / values?.into_iter().reduce(best)?)
        };
        own.samples.iter().filter_map(ratio).collect()
    }

    /// How many times another figure this one is: the median of the repetitions.
    pub fn beside(&self, own: &Series, than: &Series) -> Option<f64> {
        Some(Summary::of(self.ratios(own, &[than], f64::min))?.median)
    }

    pub fn judge(&mut self, row: &Row) {
        self.verdicts = row
            .aims
            .iter()
            .filter_map(|aim| self.verdict(aim))
            .collect();
    }

    /// What an aim calls these floors.
    fn which<'a>(&self, floors: &'a [String], best: &'a str) -> &'a str {
        let all = self.series.iter();
        match floors {
            [only]
                if all
                    .filter(|s| s.role == Role::Floor && s.figure.is_empty())
                    .count()
                    > 1 =>
            {
                only
            }
            [_] => "the floor",
            _ => best,
        }
    }

    /// `None` where something is missing.
    fn verdict(&self, aim: &Aim) -> Option<Verdict> {
        let own = self.own("")?;
        let unit = own.unit;
        let value = own.summary.map(|summary| summary.median);
        let named = |names: &[String]| -> Option<Vec<&Series>> {
            names.iter().map(|name| self.other(name)).collect()
        };
        let at_most = |aim: String, found: String, value: f64, bound: f64| Verdict {
            aim,
            found,
            value,
            bound,
            reached: value <= bound,
            short: (value / bound - 1.0).max(0.0) * 100.0,
            mark: None,
        };
        let at_least = |aim: String, found: String, value: f64, bound: f64| Verdict {
            aim,
            found,
            value,
            bound,
            reached: value >= bound,
            short: (1.0 - value / bound).max(0.0) * 100.0,
            mark: None,
        };
        let ratio =
            |series: &[&Series], best| Some(Summary::of(self.ratios(own, series, best))?.median);
        let best_of = |series: &[&Series], best: fn(f64, f64) -> f64| {
            let medians = series.iter().map(|s| Some(s.summary?.median));
            medians
                .collect::<Option<Vec<f64>>>()?
                .into_iter()
                .reduce(best)
        };
        let shown = |figure: &str| match figure {
            "" => String::new(),
            figure => format!("{figure}: "),
        };
        match aim {
            Aim::AtMostTimes(times, floors) => {
                let named = named(floors)?;
                let value = ratio(&named, f64::min)?;
                let mark = best_of(&named, f64::min).map(|floor| floor * times);
                let which = self.which(floors, "the faster floor");
                let found = format!("{value:.2} x");
                let aim = format!("at most {times} x {which}");
                Some(Verdict {
                    mark,
                    ..at_most(aim, found, value, *times)
                })
            }
            Aim::AtLeastPart(part, floors) => {
                let named = named(floors)?;
                let value = ratio(&named, f64::max)?;
                let mark = best_of(&named, f64::max).map(|floor| floor * part);
                let which = self.which(floors, "the best floor");
                let found = format!("{:.0}%", value * 100.0);
                let aim = format!("at least {:.0}% of {which}", part * 100.0);
                Some(Verdict {
                    mark,
                    ..at_least(aim, found, value, *part)
                })
            }
            Aim::Above(times, peer) => {
                let peers = [self.other(peer)?];
                let value = ratio(&peers, f64::max)?;
                let aim = format!("above {times} x {peer}");
                Some(Verdict {
                    mark: best_of(&peers, f64::max).map(|peer| peer * times),
                    ..at_least(aim, format!("{value:.2} x"), value, *times)
                })
            }
            Aim::AsGood(own, than) => {
                let (own, than) = (self.other(own)?, self.other(than)?);
                let value = self.beside(own, than)?;
                let aim = format!("{}: no worse than {}", own.contender, than.contender);
                let found = format!("{value:.2} x");
                Some(match own.unit.less_is_better() {
                    true => at_most(aim, found, value, 1.0),
                    false => at_least(aim, found, value, 1.0),
                })
            }
            Aim::Below(bound, why) => {
                let aim = match *why {
                    "us" => format!("at most {}", unit.show(*bound)),
                    why => format!("below the {} of {why}", unit.show(*bound)),
                };
                Some(Verdict {
                    mark: Some(*bound),
                    ..at_most(aim, unit.show(value?), value?, *bound)
                })
            }
            Aim::AtLeast(bound) => {
                let aim = format!("at least {}", unit.show(*bound));
                Some(Verdict {
                    mark: Some(*bound),
                    ..at_least(aim, unit.show(value?), value?, *bound)
                })
            }
            Aim::OwnAtMost(figure, times, than) => {
                let (one, two) = (self.own(figure)?, self.own(than)?);
                let value = Summary::of(self.ratios(one, &[two], f64::max))?.median;
                let what = if figure.is_empty() { "10,000" } else { figure };
                let aim = format!("beside {what}: at most {times} x {than}");
                Some(at_most(aim, format!("{value:.2} x"), value, *times))
            }
            Aim::OwnBelow(figure, bound) => {
                let series = self.own(figure)?;
                let (value, unit) = (series.summary?.median, series.unit);
                let aim = format!("{}below {}", shown(figure), unit.show(*bound));
                Some(at_most(aim, unit.show(value), value, *bound))
            }
            Aim::OwnAbove(figure, bound) => {
                let series = self.own(figure)?;
                let (value, unit) = (series.summary?.median, series.unit);
                let aim = format!("{}at least {}", shown(figure), unit.show(*bound));
                Some(at_least(aim, unit.show(value), value, *bound))
            }
        }
    }
}

impl Results {
    /// NEAR, FAR or both, with the round trips.
    pub fn state(&self) -> String {
        let near = |ns: &&f64| State::of(Some(**ns), Some(**ns)) == State::Near;
        let near_ones: Vec<f64> = self
            .core_round_trips_ns
            .iter()
            .filter(near)
            .copied()
            .collect();
        let far_ones: Vec<f64> = (self.core_round_trips_ns.iter())
            .filter(|ns| !near(ns))
            .copied()
            .collect();
        let all = self.core_round_trips_ns.len();
        let part = |name: &str, ones: &[f64]| {
            let median = Summary::of(ones.iter().copied())?.median;
            let share = 100.0 * ones.len() as f64 / all as f64;
            Some(format!(
                "{name} ({median:.0} ns) for {share:.0}% of the time"
            ))
        };
        let parts: Vec<String> = [part("NEAR", &near_ones), part("FAR", &far_ones)]
            .into_iter()
            .flatten()
            .collect();
        match parts.is_empty() {
            true => "unknown (one processor)".into(),
            false => parts.join(", "),
        }
    }

    /// Processors that others used, and that were taken: median and most.
    pub fn others(&self) -> (Option<Summary>, Option<Summary>) {
        let samples = || {
            let series = self.rows.iter().flat_map(|row| &row.series);
            series.flat_map(|series| &series.samples)
        };
        (
            Summary::of(samples().map(|sample| sample.others)),
            Summary::of(samples().map(|sample| sample.stolen)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Aim;

    fn series(contender: &str, role: Role, figure: &str, values: &[f64]) -> Series {
        let samples: Vec<Sample> = (0..)
            .zip(values)
            .map(|(repetition, value)| Sample {
                value: *value,
                repetition,
                state: State::Near,
                others: 0.0,
                stolen: 0.0,
            })
            .collect();
        Series {
            contender: contender.into(),
            role,
            figure: figure.into(),
            unit: Unit::Micros,
            summary: Summary::of(values.iter().copied()),
            samples,
            missing: None,
        }
    }

    fn row(series: Vec<Series>) -> RowResult {
        RowResult {
            name: "x".into(),
            title: "x".into(),
            series,
            verdicts: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_those_of_one_repetition() {
        // The machine was three times slower in the second one, for both.
        let row = row(vec![
            series("floor", Role::Floor, "", &[1.0, 3.0, 1.0]),
            series("perftest", Role::Rnic, "", &[2.0, 6.0, 2.2]),
        ]);
        let verdict = row
            .verdict(&Aim::AtMostTimes(1.9, vec!["floor".into()]))
            .unwrap();
        assert_eq!(verdict.value, 2.0);
        assert!(!verdict.reached && (verdict.short - 5.26).abs() < 0.01);
        assert!(row.verdict(&Aim::Below(2.5, "us")).unwrap().reached);
        assert!(!row.verdict(&Aim::AtLeast(3.0)).unwrap().reached);
    }

    #[test]
    fn what_is_missing_is_not_judged() {
        let row = row(vec![
            series("floor", Role::Floor, "", &[]),
            series("perftest", Role::Rnic, "", &[2.0]),
        ]);
        let aims = [
            Aim::AtMostTimes(3.0, vec!["floor".into()]),
            Aim::Above(1.0, "peer".into()),
            Aim::OwnAbove("least share", 0.5),
        ];
        for aim in aims {
            assert!(row.verdict(&aim).is_none(), "{aim:?}");
        }
    }

    #[test]
    fn the_better_floor_counts() {
        let row = row(vec![
            series("a", Role::Floor, "", &[10.0]),
            series("b", Role::Floor, "", &[20.0]),
            series("perftest", Role::Rnic, "", &[15.0]),
        ]);
        let floors = || vec!["a".to_owned(), "b".to_owned()];
        let part = row.verdict(&Aim::AtLeastPart(0.7, floors())).unwrap();
        assert!(part.reached && part.value == 0.75);
        assert_eq!(part.aim, "at least 70% of the best floor");
        // Which one is meant is said where there are others.
        let one = row
            .verdict(&Aim::AtLeastPart(0.7, vec!["a".to_owned()]))
            .unwrap();
        assert_eq!(one.aim, "at least 70% of a");
        let times = row.verdict(&Aim::AtMostTimes(1.4, floors())).unwrap();
        assert!(!times.reached && times.value == 1.5);
    }
}
