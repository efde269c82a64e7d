//! How long send work requests take from their post to their completion, of queue pairs that
//! somebody looks at from outside ([`crate::resources`]).
//!
//! Of others nothing is measured: a post and a completion look at one pointer each. Who looks asks
//! again and again, so what was not asked about for a while is not measured any more.

use rnic_transport::Fifo;

/// After the last look it is measured that much longer, ns.
const WATCHED: u64 = 10_000_000_000;

/// Buckets of each octave: a value is known to an eighth.
const PER_OCTAVE: u32 = 8;
/// log2 of that.
const SHIFT: u32 = PER_OCTAVE.ilog2();
/// From 2^39 ns on, nine minutes, all values are one.
const HIGHEST: u32 = 39;

/// How many values were how long, ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: vec![0; Histogram::BUCKETS],
        }
    }
}

impl Histogram {
    /// How many lengths are told from each other.
    pub const BUCKETS: usize = ((HIGHEST - SHIFT + 1) * PER_OCTAVE) as usize;

    /// `None`: there is no memory for it.
    fn try_new() -> Option<Histogram> {
        let mut buckets = Vec::new();
        buckets.try_reserve_exact(Histogram::BUCKETS).ok()?;
        buckets.resize(Histogram::BUCKETS, 0);
        Some(Histogram { buckets })
    }

    fn bucket_of(value: u64) -> usize {
        let value = value.min((1 << HIGHEST) - 1);
        let shift = (64 - value.leading_zeros()).saturating_sub(SHIFT + 1);
        (shift * PER_OCTAVE) as usize + (value >> shift) as usize
    }

    /// The least value of a bucket; of the one behind the last, its end.
    fn start(bucket: usize) -> u64 {
        let octave = (bucket / PER_OCTAVE as usize).saturating_sub(1);
        ((bucket - octave * PER_OCTAVE as usize) as u64) << octave
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.add_to(Histogram::bucket_of(value), 1);
    }

    /// Counts values of one bucket; there may be no such.
    pub(crate) fn add_to(&mut self, bucket: usize, count: u64) {
        if let Some(known) = self.buckets.get_mut(bucket) {
            *known = known.saturating_add(count);
        }
    }

    /// Counts all of another one as well.
    pub fn add_all(&mut self, other: &Histogram) {
        for (bucket, count) in other.counts() {
            self.add_to(bucket, count);
        }
    }

    /// What came since `earlier` was so.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let both = self.buckets.iter().zip(&earlier.buckets);
        Histogram {
            buckets: both.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// The buckets that are not empty.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        let all = self.buckets.iter().copied().enumerate();
        all.filter(|(_, count)| *count != 0)
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The value that this share of all, 0 to 1, is not above: to an eighth. `None`: there is no
    /// value.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = (share.clamp(0.0, 1.0) * count as f64).ceil() as u64;
        let mut left = rank.clamp(1, count.max(1));
        for (bucket, values) in self.counts() {
            if left <= values {
                let (start, end) = (Histogram::start(bucket), Histogram::start(bucket + 1));
                let within = (end - start) as f64 * left as f64 / values as f64;
                return Some(start + within as u64);
            }
            left -= values;
        }
        None
    }
}

/// Of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Option<Box<Watched>>);

#[derive(Debug)]
struct Watched {
    until: u64,
    /// Posted before anybody looked; they complete first.
    ahead: u32,
    /// When each of the others was posted that did not complete yet.
    posted: Fifo<u64>,
    /// How many of those there may be, for which there is memory.
    room: usize,
    histogram: Histogram,
}

impl Latencies {
    /// Somebody looks at `now`. So many requests are posted, and `room` may be.
    pub(crate) fn watch(&mut self, now: u64, outstanding: u32, room: u32) {
        let until = now.saturating_add(WATCHED);
        if let Some(watched) = &mut self.0 {
            watched.until = until;
            return;
        }
        let mut posted = Fifo::default();
        let Some(histogram) = Histogram::try_new() else {
            return;
        };
        if posted.try_reserve(room as usize).is_ok() {
            self.0 = Some(Box::new(Watched {
                until,
                ahead: outstanding,
                posted,
                room: room as usize,
                histogram,
            }));
        }
    }

