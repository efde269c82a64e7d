//! Medians and spread.

use serde::{Deserialize, Serialize};

/// What a set of samples says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub samples: usize,
    pub min: f64,
    pub median: f64,
    pub mean: f64,
    pub p99: f64,
    pub max: f64,
}

impl Summary {
    /// Of some samples; all zero without any.
    pub fn of(mut samples: Vec<f64>) -> Summary {
        samples.sort_by(f64::total_cmp);
        let at = |quantile: f64| {
            let index = (quantile * samples.len().saturating_sub(1) as f64).round() as usize;
            samples.get(index).copied().unwrap_or(0.0)
        };
        Summary {
            samples: samples.len(),
            min: at(0.0),
            median: at(0.5),
            mean: samples.iter().sum::<f64>() / samples.len().max(1) as f64,
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let summary = Summary::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(
            (summary.min, summary.median, summary.p99, summary.max),
            (0.0, 50.0, 99.0, 100.0)
        );
        assert_eq!(summary.mean, 50.0);
        assert_eq!(Summary::of(Vec::new()).median, 0.0);
        assert_eq!(Summary::of(vec![3.0]).p99, 3.0);
    }
}
