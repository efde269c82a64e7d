//! Which ACKs wait for the application's answer although nobody polls.
//!
//! Who spins on its memory until a WRITE changes it, and answers by a WRITE of its own
//! (`ib_write_lat`), does not poll meanwhile. An ACK that leaves ahead of the answer is a system
//! call, a packet and a wake-up more, and does harm beyond that: the peer, which polls until its
//! own WRITE is complete, ceases to, and is not there when the answer comes, so that this takes its
//! background thread, on a core on which the application spins. If both come together, whoever
//! polls for the ACK has the answer too, and no background thread is needed on either side.
//!
//! Who waits for a SEND polls for its completion ([`crate::engine::ack_coalescing`]), so this is
//! about WRITEs without immediate data. Only a queue pair whose application was seen to answer
//! soon, several times in a row, has its ACKs wait, by the network stack or past it, and not for
//! long. An ACK that waited in vain makes it take longer until the next one does.

use rnic_settings::ablation::{self, Policy};

use crate::adapt::Confidence;
use std::collections::{TryReserveError, VecDeque};

/// Who answers within so many times what it costs to wake a thread answers soon: the background
/// thread sends the ACK, goes to sleep, and leaves the core to the application perhaps.
const WAKE_UPS: u64 = 16;
/// But no less and no more, ns.
const SOON_NS: std::ops::RangeInclusive<u64> = 200_000..=1_000_000;
/// How long an ACK waits for an answer: so many times as long.
const WAIT: u64 = 2;
/// Answers in a row after which ACKs wait.
type Soon = Confidence<4, 4096>;

/// What is known of the application behind a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piggyback {
    /// When an ACK left by itself, ahead of the answer; 0: none did since the last one.
    alone: u64,
    /// Answers come soon after such.
    soon: Soon,
    /// How long the ACK waits that does; 0: none.
    until: u64,
    /// What is to be acknowledged is a WRITE of which the application is not told.
    silent: bool,
    /// It came since the last look.
    fresh: bool,
}

/// What becomes of an ACK that is all that there is to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It waits, from now on until then.
    Until(u64),
    /// It waits already.
    On,
    /// It did, and leaves now.
    Over,
    /// It leaves.
    No,
}

impl Piggyback {
    /// A message came.
    #[inline]
    pub(crate) fn came(&mut self, silent: bool) {
        self.silent = silent;
        self.fresh = true;
    }

    /// An ACK is all that there is to send. `soon`: see [`DelayedAcks::soon`].
    pub(crate) fn wait(&mut self, now: u64, soon: u64) -> Wait {
        if self.until != 0 {
            if !self.fresh {
                // What came was an ACK, perhaps.
                return Wait::On;
            }
            // The peer goes on meanwhile, so this is no answer it waits for.
            self.until = 0;
            self.soon.sign(false);
            self.fresh = false;
            return Wait::Over;
        }
        self.fresh = false;
        if !self.silent || !self.soon.is_sure() || ablation::is_out(Policy::AckPiggyback) {
            return Wait::No;
        }
        self.until = now + WAIT * soon;
        Wait::Until(self.until)
    }

    /// An ACK left by itself.
    #[inline]
    pub(crate) fn left_alone(&mut self, now: u64) {
        self.alone = if self.silent { now } else { 0 };
    }

    /// A request leaves, and the ACK that is owed with it. True: it had waited.
    #[inline]
    pub(crate) fn answered(&mut self, now: u64, soon: u64) -> bool {
        let waited = self.until != 0;
        if waited {
            self.until = 0;
            self.soon.right();
        } else if self.alone != 0 {
            self.soon.sign(now.saturating_sub(self.alone) < soon);
        }
        self.alone = 0;
        waited
    }

    /// Whether the ACK still waits that was to do so until `at`: it has waited in vain.
    pub(crate) fn in_vain(&mut self, at: u64) -> bool {
        if self.until != at {
            return false;
        }
        self.until = 0;
        self.soon.wrong();
        true
    }
}

/// Queue pairs whose ACKs wait, in the order in which the wait ends.
#[derive(Debug)]
pub(crate) struct DelayedAcks {
    waiting: VecDeque<(u64, u32)>,
    soon: u64,
}

impl Default for DelayedAcks {
    fn default() -> DelayedAcks {
        DelayedAcks {
            waiting: VecDeque::new(),
            soon: *SOON_NS.start(),
        }
    }
}

impl DelayedAcks {
    /// Within which time an answer comes soon, ns.
    #[inline]
    pub(crate) fn soon(&self) -> u64 {
        self.soon
    }

    /// To wake a thread costs so many nanoseconds.
    pub(crate) fn wake_up_costs(&mut self, cost: u64) {
        self.soon = (WAKE_UPS * cost).clamp(*SOON_NS.start(), *SOON_NS.end());
    }

