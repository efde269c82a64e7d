//! A set of durations and its quantiles.

/// Durations in nanoseconds. Exact up to [`Latencies::EXACT`] of them, then a sample of that size.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    kept: Vec<u64>,
    count: u64,
    least: u64,
    most: u64,
}

/// What is shown of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Half of them are no longer.
    pub median: u64,
    /// 99 of 100 are no longer.
    pub p99: u64,
    /// Longest.
    pub max: u64,
}

impl Latencies {
    /// So many are kept.
    pub const EXACT: usize = 1 << 20;

    /// One more.
    pub fn push(&mut self, ns: u64) {
        self.least = if self.count == 0 {
            ns
        } else {
            self.least.min(ns)
        };
        self.most = self.most.max(ns);
        self.count += 1;
        if self.kept.len() < Self::EXACT {
            self.kept.push(ns);
        } else {
            // A reservoir with a fixed sequence: a capture gives the same figures each time.
            let mut mixed = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let place = (mixed ^ mixed >> 31) % self.count;
            if let Some(slot) = self.kept.get_mut(place as usize) {
                *slot = ns;
            }
        }
    }

    /// `None` if there are none.
    pub fn summary(&self) -> Option<Summary> {
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        // Nearest rank.
        let rank = |percent: usize| {
            let at = (kept.len() * percent).div_ceil(100).max(1) - 1;
            kept.get(at).copied()
        };
        Some(Summary {
            count: self.count,
            min: self.least,
            median: rank(50)?,
            p99: rank(99)?,
            max: self.most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        assert_eq!(Latencies::default().summary(), None);
        let mut all = Latencies::default();
        for ns in (1..=200).rev() {
            all.push(ns);
        }
        let found = all.summary().unwrap();
        assert_eq!(
            (found.count, found.min, found.median, found.p99, found.max),
            (200, 1, 100, 198, 200)
        );
        let mut one = Latencies::default();
        one.push(7);
        assert_eq!(one.summary().unwrap().p99, 7);
    }

    #[test]
    fn very_many_are_sampled() {
        let mut all = Latencies::default();
        for ns in 0..(Latencies::EXACT as u64 * 3) {
            all.push(ns);
        }
        let found = all.summary().unwrap();
        assert_eq!((found.min, found.max), (0, Latencies::EXACT as u64 * 3 - 1));
        let half = Latencies::EXACT as u64 * 3 / 2;
        assert!(found.median.abs_diff(half) < half / 10, "{}", found.median);
    }
}
