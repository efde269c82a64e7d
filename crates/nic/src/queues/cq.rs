//! Completion queues, as the engine fills them and programs empty them.

use std::collections::TryReserveError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rnic_transport::{Completion, Fifo};
use rustix_futex_sync::OnceLock;

use super::channel::ChannelShared;
use super::cq_moderation::{Moderation, Verdict};
use super::cq_ring::Ring;
use super::cq_tasks::CqTasks;
use super::owner::Owner;
use super::shard_set::ShardSet;
use super::slots::{Freed, Slots};
use super::usage;
use crate::error::{self, Error, Result};
use crate::sync::bias::{Biased, Guard};
use rnic_types::{AsyncEvent, Stamp};

/// What extended completion queues may ask for (`ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CqOptions {
    /// Completions are stamped, see [`Cq::poll_one`](crate::Cq::poll_one).
    pub timestamps: bool,
    /// A full queue loses its oldest completion instead of failing.
    pub ignore_overrun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Next,
}

#[derive(Debug)]
struct Inner {
    ring: Ring,
    /// Of each entry in `ring`, if the queue keeps them.
    stamps: Option<Fifo<Stamp>>,
    capacity: u32,
    /// Completions that ever entered.
    pushed: u64,
    /// `pushed` as the last one entered that is solicited or failed.
    solicited: u64,
    armed: Armed,
    /// The program has armed it at some time.
    armed_ever: bool,
    /// The event that fired last and waits in the channel: `pushed` at that time.
    fired: Option<u64>,
    moderation: Moderation,
    ignore_overrun: bool,
    /// In error: a completion found no room. Nothing enters any more.
    overrun: bool,
}

impl Inner {
    fn take_oldest(&mut self) -> Option<(Completion, Stamp)> {
        let mut oldest = None;
        self.ring
            .pop(1, &mut |completion| oldest = Some(*completion));
        let stamp = self.stamps.as_mut().and_then(Fifo::pop_front);
        Some((oldest?, stamp.unwrap_or_default()))
    }

    /// Completions that ever left.
    fn popped(&self) -> u64 {
        self.pushed - self.ring.len() as u64
    }

