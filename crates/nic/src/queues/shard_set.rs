//! Which engines a queue has to do with.

use std::sync::atomic::{AtomicU32, Ordering};

use rnic_settings::MAX_SHARDS;
use rustix_futex_sync::Mutex;

/// The bit, if there is just one.
#[inline]
fn sole(bits: u32) -> Option<usize> {
    bits.is_power_of_two()
        .then(|| bits.trailing_zeros() as usize)
}

/// Places of shards: the first, if no other is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(u32);

impl Places {
    /// The only one.
    #[inline]
    pub(crate) fn only(self) -> Option<usize> {
        match self.0 {
            0 => Some(0),
            bits => sole(bits),
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let bits = self.0.max(1);
        (0..MAX_SHARDS).filter(move |place| bits >> place & 1 == 1)
    }

    /// The first is said, if no other is.
    pub(crate) fn or_first(self) -> Places {
        Places(self.0.max(1))
    }

    /// Those of either.
    pub(crate) fn or(self, other: Places) -> Places {
        Places(self.0 | other.0)
    }

    /// All of the others are among them.
    pub(crate) fn contain(self, others: Places) -> bool {
        others.0.max(1) & !self.0 == 0
    }

    /// They are all up to some place: how many.
    pub(crate) fn all_before(self) -> Option<usize> {
        let count = self.0.trailing_ones();
        (self.0.count_ones() == count).then_some(count as usize)
    }
}

/// Which shards somebody has to do with: those whose queue pairs complete into a queue.
#[derive(Debug, Default)]
pub(crate) struct ShardSet {
    uses: Mutex<[u32; MAX_SHARDS]>,
    /// A bit for each that is in use.
    bits: AtomicU32,
}

impl ShardSet {
    pub(crate) fn enter(&self, shard: usize) {
        self.change(shard, |uses| *uses += 1);
    }

    pub(crate) fn leave(&self, shard: usize) {
        self.change(shard, |uses| *uses -= 1);
    }

    fn change(&self, shard: usize, change: impl FnOnce(&mut u32)) {
        let mut uses = self.uses.lock();
        change(&mut uses[shard]);
        let used = |bits, (shard, uses): (usize, &u32)| bits | u32::from(*uses > 0) << shard;
        let bits = uses.iter().enumerate().fold(0, used);
        self.bits.store(bits, Ordering::Release);
    }

    /// The one, if there is just one.
    pub(crate) fn sole(&self) -> Option<usize> {
        sole(self.bits.load(Ordering::Acquire))
    }

    /// All of them; the first, if there is none.
    #[inline]
    pub(crate) fn places(&self) -> Places {
        Places(self.bits.load(Ordering::Acquire))
    }

    /// The only one in it. The first, if there is none.
    #[inline]
    pub(crate) fn only(&self) -> Option<usize> {
        self.places().only()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.places().iter()
    }
}

#[cfg(test)]
mod tests {
    //! A completion queue drives the shards of its queue pairs, and no others.

    use super::*;

    #[test]
    fn places_tell_which_are_missing() {
        let [none, first, third, both] = [0, 1, 0b100, 0b101].map(Places);
        assert!(
            first.contain(none),
            "a queue without queue pairs is the first's"
        );
        assert!(both.contain(third) && !third.contain(both) && !none.contain(none));
        let all_before = [none, first, third, both, Places(0b111)].map(Places::all_before);
        assert_eq!(all_before, [Some(0), Some(1), None, None, Some(3)]);
    }

    #[test]
    fn a_set_is_of_those_that_are_used() {
        let set = ShardSet::default();
        let all = |set: &ShardSet| set.iter().collect::<Vec<_>>();
        assert_eq!((set.only(), all(&set)), (Some(0), vec![0]));
        set.enter(3);
        set.enter(3);
        assert_eq!((set.only(), all(&set)), (Some(3), vec![3]));
        set.enter(MAX_SHARDS - 1);
        assert_eq!((set.only(), all(&set)), (None, vec![3, MAX_SHARDS - 1]));
        set.leave(3);
        assert_eq!(set.only(), None);
        set.leave(3);
        assert_eq!(set.only(), Some(MAX_SHARDS - 1));
        let last = set.places();
        set.leave(MAX_SHARDS - 1);
        assert_eq!(set.only(), Some(0));
        set.enter(3);
        let either: Vec<_> = set.places().or(last).iter().collect();
        assert_eq!(either, [3, MAX_SHARDS - 1]);
    }
}
