//! Whether the background thread waits awake for more packets.
//!
//! To wake a sleeping thread costs the sender some microseconds and the packet many more. A program that is only the
//! target of others leaves its packets to the background thread, which therefore stays awake for a moment after packets
//! that nobody else looked after, as long as that paid lately: a longer moment where to wake takes long. It gives its core to
//! whoever wants it: then it sleeps between packets for a while, longer each time.

use super::stay::Sleeps;

/// Packets that come within so many times what it would wait would have been worth waiting for, though they came to a sleeping
/// thread.
const NEAR: u64 = 4;
/// How often it waits in vain before it does no more.
const CREDIT: u32 = 4;
/// Awake so long with success, it forgets that its core was wanted.
const FORGET_NS: u64 = 10_000_000;

/// What is known of waiting awake.
#[derive(Debug)]
pub(super) struct Linger {
    credit: u32,
    /// When packets came last.
    last: u64,
    /// Wake-ups to come after which it sleeps at once.
    sleeps: Sleeps,
    /// Time awake since its core was wanted.
    awake: u64,
}

impl Default for Linger {
    fn default() -> Linger {
        Linger {
            credit: 0,
            last: 0,
            sleeps: Sleeps::new(),
            awake: 0,
        }
    }
}

impl Linger {
    /// Packets woke it; `stream`: so many that more are surely on their way. True: it is worth waiting `stay` for more.
    pub(super) fn woken(&mut self, now: u64, stream: bool, stay: u64) -> bool {
        let near = now.saturating_sub(self.last) < NEAR * stay;
        self.last = now;
        if self.sleeps.takes_one() {
            return false;
        }
        if near {
            self.credit = (self.credit + 1).min(CREDIT);
        }
        stream || self.credit > 0
    }

    /// Packets came while it waited.
    #[inline]
    pub(super) fn paid(&mut self, now: u64) {
        self.awake += now.saturating_sub(self.last);
        if self.awake > FORGET_NS {
            self.awake = 0;
            self.sleeps.forget();
        }
        self.last = now;
        self.credit = CREDIT;
    }

    /// None came.
    pub(super) fn in_vain(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }

    /// Others want the core.
    pub(super) fn crowded(&mut self) {
        self.sleeps.begin();
        self.awake = 0;
    }
}

#[cfg(test)]
mod tests {
    //! A target of frequent requests stays awake, one of rare ones sleeps, and where cores are short so does each.

    use super::super::stay::{SLEEPS, STAY_NS, how_long};
    use super::*;

    const STAY: u64 = *STAY_NS.start();

    #[test]
    fn frequent_packets_are_waited_for() {
        let mut linger = Linger::default();
        assert!(
            !linger.woken(1_000_000, false, STAY),
            "nothing is known yet"
        );
        assert!(linger.woken(1_030_000, false, STAY));
        linger.paid(1_035_000);
        assert!(
            linger.woken(9_000_000, false, STAY),
            "what paid is tried again"
        );
    }

    #[test]
    fn where_to_wake_is_dear_a_round_trip_with_a_wake_up_is_near() {
        let mut linger = Linger::default();
        let wake_up = 150_000;
        assert!(!linger.woken(10_000_000, false, how_long(wake_up)));
        let round_trip = 2 * wake_up + 60_000;
        assert!(linger.woken(10_000_000 + round_trip, false, how_long(wake_up)));
    }

    #[test]
    fn rare_packets_are_slept_for() {
        let mut linger = Linger::default();
        linger.paid(0);
        let mut awake = 0;
        for round in 1..1000u64 {
            if linger.woken(round * 1_000_000, false, STAY) {
                linger.in_vain();
                awake += 1;
            }
        }
        assert_eq!(awake, CREDIT);
    }

    #[test]
    fn a_core_that_others_want_is_given_back_for_longer_each_time() {
        let mut linger = Linger::default();
        let mut now = 0;
        let mut slept = Vec::new();
        for _ in 0..3 {
            linger.crowded();
            let mut sleeps = 0;
            while !linger.woken(now, true, STAY) {
                now += 10_000;
                sleeps += 1;
            }
            slept.push(sleeps);
        }
        assert_eq!(slept, [64, 128, 256]);
    }

    #[test]
    fn a_core_that_nobody_wants_any_more_is_used_again() {
        let mut linger = Linger::default();
        for _ in 0..5 {
            linger.crowded();
        }
        for at in 0..=FORGET_NS / 10_000 + 1 {
            linger.paid(at * 10_000);
        }
        linger.crowded();
        assert_eq!(linger.sleeps.left, *SLEEPS.start());
    }
}