    /// Something waits that the queue is armed for.
    fn is_due(&self) -> bool {
        match self.armed {
            Armed::No => false,
            Armed::Next => self.ring.len() > 0,
            Armed::Solicited => self.solicited > self.popped(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CqShared {
    inner: Biased<Inner>,
    /// Entries in the ring, readable without the lock.
    len: AtomicUsize,
    pub(crate) cookie: AtomicU64,
    pub(crate) channel: Option<Arc<ChannelShared>>,
    /// The program was told by an event to look here, and has not polled since.
    notified: AtomicBool,
    /// A poll found nothing, or something, since [`CqShared::take_polls`] was called last.
    found_nothing: AtomicBool,
    found_some: AtomicBool,
    /// No event of it enters the channel any more. Under the lock of the channel's queue.
    pub(super) detached: AtomicBool,
    pub(crate) owner: Arc<Owner>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) events_delivered: AtomicU32,
    /// The shard of the queue pairs whose send queues complete here, once there was one.
    home: OnceLock<usize>,
    /// Those of all queue pairs that complete here.
    pub(crate) shards: ShardSet,
}

/// What whoever looks from outside is told of a completion queue. To hold it keeps nothing else.
#[derive(Debug)]
pub(crate) struct Facts {
    /// No other of the process has had it.
    pub(crate) number: u32,
    pub(crate) context: u64,
    pub(crate) capacity: AtomicU32,
    /// Queue pairs attached (twice if for both directions), and XRC shared receive queues.
    pub(crate) users: AtomicU32,
}

/// How a completion queue stands, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// For which completion the next event comes: `next`, `solicited`; `never`: it was never asked
    /// for; `no longer`: it came, or its queue was detached.
    pub(crate) armed: &'static str,
    /// Completions in it, and all that ever entered.
    pub(crate) waiting: u64,
    pub(crate) pushed: u64,
    pub(crate) overrun: bool,
    pub(crate) moderated: bool,
}

static NEXT_CQ: AtomicU32 = AtomicU32::new(1);

impl CqShared {
    /// Programs may sleep until something completes here.
    pub(crate) fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// A queue pair of that shard completes here from now on.
    pub(crate) fn enter(&self, shard: usize) {
        self.facts.users.fetch_add(1, Ordering::AcqRel);
        self.shards.enter(shard);
        if let Some(channel) = &self.channel {
            channel.shards.enter(shard);
        }
    }

    /// It does not any more.
    pub(crate) fn leave(&self, shard: usize) {
        self.facts.users.fetch_sub(1, Ordering::AcqRel);
        // In a forked child a thread of the parent may have had the sets' locks.
        if !self.owner.is_alive() {
            return;
        }
        self.shards.leave(shard);
        if let Some(channel) = &self.channel {
            channel.shards.leave(shard);
        }
    }

    /// The shard of a queue pair that sends to `send_cq` and receives to `recv_cq`. Who polls for
    /// what is received drives those that receive there, and who waits at a channel those that are
    /// told of there, so that it stays with them if they are in one.
    pub(crate) fn home(send_cq: &CqShared, recv_cq: &CqShared) -> usize {
        *send_cq.home.get_or_init(|| {
            let channel = send_cq.channel.as_ref();
            let near = recv_cq.home.get().copied();
            let near = near.or_else(|| recv_cq.shards.sole());
            let near = near.or_else(|| channel?.shards.sole());
            let sleeps = channel.is_some();
            send_cq.owner.device.enter_home(near, sleeps)
        })
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.inner.lock().capacity
    }

    pub(crate) fn context_id(&self) -> u64 {
        self.owner.id
    }

    /// Adds a completion, which frees slots of that owner when it is polled; wakes whoever armed
    /// the queue for it.
    ///
    /// One that finds the queue full puts it into error (IBTA vol. 1, 11.6.3.2): the queue says so
    /// once, takes no more, and every queue pair that completes into it fails.
    pub(crate) fn push(
        self: &Arc<Self>,
        completion: &Completion,
        slots: &Arc<Slots>,
        freed: Freed,
    ) {
        let solicited =
            completion.solicited || completion.status != rnic_transport::Status::Success;
        let mut inner = self.inner.lock();
        if inner.overrun || inner.ring.len() >= inner.capacity as usize {
            if !inner.ignore_overrun {
                return self.lose(completion.qpn, inner);
            }
            inner.take_oldest();
        }
        inner.ring.push(completion, slots, freed);
        inner.pushed += 1;
        if solicited {
            inner.solicited = inner.pushed;
        }
        if let Some(stamps) = &mut inner.stamps {
            stamps.push_back(Stamp {
                raw: self.owner.host.now_ns(),
                wallclock: self.owner.host.now_realtime_ns(),
            });
        }
        self.len.store(inner.ring.len(), Ordering::Release);
        let notify = match inner.armed {
            Armed::No => false,
            Armed::Next => true,
            Armed::Solicited => solicited,
        };
        if notify {
            let verdict = inner.moderation.completed(|| self.owner.host.now_ns());
            self.judge(verdict, inner, || {
                self.owner.device.cq_tasks(completion.qpn)
            });
        }
    }

    /// A completion has no room.
    #[cold]
    fn lose(&self, qpn: u32, mut inner: Guard<'_, Inner>) {
        let first = !std::mem::replace(&mut inner.overrun, true);
        let capacity = inner.capacity;
        drop(inner);
        if first {
            self.owner.device.overran(qpn, self.facts.number, capacity);
            self.owner.post_event(AsyncEvent::Cq {
                cookie: self.cookie.load(Ordering::Relaxed),
            });
        }
        self.owner.device.cq_tasks(qpn).fail(qpn);
    }

    /// Fires the event of an armed queue now or has it fired later, by whoever `tasks` are for.
    fn judge<'a>(
        self: &Arc<Self>,
        verdict: Verdict,
        mut inner: Guard<'_, Inner>,
        tasks: impl FnOnce() -> &'a CqTasks,
    ) {
        match verdict {
            Verdict::Fire => {
                inner.armed = Armed::No;
                if let Some(channel) = &self.channel {
                    inner.fired = Some(inner.pushed);
                    drop(inner);
                    channel.push(self);
                }
            }
            Verdict::Remind(at) => {
                drop(inner);
                tasks().remind(at, self);
            }
            Verdict::Wait => {}
        }
    }

    /// A shard of the engine reminds of a moderated event.
    pub(crate) fn remind(self: &Arc<Self>, now: u64, tasks: &CqTasks) {
        let mut inner = self.inner.lock();
        let verdict = inner.moderation.reminded(now);
        if inner.armed != Armed::No {
            self.judge(verdict, inner, || tasks);
        }
    }

    /// The event in the channel was fetched.
    pub(super) fn event_taken(&self) {
        self.notified.store(true, Ordering::Relaxed);
        self.inner.lock().fired = None;
    }

    /// The program polls, or arms: it was told, and is not any more.
    #[inline]
    pub(crate) fn looked_at(&self) -> bool {
        let notified = self.notified.load(Ordering::Relaxed);
        if notified {
            self.notified.store(false, Ordering::Relaxed);
        }
        notified
    }

    /// A poll has ended. Written only once until somebody asks.
    #[inline]
    pub(crate) fn polled(&self, found: bool) {
        let mark = match found {
            true => &self.found_some,
            false => &self.found_nothing,
        };
        if !mark.load(Ordering::Relaxed) {
            // Who counts is asked each time.
            match usage::is_on() {
                true => usage::polled(found),
                false => mark.store(true, Ordering::Relaxed),
            }
        }
    }

    /// Since the last call, a poll found nothing, or something.
    pub(crate) fn take_polls(&self) -> (bool, bool) {
        let take = |mark: &AtomicBool| mark.swap(false, Ordering::Relaxed);
        (take(&self.found_nothing), take(&self.found_some))
    }

    /// What it is about, for a report.
    pub(crate) fn standing(&self) -> Standing {
        let inner = self.inner.lock();
        Standing {
            armed: match inner.armed {
                Armed::No if inner.armed_ever => "no longer",
                Armed::No => "never",
                Armed::Solicited => "solicited",
                Armed::Next => "next",
            },
            waiting: inner.ring.len() as u64,
            pushed: inner.pushed,
            overrun: inner.overrun,
            moderated: inner.moderation.is_on(),
        }
    }

    /// An armed queue fires for what the program has left in it, too, or not seen: with the
    /// doorbell a card learns how far it has polled, and programs rely on it that arm without a
    /// look (UCX), or take a part of what there is for each event.
    fn fire_for_the_rest(self: &Arc<Self>, mut inner: Guard<'_, Inner>) {
        // One event at a time that nobody has fetched, as with the doorbell's sequence number.
        if !inner.is_due() || inner.fired.is_some() {
            return;
        }
        let waiting = inner.ring.len() as u32;
        let verdict = inner
            .moderation
            .waiting(waiting, || self.owner.host.now_ns());
        let device = &self.owner.device;
        self.judge(verdict, inner, || device.first_cq_tasks());
        if let Verdict::Remind(_) = verdict {
            device.attend_to_tasks();
        }
    }

    /// Removes the completions of a destroyed or reset queue pair; the places of its shared receive
    /// queue are free then.
    pub(crate) fn purge(&self, qpn: u32) {
        self.retain(|completion, _| completion.qpn != qpn);
    }

    /// Removes the completions of a destroyed shared receive queue.
    pub(crate) fn purge_srq(&self, slots: &Arc<Slots>) {
        self.retain(|_, of| !Arc::ptr_eq(of, slots));
    }

    fn retain(&self, keeps: impl Fn(&Completion, &Arc<Slots>) -> bool) {
        let mut inner = self.inner.lock();
        let mut stamps = inner.stamps.take();
        // Each comes off the front, and goes to the end if its completion stays.
        inner.ring.retain(|completion, slots| {
            let keep = keeps(completion, slots);
            if let Some(stamps) = &mut stamps
                && let Some(stamp) = stamps.pop_front()
                && keep
            {
                stamps.push_back(stamp);
            }
            keep
        });
        inner.stamps = stamps;
        // Which of them are solicited is not known: better one event too many.
        inner.solicited = inner.pushed;
        self.len.store(inner.ring.len(), Ordering::Release);
    }

    /// Completions wait in it: a look without the lock.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.len.load(Ordering::Acquire) != 0
    }

