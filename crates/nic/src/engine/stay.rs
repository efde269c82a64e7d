//! How long a thread stays awake for what may come soon, whom it gives its core meanwhile, and how often it then sleeps instead.

use crate::sys;

/// So many times what it costs to wake: a peer that sleeps has to, before it answers.
const WAKE_UPS: u64 = 2;
/// But no less and no more, ns.
pub(super) const STAY_NS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000;
/// After so long in vain it offers its core to others, and again after as long, ns.
const OFFER_NS: u64 = 5_000;
/// Who takes it for longer than this, ns, and than the stay, needs it for more than a moment. Where to wake is dear, so are the
/// moments of others.
const TAKEN_NS: u64 = 100_000;

/// How often it sleeps at once after staying awake did not do, at first and at most.
pub(super) const SLEEPS: std::ops::RangeInclusive<u32> = 64..=16_384;

/// How long to stay, ns, where to wake costs so much.
pub(super) fn how_long(wake_up: u64) -> u64 {
    (WAKE_UPS * wake_up).clamp(*STAY_NS.start(), *STAY_NS.end())
}

/// The times that a thread sleeps at once: more of them each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleeps {
    pub(super) left: u32,
    /// So many the next time.
    pub(super) next: u32,
}

impl Sleeps {
    pub(super) const fn new() -> Sleeps {
        Sleeps {
            left: 0,
            next: *SLEEPS.start(),
        }
    }

    /// Whether this is one of them.
    pub(super) fn takes_one(&mut self) -> bool {
        let sleeps = self.left > 0;
        self.left = self.left.saturating_sub(1);
        sleeps
    }

    /// It did not do to stay awake.
    pub(super) fn begin(&mut self) {
        self.left = self.next;
        self.next = (self.next * 2).min(*SLEEPS.end());
    }

    /// It has done for long.
    pub(super) fn forget(&mut self) {
        self.next = *SLEEPS.start();
    }
}

/// The offers of a thread that stays awake.
#[derive(Debug)]
pub(super) struct Offers {
    /// When it had something to do, or made the last one.
    last: u64,
    /// How often others had taken the core when it was looked at last: not before each offer, since that takes longer than
    /// an offer that nobody takes.
    preempted: Option<u64>,
    /// Longer is more than a moment, ns.
    moment: u64,
    /// So many were made.
    count: u32,
}

impl Offers {
    /// Of a thread that stays for so many nanoseconds.
    pub(super) fn new(now: u64, stay: u64) -> Offers {
        Offers::after(now, stay, OFFER_NS)
    }

    /// The same, and the first offer comes at once: what it waits for mostly comes from a thread that takes it.
    pub(super) fn at_once(now: u64, stay: u64) -> Offers {
        Offers::after(now, stay, 0)
    }

    fn after(now: u64, stay: u64, first: u64) -> Offers {
        Offers {
            last: now.saturating_sub(OFFER_NS - first),
            preempted: None,
            moment: stay.max(TAKEN_NS),
            count: 0,
        }
    }

    /// How many were made.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// There was something to do.
    #[inline]
    pub(super) fn found(&mut self, now: u64) {
        self.last = now;
    }

    /// There is nothing to do. Offers the core if it is time; true: a thread took it that needs it for more than a moment.
    pub(super) fn in_vain(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.last) < OFFER_NS {
            return false;
        }
        let before = self.preempted.unwrap_or_else(sys::times_preempted);
        self.preempted = Some(before);
        std::thread::yield_now();
        self.count += 1;
        self.last = sys::now_ns();
        if self.last.saturating_sub(now) < self.moment {
            return false;
        }
        let after = sys::times_preempted();
        self.preempted = Some(after);
        is_taken(before, after)
    }
}

/// A virtual processor that stood still for a while was taken by nobody who wants it. Zero: it is not known.
fn is_taken(before: u64, after: u64) -> bool {
    after == 0 || after != before
}

#[cfg(test)]
mod tests {
    //! The core goes to threads that want it, and a machine that stands still is none of those.

    use super::*;

    #[test]
    fn the_dearer_a_wake_up_the_longer_the_stay() {
        assert_eq!(how_long(0), *STAY_NS.start());
        assert_eq!(how_long(150_000), 300_000);
        assert_eq!(how_long(10_000_000), *STAY_NS.end());
    }

    #[test]
    fn a_processor_that_stood_still_was_not_taken() {
        assert!(!is_taken(7, 7));
        assert!(is_taken(7, 8));
        assert!(is_taken(0, 0), "not known");
    }

    #[test]
    fn the_core_is_offered_after_a_while() {
        let now = sys::now_ns();
        let mut offers = Offers::new(now, 0);
        assert!(!offers.in_vain(now + OFFER_NS - 1));
        assert_eq!(offers.last, now);
        offers.in_vain(now + OFFER_NS);
        assert!(offers.last > now);
    }
}
