//! The watchdog: what wakes a background thread that watches whether the application polls, how
//! often, and what that costs.
//!
//! A timer and a wake-up take some microseconds on one machine and a good part of a millisecond on
//! another, a virtual one perhaps, or a crowded one. To look often costs the application more
//! there, and a thread that does not look after its packets may just be on its way. The thread sees
//! it by its own ticks ([`Ticks`]): how late it woke, and how long it was until it slept again, on
//! a core that the application may have spun on.
//!
//! A thread that wakes once a tick to find that the application polls, as it did before, takes its
//! core from it. Where to wake is dear that is a good part of the time. So an application that
//! polls all the time puts the [`Alarm`] off itself, by a system call that wakes nobody, and it
//! goes off only once nobody has polled for as long as a tick. An application that polls now and
//! then may leave packets meanwhile, and does not put it off: that is for the thread to judge. Nor
//! does the thread rely on it for ever ([`AT_MOST`]).

use rnic_settings::ablation::{self, Policy};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::TICK_NS;
use crate::sys;

/// How often a watching thread looks whether the application still polls at least.
const SELDOM_NS: u64 = 4 * TICK_NS;
/// How long it waits for somebody who leaves packets, at least and at most: it may have taken the
/// core from the very thread that polls.
const PATIENCE_NS: std::ops::RangeInclusive<u64> = 100_000..=1_000_000;
/// A tick is so many times what it takes.
const TICK_FACTOR: u64 = 32;
/// And patience.
const PATIENCE_FACTOR: u64 = 4;
/// How long a thread sleeps that only wants to know how late it wakes.
const TRIAL: Duration = Duration::from_micros(100);
/// A wake-up that takes no longer is cheap.
const CHEAP_NS: u64 = 10_000;
/// So many tell something, whatever they cost.
const FEW: i32 = 4;

/// What its ticks have shown.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    late: u64,
    /// What a tick takes, ns.
    cost: u64,
    /// When the tick at hand was due, and later by what it has waited since.
    began: Option<u64>,
}

impl Ticks {
    /// Finds out, asleep for a moment.
    pub(super) fn measure() -> Ticks {
        let due = sys::now_ns().saturating_add(TRIAL.as_nanos() as u64);
        let _ = sys::poll(&[], Some(TRIAL));
        let late = sys::now_ns().saturating_sub(due).min(SELDOM_NS);
        Ticks {
            late,
            ..Ticks::default()
        }
    }

    /// It goes to sleep.
    pub(super) fn sleep(&mut self, now: u64) {
        if let Some(began) = self.began.take() {
            let cost = now.saturating_sub(began).min(SELDOM_NS);
            self.cost = (3 * self.cost + cost) / 4;
        }
    }

    /// It does something else than to watch: what comes now is not of the tick at hand.
    pub(super) fn no_tick(&mut self) {
        self.began = None;
    }

    /// It woke from that by itself.
    pub(super) fn woke(&mut self, now: u64, due: u64) {
        // One halt of the whole machine says little.
        let late = now.saturating_sub(due).min(SELDOM_NS);
        self.late = (3 * self.late + late) / 4;
        self.began = Some(due);
    }

    /// Waits on nothing for as long as somebody may just be late: this thread may have taken the
    /// core from the very thread that polls.
    pub(super) fn wait(&mut self) {
        let before = sys::now_ns();
        let _ = sys::poll(&[], Some(self.patience()));
        self.waited(sys::now_ns().saturating_sub(before));
    }

    /// That cost nobody anything.
    fn waited(&mut self, time: u64) {
        self.began = self.began.map(|began| began.saturating_add(time));
    }

    /// As it is now, ns.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Until it looks again.
    pub(super) fn tick(&self) -> Duration {
        if ablation::is_out(Policy::TickCost) {
            return Duration::from_nanos(TICK_NS);
        }
        let cost = self.cost.max(self.late);
        Duration::from_nanos((TICK_FACTOR * cost).clamp(TICK_NS, SELDOM_NS))
    }

    /// As many wake-ups as cost what so many cheap ones do, and a few at least. What is gained by
    /// waking at once is a tick at most; it is not to cost more where to wake is dear.
    pub(super) fn worth(&self, cheap: i32) -> i32 {
        if ablation::is_out(Policy::TickCost) {
            return cheap;
        }
        let wakeups = i64::from(cheap) * CHEAP_NS as i64 / self.late.max(CHEAP_NS) as i64;
        (wakeups as i32).max(FEW.min(cheap))
    }

    /// How long to wait for a thread that may just be late.
    fn patience(&self) -> Duration {
        let (least, most) = (*PATIENCE_NS.start(), *PATIENCE_NS.end());
        if ablation::is_out(Policy::TickCost) {
            return Duration::from_nanos(least);
        }
        Duration::from_nanos((PATIENCE_FACTOR * self.late).clamp(least, most))
    }
}

/// Polls in half a tick of an application that does little else, or packets that fewer of them took
/// in.
const DENSE: u64 = 16;
/// The thread looks after so many ticks, whoever polls.
pub(super) const AT_MOST: u32 = 32;

/// What makes a descriptor readable at a time.
pub(super) trait Timer {
    /// From now on at `at`, ns, and not before.
    fn set(&self, at: u64);
}

