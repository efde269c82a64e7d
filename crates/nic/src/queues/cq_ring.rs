//! The completions of a queue, and whose places in work queues they free.
//!
//! Completions of one queue pair mostly come in runs. So whose they are is noted once per run, and
//! freed once per run and poll: neither costs an atomic operation for every completion.

use std::collections::TryReserveError;
use std::sync::Arc;

use rnic_transport::{Completion, CompletionOpcode, Fifo, Immediate, Status};

use super::slots::{Freed, Slots};

/// Completions in a row that free slots of the same owner.
#[derive(Debug, Default)]
struct Run {
    /// `None`: nothing has come yet.
    slots: Option<Arc<Slots>>,
    len: usize,
}

/// A completion, and what it frees.
#[derive(Debug)]
struct Entry {
    completion: Completion,
    freed: Freed,
}

impl Default for Entry {
    /// What lies in a place that nothing has been put into.
    fn default() -> Entry {
        Entry {
            completion: Completion {
                wr_id: 0,
                status: Status::Success,
                opcode: CompletionOpcode::Send,
                byte_len: 0,
                vendor_err: 0,
                qpn: 0,
                src_qpn: 0,
                immediate: Immediate::None,
                grh: None,
                pkey_index: 0,
                solicited: false,
            },
            freed: Freed::default(),
        }
    }
}

/// What was taken of a run is noted, also when the application's callback panics.
struct Taken<'a> {
    entries: &'a mut Fifo<Entry>,
    run: &'a mut Run,
    count: usize,
    freed: Freed,
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.entries.skip(self.count);
        if let Some(slots) = &self.run.slots {
            self.freed.release(slots);
        }
        self.run.len -= self.count;
    }
}

/// Completions, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring {
    entries: Fifo<Entry>,
    /// Of `entries`, in order, but the last one.
    runs: Fifo<Run>,
    /// Stays when it is empty, for the next completion.
    last: Run,
}

impl Ring {
    /// Takes memory for so many completions, of as many owners.
    pub(super) fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.entries.try_reserve(most)?;
        self.runs.try_reserve(most)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn push(&mut self, completion: &Completion, slots: &Arc<Slots>, freed: Freed) {
        let place = self.entries.push_place();
        (place.completion, place.freed) = (*completion, freed);
        let last = self.last.slots.as_ref();
        if !last.is_some_and(|last| Arc::ptr_eq(last, slots)) {
            self.end_run(slots);
        }
        self.last.len += 1;
    }

    /// The completions that follow are of this owner.
    #[cold]
    fn end_run(&mut self, next: &Arc<Slots>) {
        let next = Run {
            slots: Some(next.clone()),
            len: 0,
        };
        let ended = std::mem::replace(&mut self.last, next);
        if ended.len > 0 {
            self.runs.push_back(ended);
        }
    }

    /// Shows the `n` oldest, or all if there are fewer, where they lie; they are taken then, and
    /// their slots free.
    #[inline]
    pub(super) fn pop(&mut self, n: usize, out: &mut dyn FnMut(&Completion)) -> usize {
        let n = n.min(self.entries.len());
        let mut left = n;
        while left > 0 {
            let run = self.runs.front_mut().unwrap_or(&mut self.last);
            let part = run.len.min(left);
            let mut taken = Taken {
                entries: &mut self.entries,
                run,
                count: 0,
                freed: Freed::default(),
            };
            while taken.count < part
                && let Some(entry) = taken.entries.get(taken.count)
            {
                taken.count += 1;
                taken.freed.add(entry.freed);
                out(&entry.completion);
            }
            drop(taken);
            left -= part;
            if self.runs.front().is_some_and(|run| run.len == 0) {
                self.runs.pop_front();
            }
        }
        n
    }

