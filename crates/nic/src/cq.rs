//! Completion queues and completion channels.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rnic_transport::Completion;

use crate::context::{AsyncEvent, Context, ContextShared};
use crate::error::{Error, Result};
use crate::sys::EventFd;

/// Room in a queue pair's work queues as the application sees it: a slot is free again once the completion that
/// retired its work request was polled, as on hardware.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) send_used: AtomicI32,
    pub(crate) recv_used: AtomicI32,
}

/// A completion and the slots that polling it frees.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) completion: Completion,
    pub(crate) slots: Arc<Slots>,
    pub(crate) send_slots: u32,
    pub(crate) recv_slots: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Next,
}

#[derive(Debug)]
struct Inner {
    ring: VecDeque<Entry>,
    capacity: u32,
    armed: Armed,
    overrun: bool,
}

#[derive(Debug)]
pub(crate) struct CqShared {
    inner: Mutex<Inner>,
    /// Entries in the ring, readable without the lock.
    len: AtomicUsize,
    cookie: AtomicU64,
    channel: Option<Arc<ChannelShared>>,
    context: Arc<ContextShared>,
    /// Queue pairs attached (twice if for both directions).
    pub(crate) users: AtomicU32,
    events_delivered: AtomicU32,
}

impl CqShared {
    pub(crate) fn context_id(&self) -> u64 {
        self.context.id()
    }

    /// Adds a completion; wakes whoever armed the queue for it.
    pub(crate) fn push(self: &Arc<Self>, entry: Entry) {
        let solicited = entry.completion.solicited
            || entry.completion.status != rnic_transport::Status::Success;
        let mut inner = self.inner.lock();
        if inner.ring.len() >= inner.capacity as usize {
            if !inner.overrun {
                inner.overrun = true;
                drop(inner);
                self.context.post_event(AsyncEvent::Cq {
                    cookie: self.cookie.load(Ordering::Relaxed),
                });
            }
            return;
        }
        inner.ring.push_back(entry);
        self.len.store(inner.ring.len(), Ordering::Release);
        let notify = match inner.armed {
            Armed::No => false,
            Armed::Next => true,
            Armed::Solicited => solicited,
        };
        if notify {
            inner.armed = Armed::No;
            drop(inner);
            if let Some(channel) = &self.channel {
                channel.push(self);
            }
        }
    }

    /// Removes the completions of a destroyed or reset queue pair.
    pub(crate) fn purge(&self, qpn: u32) {
        let mut inner = self.inner.lock();
        inner.ring.retain(|e| e.completion.qpn != qpn);
        self.len.store(inner.ring.len(), Ordering::Release);
    }

    fn pop(&self, max: usize, out: &mut dyn FnMut(Completion)) -> Result<usize> {
        if self.len.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        let mut inner = self.inner.lock();
        let n = inner.ring.len().min(max);
        for entry in inner.ring.drain(..n) {
            if entry.send_slots != 0 {
                let used = &entry.slots.send_used;
                used.fetch_sub(entry.send_slots as i32, Ordering::AcqRel);
            }
            if entry.recv_slots != 0 {
                let used = &entry.slots.recv_used;
                used.fetch_sub(entry.recv_slots as i32, Ordering::AcqRel);
            }
            out(entry.completion);
        }
        self.len.store(inner.ring.len(), Ordering::Release);
        if n == 0 && inner.overrun {
            return Err(Error::new(
                "ibv_poll_cq",
                libc::EIO,
                format!(
                    "the completion queue of {} entries overran: completions were lost; size it to the sum of the \
                     depths of the queues that feed it",
                    inner.capacity
                ),
            ));
        }
        Ok(n)
    }
}

/// A completion queue (`ibv_create_cq(3)`).
#[derive(Clone, Debug)]
pub struct Cq {
    pub(crate) shared: Arc<CqShared>,
}

impl Cq {
    pub(crate) fn new(
        context: &Context,
        cqe: u32,
        channel: Option<&CompChannel>,
        cookie: u64,
    ) -> Result<Cq> {
        let capacity = round_capacity("ibv_create_cq", cqe)?;
        let channel = channel.map(|c| {
            c.shared.users.fetch_add(1, Ordering::Relaxed);
            c.shared.clone()
        });
        Ok(Cq {
            shared: Arc::new(CqShared {
                inner: Mutex::new(Inner {
                    ring: VecDeque::with_capacity((capacity as usize + 1).min(4096)),
                    capacity,
                    armed: Armed::No,
                    overrun: false,
                }),
                len: AtomicUsize::new(0),
                cookie: AtomicU64::new(cookie),
                channel,
                context: context.shared.clone(),
                users: AtomicU32::new(0),
                events_delivered: AtomicU32::new(0),
            }),
        })
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        self.shared.inner.lock().capacity
    }

    /// What [`CompChannel::get_event`] gives for this queue.
    pub fn cookie(&self) -> u64 {
        self.shared.cookie.load(Ordering::Relaxed)
    }

