//! How often a process looks that only receives.
//!
//! Who spins on the very cache line that the sender writes next takes it away from him with each message: the sender waits
//! for it, and both go at the pace of the line. So in a stream that goes one way the receiver leaves a few polls out
//! after each message, if that brings it several at once. Whether it does is tried now and then: a sender that waits for
//! the answer to each message gains nothing, and is hardly ever made to wait.

/// So many packets without one sent are a stream.
const STREAM: usize = 64;
/// Packets between two trials.
const TRY_EVERY: u32 = 64;
/// Polls left out, at first and at most: some 0.4 and 0.8 us.
const POLLS: std::ops::RangeInclusive<u8> = 16..=32;
/// Whoever finds so many at once does not keep up with the sender, and is in nobody's way.
const BEHIND: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Packets that came since something was sent.
    one_way: usize,
    /// Polls to leave out after each packet; 0: none.
    polls: u8,
    /// Of those, still to come.
    left: u8,
    /// Packets since the last trial.
    since: u32,
    /// What comes next shows what the pause before was worth.
    paused: bool,
}

impl Pace {
    /// This poll is left out.
    #[inline]
    pub(super) fn rests(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }

    /// Something is sent: an answer, perhaps, and the next message may depend on it.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.one_way = 0;
        self.left = 0;
    }

    /// A round brought packets.
    #[inline]
    pub(super) fn received(&mut self, packets: usize) {
        self.one_way = self.one_way.saturating_add(packets);
        if self.one_way >= STREAM {
            self.streams(packets);
        }
    }

    fn streams(&mut self, packets: usize) {
        if std::mem::take(&mut self.paused) {
            self.polls = match packets {
                0 | 1 => 0,
                2 | 3 => self.polls.max(*POLLS.start()),
                _ => *POLLS.end(),
            };
        }
        if packets >= BEHIND {
            return;
        }
        self.since += packets as u32;
        if self.polls == 0 && self.since < TRY_EVERY {
            return;
        }
        self.since = 0;
        self.left = self.polls.max(*POLLS.start());
        self.paused = true;
    }
}

#[cfg(test)]
mod tests {
    //! A stream is taken in batches, a sender that waits is answered at once, and who sends himself never rests.

    use super::*;

    /// Polls left out while `rounds` rounds bring what `packets` says for the polls left out before.
    fn rested(pace: &mut Pace, rounds: u32, packets: impl Fn(u32) -> usize) -> u32 {
        let mut all = 0;
        for _ in 0..rounds {
            let mut now = 0;
            while pace.rests() {
                now += 1;
            }
            all += now;
            pace.received(packets(now));
        }
        all
    }

    #[test]
    fn a_stream_comes_in_batches() {
        let mut pace = Pace::default();
        assert!(rested(&mut pace, 1000, |polls| 1 + polls as usize / 8) > 800 * 16);
    }

    #[test]
    fn who_waits_for_each_answer_is_seldom_made_to_wait() {
        let mut pace = Pace::default();
        assert!(rested(&mut pace, 6400, |_| 1) <= 100 * 16);
    }

    #[test]
    fn who_is_behind_does_not_rest() {
        let mut pace = Pace::default();
        assert_eq!(rested(&mut pace, 100, |_| 40), 0);
    }

    #[test]
    fn who_sends_does_not_rest() {
        let mut pace = Pace::default();
        for _ in 0..1000 {
            pace.received(1);
            pace.sent();
            assert!(!pace.rests());
        }
    }
}
