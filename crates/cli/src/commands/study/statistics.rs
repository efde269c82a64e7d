//! Medians over rounds, and intervals in which they lie.
//!
//! The interval is that of order statistics: it assumes nothing about how the values are
//! distributed. Of n independent values, the median of what they are drawn from lies between the
//! k-th least and the k-th greatest unless fewer than k of them fall on one side of it, which is
//! binomial with 1/2.

use serde::Serialize;

/// How sure an interval is meant to be.
const WANTED: f64 = 0.95;

/// A median, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub median: f64,
    /// Limits of the interval.
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// Of values in any order; `None`: there are none.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let cut = cut(sorted.len());
        let (low, high) = (*sorted.get(cut)?, *sorted.get(sorted.len() - 1 - cut)?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Some(Estimate { median, low, high })
    }

    /// Of `a` for each of `b`, round by round: what both rounds had in common is out of it.
    pub fn of_ratio(a: &[f64], b: &[f64]) -> Option<Estimate> {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        Estimate::of(&ratios)
    }

    /// Whether the interval has this value in it.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Values to leave out at each end of `count` sorted ones, so that the interval of the rest is as
/// sure as is wanted; 0 if all are too few for that.
fn cut(count: usize) -> usize {
    (1..count.div_ceil(2))
        .take_while(|cut| confidence_without(count, *cut) >= WANTED)
        .last()
        .unwrap_or(0)
}

/// How sure the interval without `cut` values at each end is.
fn confidence_without(count: usize, cut: usize) -> f64 {
    // The median is outside if at most `cut` values are on one side of it.
    let mut ways = 1.0;
    let mut outside = 0.0;
    for k in 0..=cut {
        outside += ways;
        ways *= (count - k) as f64 / (k + 1) as f64;
    }
    1.0 - 2.0 * outside * 0.5f64.powi(count as i32)
}

/// How sure intervals over so many rounds are.
pub fn confidence(rounds: usize) -> f64 {
    match rounds {
        0 => 0.0,
        n => confidence_without(n, cut(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of every textbook: which order statistics hold the median with 95%.
    #[test]
    fn intervals_are_those_of_order_statistics() {
        for (count, expected) in [
            (1, 0),
            (5, 0),
            (6, 0),
            (8, 0),
            (9, 1),
            (11, 1),
            (12, 2),
            (15, 3),
            (20, 5),
        ] {
            assert_eq!(cut(count), expected, "{count}");
        }
        assert!((confidence(9) - 0.9609).abs() < 1e-4);
        assert!((confidence(6) - 0.96875).abs() < 1e-9);
        assert!((confidence(5) - 0.9375).abs() < 1e-9, "says so: under 95%");
        assert_eq!(confidence(1), 0.0);
        assert_eq!(confidence(0), 0.0);
    }

    #[test]
    fn medians() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[f64::NAN]), None);
        let of = |values: &[f64]| Estimate::of(values).map(|e| (e.low, e.median, e.high));
        assert_eq!(of(&[3.0, 1.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[5.0]), Some((5.0, 5.0, 5.0)));
        // An outlier at each end is not in the interval of nine.
        let nine = [4.0, 1000.0, 2.0, 3.0, 0.0, 5.0, 6.0, 7.0, 8.0];
        assert_eq!(of(&nine), Some((2.0, 5.0, 8.0)));
    }

    /// A drift that both have in common is no difference between them.
    #[test]
    fn ratios_are_taken_round_by_round() {
        let drift: Vec<f64> = (1..=9).map(f64::from).collect();
        let double: Vec<f64> = drift.iter().map(|value| value * 2.0).collect();
        let ratio = Estimate::of_ratio(&double, &drift).expect("values");
        assert_eq!((ratio.low, ratio.median, ratio.high), (2.0, 2.0, 2.0));
        assert!(!ratio.holds(1.0) && ratio.holds(2.0));
        assert_eq!(Estimate::of_ratio(&drift, &[]), None);
    }
}
