//! What is in flight: the buffers of posted work requests, held until their completion is taken.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix_futex_sync::Mutex;

use crate::gather::Pieces;
use crate::nic;
use crate::raw::memory::Buffer;

/// A posted work request.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The caller's id.
    pub(crate) id: u64,
    pub(crate) pieces: Pieces,
    /// Makes a completion when it succeeds.
    pub(crate) signaled: bool,
    /// Of a datagram: a device may look up its way until it has left.
    pub(crate) _way: Option<rnic_libibverbs::Ah>,
}

/// One work queue. The device knows entries by a sequence number, which it gives back as `wr_id`.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// Sequence number of the front entry.
    base: u64,
    /// `None`: completed, but an older one is not.
    entries: VecDeque<Option<Entry>>,
    /// Entries that are not completed.
    held: usize,
}

/// Sequence numbers from here on are of receives of XRC, and name their queue: its number is in the
/// bits from `SRQ_SHIFT` on. No other queue ever gets there by counting.
const OF_SRQ: u64 = 1 << 63;
const SRQ_SHIFT: u32 = 39;

/// The XRC shared receive queue that a sequence number is of.
pub(crate) fn srq_of(seq: u64) -> Option<u32> {
    (seq & OF_SRQ != 0).then_some((seq >> SRQ_SHIFT) as u32 & 0xff_ffff)
}

impl WorkQueue {
    /// Of an XRC shared receive queue, whose completions come under the number of whichever queue
    /// pair a message came by.
    pub(crate) fn of_srq(number: u32) -> WorkQueue {
        WorkQueue {
            base: OF_SRQ | u64::from(number) << SRQ_SHIFT,
            ..WorkQueue::default()
        }
    }

    /// Number that the next [`WorkQueue::push`] gets.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(Some(entry));
        self.held += 1;
    }

    /// Work requests whose completions were not taken.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// How many more a queue of `depth` takes; an error if that is none. A request has its place
    /// until its completion is taken. Soft-RoCE gives the place to the next one when it has made
    /// the completion, so a program that does not poll would overrun the completion queue.
    pub(crate) fn room(&self, verb: &'static str, depth: u32) -> nic::Result<usize> {
        match (depth as usize).saturating_sub(self.held) {
            0 => Err(full(verb, depth)),
            room => Ok(room),
        }
    }

    /// Takes all out that was posted: it will not complete. Completions of it that are on their way
    /// are [stale](WorkQueue::is_stale).
    pub(crate) fn discard(&mut self) -> VecDeque<Option<Entry>> {
        self.base = self.next();
        self.held = 0;
        std::mem::take(&mut self.entries)
    }

    /// Whether what had this number has left the queue already.
    pub(crate) fn is_stale(&self, seq: u64) -> bool {
        seq < self.base
    }

    /// Takes entry `seq` out. Unsignaled ones before it are done too: they go to `released`.
    pub(crate) fn complete(
        &mut self,
        seq: u64,
        released: &mut Vec<(u64, Buffer)>,
    ) -> Option<Entry> {
        let index = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        let entry = self.entries.get_mut(index)?.take();
        self.held -= usize::from(entry.is_some());
        while let Some(front) = self.entries.front_mut() {
            match front {
                Some(waiting) if waiting.signaled || self.base > seq => break,
                Some(done) => {
                    self.held -= 1;
                    let buffers = std::mem::take(&mut done.pieces).into_buffers();
                    released.extend(buffers.map(|buffer| (done.id, buffer)));
                }
                None => {}
            }
            self.entries.pop_front();
            self.base += 1;
        }
        entry
    }
}

/// A queue has as many requests as it takes.
pub(crate) fn full(verb: &'static str, depth: u32) -> nic::Error {
    let why = format!("{depth} requests are posted whose completions were not taken");
    nic::Error::new(verb, libc::ENOMEM, why)
}

/// The two queues of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Of UD: what it receives has a network header in front.
    pub(crate) datagrams: bool,
    pub(crate) send: Mutex<WorkQueue>,
    /// Shared by the queue pairs of a shared receive queue.
    pub(crate) recv: Arc<Mutex<WorkQueue>>,
}

#[cfg(test)]
mod tests;
