//! When short RDMA WRITEs and READs that need no packets wait for more of them, so that several are
//! done in one system call.
//!
//! As with packets ([`crate::engine::doorbell`]), but nobody waits who might be alone: only what
//! comes so soon after what was posted before it to the same queue pair, and several times so, that
//! more is surely on its way. They are done when there is a row of them, or the program polls, or
//! posts something else. A program that does none of these and then looks at memory, say, leaves
//! them to the background thread, within a millisecond; that happens to it seldom, see [`Batcher`].

use crate::adapt::Confidence;

use crate::engine::TICK_NS;
use crate::engine::doorbell::{Batcher, Posted};

/// Posts, or the end of what was done and the next post, that are no further apart are close, in
/// [`rnic_sys::ticks_or_ns`]: about a microsecond. An answer takes longer, since whoever gives it
/// has to make a system call.
const CLOSE: u64 = 3_000;
/// After so many close ones the next may wait.
type Close = Confidence<5, 5>;

/// How posts to a queue pair follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Succession {
    /// The last post, or when what was posted was done.
    last: u64,
    close: Close,
}

impl Succession {
    /// One more post. True: it follows so closely, as those before it did, that it may wait.
    #[inline]
    pub(in crate::engine) fn posted(&mut self, now: u64) -> bool {
        self.close.sign(now.saturating_sub(self.last) < CLOSE);
        self.last = now;
        self.close.is_sure()
    }

    /// What waited was done just now.
    #[inline]
    pub(in crate::engine) fn done(&mut self, now: u64) {
        self.last = now;
    }
}

/// What waits in an engine.
#[derive(Debug)]
pub(crate) struct OneSidedBatch {
    batcher: Batcher,
    /// When the background thread looks; `None`: nothing has waited lately.
    look_at: Option<u64>,
    /// Something has waited since it looked.
    used: bool,
    /// It does not know yet that it is to look.
    news: bool,
}

impl Default for OneSidedBatch {
    fn default() -> OneSidedBatch {
        OneSidedBatch {
            batcher: Batcher::of_one_sided(),
            look_at: None,
            used: false,
            news: false,
        }
    }
}

impl OneSidedBatch {
    #[inline]
    pub(in crate::engine) fn may_wait(
        &mut self,
        posted: Posted,
        left: usize,
        mut clock: impl FnMut() -> u64,
    ) -> bool {
        let waits = self.batcher.may_wait(posted, left, &mut clock);
        if waits {
            self.used = true;
            if self.look_at.is_none() {
                self.look_at = Some(clock().saturating_add(TICK_NS));
                self.news = true;
            }
        }
        waits
    }

    /// The background thread is to be told when to look.
    #[inline]
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// All that waited has its turn.
    #[inline]
    pub(in crate::engine) fn left(&mut self, now: u64) {
        self.batcher.left(now);
    }

    /// The background thread looks, and comes back if something goes on.
    pub(crate) fn looked(&mut self, now: u64) {
        if self.look_at.is_some_and(|at| at <= now) {
            let again = std::mem::take(&mut self.used);
            self.look_at = again.then(|| now.saturating_add(TICK_NS));
        }
    }

    #[inline]
    pub(in crate::engine) fn deadline(&self) -> Option<u64> {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    //! A stream is done in rows, and who posts a few and turns to something else has them done at
    //! once.

    use super::*;
    use crate::engine::doorbell;

    const ONE: Posted = Posted { count: 1, bytes: 8 };

    #[test]
    fn only_what_follows_closely_and_often_may_wait() {
        let mut succession = Succession::default();
        let mut now = 1_000_000;
        let mut post = |after: u64, succession: &mut Succession| {
            now += after;
            succession.posted(now)
        };
        // A few at a time, as often as one likes.
        for _ in 0..100 {
            assert!(!post(2 * CLOSE, &mut succession));
            for _ in 0..4 {
                assert!(!post(CLOSE / 2, &mut succession));
            }
        }
        assert!(post(CLOSE / 2, &mut succession));
        assert!(post(CLOSE / 2, &mut succession));
        assert!(!post(CLOSE, &mut succession));
    }

    #[test]
    fn the_time_that_a_row_takes_does_not_count() {
        let mut succession = Succession::default();
        let mut now = 1_000_000;
        for _ in 0..6 {
            succession.posted(now);
            now += 10 * CLOSE;
            succession.done(now);
            now += CLOSE / 2;
        }
        assert!(succession.posted(now));
    }

    #[test]
    fn a_slow_stream_goes_in_rows() {
        let mut rows = OneSidedBatch::default();
        let (mut now, mut calls) = (0, 0);
        for _ in 0..50 * doorbell::POSTS {
            now += 15_000;
            if !rows.may_wait(ONE, 0, || now) {
                rows.left(now);
                calls += 1;
            }
        }
        assert_eq!(calls, 50);
    }

    /// Bursts whose end is left to the background thread: however long they are, it is soon
    /// learned.
    #[test]
    fn bursts_that_end_in_a_pause_are_late_a_few_times_only() {
        for burst in [6, 40, 100, 250] {
            let mut rows = OneSidedBatch::default();
            let (mut now, mut late) = (0, 0);
            for _ in 0..2_000 {
                let mut waits = false;
                for _ in 0..burst {
                    now += 500;
                    waits = rows.may_wait(ONE, 0, || now);
                    if !waits {
                        rows.left(now);
                    }
                }
                now += TICK_NS;
                late += u32::from(waits);
                rows.left(now);
            }
            assert!(late <= 40, "{late} of 2000 bursts of {burst} were late");
        }
    }

    #[test]
    fn the_background_thread_looks_as_long_as_something_waits_now_and_then() {
        let mut rows = OneSidedBatch::default();
        assert_eq!(rows.deadline(), None);
        assert!(rows.may_wait(ONE, 0, || 1_000) && rows.take_news());
        let first = 1_000 + TICK_NS;
        assert_eq!(rows.deadline(), Some(first));
        rows.left(1_500);
        rows.looked(first - 1);
        assert_eq!(rows.deadline(), Some(first), "it was somebody else");
        rows.looked(first);
        assert_eq!(rows.deadline(), Some(first + TICK_NS));
        rows.looked(first + TICK_NS);
        assert_eq!((rows.deadline(), rows.take_news()), (None, false));
    }

    #[test]
    fn who_turns_away_seldom_has_to_wait_for_the_background_thread() {
        let mut rows = OneSidedBatch::default();
        let mut late = 0;
        for round in 0..100_000_u64 {
            let now = round * 2 * TICK_NS;
            if rows.may_wait(ONE, 0, || now) {
                late += 1;
                rows.left(now + TICK_NS);
            }
        }
        assert!(late <= 13, "{late} of 100000 messages were late");
    }
}
