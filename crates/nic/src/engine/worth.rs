//! What the background thread's wake-ups were worth, and from when on it leaves the engine to the application.
//!
//! While the application polls, a thread that a packet woke only finds it gone. So does one that the application rang for,
//! because it left something in the engine, when the application is back first: where queue pairs of one process talk
//! to each other nothing ever arrives from outside, and it rang 12,000 times a second.

/// Needless wake-ups, less what useful ones earn, after which the thread leaves the engine alone.
const NEEDLESS: i32 = 16;
/// What one useful wake-up is worth.
const USEFUL: i32 = 4;
/// What finding packets late is worth, at first and at most: a thread that left the engine although it was needed stays
/// for so many wake-ups, fewer where they are dear. It doubles each time, since a program that polls now and then does so again; an
/// application that was just kept from its core, and spins, soon gets the engine back.
const LATE: std::ops::RangeInclusive<i32> = 64..=4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Worth {
    score: i32,
    /// So many wake-ups are to come before it leaves the engine to an application for spinning.
    stay: i32,
    lateness: i32,
}

impl Worth {
    pub(super) fn new() -> Worth {
        Worth {
            score: 0,
            stay: 0,
            lateness: *LATE.start(),
        }
    }

    /// Packets woke it. `needless`: the application has them, or would have; `spins`: it does nothing but poll, so what it did
    /// not take it was kept from, perhaps by this thread.
    pub(super) fn packets(&mut self, needless: bool, spins: bool) {
        self.stay = (self.stay - 1).max(0);
        if spins && self.stay == 0 {
            self.score = NEEDLESS + 1;
        } else if needless {
            self.score += 1;
        } else {
            self.score = (self.score - USEFUL).max(-*LATE.end());
        }
    }

    /// The application rang, and has polled since.
    pub(super) fn rang_in_vain(&mut self) {
        self.score += 1;
    }

    /// The engine is better left to the application.
    pub(super) fn leaves(&self) -> bool {
        self.score > NEEDLESS
    }

    /// It begins or ends to leave the engine.
    pub(super) fn begin_anew(&mut self) {
        self.score = 0;
    }

    /// It had left the engine, and found packets there late. `price`: what that is worth here, of what it would be elsewhere.
    pub(super) fn was_late(&mut self, price: impl FnOnce(i32) -> i32) {
        self.stay = price(self.lateness);
        self.score = -self.stay;
        self.lateness = (2 * self.lateness).min(*LATE.end());
    }

    /// It has left the engine for long, and was not needed.
    pub(super) fn forget_lateness(&mut self) {
        self.lateness = *LATE.start();
    }
}

#[cfg(test)]
mod tests {
    //! Who polls soon has the engine alone; who does not, keeps the thread.

    use super::*;

    /// After how many wake-ups of this kind it leaves.
    fn leaves_after(worth: &mut Worth, mut wake_up: impl FnMut(&mut Worth)) -> Option<i32> {
        (1..=2 * *LATE.end()).find(|_| {
            wake_up(worth);
            worth.leaves()
        })
    }

    #[test]
    fn a_program_that_polls_is_left_alone_whatever_woke_the_thread() {
        let packets = leaves_after(&mut Worth::new(), |worth| worth.packets(true, false));
        let rings = leaves_after(&mut Worth::new(), Worth::rang_in_vain);
        assert_eq!((packets, rings), (Some(NEEDLESS + 1), Some(NEEDLESS + 1)));
    }

    #[test]
    fn useful_wake_ups_keep_the_thread() {
        let mut turn = 0;
        let mixed = |worth: &mut Worth| {
            turn += 1;
            match turn % (USEFUL + 1) {
                0 => worth.packets(false, false),
                _ => worth.rang_in_vain(),
            }
        };
        assert_eq!(leaves_after(&mut Worth::new(), mixed), None);
    }

    #[test]
    fn who_was_late_stays_longer_each_time_until_it_is_forgotten() {
        let mut worth = Worth::new();
        let needless = |worth: &mut Worth| worth.packets(true, false);
        worth.was_late(|lateness| lateness);
        let once = leaves_after(&mut worth, needless);
        assert_eq!(once, Some(*LATE.start() + NEEDLESS + 1));
        worth.begin_anew();
        worth.was_late(|lateness| lateness);
        let twice = leaves_after(&mut worth, needless);
        assert_eq!(twice, Some(2 * *LATE.start() + NEEDLESS + 1));
        worth.forget_lateness();
        worth.was_late(|lateness| lateness);
        assert_eq!(leaves_after(&mut worth, needless), once);
    }

    /// A wake-up may cost more than a tick that packets wait for is worth: a WRITE of 10 B took half as long again.
    #[test]
    fn where_wake_ups_are_dear_it_leaves_the_engine_again_after_fewer() {
        let mut worth = Worth::new();
        worth.was_late(|_| 5);
        let stays = leaves_after(&mut worth, |worth| worth.packets(true, false));
        assert_eq!(stays, Some(5 + NEEDLESS + 1));
    }

    #[test]
    fn one_that_spins_gets_the_engine_back_after_what_the_lateness_costs_here() {
        let mut worth = Worth::new();
        let spins = |worth: &mut Worth| worth.packets(false, true);
        assert_eq!(leaves_after(&mut worth, spins), Some(1));
        worth.was_late(|_| 5);
        assert_eq!(leaves_after(&mut worth, spins), Some(5));
    }
}
