//! How many queue pairs may have something under way by the network stack at one time.
//!
//! Each has a window of its own, and at least a packet of it: thousands that write to one process overrun its receive buffer however small
//! their windows are, and what was lost is lost again in the same crowd, until some have used up their retries. Nothing but
//! their ACK timers tells of it. So when one ends, only half as many may have something under way from then on, and the others wait in
//! a line, with no timer of their own running. Each time all of those have been answered there may be one more.
//!
//! A queue pair that has been silent for longer than one ACK timeout is left out of this, for its peer may be dead: it has one packet under way
//! now and then, and others need not wait for it. So is one without an ACK timeout.

use std::collections::VecDeque;

/// So many have always room.
const FEWEST: u32 = 16;
/// More than there are queue pairs.
const UNLIMITED: u32 = 1 << 24;
/// Timers that end so soon after one another speak of one crowd, ns.
const ONE_CROWD_NS: u64 = 10_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// So many may have something under way,
    most: u32,
    /// and so many have.
    under_way: u32,
    /// Numbers of those that wait, in order.
    waiting: VecDeque<u32>,
    /// When `most` was halved last, ns.
    cut_at: u64,
    /// Answered since it changed last.
    answered: u32,
}

/// What it knows of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing of it is under way, or it does not count.
    #[default]
    None,
    /// It waits in line.
    Waiting,
    /// It counts.
    UnderWay,
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion {
            most: UNLIMITED,
            under_way: 0,
            waiting: VecDeque::new(),
            cut_at: 0,
            answered: 0,
        }
    }
}

impl Congestion {
    /// One that has nothing under way has to wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.under_way >= self.most || !self.waiting.is_empty()
    }

    /// It waits from now on.
    pub(super) fn wait(&mut self, qpn: u32, place: &mut Place) {
        self.waiting.push_back(qpn);
        *place = Place::Waiting;
    }

    /// Somebody waits, and there is room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        !self.waiting.is_empty() && self.under_way < self.most
    }

    /// Who waits longest, if there is room. It may be gone, or wait no more.
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.has_room() {
            self.waiting.pop_front()
        } else {
            None
        }
    }

    /// It has something under way, or is about to.
    #[inline]
    pub(super) fn sent(&mut self, place: &mut Place) {
        if *place != Place::UnderWay {
            *place = Place::UnderWay;
            self.under_way += 1;
        }
    }

    /// Nothing of it is under way any more, for it was answered.
    #[inline]
    pub(super) fn answered(&mut self, place: &mut Place) {
        self.left(place);
        if self.most < UNLIMITED {
            self.answered += 1;
            if self.answered >= self.most {
                self.answered = 0;
                self.most += 1;
            }
        }
    }

    /// Nothing of it is under way any more.
    #[inline]
    pub(super) fn left(&mut self, place: &mut Place) {
        if std::mem::take(place) == Place::UnderWay {
            self.under_way -= 1;
        }
    }

    /// Its ACK timer has ended.
    pub(super) fn timed_out(&mut self, now: u64, place: &mut Place) {
        if *place != Place::UnderWay {
            return;
        }
        if self.cut_at == 0 || now.saturating_sub(self.cut_at) > ONE_CROWD_NS {
            self.cut_at = now;
            self.answered = 0;
            self.most = (self.most.min(self.under_way) / 2).max(FEWEST);
        }
        self.left(place);
    }
}

#[cfg(test)]
mod tests {
    //! A crowd becomes smaller when it loses, and grows as it is answered; nobody is passed over.

    use super::*;

    fn crowd(congestion: &mut Congestion, n: usize) -> Vec<Place> {
        let mut places = vec![Place::None; n];
        for place in &mut places {
            assert!(!congestion.is_full());
            congestion.sent(place);
        }
        places
    }

    #[test]
    fn halves_once_for_all_timers_of_a_crowd() {
        let mut congestion = Congestion::default();
        let mut places = crowd(&mut congestion, 100);
        for place in &mut places[..40] {
            congestion.timed_out(1_000_000_000, place);
        }
        assert_eq!((congestion.most, congestion.under_way), (50, 60));
        assert!(congestion.is_full());
        for place in &mut places[40..60] {
            congestion.answered(place);
        }
        assert!(!congestion.is_full());
        for place in &mut places[60..] {
            congestion.timed_out(2_000_000_000, place);
        }
        assert_eq!((congestion.most, congestion.under_way), (20, 0));
    }

    #[test]
    fn few_are_never_held_up() {
        let mut congestion = Congestion::default();
        let mut places = crowd(&mut congestion, FEWEST as usize);
        for (n, place) in places.iter_mut().enumerate() {
            congestion.timed_out(n as u64 * 1_000_000_000, place);
        }
        crowd(&mut congestion, FEWEST as usize);
    }

    #[test]
    fn who_waits_has_its_turn_in_order() {
        let mut congestion = Congestion::default();
        let mut places = crowd(&mut congestion, 40);
        congestion.timed_out(1, &mut places[0]);
        let mut others = [Place::None; 3];
        for (qpn, place) in (7..).zip(&mut others) {
            assert!(congestion.is_full());
            congestion.wait(qpn, place);
        }
        assert_eq!(congestion.next(), None);
        for place in &mut places[1..21] {
            congestion.answered(place);
        }
        // There is room, but not for one that has just come.
        assert!(congestion.has_room() && congestion.is_full());
        assert_eq!(congestion.next(), Some(7));
        congestion.sent(&mut others[0]);
        assert_eq!(congestion.next(), Some(8));
    }

    #[test]
    fn grows_by_one_each_time_all_are_answered() {
        let mut congestion = Congestion::default();
        let mut places = crowd(&mut congestion, 40);
        congestion.timed_out(1, &mut places[0]);
        assert_eq!(congestion.most, 20);
        for _ in 0..20 + 21 {
            let mut place = Place::None;
            congestion.sent(&mut place);
            congestion.answered(&mut place);
        }
        assert_eq!(congestion.most, 22);
    }

    #[test]
    fn nobody_is_counted_twice() {
        let mut congestion = Congestion::default();
        let mut place = Place::None;
        congestion.sent(&mut place);
        congestion.sent(&mut place);
        congestion.left(&mut place);
        congestion.left(&mut place);
        assert_eq!(congestion.under_way, 0);
    }
}
