//! Medians and spread.

use serde::{Deserialize, Serialize};

/// What a set of samples says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub samples: usize,
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Summary {
    /// Of some samples; `None` without any.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        let n = samples.len();
        let (min, max) = (*samples.first()?, *samples.last()?);
        let median = match n % 2 {
            1 => samples[n / 2],
            _ => (samples[n / 2 - 1] + samples[n / 2]) / 2.0,
        };
        Some(Summary {
            samples: n,
            min,
            median,
            max,
        })
    }
}

/// The median of times; 0 of none.
pub fn median(times: Vec<f64>) -> f64 {
    Summary::of(times).map_or(0.0, |summary| summary.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let of = |samples: &[f64]| Summary::of(samples.iter().copied());
        assert_eq!(of(&[]), None);
        let odd = of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.min, odd.median, odd.max), (1.0, 2.0, 3.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
