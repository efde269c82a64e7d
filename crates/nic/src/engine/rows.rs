//! When short RDMA WRITEs and READs that need no packets wait for company, so that several are done in one system call.
//!
//! As with packets ([`super::gather`]), but nobody waits who might be alone: only what comes so soon after what was posted before
//! it to the same queue pair, and several times so, that more is surely on its way. They are done when there is a row of
//! them, or the program polls, or posts something else. A program that does none of these and then looks at memory, say,
//! leaves them to the background thread, within a millisecond; that happens to it seldom, see [`Gather`].

use rnic_transport::QueuePair;

use super::gather::{self, Gather, Posted};
use super::punctual::TICK_NS;
use crate::qp::QpEntry;
use crate::sys::{self, StreamClock};

/// Posts, or the end of what was done and the next post, that are no further apart are close, in [`sys::ticks_or_ns`]: about a
/// microsecond. An answer takes longer, since whoever gives it has to make a system call.
const CLOSE: u64 = 3_000;
/// After so many close ones the next may wait.
const FEW: u32 = 4;

/// How posts to a queue pair follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Succession {
    /// The last post, or when what was posted was done.
    last: u64,
    close: u32,
}

impl Succession {
    /// One more. True: it follows so closely, as those before it did, that it may wait.
    #[inline]
    fn posted(&mut self, now: u64) -> bool {
        let close = now.saturating_sub(self.last) < CLOSE;
        self.close = if close {
            self.close.saturating_add(1)
        } else {
            0
        };
        self.last = now;
        self.close > FEW
    }

    /// What waited was done just now.
    #[inline]
    pub(super) fn done(&mut self, now: u64) {
        self.last = now;
    }
}

/// What waits in an engine.
#[derive(Debug)]
pub(crate) struct Rows {
    gather: Gather,
    /// When the background thread looks; `None`: nothing has waited lately.
    look_at: Option<u64>,
    /// Something has waited since it looked.
    used: bool,
    /// It does not know yet that it is to look.
    news: bool,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows {
            gather: Gather::of_rows(),
            look_at: None,
            used: false,
            news: false,
        }
    }
}

impl Rows {
    #[inline]
    fn may_wait(&mut self, posted: Posted, left: usize, mut clock: impl FnMut() -> u64) -> bool {
        let waits = self.gather.may_wait(posted, left, &mut clock);
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
    pub(super) fn left(&mut self, now: u64) {
        self.gather.left(now);
    }

    /// The background thread looks, and comes back if something goes on.
    pub(super) fn looked(&mut self, now: u64) {
        if self.look_at.is_some_and(|at| at <= now) {
            let again = std::mem::take(&mut self.used);
            self.look_at = again.then(|| now.saturating_add(TICK_NS));
        }
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<u64> {
        self.look_at
    }
}

/// What was just posted to this queue pair, whose packets go by memory, may wait for company.
#[inline]
pub(super) fn may_join(
    entry: &mut QpEntry,
    rows: &mut Rows,
    clock: &mut StreamClock,
    posted: Posted,
) -> bool {
    // Whoever waits for each of them posts the next when it has the completion.
    let alone = entry.shared.slots.send.used() <= posted.count as i32;
    if alone || !is_one_sided(entry) {
        return false;
    }
    let left = entry.signals.left(gather::POSTS);
    entry.succession.posted(sys::ticks_or_ns()) && rows.may_wait(posted, left, || clock.now_ns())
}

/// What was posted last needs no packet, nor does what waits before it, as far as is known; and nobody sleeps until it is done.
#[inline]
fn is_one_sided(entry: &QpEntry) -> bool {
    entry.reach.is_some()
        && matches!(&entry.transport, QueuePair::Rc(rc) if rc.waits_for_row())
        && !entry.shared.cqs().any(|cq| cq.has_channel())
}

#[cfg(test)]
mod tests {
    //! A stream is done in rows, and who posts a few and turns to something else has them done at once.

    use super::*;

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
            for _ in 0..FEW {
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
        for _ in 0..=FEW + 1 {
            succession.posted(now);
            now += 10 * CLOSE;
            succession.done(now);
            now += CLOSE / 2;
        }
        assert!(succession.posted(now));
    }

    #[test]
    fn the_background_thread_looks_as_long_as_something_waits_now_and_then() {
        let mut rows = Rows::default();
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
        let mut rows = Rows::default();
        let mut late = 0;
        for round in 0..100_000_u64 {
            let now = round * 2 * TICK_NS;
            if rows.may_wait(ONE, 0, || now) {
                late += 1;
                rows.left(now + TICK_NS);
            }
        }
        assert!(late <= 8, "{late} of 100000 messages were late");
    }
}
