//! Whether a thread that has nothing to do stays awake for what may come soon, for how long, and
//! which thread gets its core meanwhile: halt polling, as Linux's haltpoll governor and KVM do it
//! for processors.
//!
//! To put a thread to sleep and wake it costs more than most answers take: some 25 us where a
//! message takes one. So a thread that waits for an event, and the background thread behind packets
//! that nobody else takes in, drive the engine awake for a moment first, as long as that paid
//! lately: for about as long as a peer, asleep too, would take to wake and answer. Once one of two
//! is found awake, the other's next wait is short.
//!
//! What it costs is bounded. Where nothing comes in time [`CREDIT`] times, or where others want the
//! core, the thread sleeps at once for as long as [`Rests`] stays. The next rest is twice as long,
//! until staying awake has paid for as long. Threads that share a core and answer each other are
//! the exception: each offers its core at once, and the event comes with it. An offer of theirs
//! that somebody else took for long costs no more than the sleep would have, as that one was due
//! for its share.

use crate::adapt::Backoff;
use rnic_settings::ablation::{self, Policy};
use std::ops::RangeInclusive;

/// So many times what it costs to wake: a peer that sleeps has to, before it answers.
const WAKE_UPS: u64 = 2;
/// But no less and no more, ns.
const STAY_NS: RangeInclusive<u64> = 50_000..=1_000_000;
/// What came to a thread that slept within so many times its stay would have been worth waiting
/// for, or the next may be.
const NEAR: u64 = 4;
/// How often it waits in vain before it does no more.
const CREDIT: u32 = 4;
/// How long it then sleeps at once, in stays: at first and at most. That is 10 to 40 ms where it
/// costs little to wake: a core that others want costs a thread some milliseconds, once in so long,
/// and their share is theirs anyway.
type Rests = Backoff<200, 800>;
/// So many events that came when the core had been offered, one after the other, and the next is
/// expected to.
const BY_OFFER: u8 = 3;
/// After so long in vain it offers its core to others, and again after as long, ns.
const OFFER_NS: u64 = 5_000;
/// Who takes it for longer than this, ns, and than the stay, needs it for more than a moment. Where
/// to wake is dear, so are the moments of others.
const TAKEN_NS: u64 = 100_000;

/// How long to stay, ns, where to wake costs so much.
pub(super) fn how_long(wake_up: u64) -> u64 {
    (WAKE_UPS * wake_up).clamp(*STAY_NS.start(), *STAY_NS.end())
}

/// What a thread's waits were like.
#[derive(Clone, Copy, Debug)]
pub(super) struct HaltPoll {
    credit: u32,
    /// Until then it sleeps at once.
    rests_until: u64,
    /// How long it rests next, in stays.
    rest: Rests,
    /// How long the last one was, ns.
    rested: u64,
    /// Time awake that paid since then, ns.
    paid: u64,
    /// Events, one after the other, that came when the core had been offered.
    by_offer: u8,
}

/// When a thread that stayed awake found what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// At its first look: whoever brought it had run before.
    AtOnce,
    /// While it looked: it was brought by a thread on another core.
    Looking,
    /// Right after it had offered its core.
    Offering,
}

impl HaltPoll {
    pub(super) const fn new() -> HaltPoll {
        HaltPoll {
            credit: 0,
            rests_until: 0,
            rest: Rests::new(),
            rested: 0,
            paid: 0,
            by_offer: 0,
        }
    }

    /// Whether to stay awake now. `sure`: more is on its way.
    pub(super) fn begins(&self, now: u64, sure: bool) -> bool {
        now >= self.rests_until
            && (sure || self.credit > 0)
            && !ablation::is_out(Policy::HaltPolling)
    }

    /// An event came to a thread that slept, so long after it had begun to wait, or after the one
    /// before.
    pub(super) fn slept(&mut self, ns: u64, stay: u64) {
        if ns < NEAR * stay {
            self.credit = self.credit.max(1);
        }
    }

    /// Whoever brings the event shares the core: it is to be offered at once.
    pub(super) fn shares_core(&self) -> bool {
        self.by_offer >= BY_OFFER
    }

    /// An event came to a thread that was awake for it for so long.
    #[inline]
    pub(super) fn paid(&mut self, ns: u64, found: Found) {
        self.by_offer = match found {
            Found::AtOnce => self.by_offer,
            Found::Offering => self.by_offer.saturating_add(1),
            Found::Looking => 0,
        };
        self.credit = CREDIT;
        self.paid += ns;
        if self.paid >= self.rested {
            self.rest.forget();
            self.paid = 0;
        }
    }

    /// Nothing came in time.
    pub(super) fn in_vain(&mut self, now: u64, stay: u64) {
        self.credit = self.credit.saturating_sub(1);
        if self.credit == 0 {
            self.rests(now, stay);
        }
    }

    /// Somebody took the core that it had offered, for more than a moment.
    pub(super) fn crowded(&mut self, now: u64, stay: u64) {
        match self.shares_core() {
            true => self.in_vain(now, stay),
            false => self.rests(now, stay),
        }
    }

    fn rests(&mut self, now: u64, stay: u64) {
        self.rested = u64::from(self.rest.wrong()) * stay;
        self.rests_until = now.saturating_add(self.rested);
        self.paid = 0;
        self.by_offer = 0;
    }
}

/// The offers of a thread that stays awake.
#[derive(Debug)]
pub(super) struct Offers {
    /// When it had something to do, or made the last one.
    last: u64,
    /// How often others had taken the core when it was looked at last: not before each offer, since
    /// that takes longer than an offer that nobody takes.
    preempted: Option<u64>,
    /// Longer is more than a moment, ns.
    moment: u64,
    /// So many were made.
    count: u32,
}