    pub(crate) fn pop(self: &Arc<Self>, max: usize, out: &mut dyn FnMut(&Completion)) -> usize {
        if !self.has_some() {
            return 0;
        }
        let mut inner = self.inner.lock();
        let popping = Popping {
            before: inner.ring.len(),
            inner: &mut inner,
            len: &self.len,
        };
        let popped = popping.inner.ring.pop(max, out);
        drop(popping);
        if inner.armed != Armed::No {
            self.fire_for_the_rest(inner);
        }
        popped
    }

    /// The oldest completion. `before_event`: unless it is the one whose event waits in the
    /// channel, or a later one.
    pub(crate) fn pop_one(&self, before_event: bool) -> Option<(Completion, Stamp)> {
        if !self.has_some() {
            return None;
        }
        let mut inner = self.inner.lock();
        let popped = inner.popped();
        if before_event && inner.fired.is_some_and(|fired| popped + 1 >= fired) {
            return None;
        }
        let oldest = inner.take_oldest();
        self.len.store(inner.ring.len(), Ordering::Release);
        oldest
    }
}

/// What goes with the completions is brought up to date, also when the application's callback
/// panics.
struct Popping<'a> {
    inner: &'a mut Inner,
    len: &'a AtomicUsize,
    before: usize,
}

impl Drop for Popping<'_> {
    #[inline]
    fn drop(&mut self) {
        let left = self.inner.ring.len();
        if let Some(stamps) = &mut self.inner.stamps {
            stamps.skip(self.before - left);
        }
        self.len.store(left, Ordering::Release);
    }
}

