//! Completions of RDMA WRITEs of UC that wait for the peer's answer.
//!
//! UC acknowledges nothing, so that a WRITE is complete when it has left. A program that then spins on its memory until the
//! answer, a WRITE of the peer's, has changed it (`ib_write_lat -c UC`) does not poll meanwhile, and the answer takes the background
//! thread: a wake-up, on a core on which the program spins perhaps. With RC it polls until the ACK comes, which comes with the answer
//! ([`super::answers`]). So here the completion comes with the answer, too: whoever polls for it takes that in.
//!
//! Only where the program was seen to write, be answered soon, and go on soon, several times in a row; one message at a
//! time; by the network stack or past it; and not for long. A completion that waited in vain makes it take longer until the next one does, as do
//! two after which the program took longer to go on: it would have done something else while the answer was on its way. One such is one that
//! was kept from its core.

use rnic_transport::{Completion, Status};

use crate::cq::Freed;

/// An answer that takes so many times as long as a program that answers soon ([`super::answers::Unanswered::soon`]) comes soon: it takes
/// the way there and back, too.
const THERE_AND_BACK: u64 = 4;
/// How long a completion waits: so many times as long.
const WAIT: u64 = 2;
/// Who takes so many times as long to go on when the completion came with the answer, and some time more, ns, had something else to do, which
/// it does meanwhile as a rule.
const LONGER: u64 = 2;
const MORE_NS: u64 = 5_000;
/// Rounds in a row after which completions wait: at first, and at most.
const IN_A_ROW: std::ops::RangeInclusive<u32> = 4..=4096;

/// What is known of the program behind a queue pair, and the completion that waits.
#[derive(Debug)]
pub(crate) struct Late {
    /// When the answer to the last message comes no longer soon; 0: that has come, or none is awaited.
    answer_by: u64,
    /// When it came; 0: it did not.
    answered: u64,
    /// Rounds in a row.
    in_a_row: u32,
    /// So many are wanted.
    wanted: u32,
    /// How long the completion of what leaves now, or has left, may wait; 0: it does not.
    until: u64,
    /// It came with the answer.
    with_answer: bool,
    /// The last one that waited better had not.
    wrong: bool,
    /// How long the program takes to go on where completions do not wait, ns.
    pause: u64,
    waits: Option<(Completion, Freed)>,
}

impl Default for Late {
    fn default() -> Late {
        Late {
            answer_by: 0,
            answered: 0,
            in_a_row: 0,
            wanted: *IN_A_ROW.start(),
            until: 0,
            with_answer: false,
            wrong: false,
            pause: 0,
            waits: None,
        }
    }
}

impl Late {
    /// A message leaves. `alone`: it is an RDMA WRITE, and nothing else of the queue pair is under way or waits; `soon`: how long a
    /// program takes that answers soon, ns. Gives until when its completion may wait, if it may.
    pub(crate) fn leaves(&mut self, alone: bool, now: u64, soon: u64) -> Option<u64> {
        let pause = now.saturating_sub(self.answered);
        let goes_on = self.answered != 0 && pause < soon;
        if alone && goes_on {
            self.in_a_row = (self.in_a_row + 1).min(*IN_A_ROW.end());
        } else {
            // One that was kept from its core goes on as before.
            self.in_a_row /= 2;
        }
        if std::mem::take(&mut self.with_answer) {
            self.did(goes_on && pause <= LONGER * self.pause + MORE_NS);
        } else if goes_on {
            self.pause = (3 * self.pause + pause) / 4;
        }
        let answer = THERE_AND_BACK * soon;
        self.answered = 0;
        self.answer_by = if alone { now + answer } else { 0 };
        self.until = if alone && self.in_a_row >= self.wanted {
            now + WAIT * answer
        } else {
            0
        };
        self.until()
    }

    /// That is complete. True: the completion waits.
    pub(crate) fn keeps(&mut self, completion: &Completion, freed: Freed) -> bool {
        let keeps = self.until != 0 && completion.status == Status::Success;
        if keeps {
            self.waits = Some((*completion, freed));
        }
        keeps
    }

    /// A message of the peer's came. `silent`: it is an RDMA WRITE of which the program is not told.
    pub(crate) fn came(&mut self, silent: bool, now: u64) {
        let soon = silent && self.answer_by != 0 && now < self.answer_by;
        self.with_answer = self.waits.is_some();
        self.answered = if soon { now } else { 0 };
        self.answer_by = 0;
    }

    /// Takes what waits.
    pub(crate) fn take(&mut self) -> Option<(Completion, Freed)> {
        self.waits.take()
    }

    /// Whether the completion still waits that may do so until `at`: it has waited in vain.
    pub(crate) fn in_vain(&mut self, at: u64) -> bool {
        if self.until != at || self.waits.is_none() {
            return false;
        }
        self.until = 0;
        self.in_a_row = 0;
        self.wrong = true;
        self.did(false);
        true
    }

    /// It was right to have a completion wait, or it was not: the program had something else to do.
    fn did(&mut self, right: bool) {
        let wrong_before = std::mem::replace(&mut self.wrong, !right);
        let wanted = match (right, wrong_before) {
            (true, _) => self.wanted / 2,
            (false, false) => return,
            (false, true) => {
                self.in_a_row /= 2;
                self.wanted * 2
            }
        };
        self.wanted = wanted.clamp(*IN_A_ROW.start(), *IN_A_ROW.end());
    }

