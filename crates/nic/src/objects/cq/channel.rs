//! Completion channels: events of completion queues, and a descriptor to wait on.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rustix_futex_sync::Mutex;

use super::CqShared;
use crate::driving::{ShardSet, Waiting, end_wait};
use crate::engine::{Acks, are_several};
use crate::error::{Error, Result};
use crate::objects::context::{Context, ContextShared};
use crate::sys::EventFd;

#[derive(Debug)]
pub(crate) struct ChannelShared {
    events: EventFd,
    queue: Mutex<VecDeque<Weak<CqShared>>>,
    pub(super) users: AtomicU32,
    /// So many waits more the descriptor is taken for non-blocking.
    non_blocking: AtomicU32,
    /// How surely the application waits for events in `ibv_get_cq_event`, and not on the
    /// descriptor.
    waits_inside: AtomicU32,
    /// Those of all queue pairs that complete into its queues.
    pub(super) shards: ShardSet,
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
            return Err(Error::no_memory("ibv_create_cq"));
        }
        self.users.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn has_event(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// The application drives the engine while it waits for events of this channel.
    pub(super) fn is_driven(&self) -> bool {
        self.waits_inside.load(Ordering::Relaxed) > 0
    }

    /// The application has not made the descriptor non-blocking. If it had, it is not asked again
    /// each time.
    fn blocks(&self) -> bool {
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

    fn found_at_once(&self) {
        let sure = self.waits_inside.load(Ordering::Relaxed);
        self.waits_inside
            .store(sure.saturating_sub(1), Ordering::Relaxed);
    }

    pub(super) fn push(&self, cq: &Arc<CqShared>) {
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
}

/// A completion channel (`ibv_create_comp_channel(3)`).
#[derive(Clone, Debug)]
pub struct CompChannel {
    pub(crate) shared: Arc<ChannelShared>,
    context: Arc<ContextShared>,
}

/// A channel that may be gone.
#[derive(Clone, Debug)]
pub struct WeakCompChannel {
    shared: Weak<ChannelShared>,
    context: Weak<ContextShared>,
}

impl WeakCompChannel {
    /// The channel, as long as somebody has it.
    pub fn upgrade(&self) -> Option<CompChannel> {
        Some(CompChannel {
            shared: self.shared.upgrade()?,
            context: self.context.upgrade()?,
        })
    }
}

impl CompChannel {
    pub(crate) fn new(context: &Context) -> Result<CompChannel> {
        let events = EventFd::new()
            .map_err(|error| Error::os("ibv_create_comp_channel", "eventfd", &error))?;
        Ok(CompChannel {
            shared: Arc::new(ChannelShared {
                events,
                queue: Mutex::new(VecDeque::new()),
                users: AtomicU32::new(0),
                non_blocking: AtomicU32::new(0),
                waits_inside: AtomicU32::new(0),
                shards: ShardSet::default(),
            }),
            context: context.shared.clone(),
        })
    }

    /// The descriptor: readable while events wait. The application may poll it and set O_NONBLOCK.
    pub fn fd(&self) -> RawFd {
        self.shared.events.fd()
    }

    /// Takes the next event, blocking in read(2) unless O_NONBLOCK is set; gives the cookie of its
    /// queue.
    ///
    /// # Errors
    /// EAGAIN when non-blocking and none waits, EINTR on a signal, ENODEV in a forked child: the parent's events are not
    /// its own.
    pub fn get_event(&self) -> Result<u64> {
        loop {
            self.expect_event()?;
            self.shared
                .events
                .take()
                .map_err(|error| Error::os("ibv_get_cq_event", "completion channel", &error))?;
            if let Some(cookie) = self.event_of_token() {
                return Ok(cookie);
            }
        }
    }

    /// For who reads the descriptor's tokens himself (eight bytes are one): to be called before he
    /// may sleep there. Says how, and drives the engine meanwhile if he may. `woken`: he slept as
    /// the last call said, and which of the two descriptors are readable; `None`: he begins to
    /// wait. After [`Waiting::Over`] and [`Waiting::SleepOnChannel`] he takes a token, and calls
    /// [`CompChannel::end_wait`].
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn wait(&self, woken: Option<[bool; 2]>, may_drive: bool) -> Result<Waiting> {
        let nic = &self.context.nic;
        nic.check_alive("ibv_get_cq_event")?;
        let shared = &self.shared;
        if woken.is_none() && shared.has_event() {
            end_wait();
            shared.found_at_once();
            return Ok(Waiting::Over);
        }
        if may_drive && woken.is_none() && !shared.blocks() {
            // Who waits on the descriptor in a way that the library sees is expected there.
            if !shared.is_driven() {
                nic.expect_sleep(&shared.shards);
            }
            end_wait();
            return Ok(Waiting::SleepOnChannel);
        }
        let over = || shared.has_event();
        // ACKs leave at once: perftest takes one completion per event, and its queue overruns if
        // its peer is woken once by ACK and answer.
        let waiting = nic.wait(&shared.shards, woken, may_drive, Acks::Leave, over);
        if waiting != Waiting::SleepOnChannel {
            shared.waits_inside.store(SURE, Ordering::Relaxed);
        }
        Ok(waiting)
    }

    /// Does not keep it.
    pub fn downgrade(&self) -> WeakCompChannel {
        WeakCompChannel {
            shared: Arc::downgrade(&self.shared),
            context: Arc::downgrade(&self.context),
        }
    }

    /// Events wait in it.
    pub fn has_event(&self) -> bool {
        self.shared.has_event()
    }

    /// Runs the engine for a round, as a poll of one of its queues does.
    pub fn drive(&self) {
        let (nic, shards) = (&self.context.nic, &self.shared.shards);
        if nic.check_alive("").is_ok() {
            nic.count_poll(shards);
            let _ = nic.drive("epoll_wait", shards, || false);
        }
    }

    /// Events of all channels of the process so far, modulo 2^32. One that is counted makes its
    /// channel's descriptor readable.
    pub fn events_so_far() -> u32 {
        EVENTS.load(Ordering::Acquire)
    }

    /// The process has one engine: who waits for one channel takes in the packets for all.
    pub fn has_one_engine() -> bool {
        !are_several()
    }

    /// For who waits for the descriptors of several channels, and for others: [`CompChannel::wait`]
    /// until `over`, which is asked often. Of a process with [one
    /// engine](CompChannel::has_one_engine), one of them will do. `None`: nobody can drive for all
    /// of them.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn wait_for_any(
        channels: &[CompChannel],
        woken: Option<[bool; 2]>,
        over: impl Fn() -> bool,
    ) -> Result<Option<Waiting>> {
        let Some(first) = channels.first() else {
            return Ok(None);
        };
        let nic = &first.context.nic;
        nic.check_alive("epoll_wait")?;
        let shards = &first.shared.shards;
        let only = shards.only();
        if only.is_none() || channels.iter().any(|c| c.shared.shards.only() != only) {
            for channel in channels {
                nic.expect_sleep(&channel.shared.shards);
            }
            return Ok(None);
        }
        WAITS.set(true);
        let waiting = nic.wait(shards, woken, true, Acks::UntilWait, over);
        WAITS.set(false);
        Ok(Some(waiting))
    }

    /// The thread that waited does so no longer.
    pub fn end_wait() {
        end_wait();
    }

    fn expect_event(&self) -> Result<()> {
        self.context.nic.check_alive("ibv_get_cq_event")?;
        self.context.nic.expect_sleep(&self.shared.shards);
        Ok(())
    }

    /// The event of a token that was read: the cookie of its queue. `None`: the queue was destroyed
    /// meanwhile.
    pub fn event_of_token(&self) -> Option<u64> {
        // Counted under the lock that `revoke` takes: whoever destroys the queue revokes the event
        // or sees it counted.
        let mut queue = self.shared.queue.lock();
        // A queue destroyed between its event and now leaves a token without an entry.
        let cq = queue.pop_front()?.upgrade()?;
        cq.events_delivered.fetch_add(1, Ordering::AcqRel);
        drop(queue);
        cq.event_taken();
        Some(cq.cookie.load(Ordering::Relaxed))
    }

    /// See [`Context::is_alive`].
    pub fn is_alive(&self) -> bool {
        self.context.nic.check_alive("").is_ok()
    }

    /// Completion queues still use it.
    pub fn in_use(&self) -> bool {
        self.shared.users.load(Ordering::Acquire) != 0
    }
}

#[cfg(test)]
mod tests;