impl Offers {
    /// Of a thread that stays for so many nanoseconds.
    pub(super) fn new(now: u64, stay: u64) -> Offers {
        Offers {
            last: now,
            preempted: None,
            moment: stay.max(TAKEN_NS),
            count: 0,
        }
    }

    /// The same, and the first offer comes at once: what it waits for mostly comes from a thread
    /// that takes it. Each that takes long was taken.
    pub(super) fn at_once(now: u64, stay: u64) -> Offers {
        Offers {
            last: now.saturating_sub(OFFER_NS),
            preempted: Some(UNKNOWN),
            ..Offers::new(now, stay)
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

    /// There is nothing to do. Offers the core if it is time; true: a thread took it that needs it
    /// for more than a moment.
    pub(super) fn in_vain(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.last) < OFFER_NS {
            return false;
        }
        let before = self.preempted.unwrap_or_else(rnic_sys::times_preempted);
        self.preempted = Some(before);
        std::thread::yield_now();
        self.count += 1;
        self.last = rnic_sys::now_ns();
        if self.last.saturating_sub(now) < self.moment {
            return false;
        }
        let after = rnic_sys::times_preempted();
        self.preempted = Some(after);
        is_taken(before, after)
    }
}

/// No count of how often others had taken the core.
const UNKNOWN: u64 = 0;

/// A virtual processor that stood still for a while was taken by nobody who wants it.
fn is_taken(before: u64, after: u64) -> bool {
    after == UNKNOWN || after != before
}

#[cfg(test)]
mod tests {
    //! Two that answer each other soon stay awake, nobody spends much on waits that are long, and a
    //! core that others want is theirs.

    use super::*;

    const STAY: u64 = *STAY_NS.start();

    /// A program whose events come `gap` ns after it begins to wait, for so long. Gives the events,
    /// those that found it awake, and the time it was awake in vain.
    fn run(halt: &mut HaltPoll, wake_up: u64, gap: u64, time: u64) -> (u64, u64, u64) {
        let stay = how_long(wake_up);
        let (mut now, mut events, mut awake, mut vain) = (0, 0, 0, 0);
        while now < time {
            events += 1;
            if halt.begins(now, false) {
                if gap <= stay {
                    halt.paid(gap, Found::Looking);
                    awake += 1;
                } else {
                    halt.in_vain(now + stay, stay);
                    vain += stay;
                }
            } else {
                halt.slept(gap, stay);
            }
            now += gap;
        }
        (events, awake, vain)
    }

    #[test]
    fn an_answer_that_comes_soon_finds_a_thread_awake() {
        let mut halt = HaltPoll::new();
        assert!(!halt.begins(0, false), "nothing is known yet");
        let (events, awake, vain) = run(&mut halt, 10_000, 30_000, 1_000_000_000);
        assert_eq!((awake, vain), (events - 1, 0));
    }

    #[test]
    fn where_to_wake_is_dear_it_waits_for_a_peer_that_has_to() {
        let mut halt = HaltPoll::new();
        let (events, awake, vain) = run(&mut halt, 110_000, 200_000, 1_000_000_000);
        assert_eq!((awake, vain), (events - 1, 0));
    }

    /// Whatever the gap, and whatever it costs to wake: an eight-hundredth of a core in the long
    /// run.
    #[test]
    fn long_waits_are_slept_through() {
        let minute = 60_000_000_000;
        for wake_up in [5_000, 25_000, 300_000] {
            let stay = how_long(wake_up);
            for gap in [stay + 1, 2 * stay, 3 * stay, 5 * stay, 20 * stay] {
                let mut halt = HaltPoll::new();
                let (.., vain) = run(&mut halt, wake_up, gap, minute);
                let most = minute / 800 + u64::from(CREDIT) * stay;
                assert!(vain <= most, "{vain} ns of a minute");
            }
        }
    }

    #[test]
    fn a_core_that_others_want_is_given_back_for_longer_each_time() {
        let mut halt = HaltPoll::new();
        let (mut now, mut rests) = (0, Vec::new());
        for _ in 0..5 {
            halt.paid(1_000, Found::Looking);
            halt.crowded(now, STAY);
            let before = now;
            while !halt.begins(now, true) {
                now += 1_000_000;
            }
            rests.push((now - before) / 1_000_000);
        }
        assert_eq!(rests, [10, 20, 40, 40, 40]);
        // Nobody wants it any more.
        (0..40).for_each(|_| halt.paid(1_000_000, Found::Looking));
        assert_eq!(halt.rest.wrong(), 200);
    }

    /// Two processes on one core, beside a third that computes: it gets its share, whether they
    /// sleep or not.
    #[test]
    fn those_who_share_a_core_go_on_although_others_have_their_share() {
        let mut halt = HaltPoll::new();
        (0..BY_OFFER).for_each(|_| halt.paid(5_000, Found::Offering));
        assert!(halt.shares_core());
        for now in 0..100 {
            halt.crowded(now * 10_000_000, STAY);
            assert!(halt.begins(now * 10_000_000, false));
            halt.paid(1_000, Found::AtOnce);
            assert!(halt.shares_core());
            (0..BY_OFFER).for_each(|_| halt.paid(5_000, Found::Offering));
        }
        // If nothing of theirs comes any more it is as with all others.
        (0..CREDIT).for_each(|_| halt.crowded(0, STAY));
        assert!(!halt.begins(1, true));
    }

    #[test]
    fn the_dearer_a_wake_up_the_longer_the_stay() {
        assert_eq!(how_long(0), STAY);
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
        let now = rnic_sys::now_ns();
        let mut offers = Offers::new(now, 0);
        assert!(!offers.in_vain(now + OFFER_NS - 1));
        assert_eq!(offers.last, now);
        offers.in_vain(now + OFFER_NS);
        assert!(offers.last > now);
    }
}
