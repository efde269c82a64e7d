//! Doorbell batching: when what was posted may wait for more to leave with.
//!
//! On a socket a packet of its own costs ten times what it costs in a batch. A program that keeps
//! many short messages under way posts them one by one, and waits for none of them: so while
//! packets of that connection are under way, what is posted stays in the send queue, or is a packet
//! that does not leave, until there is a batch, or the program polls in vain, or a moment has
//! passed at the next post. A lone message leaves at once.
//!
//! A program that asks for a completion now and then, as many messages as long, waits for that one
//! before it goes on when its queue is full. So batches end with the message that asks, and those
//! up to there are about equal.
//!
//! A program that posts and then does something else leaves it to the background thread to send the
//! rest, when the ACK of what is under way wakes it, or a timer, or when it looks, once per
//! millisecond. That happens to it a few times only: whoever let posts wait for long has the next
//! ones sent at once, more of them each time it happens.

use crate::adapt::Backoff;
use rnic_settings::ablation::{self, Policy};
/// Posts that make a batch, as a rule,
pub(in crate::engine) const POSTS: usize = 32;
/// or bytes of their messages.
const BYTES: u64 = 32 * 1024;
/// How long the first of them may be waiting when another one comes, ns.
const MOMENT: u64 = 10_000;
/// Posts between two looks at the clock.
const LOOK_EVERY: usize = 4;
/// Whoever was last seen to post so long ago has turned to something else, or was kept from its
/// core, ns.
const LATE: u64 = 50_000;
/// After somebody was late, posts leave at once for a while: their number.
type AtOnce = Backoff<64, 65_536>;
/// So many that left in time one after the other halve what the next lateness costs.
const IN_TIME: u32 = 8;

/// Who may wait for how long; as the constants above.
#[derive(Debug)]
struct Terms {
    /// As an ablation names it.
    policy: Policy,
    bytes: u64,
    moment: u64,
    late: u64,
}

/// Of packets.
const PACKETS: Terms = Terms {
    policy: Policy::Doorbell,
    bytes: BYTES,
    moment: MOMENT,
    late: LATE,
};

/// Of what needs no packets ([`crate::engine::one_sided_batch`]). What is saved is a call in each
/// case, and nobody comes earlier than the background thread. That posts are close is known by
/// other means.
const ROWS: Terms = Terms {
    policy: Policy::OneSidedBatch,
    bytes: 128 * 1024,
    moment: u64::MAX,
    late: 2 * LATE,
};

/// Work requests that were just posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) count: usize,
    /// Of their messages.
    pub(crate) bytes: u64,
}

/// What waits in an engine for a batch, and how that went so far.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Batcher {
    posts: usize,
    /// So many make this batch.
    size: usize,
    bytes: u64,
    /// When the first of them was posted; meaningless while there are none.
    since: u64,
    /// When one of them was posted the last time that the clock was asked.
    seen: u64,
    /// Posts that leave at once.
    at_once: AtOnce,
    terms: &'static Terms,
    /// Batches that left in time since it was changed.
    in_time: u32,
}

impl Default for Batcher {
    fn default() -> Batcher {
        Batcher::with(&PACKETS)
    }
}

impl Batcher {
    /// For what needs no packets.
    pub(in crate::engine) fn of_one_sided() -> Batcher {
        Batcher::with(&ROWS)
    }

    fn with(terms: &'static Terms) -> Batcher {
        Batcher {
            posts: 0,
            size: POSTS,
            bytes: 0,
            since: 0,
            seen: 0,
            at_once: AtOnce::new(),
            terms,
            in_time: 0,
        }
    }

    /// They may wait. Once this was false all are expected to leave. The clock is not asked each
    /// time. `left`: posts behind them up to the next that is expected to be signaled; 0: not
    /// known.
    #[inline]
    pub(in crate::engine) fn may_wait(
        &mut self,
        posted: Posted,
        left: usize,
        clock: impl FnOnce() -> u64,
    ) -> bool {
        if ablation::is_out(self.terms.policy) {
            return false;
        }
        if self.posts == 0 {
            let left = if ablation::is_out(Policy::SignaledBatch) {
                0
            } else {
                left
            };
            self.size = Batcher::size(left + posted.count);
        }
        if self.at_once.pass(posted.count as u32) {
            return false;
        }
        let first = self.posts == 0;
        self.posts += posted.count;
        self.bytes += posted.bytes;
        if self.posts >= self.size || self.bytes >= self.terms.bytes {
            if first {
                // They did not wait at all.
                self.seen = u64::MAX;
            }
            return false;
        }
        if first {
            self.since = clock();
            self.seen = self.since;
            return true;
        }
        if !self.posts.is_multiple_of(LOOK_EVERY) {
            return true;
        }
        self.seen = clock();
        self.seen.saturating_sub(self.since) < self.terms.moment
    }

