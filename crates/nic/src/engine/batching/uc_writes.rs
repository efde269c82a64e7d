//! Whether an RDMA WRITE of UC goes without packets, where it could.
//!
//! One by itself is faster so: no thread of the target's has to come and look, and its program may
//! spin on the memory. Of a stream a packet costs a fraction of the system call. Who waits for
//! answers posts the next one no sooner than an answer can come, and that takes about as long as a
//! WRITE: so one that follows much sooner, as those before it did, is one of a stream.
//!
//! RC, which has to ask, has [`crate::engine::one_sided_batch`] for its streams.

use rnic_settings::ablation::{self, Policy};
use rnic_transport::QueuePair;

use crate::adapt::Confidence;

/// What a WRITE takes, as long as none was timed, in [`rnic_sys::ticks_or_ns`](rnic_sys::ticks_or_ns):
/// about a microsecond.
const GUESS: u64 = 3_000;
/// What follows within this part of it is close.
const PART: u64 = 4;
/// After so many close ones the next is one of a stream.
type Close = Confidence<5, 5>;

/// How the turns of a queue pair follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UcWrites {
    began: u64,
    ended: u64,
    /// What a WRITE takes without packets.
    cost: u64,
    close: Close,
}

impl Default for UcWrites {
    fn default() -> UcWrites {
        UcWrites {
            began: 0,
            ended: 0,
            cost: GUESS,
            close: Close::new(),
        }
    }
}

impl UcWrites {
    /// A turn begins; true: what is posted may go without packets.
    #[inline]
    pub(in crate::engine) fn begins(
        &mut self,
        transport: &QueuePair,
        clock: impl Fn() -> u64,
    ) -> bool {
        matches!(transport, QueuePair::Uc(_))
            && self.follows(transport.sends_outstanding(), clock())
    }

    fn follows(&mut self, posted: u32, now: u64) -> bool {
        let close = posted > 1 || now.saturating_sub(self.ended) < self.cost / PART;
        self.close.sign(close);
        self.began = now;
        posted == 1 && (!self.close.is_sure() || ablation::is_out(Policy::UcWrites))
    }

    /// It is over; `executed`: something went without packets. (A thread that has lost its
    /// processor in the middle says nothing of the cost, so that grows slowly. With packets a turn
    /// takes next to nothing.)
    #[inline]
    pub(in crate::engine) fn ended(&mut self, executed: bool, clock: impl Fn() -> u64) {
        self.ended = self.began;
        if executed {
            self.ended = clock();
            let took = self.ended.saturating_sub(self.began);
            self.cost = took.clamp(1, 2 * self.cost);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Who waits for answers does without packets, a stream takes them.

    use super::*;

    const TAKES: u64 = 6_000;

    /// The next turn comes so much later; true: it goes without packets.
    fn turn(writes: &mut UcWrites, now: &mut u64, after: u64) -> bool {
        *now += after;
        let executed = writes.follows(1, *now);
        *now += if executed { TAKES } else { TAKES / 10 };
        writes.ended(executed, || *now);
        executed
    }

    #[test]
    fn whoever_waits_for_answers_never_takes_packets() {
        let (mut writes, mut now) = (UcWrites::default(), 1_000_000);
        for _ in 0..100 {
            assert!(turn(&mut writes, &mut now, TAKES));
        }
    }

    #[test]
    fn a_stream_takes_packets_until_it_pauses() {
        let (mut writes, mut now) = (UcWrites::default(), 1_000_000);
        let mut streamed = |after| {
            (0..100)
                .filter(|_| !turn(&mut writes, &mut now, after))
                .count()
        };
        assert!(streamed(TAKES / 10) >= 94);
        assert_eq!(streamed(TAKES), 0);
    }

    #[test]
    fn a_list_takes_packets() {
        let mut writes = UcWrites::default();
        assert!(!writes.follows(2, 1_000_000));
    }

    #[test]
    fn one_that_was_held_up_is_no_measure() {
        let (mut writes, mut now) = (UcWrites::default(), 1_000_000);
        writes.follows(1, now);
        now += 1000 * TAKES;
        writes.ended(true, || now);
        for _ in 0..100 {
            assert!(turn(&mut writes, &mut now, TAKES));
        }
    }
}
