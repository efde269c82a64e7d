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

    /// The only one in it. The first, if there is none.
    #[inline]
    pub(crate) fn only(&self) -> Option<usize> {
        match self.bits.load(Ordering::Acquire) {
            0 => Some(0),
            bits => sole(bits),
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let bits = self.bits.load(Ordering::Acquire).max(1);
        (0..MAX_SHARDS).filter(move |shard| bits >> shard & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    //! A completion queue drives the shards of its queue pairs, and no others.

    use super::*;

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
        set.leave(MAX_SHARDS - 1);
        assert_eq!(set.only(), Some(0));
    }
}
