//! What a thread does that polls in vain.
//!
//! Spinning is right while cores are free. Where they are not, it takes the core from others, perhaps from the very peer
//! that is waited for. Nothing that a process can ask says for sure which it is, so a thread offers its core after a
//! moment: on a free one that takes a fraction of a microsecond, and on a crowded one the others run. Threads that all do
//! so share a core in turns of microseconds. A thread that takes the core and keeps it is none of those, and against such
//! a one a thread that sleeps fares better than one that offers: the scheduler lets it go first when it wakes.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::nic::NicShared;
use crate::sys;

/// Empty polls between two looks at the clock.
const LOOK_EVERY: u32 = 16;
/// The same once others took the core.
const LOOK_OFTEN: u32 = 4;
/// How long an application polls in vain before it offers its core, and again before it does so anew.
const OFFER_NS: u64 = 10_000;
/// The same once others took it. Less would be less than a system call is worth.
const OFFER_OFTEN_NS: u64 = 2_000;
/// An offer that took so long was taken.
const TAKEN_NS: u64 = 1_500;
/// Who takes the core for so long keeps it until the scheduler takes it back.
const KEPT_NS: u64 = 300_000;
/// How long to wait for a packet then, before polling again.
const REST: Duration = Duration::from_micros(200);
/// So many rests follow before the core is offered again.
const RESTS: u32 = 16;

/// What a thread's polls found lately.
#[derive(Clone, Copy, Debug, Default)]
struct Vain {
    polls: u32,
    /// Since when nothing was found, or the core was offered; 0: not looked at the clock yet.
    since: u64,
    /// The last offer was taken.
    crowded: bool,
    /// Rests to come in place of offers.
    rests: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Poll,
    Offer,
    Rest,
}

impl Vain {
    /// A poll found nothing.
    #[inline]
    fn next(&mut self, clock: impl FnOnce() -> u64) -> Next {
        self.polls += 1;
        let (every, patience) = match self.crowded {
            true => (LOOK_OFTEN, OFFER_OFTEN_NS),
            false => (LOOK_EVERY, OFFER_NS),
        };
        if !self.polls.is_multiple_of(every) {
            return Next::Poll;
        }
        let now = clock();
        if self.since == 0 {
            self.since = now;
        }
        if now - self.since < patience {
            return Next::Poll;
        }
        self.since = now;
        if self.rests > 0 {
            self.rests -= 1;
            return Next::Rest;
        }
        Next::Offer
    }

    /// An offer took so long.
    fn offered(&mut self, took: u64) {
        self.crowded = took > TAKEN_NS;
        if took > KEPT_NS {
            self.rests = RESTS;
        }
        self.since += took;
    }
}

thread_local! {
    static VAIN: Cell<Vain> = const {
        Cell::new(Vain { polls: 0, since: 0, crowded: false, rests: 0 })
    };
}

/// After each poll: one that found nothing may let others run.
#[inline]
pub(super) fn spin_or_rest(shared: &NicShared, found: bool) {
    let mut vain = VAIN.get();
    if found {
        if vain.polls != 0 {
            (vain.polls, vain.since) = (0, 0);
            VAIN.set(vain);
        }
        return;
    }
    match vain.next(sys::now_ns) {
        Next::Poll => {}
        Next::Offer => {
            let before = sys::now_ns();
            std::thread::yield_now();
            vain.offered(sys::now_ns() - before);
        }
        Next::Rest => rest(shared),
    }
    VAIN.set(vain);
}

#[cold]
fn rest(shared: &NicShared) {
    let (rx, wake) = {
        let Some(mut engine) = shared.engine.try_lock() else {
            return;
        };
        if !engine.ready.is_empty() || engine.link.fall_asleep() {
            return;
        }
        (engine.link.rx_fd(), engine.link.wake_fd())
    };
    // An interrupted or failed wait is as good as none.
    let resting = &shared.background.resting;
    resting.fetch_add(1, Ordering::Relaxed);
    let ready = sys::poll(&[rx, wake], Some(REST));
    resting.fetch_sub(1, Ordering::Relaxed);
    // What woke it stays readable until it is seen to, which a round of polling does not.
    if ready.is_ok_and(|ready| ready[1])
        && let Some(mut engine) = shared.engine.try_lock()
    {
        engine.round(true);
    }
}

#[cfg(test)]
mod tests {
    //! A core is offered after a while, often among those that offer theirs too, and slept on beside one that keeps it.

    use super::*;

    /// Polls every 500 ns in vain; an offer takes `took`. What was done other than polling.
    fn polls(vain: &mut Vain, count: u32, took: u64) -> (u32, u32) {
        let (mut now, mut offers, mut rests) = (1, 0, 0);
        for _ in 0..count {
            now += 500;
            match vain.next(|| now) {
                Next::Poll => {}
                Next::Offer => {
                    offers += 1;
                    now += took;
                    vain.offered(took);
                }
                Next::Rest => rests += 1,
            }
        }
        (offers, rests)
    }

    #[test]
    fn a_free_core_is_spun_on() {
        let (offers, rests) = polls(&mut Vain::default(), 10_000, 300);
        assert!((200..=500).contains(&offers), "{offers} in 5 ms");
        assert_eq!(rests, 0);
    }

    #[test]
    fn a_crowded_core_is_offered_after_each_few_polls() {
        let (offers, rests) = polls(&mut Vain::default(), 10_000, 20_000);
        assert!(offers > 2_400, "{offers}");
        assert_eq!(rests, 0);
    }

    #[test]
    fn beside_one_that_keeps_the_core_a_thread_sleeps() {
        let (offers, rests) = polls(&mut Vain::default(), 10_000, 3_000_000);
        assert!(
            rests >= offers * (RESTS - 1),
            "{offers} offers, {rests} rests"
        );
    }
}