    /// Changes the cookie.
    pub fn set_cookie(&self, cookie: u64) {
        self.shared.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Takes up to `max` completions; drives the engine when there are none.
    ///
    /// # Errors
    /// EIO once an overrun queue is empty, ENODEV in a forked child.
    pub fn poll(&self, max: usize, out: &mut dyn FnMut(Completion)) -> Result<usize> {
        let nic = &self.shared.context.nic;
        nic.count_poll();
        let n = self.shared.pop(max, out)?;
        if n > 0 {
            return Ok(n);
        }
        nic.drive("ibv_poll_cq", || {
            self.shared.len.load(Ordering::Acquire) != 0
        })?;
        let n = self.shared.pop(max, out)?;
        nic.spin_or_rest(n > 0);
        Ok(n)
    }

    /// Takes up to `max` completions that are waiting, without driving the engine (`ibv_next_poll`).
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn take(&self, max: usize, out: &mut dyn FnMut(Completion)) -> Result<usize> {
        self.shared.context.nic.check_alive("ibv_next_poll")?;
        self.shared.pop(max, out)
    }

    /// Asks for an event on the channel at the next completion, or the next solicited or failed one.
    pub fn request_notify(&self, solicited_only: bool) {
        let mut inner = self.shared.inner.lock();
        inner.armed = match (inner.armed, solicited_only) {
            // Asking for less does not take back an earlier request for more (ibv_req_notify_cq(3)).
            (Armed::Next, _) | (_, false) => Armed::Next,
            _ => Armed::Solicited,
        };
        drop(inner);
        self.shared.context.nic.expect_sleep();
    }

    /// Changes the capacity; gives the new one.
    ///
    /// # Errors
    /// EINVAL if more completions are waiting than would fit.
    pub fn resize(&self, cqe: u32) -> Result<u32> {
        let capacity = round_capacity("ibv_resize_cq", cqe)?;
        let mut inner = self.shared.inner.lock();
        if inner.ring.len() > capacity as usize {
            return Err(Error::invalid(
                "ibv_resize_cq",
                format!("{} completions wait in the queue", inner.ring.len()),
            ));
        }
        inner.capacity = capacity;
        Ok(capacity)
    }

    /// Queue pairs still use it.
    pub fn in_use(&self) -> bool {
        self.shared.users.load(Ordering::Acquire) != 0
    }

    /// Channel events taken by [`CompChannel::get_event`].
    pub fn events_delivered(&self) -> u32 {
        self.shared.events_delivered.load(Ordering::Acquire)
    }

    /// Revokes its channel and asynchronous events that nobody has taken; call before destroying.
    pub fn detach(&self) {
        self.shared.inner.lock().armed = Armed::No;
        let cookie = self.cookie();
        self.shared
            .context
            .revoke_events(|event| matches!(event, AsyncEvent::Cq { cookie: c } if *c == cookie));
        if let Some(channel) = &self.shared.channel {
            channel.revoke(&self.shared);
        }
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.users.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Capacity as hardware rounds it: a power of two less one.
fn round_capacity(verb: &'static str, cqe: u32) -> Result<u32> {
    if cqe == 0 || cqe > crate::device::MAX_CQE {
        return Err(Error::invalid(
            verb,
            format!(
                "{cqe} entries asked for, 1 to {} possible",
                crate::device::MAX_CQE
            ),
        ));
    }
    Ok((cqe + 1).next_power_of_two() - 1)
}

#[derive(Debug)]
pub(crate) struct ChannelShared {
    events: EventFd,
    queue: Mutex<VecDeque<Weak<CqShared>>>,
    users: AtomicU32,
    closed: AtomicBool,
}

impl ChannelShared {
    fn push(&self, cq: &Arc<CqShared>) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        self.queue.lock().push_back(Arc::downgrade(cq));
        self.events.add(1);
    }

    fn revoke(&self, cq: &Arc<CqShared>) {
        let mut queue = self.queue.lock();
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

impl CompChannel {
    pub(crate) fn new(context: &Context) -> Result<CompChannel> {
        let events =
            EventFd::new().map_err(|_| Error::last_os("ibv_create_comp_channel", "eventfd"))?;
        Ok(CompChannel {
            shared: Arc::new(ChannelShared {
                events,
                queue: Mutex::new(VecDeque::new()),
                users: AtomicU32::new(0),
                closed: AtomicBool::new(false),
            }),
            context: context.shared.clone(),
        })
    }

    /// The descriptor: readable while events wait. The application may poll it and set O_NONBLOCK.
    pub fn fd(&self) -> RawFd {
        self.shared.events.fd()
    }

    /// Takes the next event, blocking in read(2) unless O_NONBLOCK is set; gives the cookie of its queue.
    ///
    /// # Errors
    /// EAGAIN when non-blocking and none waits, EINTR on a signal.
    pub fn get_event(&self) -> Result<u64> {
        loop {
            self.context.nic.expect_sleep();
            self.shared
                .events
                .take()
                .map_err(|_| Error::last_os("ibv_get_cq_event", "completion channel"))?;
            let next = self.shared.queue.lock().pop_front();
            // A queue destroyed between its event and now leaves a token without an entry.
            if let Some(cq) = next.and_then(|weak| weak.upgrade()) {
                cq.events_delivered.fetch_add(1, Ordering::AcqRel);
                return Ok(cq.cookie.load(Ordering::Relaxed));
            }
        }
    }

    /// Completion queues still use it.
    pub fn in_use(&self) -> bool {
        self.shared.users.load(Ordering::Acquire) != 0
    }
}