    /// Until when the completion of the last message may wait, or might have.
    pub(crate) fn until(&self) -> Option<u64> {
        (self.until != 0).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    //! Who waits for answers has its completions with them, all others have them at once.

    use rnic_transport::{CompletionOpcode, Immediate};

    use super::*;

    const SOON: u64 = 200_000;
    const NONE: Freed = Freed { send: 1, recv: 0 };

    fn written() -> Completion {
        Completion {
            wr_id: 1,
            status: Status::Success,
            opcode: CompletionOpcode::RdmaWrite,
            byte_len: 0,
            vendor_err: 0,
            qpn: 17,
            src_qpn: 0,
            immediate: Immediate::None,
            grh: None,
            solicited: false,
        }
    }

    /// A WRITE leaves, and is complete; true: the completion waits.
    fn waits(late: &mut Late, now: u64, alone: bool) -> bool {
        let may = late.leaves(alone, now, SOON).is_some();
        assert_eq!(late.keeps(&written(), NONE), may);
        may
    }

    /// So many rounds, in which the answer takes so long and the program as long until it goes on. Gives how many completions waited, and came
    /// with the answer.
    fn rounds(late: &mut Late, now: &mut u64, count: u32, answer: u64, pause: u64) -> u32 {
        let mut waited = 0;
        for _ in 0..count {
            waited += u32::from(waits(late, *now, true));
            *now += answer;
            late.came(true, *now);
            late.take();
            *now += pause;
        }
        waited
    }

    #[test]
    fn who_is_answered_soon_and_goes_on_soon_has_completions_with_answers() {
        let (mut late, mut now) = (Late::default(), 1);
        let first = rounds(&mut late, &mut now, *IN_A_ROW.start(), 20_000, 1_000);
        assert_eq!(first, 0, "nothing is known yet");
        assert_eq!(rounds(&mut late, &mut now, 1000, 20_000, 1_000), 1000);
    }

    #[test]
    fn one_that_is_kept_from_its_core_now_and_then_goes_on_so() {
        let (mut late, mut now) = (Late::default(), 1);
        rounds(&mut late, &mut now, 100, 20_000, 1_000);
        rounds(&mut late, &mut now, 1, 20_000, 5_000_000);
        assert_eq!(rounds(&mut late, &mut now, 100, 20_000, 1_000), 100);
    }

    #[test]
    fn one_whose_core_is_taken_again_and_again_goes_on_so() {
        let (mut late, mut now) = (Late::default(), 1);
        rounds(&mut late, &mut now, 100, 20_000, 1_000);
        for _ in 0..100 {
            let waited = rounds(&mut late, &mut now, 3, 20_000, 1_000)
                + rounds(&mut late, &mut now, 1, 20_000, SOON / 2);
            assert_eq!(waited, 4);
        }
    }

    #[test]
    fn who_does_something_else_meanwhile_has_them_at_once() {
        let (mut late, mut now) = (Late::default(), 1);
        assert_eq!(rounds(&mut late, &mut now, 1000, 20_000, SOON), 0);
    }

    /// It writes, does something else for so long while the answer is on its way, and goes on.
    #[test]
    fn who_does_something_else_until_the_answer_comes_seldom_waits() {
        let (mut late, mut now, mut waited) = (Late::default(), 1, 0);
        for _ in 0..20_000 {
            let waits = waits(&mut late, now, true);
            now += SOON;
            late.came(true, now);
            late.take();
            now += if waits { 20_000 } else { 1_000 };
            waited += u32::from(waits);
        }
        assert!((1..=40).contains(&waited), "{waited}");
    }

    #[test]
    fn who_is_answered_late_or_not_at_all_too() {
        let (mut late, mut now) = (Late::default(), 1);
        let answer = THERE_AND_BACK * SOON;
        assert_eq!(rounds(&mut late, &mut now, 1000, answer, 1_000), 0);
        for _ in 0..1000 {
            assert!(!waits(&mut late, now, true));
            now += 1_000;
        }
    }

    #[test]
    fn a_stream_and_one_that_is_told_of_answers_too() {
        let (mut late, mut now) = (Late::default(), 1);
        for round in 0..1000 {
            assert!(!waits(&mut late, now, round % 2 == 0));
            late.came(round % 2 == 1, now + 1_000);
            now += 2_000;
        }
    }

    #[test]
    fn two_answers_are_none() {
        let (mut late, mut now) = (Late::default(), 1);
        for _ in 0..1000 {
            assert!(!waits(&mut late, now, true));
            late.came(true, now + 1_000);
            late.came(true, now + 1_500);
            now += 2_000;
        }
    }

    #[test]
    fn what_failed_does_not_wait() {
        let (mut late, mut now) = (Late::default(), 1);
        rounds(&mut late, &mut now, 100, 20_000, 1_000);
        assert!(late.leaves(true, now, SOON).is_some());
        let failed = Completion {
            status: Status::WorkRequestFlushed,
            ..written()
        };
        assert!(!late.keeps(&failed, NONE) && late.take().is_none());
    }

    #[test]
    fn what_waits_in_vain_does_so_seldom() {
        let (mut late, mut now) = (Late::default(), 1);
        let mut in_vain = 0;
        for _ in 0..20_000 {
            // As soon as one waits there is no answer.
            if waits(&mut late, now, true) {
                let until = late.until().expect("it waits");
                assert!(!late.in_vain(until + 1) && late.in_vain(until) && !late.in_vain(until));
                assert!(late.take().is_some());
                in_vain += 1;
                now = until;
            } else {
                late.came(true, now + 1_000);
                now += 2_000;
            }
        }
        assert!((1..=14).contains(&in_vain), "{in_vain} waited in vain");
    }
}