    /// Posts of a batch that begins: `left` of them are left up to one that is signaled, or an
    /// equal part.
    #[inline]
    fn size(left: usize) -> usize {
        match (left + POSTS / 2) / POSTS {
            // No more than half a batch: it would not be worth it.
            0 => POSTS,
            batches => left.div_ceil(batches),
        }
    }

    /// All that waited has its turn now.
    #[inline]
    pub(in crate::engine) fn left(&mut self, now: u64) {
        if self.posts == 0 {
            return;
        }
        let waited = now.saturating_sub(self.seen);
        if waited > self.terms.late {
            self.at_once.wrong();
            self.in_time = 0;
        } else {
            self.in_time += 1;
            if self.in_time == IN_TIME {
                self.at_once.right();
                self.in_time = 0;
            }
        }
        self.posts = 0;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    //! Who streams gets batches, who turns away soon has its messages sent at once, and nobody's
    //! wait without end.

    use super::*;
    use crate::queues::Signals;

    const ONE: Posted = Posted { count: 1, bytes: 8 };

    #[test]
    fn a_stream_leaves_in_batches() {
        let mut batcher = Batcher::default();
        let mut batches = 0;
        for n in 0..10 * POSTS as u64 {
            if !batcher.may_wait(ONE, 0, || n * 100) {
                batcher.left(n * 100);
                batches += 1;
            }
        }
        assert_eq!(batches, 10);
    }

    #[test]
    fn much_to_send_does_not_wait() {
        let mut batcher = Batcher::default();
        let long = Posted {
            bytes: BYTES,
            ..ONE
        };
        assert!(!batcher.may_wait(long, 0, || 0));
        batcher.left(0);
        let many = Posted {
            count: POSTS,
            ..ONE
        };
        assert!(!batcher.may_wait(many, 0, || 0));
    }

    /// Posts of which every `period`th is signaled; the sizes of their batches, up to the one that
    /// ends with the last.
    fn batches(period: usize, posts: usize) -> Vec<usize> {
        let (mut batcher, mut signals) = (Batcher::default(), Signals::default());
        let (mut sizes, mut size) = (Vec::new(), 0);
        for n in 1..=posts {
            signals.posted(n.is_multiple_of(period));
            size += 1;
            if !batcher.may_wait(ONE, signals.left(POSTS), || n as u64) {
                batcher.left(n as u64);
                sizes.push(std::mem::take(&mut size));
            }
        }
        sizes
    }

    #[test]
    fn a_batch_ends_with_what_is_signaled() {
        // The first time nobody knows.
        assert_eq!(batches(100, 300), [32, 32, 32, 32, 36, 36, 34, 33, 33]);
        assert_eq!(batches(40, 120), [32, 32, 16, 40]);
        // Nor is a batch of few worth it.
        for few in [1, 4, 16, 32] {
            assert_eq!(batches(few, 96), [32, 32, 32]);
        }
    }

    #[test]
    fn what_is_signaled_is_expected_when_its_time_comes() {
        let mut signals = Signals::default();
        assert_eq!(signals.left(1), 0);
        for n in 1..=200 {
            signals.posted(n % 100 == 0);
        }
        for n in 1..=150 {
            assert_eq!(signals.left(1), 101usize.saturating_sub(n), "{n}");
            assert_eq!(signals.left(100), 0);
            // Once it is overdue, it is not counted on any more.
            signals.posted(false);
        }
    }

    #[test]
    fn slow_posts_wait_for_few_others_only() {
        let mut batcher = Batcher::default();
        let waited = (0..)
            .take_while(|n| batcher.may_wait(ONE, 0, || n * MOMENT))
            .count();
        assert!(waited < LOOK_EVERY);
    }

    #[test]
    fn who_turns_away_is_late_a_few_times_only() {
        let mut batcher = Batcher::default();
        let mut late = 0;
        for round in 0..20_000u64 {
            let now = round * 2_000_000;
            // The second of two posts, whose program then computes.
            if batcher.may_wait(ONE, 0, || now) {
                late += 1;
                batcher.left(now + 1_000_000);
            }
        }
        assert!(late <= 9, "{late} of 20000 messages were late");
    }

    #[test]
    fn a_program_that_is_kept_from_its_core_now_and_then_goes_on_in_batches() {
        let mut batcher = Batcher::default();
        let (mut batched, mut alone) = (0, 0);
        // Short queues: a batch never fills. One in a hundred is late.
        for round in 0..20_000u64 {
            let now = round * 2_000_000;
            let waits = (0..8).filter(|_| batcher.may_wait(ONE, 0, || now)).count();
            if waits > 0 {
                batched += 1;
                batcher.left(now + if round % 100 == 0 { 200_000 } else { 4_000 });
            } else {
                alone += 1;
            }
        }
        assert!(alone < batched / 8, "{alone} alone, {batched} in batches");
    }
}