    /// Makes room for so many queue pairs.
    pub(crate) fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        let more = most.saturating_sub(self.waiting.len());
        self.waiting.try_reserve(more)
    }

    pub(crate) fn add(&mut self, until: u64, qpn: u32) {
        let place = self.waiting.partition_point(|&(other, _)| other <= until);
        self.waiting.insert(place, (until, qpn));
    }

    /// The ACK of this one does not wait any more. Else its time would wake the background thread,
    /// which has nothing to do then.
    pub(crate) fn forget(&mut self, qpn: u32) {
        // The first as a rule.
        if let Some(place) = self.waiting.iter().position(|&(_, waits)| waits == qpn) {
            self.waiting.remove(place);
        }
    }

    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.waiting.front().map(|&(until, _)| until)
    }

    /// Takes the next whose time is over, and that time: see [`Piggyback::in_vain`].
    #[inline]
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<(u64, u32)> {
        let due = self.deadline().is_some_and(|until| until <= now);
        due.then(|| self.waiting.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    //! Who answers soon has ACKs wait, who does not has not, and what waits in vain does so seldom.

    use super::*;

    const SOON: u64 = *SOON_NS.start();

    /// Whether the ACK of a WRITE that came now waits; else it leaves by itself.
    fn waits(answers: &mut Piggyback, now: u64) -> bool {
        answers.came(true);
        let waits = matches!(answers.wait(now, SOON), Wait::Until(_));
        if !waits {
            answers.left_alone(now);
        }
        waits
    }

    #[test]
    fn acks_wait_for_one_who_answers_soon() {
        let mut answers = Piggyback::default();
        let mut left = 0;
        for round in 1..1000 {
            let now = round * 1_000_000;
            left += u32::from(!waits(&mut answers, now));
            answers.answered(now + SOON / 2, SOON);
        }
        assert_eq!(left, 4);
    }

    #[test]
    fn they_do_not_for_one_who_answers_late_or_not_at_all() {
        let mut answers = Piggyback::default();
        for round in 1..1000 {
            let now = round * 1_000_000;
            assert!(!waits(&mut answers, now));
            if round % 2 == 0 {
                answers.answered(now + SOON, SOON);
            }
        }
    }

    #[test]
    fn they_seldom_wait_for_one_who_answers_most_of_the_time_only() {
        let mut answers = Piggyback::default();
        let (mut in_vain, mut messages) = (0, 0);
        for round in 1..20_000u64 {
            let now = round * 1_000_000;
            messages += 1;
            answers.came(true);
            match answers.wait(now, SOON) {
                // As soon as one waits there is no answer.
                Wait::Until(until) => {
                    assert!(answers.in_vain(until) && !answers.in_vain(until));
                    in_vain += 1;
                }
                Wait::On | Wait::Over => panic!("the one before has ended"),
                Wait::No => {
                    answers.left_alone(now);
                    answers.answered(now + 1, SOON);
                }
            }
        }
        assert!(in_vain <= 14, "{in_vain} of {messages} waited in vain");
    }

    #[test]
    fn nor_for_messages_that_the_application_polls_for() {
        let mut answers = Piggyback::default();
        for round in 1..1000 {
            let now = round * 1_000_000;
            answers.came(false);
            assert_eq!(answers.wait(now, SOON), Wait::No);
            answers.left_alone(now);
            answers.answered(now + 1, SOON);
        }
    }

    #[test]
    fn a_peer_that_goes_on_gets_its_ack() {
        let mut answers = Piggyback::default();
        let mut now = 1;
        while !waits(&mut answers, now) {
            answers.answered(now + 1, SOON);
            now += 1_000_000;
        }
        assert!(!waits(&mut answers, now + 1_000));
        // And what was to happen at the end of that wait does not.
        assert!(!answers.in_vain(now + WAIT * SOON));
    }

    #[test]
    fn an_ack_that_comes_meanwhile_changes_nothing() {
        let mut answers = Piggyback::default();
        let mut now = 1;
        while !waits(&mut answers, now) {
            answers.answered(now + 1, SOON);
            now += 1_000_000;
        }
        assert_eq!(answers.wait(now + 1_000, SOON), Wait::On);
        assert!(answers.answered(now + 2_000, SOON));
        assert!(!answers.answered(now + 3_000, SOON));
    }

    #[test]
    fn where_to_wake_is_dear_soon_is_later() {
        let mut waiting = DelayedAcks::default();
        assert_eq!(waiting.soon(), SOON);
        waiting.wake_up_costs(5_000);
        assert_eq!(waiting.soon(), SOON);
        waiting.wake_up_costs(50_000);
        assert_eq!(waiting.soon(), 800_000);
        waiting.wake_up_costs(4_000_000);
        assert_eq!(waiting.soon(), *SOON_NS.end());
    }

    #[test]
    fn waits_end_in_order() {
        let mut waiting = DelayedAcks::default();
        assert_eq!(
            (waiting.deadline(), waiting.pop_due(u64::MAX)),
            (None, None)
        );
        waiting.add(30, 3);
        waiting.add(10, 1);
        waiting.add(20, 2);
        assert_eq!((waiting.deadline(), waiting.pop_due(9)), (Some(10), None));
        assert_eq!(waiting.pop_due(10), Some((10, 1)));
        assert_eq!(waiting.pop_due(10), None);
        // Who has answered wakes nobody.
        waiting.forget(2);
        waiting.forget(4);
        assert_eq!((waiting.deadline(), waiting.pop_due(20)), (Some(30), None));
    }
}
