//! Whether the application polls, as the background thread sees it.
//!
//! It polls if it did so while the thread slept. A thread that hardly slept may have the very core that the application
//! would poll on, and would then take itself for needed, since it answers what the application cannot. So it offers its
//! core before it judges.

/// Who sleeps for less has kept its core from everybody.
const NO_SLEEP_NS: u64 = 10_000;

/// So many polls in one sleep of the thread are those of a loop.
const SPUN: u64 = 256;
/// Polls that are so far apart on average, ns, and no fewer than so many,
const OFTEN_NS: u64 = 50_000;
const OFTEN: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Polling {
    /// The count of its polls.
    count: u64,
    /// It polled when it was looked at last.
    polled: bool,
    /// And so often that it does nothing else,
    spun: bool,
    /// or that all it drives has been seen to.
    often: bool,
}

impl Polling {
    pub(super) fn new(count: u64) -> Polling {
        Polling {
            count,
            polled: false,
            spun: false,
            often: false,
        }
    }

    /// Whether the application has polled since the last call, after a sleep of so many nanoseconds.
    pub(super) fn seen(
        &mut self,
        slept: u64,
        count: impl Fn() -> u64,
        offer: impl FnOnce(),
    ) -> bool {
        let mut polls = count();
        if polls == self.count && self.polled && slept < NO_SLEEP_NS {
            offer();
            polls = count();
        }
        self.polled = polls != self.count;
        let made = polls.wrapping_sub(self.count);
        self.spun = made >= SPUN;
        self.often = made >= OFTEN.max(slept / OFTEN_NS);
        self.count = polls;
        self.polled
    }

    /// Whether it spins: whatever it left to the thread, it did not have its core.
    pub(super) fn spins(&self) -> bool {
        self.spun
    }

    /// Whether it polls so often that it leaves nothing to the thread.
    pub(super) fn is_often(&self) -> bool {
        self.often
    }
}

#[cfg(test)]
mod tests {
    //! A thread that kept its core from the application does not take itself for needed.

    use std::cell::Cell;

    use super::*;

    const SLEPT: u64 = 90_000;

    #[test]
    fn an_application_that_polls_is_seen() {
        let mut polling = Polling::new(0);
        let mut seen = |count| {
            let polls = polling.seen(SLEPT, || count, || panic!("it slept"));
            (polls, polling.is_often(), polling.spins())
        };
        assert_eq!(seen(0), (false, false, false));
        assert_eq!(seen(7), (true, false, false));
        assert_eq!(seen(7), (false, false, false));
        assert_eq!(seen(7 + OFTEN), (true, true, false));
        assert_eq!(seen(7 + OFTEN + SPUN), (true, true, true));
    }

    #[test]
    fn what_is_often_depends_on_the_time() {
        let mut polling = Polling::new(0);
        let slept = 2 * OFTEN * OFTEN_NS;
        polling.seen(slept, || 2 * OFTEN - 1, || panic!("it slept"));
        assert!(!polling.is_often());
        polling.seen(slept, || 4 * OFTEN, || panic!("it slept"));
        assert!(polling.is_often());
    }

    #[test]
    fn one_that_was_kept_from_its_core_is_let_go_first() {
        let mut polling = Polling::new(0);
        let count = Cell::new(1);
        assert!(polling.seen(SLEPT, || count.get(), || panic!("it slept")));
        assert!(polling.seen(2_000, || count.get(), || count.set(2)));
        let had_its_chance = polling.seen(2_000, || count.get(), || {});
        assert!(!had_its_chance);
        let never = || panic!("it does not poll");
        assert!(!polling.seen(2_000, || count.get(), never));
    }
}
