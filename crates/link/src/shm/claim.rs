//! What stands for a reference: a count in the [grant table](super::grants), and the value that it
//! had.
//!
//! Before memory may change that unacknowledged packets refer to, the producer lets the count go on
//! ([`withdraw`]). The consumer looks at it after it has copied ([`stands`]). A consumer that
//! copied a byte that was stored after the withdrawal then sees the withdrawal, too, since both
//! sides have a full fence in between; and then the packet counts as lost. Loom runs all
//! interleavings: `RUSTFLAGS="--cfg loom" cargo test -p rnic-link --lib shm::claim`.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A word of a grant table, and the fence that goes with it; the tests have loom's.
pub(super) trait Word {
    fn load(&self) -> u64;
    fn store(&self, value: u64);
    fn fence();
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Acquire)
    }
    #[inline]
    fn store(&self, value: u64) {
        AtomicU64::store(self, value, Ordering::Release);
    }
    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Producer: before memory that was referred to may change.
pub(super) fn withdraw<W: Word>(count: &W) {
    count.store(count.load().wrapping_add(1));
    W::fence();
}

/// Consumer, after it copied: the count is what it was when the record was made.
pub(super) fn stands<W: Word>(count: &W, then: u64) -> bool {
    W::fence();
    count.load() == then
}

/// What stands for a record's reference: a count of its grant table, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) slot: u32,
    pub(super) count: u64,
}

#[cfg(all(test, loom))]
mod tests;
