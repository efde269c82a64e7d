//! Completion channels: the events of completion queues that wait to be taken.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rustix_futex_sync::Mutex;

use super::cq::CqShared;
use super::shard_set::ShardSet;
use crate::error::{self, Result};
use rnic_sys::EventFd;

#[derive(Debug)]
pub(crate) struct ChannelShared {
    pub(crate) events: EventFd,
    queue: Mutex<VecDeque<Weak<CqShared>>>,
    pub(crate) users: AtomicU32,
    /// So many waits more the descriptor is taken for non-blocking.
    non_blocking: AtomicU32,
    /// How surely the application waits for events in `ibv_get_cq_event`, and not on the
    /// descriptor.
    waits_inside: AtomicU32,
    /// Those of all queue pairs that complete into its queues.
    pub(crate) shards: ShardSet,
}

/// So many events that nobody had to wait for in the verb make an application one that waits
/// elsewhere.
const SURE: u32 = 16;

/// A non-blocking descriptor is asked again after so many waits. One that blocks is slept on as by
/// read(2) meanwhile.
const KNOWN: u32 = 64;

/// Events so far, of all channels of the process.
static EVENTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread drives while it waits for the descriptors of channels. What it brings it waits
    /// for, as a rule.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

impl ChannelShared {
    /// One completion queue more reports here. Its events need no more memory then, as long as the
    /// program takes each before it asks for the next.
    pub(super) fn enter(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        let users = self.users.load(Ordering::Relaxed) as usize;
        let most = 2 * (users + 1);
        let more = most.saturating_sub(queue.len());
        if queue.try_reserve(more).is_err() {
            return Err(error::no_memory("ibv_create_cq"));
        }
        self.users.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn has_event(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// Events that nobody has taken.
    pub(crate) fn untaken(&self) -> usize {
        self.queue.lock().len()
    }

    /// The application drives the engine while it waits for events of this channel.
    pub(crate) fn is_driven(&self) -> bool {
        self.waits_inside.load(Ordering::Relaxed) > 0
    }

    /// The application has not made the descriptor non-blocking. If it had, it is not asked again
    /// each time.
    pub(crate) fn blocks(&self) -> bool {
        let known = self.non_blocking.load(Ordering::Relaxed);
        if known > 0 {
            self.non_blocking.store(known - 1, Ordering::Relaxed);
            return false;
        }
        let blocks = self.events.blocks();
        let known = if blocks { 0 } else { KNOWN };
        self.non_blocking.store(known, Ordering::Relaxed);
        blocks
    }

    pub(crate) fn found_at_once(&self) {
        let sure = self.waits_inside.load(Ordering::Relaxed);
        self.waits_inside
            .store(sure.saturating_sub(1), Ordering::Relaxed);
    }

    pub(crate) fn push(&self, cq: &Arc<CqShared>) {
        let mut queue = self.queue.lock();
        // Its lock was let go in between, and an event would name what is destroyed.
        if cq.detached.load(Ordering::Relaxed) {
            return;
        }
        queue.push_back(Arc::downgrade(cq));
        // Under the lock: who takes the entry back has to find its token.
        self.events.add(1);
        EVENTS.fetch_add(1, Ordering::Release);
        if WAITS.get() {
            self.waits_inside.store(SURE, Ordering::Relaxed);
        }
    }

    /// Drops the events of a queue that nobody has taken; no further one comes.
    pub(super) fn revoke(&self, cq: &Arc<CqShared>) {
        let mut queue = self.queue.lock();
        cq.detached.store(true, Ordering::Relaxed);
        let before = queue.len();
        queue.retain(|waiting| !std::ptr::eq(waiting.as_ptr(), Arc::as_ptr(cq)));
        for _ in queue.len()..before {
            self.events.try_take();
        }
    }

    /// A thread that waited in the verb was told by it.
    pub(crate) fn waited_inside(&self) {
        self.waits_inside.store(SURE, Ordering::Relaxed);
    }

    /// The event of a token that was read: the cookie of its queue. `None`: the queue was destroyed
    /// meanwhile.
    pub(crate) fn event_of_token(&self) -> Option<u64> {
        // Counted under the lock that `revoke` takes: whoever destroys the queue revokes the event
        // or sees it counted.
        let mut queue = self.queue.lock();
        // A queue destroyed between its event and now leaves a token without an entry.
        let cq = queue.pop_front()?.upgrade()?;
        cq.events_delivered.fetch_add(1, Ordering::AcqRel);
        drop(queue);
        cq.event_taken();
        Some(cq.cookie.load(Ordering::Relaxed))
    }
}

impl ChannelShared {
    /// # Errors
    /// EMFILE and its like.
    pub(crate) fn new() -> io::Result<ChannelShared> {
        Ok(ChannelShared {
            events: EventFd::new()?,
            queue: Mutex::new(VecDeque::new()),
            users: AtomicU32::new(0),
            non_blocking: AtomicU32::new(0),
            waits_inside: AtomicU32::new(0),
            shards: ShardSet::default(),
        })
    }
}

/// Events of all channels of the process so far, modulo 2^32.
pub(crate) fn events_so_far() -> u32 {
    EVENTS.load(Ordering::Acquire)
}

/// While `wait` runs, this thread drives for the descriptors of channels.
pub(crate) fn waiting_for_channels<T>(wait: impl FnOnce() -> T) -> T {
    WAITS.set(true);
    let done = wait();
    WAITS.set(false);
    done
}