    /// Drops the completions that `keeps` does not want; the receives that they end are free then,
    /// sends stay taken.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&Completion, &Arc<Slots>) -> bool) {
        let mut last = std::mem::take(&mut self.last);
        let runs = self.runs.len();
        // What is kept goes to the end, which never has more runs than were taken from the front.
        for index in 0..=runs {
            let run = match index < runs {
                true => self.runs.pop_front().unwrap_or_default(),
                false => std::mem::take(&mut last),
            };
            let Some(slots) = run.slots else { continue };
            for _ in 0..run.len {
                let Some(Entry { completion, freed }) = self.entries.pop_front() else {
                    return;
                };
                if keeps(&completion, &slots) {
                    self.push(&completion, &slots, freed);
                } else {
                    let receives = Freed { send: 0, ..freed };
                    receives.release(&slots);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Every completion comes out once and in order, and frees what it was pushed with, of its
    //! owner.

    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rnic_transport::{CompletionOpcode, Immediate, Status};

    use super::*;

    fn completion(wr_id: u64, qpn: u32) -> Completion {
        Completion {
            wr_id,
            status: Status::Success,
            opcode: CompletionOpcode::Send,
            byte_len: 0,
            vendor_err: 0,
            qpn,
            src_qpn: 0,
            immediate: Immediate::None,
            grh: None,
            pkey_index: 0,
            solicited: false,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize, Freed),
        Pop(usize),
        Purge(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let push = (0..3usize, 0..3u32, 0..2u32)
            .prop_map(|(owner, send, recv)| Step::Push(owner, Freed { send, recv }));
        prop_oneof![
            8 => push,
            3 => (0..6usize).prop_map(Step::Pop),
            1 => (0..3usize).prop_map(Step::Purge),
        ]
    }

    #[test]
    fn a_callback_that_panics_has_what_it_was_given_and_the_rest_stays() {
        let owners: [Arc<Slots>; 2] = Default::default();
        let mut ring = Ring::default();
        for wr_id in 0..5 {
            let freed = Freed { send: 1, recv: 0 };
            ring.push(
                &completion(wr_id, 0),
                &owners[usize::from(wr_id >= 3)],
                freed,
            );
        }
        let used = |of: usize| owners[of].send.used();
        for (panics_at, left, freed) in [(1, 3, (-2, 0)), (2, 2, (-3, 0)), (3, 1, (-3, -1))] {
            let mut out = |completion: &Completion| assert_ne!(completion.wr_id, panics_at);
            let popped =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ring.pop(5, &mut out)));
            assert!(popped.is_err());
            assert_eq!((ring.len(), (used(0), used(1))), (left, freed));
        }
        let mut last = None;
        assert_eq!(
            ring.pop(5, &mut |completion| last = Some(completion.wr_id)),
            1
        );
        assert_eq!((last, used(1)), (Some(4), -2));
    }

    proptest! {
        #[test]
        fn a_ring_is_a_queue_of_completions_with_their_owners(steps in prop::collection::vec(step(), 0..80)) {
            let owners: [Arc<Slots>; 3] = Default::default();
            let mut freed = [(0, 0); 3];
            let mut ring = Ring::default();
            let mut model: VecDeque<(u64, usize, Freed)> = VecDeque::new();
            for (wr_id, step) in (0..).zip(steps) {
                match step {
                    Step::Push(owner, slots) => {
                        ring.push(&completion(wr_id, owner as u32), &owners[owner], slots);
                        model.push_back((wr_id, owner, slots));
                    }
                    Step::Pop(n) => {
                        let mut seen = Vec::new();
                        let popped = ring.pop(n, &mut |completion| seen.push(completion.wr_id));
                        let expected: Vec<_> = model.drain(..n.min(model.len())).collect();
                        prop_assert_eq!(popped, expected.len());
                        for (wr_id, (expected, owner, slots)) in seen.into_iter().zip(expected) {
                            prop_assert_eq!(wr_id, expected);
                            freed[owner].0 -= slots.send as i32;
                            freed[owner].1 -= slots.recv as i32;
                        }
                    }
                    Step::Purge(owner) => {
                        ring.retain(|completion, slots| {
                            assert!(Arc::ptr_eq(slots, &owners[completion.qpn as usize]));
                            completion.qpn as usize != owner
                        });
                        model.retain(|(_, of, slots)| {
                            if *of == owner {
                                freed[owner].1 -= slots.recv as i32;
                            }
                            *of != owner
                        });
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
                for (slots, freed) in owners.iter().zip(freed) {
                    prop_assert_eq!((slots.send.used(), slots.recv.used()), freed);
                }
            }
        }
    }
}