/// The alarm, as the thread and the application see it.
#[derive(Debug)]
pub(super) struct Alarm<T> {
    timer: T,
    tick: AtomicU64,
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
            tick: AtomicU64::new(0),
            due: AtomicU64::new(0),
            look_at: AtomicU64::new(u64::MAX),
            done: AtomicU64::new(0),
        }
    }

    pub(super) fn timer(&self) -> &T {
        &self.timer
    }

    /// The thread goes to sleep: until a tick from now, if nobody puts it off.
    pub(super) fn set(&self, now: u64, tick: Duration, done: u64) {
        let tick = tick.as_nanos() as u64;
        self.tick.store(tick, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
        self.put_off_now(now);
    }

    /// When it went off, or will.
    pub(super) fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    /// The application has done so much by now ([`super::shard::Shard::done`]), and goes on as a
    /// rule.
    #[inline]
    pub(super) fn put_off(&self, now: u64, done: u64) {
        if now >= self.look_at.load(Ordering::Relaxed) && !ablation::is_out(Policy::Alarm) {
            self.look(now, done);
        }
    }

    #[cold]
    fn look(&self, now: u64, done: u64) {
        let before = self.done.swap(done, Ordering::Relaxed);
        if done.wrapping_sub(before) >= DENSE {
            self.put_off_now(now);
        } else {
            self.look_again(now);
        }
    }

    #[cold]
    fn put_off_now(&self, now: u64) {
        self.look_again(now);
        self.go_off(now + self.tick.load(Ordering::Relaxed));
    }

    fn look_again(&self, now: u64) {
        let tick = self.tick.load(Ordering::Relaxed);
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
    mod ticks {
        //! Where waking is cheap nothing changes; where it is dear, it is done less often, within
        //! bounds.

        use super::super::*;

        /// Ticks of a thread that wakes so late and then works for so long.
        fn tick(ticks: &mut Ticks, count: u32, late: u64, work: u64) {
            let mut now = 0;
            for _ in 0..count {
                ticks.sleep(now);
                let due = now + ticks.tick().as_nanos() as u64;
                ticks.woke(due + late, due);
                now = due + late + work;
            }
            ticks.sleep(now);
        }

        #[test]
        fn a_ticks_thread_looks_each_millisecond() {
            let mut ticks = Ticks::default();
            tick(&mut ticks, 100, 6_000, 3_000);
            assert_eq!(ticks.tick(), Duration::from_millis(1));
            assert_eq!(ticks.patience(), Duration::from_micros(100));
            assert_eq!((ticks.worth(64), ticks.worth(4096)), (64, 4096));
        }

        #[test]
        fn a_late_one_looks_less_often_and_is_more_patient() {
            let mut ticks = Ticks::default();
            tick(&mut ticks, 100, 150_000, 3_000);
            assert!(ticks.tick() > Duration::from_millis(2));
            assert!(ticks.patience() > Duration::from_micros(500));
            assert!((4..8).contains(&ticks.worth(64)));
            assert!((200..300).contains(&ticks.worth(4096)));
        }

        #[test]
        fn one_whose_ticks_take_long_looks_less_often() {
            let mut ticks = Ticks::default();
            tick(&mut ticks, 100, 20_000, 80_000);
            assert!(ticks.tick() > Duration::from_millis(3));
            assert!(ticks.patience() <= Duration::from_micros(100));
        }

        #[test]
        fn what_it_waits_for_others_costs_them_nothing() {
            let mut ticks = Ticks::default();
            let due = TRIAL.as_nanos() as u64;
            ticks.woke(due + 6_000, due);
            ticks.waited(500_000);
            ticks.sleep(due + 510_000);
            assert_eq!(ticks.cost, 10_000 / 4);
        }

        #[test]
        fn what_it_does_after_it_watched_is_not_of_the_tick() {
            let mut ticks = Ticks::default();
            let due = TRIAL.as_nanos() as u64;
            ticks.woke(due + 6_000, due);
            ticks.no_tick();
            ticks.sleep(due + 50_000_000);
            assert_eq!(ticks.tick(), Duration::from_millis(1));
        }

        #[test]
        fn a_halt_of_the_machine_is_soon_forgotten() {
            let mut ticks = Ticks::default();
            tick(&mut ticks, 1, 5_000_000_000, 0);
            assert!(ticks.tick() <= Duration::from_millis(4));
            assert!(ticks.patience() <= Duration::from_millis(1));
            tick(&mut ticks, 20, 6_000, 3_000);
            assert_eq!(ticks.tick(), Duration::from_millis(1));
        }
    }

    mod alarm {
        //! It goes off a tick after the last of many polls, and does not wait for who polls now and
        //! then.

        use std::cell::Cell;

        use super::super::*;

        const TICK: Duration = Duration::from_millis(1);
        const TICK_NS: u64 = TICK.as_nanos() as u64;

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
            goes_off_by(alarm, gap, 1, end)
        }

        /// Each poll counts for so many.
        fn goes_off_by(alarm: &Alarm<Clock>, gap: u64, each: u64, end: u64) -> u64 {
            alarm.set(0, TICK, 0);
            let (mut now, mut done) = (0, 0);
            while now + gap < end && now + gap < alarm.timer().at.get() {
                now += gap;
                done += each;
                alarm.put_off(now, done);
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
            let due = goes_off_by(&alarm, TICK_NS / 2, 1 + DENSE, end);
            assert!(due > end && due <= end + TICK_NS);
        }

        #[test]
        fn nobody_puts_off_what_was_never_set() {
            let alarm = Alarm::new(Clock::default());
            (1..1000).for_each(|n| alarm.put_off(n * TICK_NS, n * 1000));
            assert_eq!(alarm.timer().calls.get(), 0);
        }
    }
}
