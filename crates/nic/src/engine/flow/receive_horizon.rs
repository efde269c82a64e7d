//! What has come and is not taken in yet, as the timers see it.
//!
//! A card takes packets in as they come, so an ACK timer that ends found no ACK. Here a round takes
//! in only so many, and many threads may want the core: the ACK may lie in a ring, or in the
//! socket, while its timer ends. So timers go by the time up to which all that came is known. Where
//! more comes than is taken in, for good, that is only so far behind.
//!
//! For the same reason a program that posts without ever polling takes in what comes all the same.

/// Behind so many packets all that was there counts as known,
const BACKLOG: usize = 1 << 16;
/// and after that time, ns: where the receiver is what all wait for, the next packets never end.
const BACKLOG_NS: u64 = 20_000_000;
/// A timer that is held up is looked at again after so long, whoever else drives, ns.
const AGAIN_NS: u64 = 1_000_000;
/// Work requests posted without a round in between: a quarter of a millisecond, and more than
/// programs post that poll.
pub(in crate::engine) const POSTS: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReceiveHorizon {
    /// All that came until then is known, ns.
    as_of: u64,
    /// The first round since then that left something, ns.
    since: Option<u64>,
    /// Packets from that one on.
    taken: usize,
    /// When the last round was that left something, ns.
    last: u64,
    /// Work requests posted since the last round.
    posts: usize,
}

impl ReceiveHorizon {
    /// A round that began at `now` took in so many packets, and perhaps left some. Gives the time
    /// that timers go by.
    #[inline]
    pub(in crate::engine) fn taken_in(&mut self, now: u64, packets: usize, all: bool) -> u64 {
        self.posts = 0;
        if all {
            (self.as_of, self.since, self.taken) = (now, None, 0);
        } else {
            self.left_some(now, packets);
        }
        self.as_of
    }

    fn left_some(&mut self, now: u64, packets: usize) {
        let since = *self.since.get_or_insert(now);
        self.last = now;
        self.taken += packets;
        if self.taken >= BACKLOG || now.saturating_sub(since) >= BACKLOG_NS {
            (self.as_of, self.since, self.taken) = (since, None, 0);
        }
    }

    /// What timers went by last, ns.
    #[cfg(test)]
    pub(in crate::engine) fn as_of(&self) -> u64 {
        self.as_of
    }

    /// When a timer is to be looked at that ends at `at`.
    #[inline]
    pub(in crate::engine) fn deadline(&self, at: u64) -> u64 {
        match self.since {
            Some(_) => at.max(self.last.saturating_add(AGAIN_NS)),
            None => at,
        }
    }

    /// The program has posted so many. True: so many by now that somebody should look what came.
    #[inline]
    pub(in crate::engine) fn posted(&mut self, count: usize) -> bool {
        self.posts += count;
        let many = self.posts >= POSTS;
        if many {
            self.posts = 0;
        }
        many
    }
}

#[cfg(test)]
mod tests {
    //! A timer does not end while what may stop it waits to be taken in, and does not wait for
    //! ever.

    use super::*;

    #[test]
    fn timers_go_by_what_is_known() {
        let mut horizon = ReceiveHorizon::default();
        assert_eq!(horizon.taken_in(100, 3, true), 100);
        assert_eq!(horizon.taken_in(200, 256, false), 100);
        assert_eq!(horizon.taken_in(300, 256, false), 100);
        assert_eq!(horizon.taken_in(400, 255, true), 400);
    }

    #[test]
    fn packets_without_end_hold_them_up_for_a_while() {
        let mut horizon = ReceiveHorizon::default();
        horizon.taken_in(1, 0, true);
        let mut rounds = (2..).map(|now| (now, horizon.taken_in(now, 256, false)));
        let (now, as_of) = rounds.find(|(_, as_of)| *as_of > 1).expect("an end");
        assert_eq!(as_of, 2);
        assert_eq!(now as usize, 1 + BACKLOG / 256);
        let (later, as_of) = rounds.find(|(_, as_of)| *as_of > 2).expect("an end");
        assert_eq!(as_of, now + 1);
        assert_eq!((later - now) as usize, BACKLOG / 256);
    }

    #[test]
    fn so_do_few_at_a_time() {
        let mut horizon = ReceiveHorizon::default();
        horizon.taken_in(1, 0, true);
        assert_eq!(horizon.taken_in(2, 24, false), 1);
        assert_eq!(horizon.taken_in(1 + BACKLOG_NS, 24, false), 1);
        assert_eq!(horizon.taken_in(2 + BACKLOG_NS, 24, false), 2);
    }

    /// Or the background thread finds a time that is over, looks, and finds it again.
    #[test]
    fn a_timer_that_is_held_up_is_looked_at_later() {
        let mut horizon = ReceiveHorizon::default();
        horizon.taken_in(100, 0, true);
        assert_eq!(horizon.deadline(50), 50);
        horizon.taken_in(200, 256, false);
        assert_eq!(horizon.deadline(50), 200 + AGAIN_NS);
        assert_eq!(horizon.deadline(1 << 40), 1 << 40);
        horizon.taken_in(300, 0, true);
        assert_eq!(horizon.deadline(50), 50);
    }

    #[test]
    fn who_only_posts_looks_now_and_then() {
        let mut horizon = ReceiveHorizon::default();
        let posts =
            |horizon: &mut ReceiveHorizon| (1..).find(|_| horizon.posted(1)).expect("an end");
        assert_eq!(posts(&mut horizon), POSTS);
        horizon.taken_in(1, 0, true);
        assert_eq!(posts(&mut horizon), POSTS);
        horizon.taken_in(2, 0, true);
        assert!(horizon.posted(POSTS));
    }
}