impl CqShared {
    /// One that is empty.
    ///
    /// # Errors
    /// EINVAL for 0 or too many entries. ENOMEM.
    pub(crate) fn new(
        verb: &'static str,
        owner: &Arc<Owner>,
        cqe: u32,
        channel: Option<&Arc<ChannelShared>>,
        cookie: u64,
        options: CqOptions,
    ) -> Result<CqShared> {
        let capacity = round_capacity(verb, cqe)?;
        let mut ring = Ring::default();
        let mut stamps = options.timestamps.then(Fifo::default);
        take_memory(capacity, &mut ring, &mut stamps).map_err(|_| error::no_memory(verb))?;
        if let Some(channel) = channel {
            channel.enter()?;
        }
        let facts = Arc::new(Facts {
            number: NEXT_CQ.fetch_add(1, Ordering::Relaxed),
            context: owner.id,
            capacity: AtomicU32::new(capacity),
            users: AtomicU32::new(0),
        });
        Ok(CqShared {
            inner: Biased::new(Inner {
                ring,
                stamps,
                capacity,
                pushed: 0,
                solicited: 0,
                armed: Armed::No,
                armed_ever: false,
                fired: None,
                moderation: Moderation::default(),
                ignore_overrun: options.ignore_overrun,
                overrun: false,
            }),
            len: AtomicUsize::new(0),
            cookie: AtomicU64::new(cookie),
            channel: channel.cloned(),
            notified: AtomicBool::new(false),
            found_nothing: AtomicBool::new(false),
            found_some: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            owner: owner.clone(),
            facts,
            events_delivered: AtomicU32::new(0),
            home: OnceLock::new(),
            shards: ShardSet::default(),
        })
    }

