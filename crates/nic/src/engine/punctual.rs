//! How late the background thread wakes.
//!
//! A timer and a wake-up take some microseconds on one machine and a good part of a millisecond on another, a virtual
//! one perhaps, or a crowded one. To look often costs the application more there, and a thread that does not look after
//! its packets may just be on its way. The thread sees it by its own ticks.

use std::time::Duration;

use crate::sys;

/// How often a watching thread looks whether the application still polls, where that costs little, and at most so seldom.
pub(super) const TICK_NS: u64 = 1_000_000;
const SELDOM_NS: u64 = 4 * TICK_NS;
/// How long it waits for somebody who leaves packets, at least and at most: it may have taken the core from the very
/// thread that polls.
const PATIENCE_NS: std::ops::RangeInclusive<u64> = 100_000..=1_000_000;
/// A tick is so many times what a wake-up takes.
const TICK_FACTOR: u64 = 16;
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
pub(super) struct Punctual {
    late: u64,
}

impl Punctual {
    /// Finds out, asleep for a moment.
    pub(super) fn measure() -> Punctual {
        let due = sys::now_ns().saturating_add(TRIAL.as_nanos() as u64);
        let _ = sys::poll(&[], Some(TRIAL));
        let late = sys::now_ns().saturating_sub(due).min(SELDOM_NS);
        Punctual { late }
    }

    /// It woke so much later than it wanted to.
    pub(super) fn woke(&mut self, late: u64) {
        // One halt of the whole machine says little.
        self.late = (3 * self.late + late.min(SELDOM_NS)) / 4;
    }

    /// As it is now, ns.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// Until it looks again.
    pub(super) fn tick(&self) -> Duration {
        Duration::from_nanos((TICK_FACTOR * self.late).clamp(TICK_NS, SELDOM_NS))
    }

    /// As many wake-ups as cost what so many cheap ones do, and a few at least. What is gained by waking at once is a tick at
    /// most; it is not to cost more where to wake is dear.
    pub(super) fn worth(&self, cheap: i32) -> i32 {
        let wakeups = i64::from(cheap) * CHEAP_NS as i64 / self.late.max(CHEAP_NS) as i64;
        (wakeups as i32).max(FEW.min(cheap))
    }

    /// How long to wait for a thread that may just be late.
    pub(super) fn patience(&self) -> Duration {
        let (least, most) = (*PATIENCE_NS.start(), *PATIENCE_NS.end());
        Duration::from_nanos((PATIENCE_FACTOR * self.late).clamp(least, most))
    }
}

#[cfg(test)]
mod tests {
    //! Where waking is cheap nothing changes; where it is dear, it is done less often, within bounds.

    use super::*;

    #[test]
    fn a_punctual_thread_looks_each_millisecond() {
        let mut punctual = Punctual::default();
        for _ in 0..100 {
            punctual.woke(6_000);
        }
        assert_eq!(punctual.tick(), Duration::from_millis(1));
        assert_eq!(punctual.patience(), Duration::from_micros(100));
        assert_eq!((punctual.worth(64), punctual.worth(4096)), (64, 4096));
    }

    #[test]
    fn a_late_one_looks_less_often_and_is_more_patient() {
        let mut punctual = Punctual::default();
        for _ in 0..100 {
            punctual.woke(150_000);
        }
        assert!(punctual.tick() > Duration::from_millis(2));
        assert!(punctual.patience() > Duration::from_micros(500));
        assert!((4..8).contains(&punctual.worth(64)));
        assert!((200..300).contains(&punctual.worth(4096)));
    }

    #[test]
    fn a_halt_of_the_machine_is_soon_forgotten() {
        let mut punctual = Punctual::default();
        punctual.woke(5_000_000_000);
        assert!(punctual.tick() <= Duration::from_millis(4));
        assert!(punctual.patience() <= Duration::from_millis(1));
        for _ in 0..20 {
            punctual.woke(6_000);
        }
        assert_eq!(punctual.tick(), Duration::from_millis(1));
    }
}
