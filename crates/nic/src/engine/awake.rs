//! Whether a thread that waits for an event stays awake for it.
//!
//! To put a thread to sleep and wake it costs more than most answers take: some 25 us where a message takes one. So a thread
//! that waits in `ibv_get_cq_event` drives the engine awake for a moment first, as long as that paid lately: for about as long as
//! its peer, asleep too, would take to wake and answer. Once one of the two is found awake, the other's next wait is short.
//! Where it does not pay, or others want the core, it sleeps at once, more often each time.

use super::stay::{self, Sleeps};

/// An event that came so soon to a thread that slept may have been worth waiting for, ns.
const NEAR_NS: u64 = 2_000_000;
/// How often it waits awake in vain before it does no more.
const CREDIT: u32 = 4;
/// So many events that came when the core had been offered, one after the other, and the next is expected to.
const BY_OFFER: u8 = 3;
/// So many waits that paid, one after the other, and it is forgotten that others did not.
const FORGET: u32 = 64;

/// What a thread's waits were like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awake {
    credit: u32,
    /// Waits to come that begin asleep.
    sleeps: Sleeps,
    /// Waits that paid, one after the other.
    paid: u32,
    /// Those of them, one after the other, in which the event came when the core had been offered.
    by_offer: u8,
}

impl Awake {
    pub(super) const fn new() -> Awake {
        Awake {
            credit: 0,
            sleeps: Sleeps::new(),
            paid: 0,
            by_offer: 0,
        }
    }

    /// A wait begins: how long to stay awake, ns, where to wake costs so much.
    pub(super) fn begin(&mut self, wake_up: u64) -> Option<u64> {
        if self.sleeps.takes_one() {
            return None;
        }
        (self.credit > 0).then(|| stay::how_long(wake_up))
    }

    /// Whoever brings the event shares the core: it is to be offered at once.
    pub(super) fn shares_core(&self) -> bool {
        self.by_offer >= BY_OFFER
    }

    /// The event came to a thread that was awake; `by_offer`: after it had offered its core.
    pub(super) fn paid(&mut self, by_offer: bool) {
        self.by_offer = match by_offer {
            true => self.by_offer.saturating_add(1),
            false => 0,
        };
        self.credit = CREDIT;
        self.paid += 1;
        if self.paid >= FORGET {
            self.paid = 0;
            self.sleeps.forget();
        }
    }

    /// It did not come in time, or others wanted the core.
    pub(super) fn in_vain(&mut self) {
        self.paid = 0;
        self.credit = self.credit.saturating_sub(1);
        if self.credit == 0 {
            self.sleeps.begin();
        }
    }

    /// The event came to a thread that slept, so long after the wait had begun.
    pub(super) fn slept(&mut self, ns: u64) {
        if ns < NEAR_NS && self.sleeps.left == 0 {
            self.credit = self.credit.max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Two that answer each other soon stay awake, and nobody spends much on waits that are long.

    use super::super::stay::{SLEEPS, STAY_NS};
    use super::*;

    /// Waits of `ns` each; how many of them it was awake for in vain.
    fn waits(awake: &mut Awake, count: u32, wake_up: u64, ns: u64) -> u32 {
        let mut vain = 0;
        for _ in 0..count {
            match awake.begin(wake_up) {
                Some(stay) if ns <= stay => awake.paid(false),
                Some(_) => {
                    awake.in_vain();
                    vain += 1;
                }
                None => awake.slept(ns),
            }
        }
        vain
    }

    #[test]
    fn an_answer_that_comes_soon_finds_a_thread_awake() {
        let mut awake = Awake::new();
        assert_eq!(awake.begin(10_000), None, "nothing is known yet");
        awake.slept(30_000);
        assert_eq!(waits(&mut awake, 1000, 10_000, 30_000), 0);
        assert_eq!(awake.credit, CREDIT);
    }

    #[test]
    fn where_to_wake_is_dear_it_waits_for_a_peer_that_has_to() {
        let mut awake = Awake::new();
        awake.slept(300_000);
        assert_eq!(waits(&mut awake, 1000, 110_000, 200_000), 0);
        assert!(awake.begin(10_000_000).is_some_and(|stay| stay < NEAR_NS));
    }

    #[test]
    fn long_waits_are_slept_through() {
        for ns in [2 * STAY_NS.end(), 2 * NEAR_NS] {
            let mut awake = Awake::new();
            awake.slept(ns);
            let vain = waits(&mut awake, 100_000, 25_000, ns);
            assert!(vain <= 20, "{vain} of 100000 waits");
        }
    }

    #[test]
    fn where_it_does_not_pay_it_sleeps_for_longer_each_time() {
        let mut awake = Awake::new();
        let mut slept = Vec::new();
        for _ in 0..3 {
            awake.in_vain();
            let mut sleeps = 0;
            while awake.begin(0).is_none() {
                awake.slept(20_000);
                sleeps += 1;
            }
            slept.push(sleeps);
        }
        assert_eq!(slept, [64, 128, 256]);
        // It pays again.
        waits(&mut awake, FORGET, 0, 20_000);
        assert_eq!(awake.sleeps.next, *SLEEPS.start());
    }
}