    /// A batch of polls is over: an armed queue fires for what they left.
    pub(crate) fn end_batch(self: &Arc<Self>) {
        self.fire_for_the_rest(self.inner.lock());
    }

    /// Asks for an event at the next completion, or the next solicited or failed one; see
    /// [`Cq::request_notify`](crate::Cq::request_notify).
    pub(crate) fn arm(self: &Arc<Self>, solicited_only: bool) {
        let mut inner = self.inner.lock();
        inner.armed_ever = true;
        inner.armed = match (inner.armed, solicited_only) {
            // Asking for less does not take back an earlier request for more
            // (ibv_req_notify_cq(3)).
            (Armed::Next, _) | (_, false) => Armed::Next,
            _ => Armed::Solicited,
        };
        // Good for one time: who arms again without a poll is told like anybody.
        if self.looked_at() {
            drop(inner);
        } else {
            self.fire_for_the_rest(inner);
        }
    }

    /// Changes the capacity; gives the new one. What waits in the queue stays, in order.
    ///
    /// # Errors
    /// EINVAL if more completions are waiting than would fit, or the queue overran. ENOMEM.
    pub(crate) fn resize(&self, verb: &'static str, cqe: u32) -> Result<u32> {
        let capacity = round_capacity(verb, cqe)?;
        let mut inner = self.inner.lock();
        if inner.overrun {
            return Err(Error::invalid(verb, "the queue overran and is in error"));
        }
        if inner.ring.len() > cqe as usize {
            return Err(Error::invalid(
                verb,
                format!(
                    "{} completions wait in the queue, {cqe} entries asked for",
                    inner.ring.len()
                ),
            ));
        }
        let Inner { ring, stamps, .. } = &mut *inner;
        take_memory(capacity, ring, stamps).map_err(|_| error::no_memory(verb))?;
        inner.capacity = capacity;
        self.facts.capacity.store(capacity, Ordering::Relaxed);
        Ok(capacity)
    }

    /// Moderates events; see [`Cq::moderate`](crate::Cq::moderate).
    pub(crate) fn moderate(self: &Arc<Self>, count: u16, period: u16) {
        let mut inner = self.inner.lock();
        let verdict = inner
            .moderation
            .set(count, period, self.owner.host.now_ns());
        if inner.armed != Armed::No {
            let device = &self.owner.device;
            self.judge(verdict, inner, || device.first_cq_tasks());
            // The event may be due earlier than the background thread knows.
            device.attend_to_tasks();
        }
    }

    /// Revokes its channel and asynchronous events that nobody has taken, and has no more events
    /// enter the channel.
    pub(crate) fn detach(self: &Arc<Self>) {
        self.inner.lock().armed = Armed::No;
        let cookie = self.cookie.load(Ordering::Relaxed);
        self.owner
            .revoke_events(|event| matches!(event, AsyncEvent::Cq { cookie: c } if *c == cookie));
        if let Some(channel) = &self.channel {
            channel.revoke(self);
        }
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.users.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(home) = self.home.get() {
            self.owner.device.leave_home(*home);
        }
    }
}

/// Takes memory for all that a queue may hold.
fn take_memory(
    capacity: u32,
    ring: &mut Ring,
    stamps: &mut Option<Fifo<Stamp>>,
) -> std::result::Result<(), TryReserveError> {
    let most = capacity as usize + 1;
    ring.try_reserve(most)?;
    stamps
        .as_mut()
        .map_or(Ok(()), |stamps| stamps.try_reserve(most))
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
