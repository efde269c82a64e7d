//! When a lone ACK may wait.
//!
//! On a socket an ACK costs as much as a message: it is a system call and a way through the network
//! stack. A peer that goes on sending does not wait for it, and one ACK answers for all messages
//! before it (IBTA vol. 1, 9.7.5.1.2). So while the application polls, an ACK that is all a queue
//! pair has to say is held until either so many messages share it, or the peer falls silent for a
//! moment. A peer that fell silent may have waited for its completion; for a while its ACKs then
//! leave at once, longer each time it happens. So they do for one that asks for few of its messages
//! only: it says by itself which one it waits for.

use rnic_settings::ablation::{self, Policy};

use crate::adapt::{Backoff, Confidence};

/// Messages that share an ACK at most.
const SHARED: u32 = 16;
/// How long the peer may be silent before its ACK leaves, ns: a few round trips between polling
/// programs on one host.
const SILENCE: u64 = 20_000;
/// After the peer fell silent its messages are answered at once for a while: their number.
type AtOnce = Backoff<64, 16_384>;

/// Messages in a row that a program answers before it waits for the next, after which ACKs wait for
/// the answer.
type Answered = Confidence<4, 4>;

/// A queue pair's held ACK, and what is known of its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldAck {
    /// Messages that wait for it.
    messages: u32,
    /// When the last of them came; meaningless while there are none.
    last: u64,
    /// Messages that are answered at once.
    at_once: AtOnce,
    /// A message came that wants none.
    unasked: bool,
    /// Requests left since the last message came.
    requested: bool,
    /// They did between the last two.
    answered: bool,
    /// Messages are answered, one after the other.
    answers: Answered,
    /// It waits for the answer to the last one.
    held: bool,
}

impl HeldAck {
    /// A message came, and an ACK is owed; `asked`: for this one.
    #[inline]
    pub(crate) fn arrived(&mut self, now: u64, asked: bool) {
        self.answered = std::mem::take(&mut self.requested);
        self.answers.sign(self.answered);
        if std::mem::replace(&mut self.unasked, !asked) && asked {
            self.messages = SHARED;
        } else if !self.at_once.pass(1) {
            self.messages += 1;
            self.last = now;
        }
    }

    /// A message came that wants none, and none is owed.
    #[inline]
    pub(crate) fn spared(&mut self) {
        self.unasked = true;
    }

    /// The ACK may wait. Once this was false the ACK is expected to leave.
    #[inline]
    pub(crate) fn may_wait(&mut self, now: u64) -> bool {
        if self.messages == 0 || ablation::is_out(Policy::AckCoalescing) {
            return false;
        }
        if self.messages >= SHARED {
            self.messages = 0;
            self.at_once.right();
            return false;
        }
        if now.saturating_sub(self.last) < SILENCE {
            return true;
        }
        self.messages = 0;
        self.at_once.wrong();
        false
    }

    /// The application has answered the last messages, each before the next came: the ACK waits for
    /// what it posts now.
    #[inline]
    pub(crate) fn waits_for_answer(&mut self) -> bool {
        self.held = self.answers.is_sure();
        self.held
    }

    /// It waits for the answer.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// The peer was seen to wait for its ACKs, and gets them at once.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.at_once.is_off()
    }

    /// The same, and the application sends nothing with which they would leave.
    #[inline]
    pub(crate) fn is_all_that_is_awaited(&self) -> bool {
        self.is_awaited() && !self.answered
    }

    /// Requests leave.
    #[inline]
    pub(crate) fn requested(&mut self) {
        self.requested = true;
    }

    /// It left, with something else perhaps.
    #[inline]
    pub(crate) fn left(&mut self) {
        self.messages = 0;
        self.held = false;
    }
}

#[cfg(test)]
mod tests {
    //! A peer that goes on sending gets few ACKs, one that waits gets them at once, and none waits
    //! without end.

    use super::*;

    /// Rounds of a peer that sends every `gap` ns while the engine looks every 500 ns; the ACKs
    /// that left.
    fn acks(held: &mut HeldAck, rounds: u32, gap: u64) -> u32 {
        let mut left = 0;
        let mut now = 0;
        for _ in 0..rounds {
            held.arrived(now, true);
            let mut owed = true;
            for look in 0..gap / 500 {
                if owed && !held.may_wait(now + look * 500) {
                    left += 1;
                    owed = false;
                }
            }
            now += gap;
        }
        left
    }

    #[test]
    fn a_lively_peer_shares_acks() {
        let mut held = HeldAck::default();
        assert_eq!(acks(&mut held, 1600, 8_000), 100);
        assert!(!held.is_awaited());
    }

    #[test]
    fn a_peer_that_waits_soon_gets_its_acks_at_once() {
        let mut held = HeldAck::default();
        let mut late = 0;
        for round in 0..20_000u64 {
            let now = round * 100_000;
            held.arrived(now, true);
            if held.may_wait(now) {
                // It waits for its completion until the silence is over.
                assert!(!held.may_wait(now + SILENCE));
                late += 1;
            }
        }
        assert!(late <= 9, "{late} of 20000 completions were late");
        assert!(held.is_awaited());
    }

    #[test]
    fn a_peer_that_asks_for_few_gets_those_at_once() {
        let mut held = HeldAck::default();
        for round in 0..1000 {
            for _ in 0..99 {
                held.spared();
            }
            held.arrived(round * 40_000, true);
            // What came behind it waits for nothing.
            held.arrived(round * 40_000, false);
            assert!(!held.may_wait(round * 40_000));
            held.left();
        }
        // And one that asks for all again has them share ACKs.
        held.arrived(50_000_000, true);
        held.left();
        assert_eq!(acks(&mut held, 1600, 8_000), 100);
    }

    /// Or message and ACK of two who answer each other would be two packets, and two interrupts.
    #[test]
    fn the_ack_to_one_who_is_answered_is_not_all_that_it_waits_for() {
        let mut held = HeldAck::default();
        let mut now = 0;
        while !held.is_awaited() {
            now += 1_000_000;
            held.arrived(now, true);
            for at in [now, now + SILENCE] {
                let _ = held.may_wait(at);
            }
        }
        assert!(held.is_all_that_is_awaited());
        held.left();
        held.requested();
        held.arrived(now, true);
        assert!(held.is_awaited() && !held.is_all_that_is_awaited());
        held.left();
        held.arrived(now, true);
        assert!(held.is_all_that_is_awaited());
    }

    #[test]
    fn an_ack_that_left_is_not_held() {
        let mut held = HeldAck::default();
        held.arrived(0, true);
        assert!(held.may_wait(1));
        held.left();
        assert!(!held.may_wait(2));
    }
}