    /// What was measured while it was looked at.
    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        self.0.as_ref().map(|watched| &watched.histogram)
    }

    /// The time, for [`Latencies::posted`] of what is about to be posted; `None`: it is not measured.
    #[inline]
    pub(crate) fn time_of_post(&self, now: impl FnOnce() -> u64) -> Option<u64> {
        self.0.is_some().then(now)
    }

    /// A work request was posted at `now`.
    #[cold]
    pub(crate) fn posted(&mut self, now: u64) {
        let Some(watched) = &mut self.0 else { return };
        if now > watched.until || watched.posted.len() >= watched.room {
            self.0 = None;
            return;
        }
        watched.posted.push_back(now);
    }

    /// A completion retires so many work requests, of which the last is its own.
    #[inline]
    pub(crate) fn completed(&mut self, retired: u32, now: impl FnOnce() -> u64) {
        if self.0.is_some() {
            self.note_completion(retired, now());
        }
    }

    #[cold]
    fn note_completion(&mut self, retired: u32, now: u64) {
        let Some(watched) = &mut self.0 else { return };
        let unknown = watched.ahead.min(retired);
        watched.ahead -= unknown;
        let mut own = None;
        for _ in unknown..retired {
            own = watched.posted.pop_front();
        }
        if let Some(posted) = own {
            watched.histogram.add(now.saturating_sub(posted));
        }
    }

    /// Nothing is posted any more.
    pub(crate) fn reset(&mut self) {
        if let Some(watched) = &mut self.0 {
            watched.ahead = 0;
            watched.posted.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Promise: a percentile is wrong by an eighth at most.
        #[test]
        fn values_are_known_to_an_eighth(value in 0u64..1 << 45) {
            let mut histogram = Histogram::default();
            histogram.add(value);
            let known = histogram.quantile(0.5).unwrap();
            let value = value.min((1 << HIGHEST) - 1);
            prop_assert!(known.abs_diff(value) <= value / u64::from(PER_OCTAVE) + 1, "{known}");
        }

        #[test]
        fn buckets_follow_each_other(bucket in 0..Histogram::BUCKETS) {
            let (start, end) = (Histogram::start(bucket), Histogram::start(bucket + 1));
            prop_assert!(start < end);
            prop_assert_eq!(Histogram::bucket_of(start), bucket);
            prop_assert_eq!(Histogram::bucket_of(end - 1), bucket);
        }
    }

    #[test]
    fn quantiles_are_of_all_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for value in [1000; 98].into_iter().chain([1_000_000; 2]) {
            histogram.add(value);
        }
        let near = |known: Option<u64>, value: u64| known.unwrap().abs_diff(value) <= value / 8;
        assert!(near(histogram.quantile(0.5), 1000));
        assert!(near(histogram.quantile(0.99), 1_000_000));
        let later = histogram.since(&histogram.clone());
        assert_eq!((later.count(), later.quantile(0.5)), (0, None));
    }

    #[test]
    fn nobody_looks_nothing_is_measured() {
        let mut latencies = Latencies::default();
        assert_eq!(
            latencies.time_of_post(|| unreachable!("a clock was read")),
            None
        );
        latencies.completed(1, || unreachable!("a clock was read"));
        assert!(latencies.histogram().is_none());
    }

    /// Promise: a request that was posted before somebody looked is not taken for a later one.
    #[test]
    fn what_was_under_way_is_left_out() {
        let mut latencies = Latencies::default();
        latencies.watch(0, 3, 8);
        latencies.posted(1000);
        // Two that nobody knows, then the third and one that was not signaled before its own.
        latencies.completed(2, || 1500);
        assert_eq!(latencies.histogram().unwrap().count(), 0);
        latencies.posted(2000);
        latencies.completed(3, || 6000);
        let histogram = latencies.histogram().unwrap();
        assert_eq!(histogram.count(), 1);
        assert!(histogram.quantile(1.0).unwrap().abs_diff(4000) <= 500);
    }

    #[test]
    fn who_looks_no_more_is_forgotten() {
        let mut latencies = Latencies::default();
        latencies.watch(0, 0, 8);
        latencies.watch(WATCHED, 0, 8);
        latencies.posted(2 * WATCHED);
        assert!(latencies.histogram().is_some());
        latencies.posted(2 * WATCHED + 1);
        assert!(latencies.histogram().is_none());
    }

    /// Promise: nothing grows behind the memory that was there when somebody began to look.
    #[test]
    fn more_than_there_is_room_for_ends_it() {
        let mut latencies = Latencies::default();
        latencies.watch(0, 0, 2);
        for _ in 0..3 {
            latencies.posted(1);
        }
        assert!(latencies.histogram().is_none());
        latencies.completed(3, || 2);
    }
}
