//! Whether the application polls, as the background thread sees it.
//!
//! It polls if it did so while the thread slept. A thread that hardly slept may have the very core that the application
//! would poll on, and would then take itself for needed, since it answers what the application cannot. So it offers its
//! core before it judges.

/// Who sleeps for less has kept its core from everybody.
const NO_SLEEP_NS: u64 = 10_000;

/// So many polls in one sleep of the thread are those of a loop.
const SPUN: u64 = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Polling {
    /// The count of its polls.
    count: u64,
    /// It polled when it was looked at last.
    polled: bool,
    /// And so often that it does nothing else.
    spun: bool,
}

impl Polling {
    pub(super) fn new(count: u64) -> Polling {
        Polling {
            count,
            polled: false,
            spun: false,
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
        self.spun = polls.wrapping_sub(self.count) >= SPUN;
        self.count = polls;
        self.polled
    }

    /// Whether it spins: whatever it left to the thread, it did not have its core.
    pub(super) fn spins(&self) -> bool {
        self.spun
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
            (polls, polling.spins())
        };
        assert_eq!(seen(0), (false, false));
        assert_eq!(seen(7), (true, false));
        assert_eq!(seen(7), (false, false));
        assert_eq!(seen(7 + SPUN), (true, true));
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
