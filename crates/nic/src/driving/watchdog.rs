//! The watchdog: what wakes a background thread that watches whether the application polls, and
//! what it costs to wake.
//!
//! A thread that wakes once a tick to find that the application polls, as it did before, takes its
//! core from it. So an application that polls all the time puts the [`Alarm`] off itself, by a
//! system call that wakes nobody, and it goes off only once nobody has polled for as long as a
//! tick. An application that polls now and then may leave packets meanwhile, and does not put it
//! off: that is for the thread to judge. Nor does the thread rely on it for ever ([`AT_MOST`]).
//! Where another thread of the application sleeps and the polls bring about what it waits for, the
//! alarm goes off after [`SLEEPERS_TICK_NS`], and one poll is enough to put it off.
//!
//! How late the thread woke by itself is what it costs to wake a thread on this machine
//! ([`WakeUpCost`]): how long threads stay awake depends on it.

use rnic_settings::ablation::{self, Policy};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::TICK_NS;

/// How long the thread waits for somebody who leaves packets: it may have taken the core from the
/// very thread that polls.
const LATE_POLLER_PAUSE: Duration = Duration::from_micros(100);
/// How long a thread sleeps that only wants to know how late it wakes.
const TRIAL: Duration = Duration::from_micros(100);
/// One halt of the whole machine says little: no wake-up counts as later than this, ns.
const LATEST_NS: u64 = 4 * TICK_NS;

/// How late the thread woke, when it did so by itself: a moving average, ns.
#[derive(Debug, Default)]
pub(super) struct WakeUpCost(u64);

impl WakeUpCost {
    /// Finds out, asleep for a moment.
    pub(super) fn measure() -> WakeUpCost {
        let due = rnic_sys::now_ns().saturating_add(TRIAL.as_nanos() as u64);
        let _ = rnic_sys::poll(&[], Some(TRIAL));
        WakeUpCost(rnic_sys::now_ns().saturating_sub(due).min(LATEST_NS))
    }

    /// It woke by itself, and was to do so at `due`.
    pub(super) fn woke(&mut self, now: u64, due: u64) {
        let late = now.saturating_sub(due).min(LATEST_NS);
        self.0 = (3 * self.0 + late) / 4;
    }

    /// As it is now, ns.
    pub(super) fn ns(&self) -> u64 {
        self.0
    }
}

/// Waits on nothing for as long as somebody may just be late.
pub(super) fn wait_for_the_late() {
    let _ = rnic_sys::poll(&[], Some(LATE_POLLER_PAUSE));
}

/// Polls in half a tick of an application that does little else, or packets that fewer of them took
/// in.
const DENSE: u64 = 16;
/// The thread looks after so many ticks, whoever polls.
pub(super) const AT_MOST: u32 = 32;

/// A tick while a thread sleeps whose packets wake nobody, since another polls, ns. A thread that
/// polls and shares its core with others is away from it for less, as a rule.
pub(super) const SLEEPERS_TICK_NS: u64 = 300_000;

/// What makes a descriptor readable at a time.
pub(super) trait Timer {
    /// From now on at `at`, ns, and not before.
    fn set(&self, at: u64);
}

/// The alarm, as the thread and the application see it.
#[derive(Debug)]
pub(super) struct Alarm<T> {
    timer: T,
    /// When it goes off.
    due: AtomicU64,
    /// When the application looks next whether to put it off.
    look_at: AtomicU64,
    /// What the application had done when it was looked at last.
    done: AtomicU64,
}

impl<T: Timer> Alarm<T> {
    pub(super) fn new(timer: T) -> Alarm<T> {
        Alarm {
            timer,
            due: AtomicU64::new(0),
            look_at: AtomicU64::new(u64::MAX),
            done: AtomicU64::new(0),
        }
    }

    pub(super) fn timer(&self) -> &T {
        &self.timer
    }

    /// The thread goes to sleep: until a tick from now, ns, if nobody puts it off.
    pub(super) fn set(&self, now: u64, done: u64, tick: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.put_off_now(now, tick);
    }

    /// When it went off, or will.
    pub(super) fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    /// The application has done so much by now ([`super::shard::Shard::done`]), and goes on as a
    /// rule. A tick takes so many nanoseconds now.
    #[inline]
    pub(super) fn put_off(&self, now: u64, done: u64, tick: u64) {
        let due = now >= self.look_at.load(Ordering::Relaxed)
            || tick < TICK_NS && self.due().saturating_sub(now) > tick;
        if due && !ablation::is_out(Policy::Alarm) {
            self.look(now, done, tick);
        }
    }

