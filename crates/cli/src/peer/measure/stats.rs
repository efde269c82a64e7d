//! Distributions of times.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times of single operations, to three digits: as many as one likes take the same memory.
#[derive(Clone, Debug)]
pub struct Distribution {
    nanos: Histogram<u64>,
}

/// A minute.
const LONGEST: u64 = 60_000_000_000;

impl Default for Distribution {
    fn default() -> Distribution {
        let nanos = Histogram::new_with_bounds(1, LONGEST, 3);
        Distribution {
            nanos: nanos.expect("the bounds and the precision are possible"),
        }
    }
}

/// One step of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    pub from_us: f64,
    pub to_us: f64,
    pub count: u64,
}

impl Distribution {
    /// Beyond a minute counts as a minute.
    pub fn record(&mut self, nanos: u64) {
        self.nanos.saturating_record(nanos);
    }

    pub fn samples(&self) -> u64 {
        self.nanos.len()
    }

    /// Microseconds.
    pub fn mean(&self) -> f64 {
        self.nanos.mean() / 1e3
    }

    /// Microseconds; `part` of the samples are at most that: 0 is the least, 1 the most.
    pub fn quantile(&self, part: f64) -> f64 {
        match part {
            0.0 => self.nanos.min() as f64 / 1e3,
            part => self.nanos.value_at_quantile(part) as f64 / 1e3,
        }
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Steps of equal ratio from the least to 99.9%, and one for what is beyond.
    pub fn steps(&self, count: usize) -> Vec<Step> {
        if self.nanos.is_empty() {
            return Vec::new();
        }
        let least = (self.nanos.min() as f64).max(1.0);
        let most = (self.nanos.value_at_quantile(0.999) as f64).max(least * 1.02);
        let ratio = (most / least).powf(1.0 / count as f64);
        let edge = |n: usize| least * ratio.powi(n as i32);
        let mut counts = vec![0; count + 1];
        for value in self.nanos.iter_recorded() {
            let nanos = value.value_iterated_to() as f64;
            let at = ((nanos / least).ln() / ratio.ln()).floor().max(0.0) as usize;
            // The least of 99.9% is in the last step but one, whatever the logarithm's last digit
            // says.
            let at = if nanos <= most {
                at.min(count - 1)
            } else {
                count
            };
            counts[at] += value.count_since_last_iteration();
        }
        let mut steps: Vec<Step> = counts
            .into_iter()
            .enumerate()
            .map(|(n, count)| Step {
                from_us: edge(n) / 1e3,
                to_us: edge(n + 1) / 1e3,
                count,
            })
            .collect();
        if let Some(beyond) = steps.last_mut() {
            beyond.to_us = self.quantile(1.0).max(beyond.from_us);
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: impl IntoIterator<Item = u64>) -> Distribution {
        let mut distribution = Distribution::default();
        nanos.into_iter().for_each(|n| distribution.record(n));
        distribution
    }

    #[test]
    fn quantiles() {
        let distribution = of((1..=1000).rev().map(|n| n * 1000));
        let at = |part, expected: f64| {
            let found = distribution.quantile(part);
            assert!((found / expected - 1.0).abs() < 2e-3, "{part}: {found}");
        };
        at(0.0, 1.0);
        at(0.5, 500.0);
        at(0.999, 999.0);
        at(1.0, 1000.0);
        assert_eq!(Distribution::default().median(), 0.0);
        assert_eq!(of([u64::MAX]).samples(), 1);
    }

    #[test]
    fn every_sample_is_in_one_step() {
        for distribution in [
            of((1..=5000).map(|n| n * n)),
            of([300]),
            of([1, 1, 1]),
            of([200; 100].into_iter().chain([1_000_000])),
        ] {
            let steps = distribution.steps(12);
            assert_eq!(steps.len(), 13);
            let count: u64 = steps.iter().map(|step| step.count).sum();
            assert_eq!(count, distribution.samples());
            assert!(steps.windows(2).all(|two| two[0].from_us < two[1].from_us));
        }
        assert!(Distribution::default().steps(12).is_empty());
    }
}
