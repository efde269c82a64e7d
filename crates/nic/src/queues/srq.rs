//! Shared receive queues, as the engine and a program's handles share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rnic_transport::{Fifo, Pd, RecvWqe};
use rustix_futex_sync::Mutex;

use super::cq::CqShared;
use super::domain::Domain;
use super::owner::Owner;
use super::slots::Slots;
use crate::error::{Error, Result};
use rnic_types::AsyncEvent;

/// What an XRC shared receive queue has and others have not.
#[derive(Debug)]
pub(crate) struct XrcPart {
    pub(crate) domain: Arc<Domain>,
    pub(crate) cq: Arc<CqShared>,
}

/// What a shared receive queue's handle, the engine and its queue pairs share.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) number: u32,
    pub(crate) owner: Arc<Owner>,
    pub(crate) pd: Pd,
    pub(crate) max_sge: u32,
    pub(crate) xrc: Option<XrcPart>,
    /// Its receive places count receives posted and not yet polled.
    pub(crate) slots: Arc<Slots>,
    pub(crate) cookie: u64,
    /// Queue pairs attached.
    pub(crate) users: AtomicU32,
    /// Has a lock of its own, since queue pairs of several shards of the engine may take from it.
    /// Nobody who has it waits for an engine.
    pub(crate) queue: Mutex<Queue>,
    /// Out of the engine, though handles may live on. Looked at under the lock of `queue`, through
    /// which whoever sets it passes before he revokes events.
    pub(crate) retired: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) receives: Fifo<RecvWqe>,
    /// UC, UD: had receives lately; when they are used up, packets may wait for the next.
    pub(crate) awaited: bool,
    pub(crate) max_wr: u32,
    pub(crate) limit: u32,
}

impl SrqShared {
    /// The oldest receive.
    pub(crate) fn take(&self) -> Option<RecvWqe> {
        let mut queue = self.queue.lock();
        let wqe = queue.receives.pop_front();
        self.watch_limit(&mut queue);
        wqe
    }

    /// A receive that was taken was not used.
    pub(crate) fn put_back(&self, wqe: RecvWqe) {
        self.queue.lock().receives.push_front(wqe);
    }

    /// No receive is posted, and `wait`, which is told whether there was one lately and may change
    /// that, says that the next is to be waited for.
    pub(crate) fn has_none_but_will(&self, wait: impl FnOnce(&mut bool) -> bool) -> bool {
        let mut queue = self.queue.lock();
        let posted = !queue.receives.is_empty();
        queue.awaited |= posted;
        !posted && wait(&mut queue.awaited)
    }

    #[inline]
    pub(crate) fn check_there(&self, verb: &'static str) -> Result<()> {
        match self.retired.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::invalid(
                verb,
                "the shared receive queue was destroyed",
            )),
        }
    }

    /// Sends the limit event if it is armed and due, which disarms it.
    pub(crate) fn watch_limit(&self, queue: &mut Queue) {
        if queue.receives.len() < queue.limit as usize {
            queue.limit = 0;
            self.owner.post_event(AsyncEvent::SrqLimit {
                cookie: self.cookie,
            });
        }
    }
}
