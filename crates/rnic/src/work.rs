//! What is in flight: the buffers of posted work requests, held until their completion is taken.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Buffer;

/// A posted work request.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The caller's id.
    pub(crate) id: u64,
    pub(crate) buffer: Option<Buffer>,
    /// Makes a completion when it succeeds.
    pub(crate) signaled: bool,
}

/// One work queue. The device knows entries by a sequence number, which it gives back as `wr_id`.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    /// Sequence number of the front entry.
    base: u64,
    /// `None`: completed, but an older one is not.
    entries: VecDeque<Option<Entry>>,
}

impl WorkQueue {
    /// Number that the next [`WorkQueue::push`] gets.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(Some(entry));
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes entry `seq` out. Unsignaled ones before it are done too: they go to `released`.
    pub(crate) fn complete(
        &mut self,
        seq: u64,
        released: &mut Vec<(u64, Buffer)>,
    ) -> Option<Entry> {
        let index = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        let entry = self.entries.get_mut(index)?.take();
        while let Some(front) = self.entries.front_mut() {
            match front {
                Some(waiting) if waiting.signaled || self.base > seq => break,
                Some(done) => released.extend(done.buffer.take().map(|buffer| (done.id, buffer))),
                None => {}
            }
            self.entries.pop_front();
            self.base += 1;
        }
        entry
    }
}

/// The two queues of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) send: Mutex<WorkQueue>,
    /// Shared by the queue pairs of a shared receive queue.
    pub(crate) recv: Arc<Mutex<WorkQueue>>,
}

#[cfg(test)]
mod tests;