    #[cold]
    fn look(&self, now: u64, done: u64, tick: u64) {
        let before = self.done.swap(done, Ordering::Relaxed);
        let enough = if tick < TICK_NS { 1 } else { DENSE };
        if done.wrapping_sub(before) >= enough {
            self.put_off_now(now, tick);
        } else {
            self.look_again(now, tick);
        }
    }

    #[cold]
    fn put_off_now(&self, now: u64, tick: u64) {
        self.look_again(now, tick);
        self.go_off(now + tick);
    }

    fn look_again(&self, now: u64, tick: u64) {
        self.look_at.store(now + tick / 2, Ordering::Relaxed);
    }

    /// Two threads that do this at once mean the same time, but for a moment.
    fn go_off(&self, at: u64) {
        self.due.store(at, Ordering::Relaxed);
        self.timer.set(at);
    }
}

#[cfg(test)]
mod tests {
    mod cost {
        use super::super::*;

        #[test]
        fn a_halt_of_the_machine_is_soon_forgotten() {
            let mut cost = WakeUpCost::default();
            cost.woke(5_000_000_000, 0);
            assert!(cost.ns() <= TICK_NS);
            (0..60).for_each(|_| cost.woke(6_000, 0));
            assert!((5_990..6_010).contains(&cost.ns()), "{}", cost.ns());
        }
    }

    mod alarm {
        //! It goes off a tick after the last of many polls, and does not wait for who polls now and
        //! then.

        use std::cell::Cell;

        use super::super::*;

        #[derive(Debug, Default)]
        struct Clock {
            at: Cell<u64>,
            calls: Cell<u32>,
        }

        impl Timer for Clock {
            fn set(&self, at: u64) {
                self.at.set(at);
                self.calls.set(self.calls.get() + 1);
            }
        }

        /// Polls every `gap` ns until `end`, or until it has gone off. When that was, or will be.
        fn goes_off(alarm: &Alarm<Clock>, gap: u64, end: u64) -> u64 {
            goes_off_by(alarm, gap, 1, TICK_NS, end)
        }

        /// Each poll counts for so many.
        fn goes_off_by(alarm: &Alarm<Clock>, gap: u64, each: u64, tick: u64, end: u64) -> u64 {
            alarm.set(0, 0, tick);
            let (mut now, mut done) = (0, 0);
            while now + gap < end && now + gap < alarm.timer().at.get() {
                now += gap;
                done += each;
                alarm.put_off(now, done, tick);
            }
            assert_eq!(alarm.due(), alarm.timer().at.get());
            alarm.due()
        }

        #[test]
        fn who_polls_all_the_time_puts_it_off() {
            let alarm = Alarm::new(Clock::default());
            let end = 20 * TICK_NS;
            let due = goes_off(&alarm, 500, end);
            assert!(
                due > end && due <= end + TICK_NS,
                "{due}: a tick after the last poll at most"
            );
            let calls = alarm.timer().calls.get();
            assert!(calls <= 41, "{calls} system calls in 20 ticks");
        }

        #[test]
        fn who_polls_now_and_then_does_not() {
            let alarm = Alarm::new(Clock::default());
            assert_eq!(goes_off(&alarm, TICK_NS / 8, 20 * TICK_NS), TICK_NS);
            assert_eq!(goes_off(&alarm, TICK_NS / 2, 20 * TICK_NS), TICK_NS);
        }

        #[test]
        fn who_takes_in_much_by_each_poll_does() {
            let alarm = Alarm::new(Clock::default());
            let end = 20 * TICK_NS;
            let due = goes_off_by(&alarm, TICK_NS / 2, 1 + DENSE, TICK_NS, end);
            assert!(due > end && due <= end + TICK_NS);
        }

        /// Promise: a thread that sleeps beside one that polls is looked after soon, and one poll in
        /// half a tick is enough to put that off.
        #[test]
        fn beside_a_sleeper_it_goes_off_soon_after_the_last_poll() {
            let alarm = Alarm::new(Clock::default());
            let (tick, end) = (SLEEPERS_TICK_NS, 20 * TICK_NS);
            let due = goes_off_by(&alarm, tick / 2, 1, tick, end);
            assert!(due > end && due <= end + tick, "{due}");
            // Set for a tick, when a thread falls asleep and another polls.
            alarm.set(due, 0, TICK_NS);
            alarm.put_off(due + 1, 1, tick);
            assert_eq!(alarm.due(), due + 1 + tick);
        }

        #[test]
        fn nobody_puts_off_what_was_never_set() {
            let alarm = Alarm::new(Clock::default());
            (1..1000).for_each(|n| alarm.put_off(n * TICK_NS, n * 1000, TICK_NS));
            assert_eq!(alarm.timer().calls.get(), 0);
        }
    }
}
