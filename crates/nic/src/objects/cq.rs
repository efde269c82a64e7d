//! Completion queues.

mod channel;
mod moderation;
mod ring;
mod slots;
mod tasks;

use std::collections::TryReserveError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rnic_transport::{Completion, Fifo};
use rustix_futex_sync::OnceLock;

use crate::driving::{Driven, ShardSet};
use crate::error::{Error, Result};
use crate::objects::context::{AsyncEvent, Context, ContextShared};
use crate::sync::bias::{Biased, Guard};
use crate::sys;
use channel::ChannelShared;
use moderation::{Moderation, Verdict};
use ring::Ring;

pub use channel::{CompChannel, WeakCompChannel};
pub use moderation::MAX_CQ_PERIOD;
pub(crate) use slots::{Freed, Slots};
pub(crate) use tasks::CqTasks;

/// When a completion arose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The device's clock, which `ibv_query_rt_values_ex(3)` reads: nanoseconds of CLOCK_MONOTONIC.
    pub raw: u64,
    /// Nanoseconds since the epoch.
    pub wallclock: u64,
}

/// What extended completion queues may ask for (`ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CqOptions {
    /// Completions are stamped, see [`Cq::poll_one`].
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
    cookie: AtomicU64,
    channel: Option<Arc<ChannelShared>>,
    /// The program was told by an event to look here, and has not polled since.
    told: AtomicBool,
    /// No event of it enters the channel any more. Under the lock of the channel's queue.
    detached: AtomicBool,
    context: Arc<ContextShared>,
    pub(crate) facts: Arc<Facts>,
    events_delivered: AtomicU32,
    /// The shard of the queue pairs whose send queues complete here, once there was one.
    home: OnceLock<usize>,
    /// Those of all queue pairs that complete here.
    shards: ShardSet,
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
        if self.context.nic.check_alive("").is_err() {
            return;
        }
        self.shards.leave(shard);
        if let Some(channel) = &self.channel {
            channel.shards.leave(shard);
        }
    }

    /// The shard of a queue pair that sends to `send_cq` and receives to `recv_cq`. Who polls for what is received drives those that
    /// receive there, and who waits at a channel those that are told of there, so that it stays with them if they are in one.
    pub(crate) fn home(send_cq: &CqShared, recv_cq: &CqShared) -> usize {
        *send_cq.home.get_or_init(|| {
            let channel = send_cq.channel.as_ref();
            let near = recv_cq.home.get().copied();
            let near = near.or_else(|| recv_cq.shards.sole());
            // Who waits there can drive only if it is one shard.
            let near = near.or_else(|| channel?.shards.sole());
            send_cq.context.nic.enter_home(near)
        })
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.inner.lock().capacity
    }

    pub(crate) fn context_id(&self) -> u64 {
        self.context.id()
    }

    /// Adds a completion, which frees slots of that owner when it is polled; wakes whoever armed the queue for it.
    ///
    /// One that finds the queue full puts it into error (IBTA vol. 1, 11.6.3.2): the queue says so once, takes no more,
    /// and every queue pair that completes into it fails.
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
                raw: sys::now_ns(),
                wallclock: sys::wallclock_ns(),
            });
        }
        self.len.store(inner.ring.len(), Ordering::Release);
        let notify = match inner.armed {
            Armed::No => false,
            Armed::Next => true,
            Armed::Solicited => solicited,
        };
        if notify {
            let verdict = inner.moderation.completed(sys::now_ns);
            self.judge(verdict, inner, || self.context.nic.cq_tasks(completion.qpn));
        }
    }

    /// A completion has no room.
    #[cold]
    fn lose(&self, qpn: u32, mut inner: Guard<'_, Inner>) {
        let first = !std::mem::replace(&mut inner.overrun, true);
        drop(inner);
        if first {
            self.context.post_event(AsyncEvent::Cq {
                cookie: self.cookie.load(Ordering::Relaxed),
            });
        }
        self.context.nic.cq_tasks(qpn).fail(qpn);
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
    fn event_taken(&self) {
        self.told.store(true, Ordering::Relaxed);
        self.inner.lock().fired = None;
    }

    /// The program polls, or arms: it was told, and is not any more.
    #[inline]
    fn looked_at(&self) -> bool {
        let told = self.told.load(Ordering::Relaxed);
        if told {
            self.told.store(false, Ordering::Relaxed);
        }
        told
    }

    /// An armed queue fires for what the program has left in it, too, or not seen: with the doorbell a card learns how far it
    /// has polled, and programs rely on it that arm without a look (UCX), or take a part of what there is for each event.
    fn fire_for_the_rest(self: &Arc<Self>, mut inner: Guard<'_, Inner>) {
        // One event at a time that nobody has fetched, as with the doorbell's sequence number.
        if !inner.is_due() || inner.fired.is_some() {
            return;
        }
        let waiting = inner.ring.len() as u32;
        let verdict = inner.moderation.waiting(waiting, sys::now_ns);
        let nic = &self.context.nic;
        self.judge(verdict, inner, || nic.first_cq_tasks());
        if let Verdict::Remind(_) = verdict {
            nic.after_drive(nic.lock());
        }
    }

    /// Removes the completions of a destroyed or reset queue pair; the places of its shared receive queue are free then.
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
    fn has_some(&self) -> bool {
        self.len.load(Ordering::Acquire) != 0
    }

    fn pop(self: &Arc<Self>, max: usize, out: &mut dyn FnMut(&Completion)) -> usize {
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

    /// The oldest completion. `before_event`: unless it is the one whose event waits in the channel, or a later one.
    fn pop_one(&self, before_event: bool) -> Option<(Completion, Stamp)> {
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

/// What goes with the completions is brought up to date, also when the application's callback panics.
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
        options: CqOptions,
    ) -> Result<Cq> {
        const VERB: &str = "ibv_create_cq";
        let capacity = round_capacity(VERB, cqe)?;
        context.shared.nic.check_alive(VERB)?;
        let mut ring = Ring::default();
        let mut stamps = options.timestamps.then(Fifo::default);
        take_memory(capacity, &mut ring, &mut stamps).map_err(|_| Error::no_memory(VERB))?;
        if let Some(channel) = channel {
            channel.shared.enter()?;
        }
        let channel = channel.map(|channel| channel.shared.clone());
        let facts = Arc::new(Facts {
            number: NEXT_CQ.fetch_add(1, Ordering::Relaxed),
            context: context.id(),
            capacity: AtomicU32::new(capacity),
            users: AtomicU32::new(0),
        });
        context.shared.nic.know_cq(&facts);
        Ok(Cq {
            shared: Arc::new(CqShared {
                inner: Biased::new(Inner {
                    ring,
                    stamps,
                    capacity,
                    pushed: 0,
                    solicited: 0,
                    armed: Armed::No,
                    fired: None,
                    moderation: Moderation::default(),
                    ignore_overrun: options.ignore_overrun,
                    overrun: false,
                }),
                len: AtomicUsize::new(0),
                cookie: AtomicU64::new(cookie),
                channel,
                told: AtomicBool::new(false),
                detached: AtomicBool::new(false),
                context: context.shared.clone(),
                facts,
                events_delivered: AtomicU32::new(0),
                home: OnceLock::new(),
                shards: ShardSet::default(),
            }),
        })
    }

    /// Entries it holds.
    pub fn capacity(&self) -> u32 {
        self.shared.capacity()
    }

    /// What [`CompChannel::get_event`] gives for this queue.
    pub fn cookie(&self) -> u64 {
        self.shared.cookie.load(Ordering::Relaxed)
    }

    /// Changes the cookie.
    pub fn set_cookie(&self, cookie: u64) {
        self.shared.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Whether calls on it can work. Whoever has locks of his own around it asks before he waits for them: in a forked child
    /// the thread that has one may not exist.
    ///
    /// # Errors
    /// ENODEV, of that verb, in a forked child and after [`crate::shutdown`].
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.shared.context.nic.check_alive(verb)
    }

    /// Takes up to `max` completions; drives the engine when there are none. A queue that overran gives out what it has
    /// and then stays empty; asynchronous events say what happened.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn poll(&self, max: usize, out: &mut dyn FnMut(&Completion)) -> Result<usize> {
        let nic = &self.shared.context.nic;
        nic.count_poll(&self.shared.shards);
        self.shared.looked_at();
        if self.shared.has_some() {
            // Whoever had the queue's lock when this process was forked is not here.
            nic.check_alive("ibv_poll_cq")?;
            let n = self.shared.pop(max, out);
            if n > 0 {
                return Ok(n);
            }
        }
        let driven = nic.drive("ibv_poll_cq", &self.shared.shards, || {
            self.shared.has_some()
        })?;
        if driven == Driven::Glanced {
            return Ok(0);
        }
        // Before the queue is looked at: others may have the core meanwhile, and take packets in. A program that is told of
        // nothing may turn to the event that came behind them, of a connection that was closed, and destroy the queue pair
        // with its completions.
        nic.spin_or_rest(&self.shared.shards, driven, self.shared.has_some());
        Ok(self.shared.pop(max, out))
    }

    /// Takes the oldest completion with its stamp, which is zero if the queue was made without; drives the engine when
    /// there is none (`ibv_start_poll`).
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn poll_one(&self) -> Result<Option<(Completion, Stamp)>> {
        let nic = &self.shared.context.nic;
        nic.count_poll(&self.shared.shards);
        self.shared.looked_at();
        if self.shared.has_some() {
            nic.check_alive("ibv_start_poll")?;
            if let Some(found) = self.shared.pop_one(false) {
                return Ok(Some(found));
            }
        }
        let driven = nic.drive("ibv_start_poll", &self.shared.shards, || {
            self.shared.has_some()
        })?;
        if driven == Driven::Glanced {
            return Ok(None);
        }
        // As in `poll`.
        nic.spin_or_rest(&self.shared.shards, driven, self.shared.has_some());
        Ok(self.shared.pop_one(false))
    }

    /// Takes the next completion of a batch that [`Cq::poll_one`] began, without driving the engine (`ibv_next_poll`).
    ///
    /// A completion that came meanwhile and whose event nobody has fetched yet is left for the next batch: programs
    /// that wait for an event and then poll once expect to find something (ibv_rc_pingpong fails otherwise).
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn take_one(&self) -> Result<Option<(Completion, Stamp)>> {
        self.shared.context.nic.check_alive("ibv_next_poll")?;
        Ok(self.shared.pop_one(true))
    }

    /// Ends a batch that [`Cq::poll_one`] began (`ibv_end_poll`). Nothing happens in a forked child.
    pub fn end_batch(&self) {
        let shared = &self.shared;
        if shared.has_some() && shared.context.nic.check_alive("ibv_end_poll").is_ok() {
            shared.fire_for_the_rest(shared.inner.lock());
        }
    }

    /// The same without waiting for anybody's event: for who clears up, and expects nothing.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn take_any(&self) -> Result<Option<(Completion, Stamp)>> {
        self.shared.context.nic.check_alive("ibv_poll_cq")?;
        Ok(self.shared.pop_one(false))
    }

    /// Asks for an event on the channel at the next completion, or the next solicited or failed one. One that waits in the queue
    /// counts, as on hardware (the text, IBTA vol. 1, 11.4.2.2, knows only those that come after this), unless the program was
    /// just told by an event, and arms before it polls: then what its next poll leaves counts.
    /// Does nothing in a forked child.
    pub fn request_notify(&self, solicited_only: bool) {
        const VERB: &str = "ibv_req_notify_cq";
        if self.shared.context.nic.check_alive(VERB).is_err() {
            return;
        }
        let mut inner = self.shared.inner.lock();
        inner.armed = match (inner.armed, solicited_only) {
            // Asking for less does not take back an earlier request for more (ibv_req_notify_cq(3)).
            (Armed::Next, _) | (_, false) => Armed::Next,
            _ => Armed::Solicited,
        };
        // Good for one time: who arms again without a poll is told like anybody.
        if self.shared.looked_at() {
            drop(inner);
        } else {
            self.shared.fire_for_the_rest(inner);
        }
        // Who waits in the verb looks after packets himself.
        let channel = self.shared.channel.as_ref();
        if !channel.is_some_and(|channel| channel.is_driven()) {
            let shards = &self.shared.shards;
            self.shared.context.nic.expect_sleep(shards);
        }
    }

    /// Changes the capacity; gives the new one. What waits in the queue stays, in order.
    ///
    /// # Errors
    /// EINVAL if more completions are waiting than would fit, or the queue overran. ENOMEM, as for its making.
    pub fn resize(&self, cqe: u32) -> Result<u32> {
        const VERB: &str = "ibv_resize_cq";
        let capacity = round_capacity(VERB, cqe)?;
        self.shared.context.nic.check_alive(VERB)?;
        let mut inner = self.shared.inner.lock();
        if inner.overrun {
            return Err(Error::invalid(VERB, "the queue overran and is in error"));
        }
        if inner.ring.len() > cqe as usize {
            return Err(Error::invalid(
                VERB,
                format!(
                    "{} completions wait in the queue, {cqe} entries asked for",
                    inner.ring.len()
                ),
            ));
        }
        let Inner { ring, stamps, .. } = &mut *inner;
        take_memory(capacity, ring, stamps).map_err(|_| Error::no_memory(VERB))?;
        inner.capacity = capacity;
        self.shared
            .facts
            .capacity
            .store(capacity, Ordering::Relaxed);
        Ok(capacity)
    }

    /// Moderates events (`ibv_modify_cq(3)`): an armed queue fires after `count` completions that it is armed for, or
    /// `period` microseconds after the first of them, whichever is earlier. Either 0: at the first.
    ///
    /// # Errors
    /// EINVAL for a period beyond [`MAX_CQ_PERIOD`].
    pub fn moderate(&self, count: u16, period: u16) -> Result<()> {
        const VERB: &str = "ibv_modify_cq";
        self.shared.context.nic.check_alive(VERB)?;
        if period > MAX_CQ_PERIOD {
            return Err(Error::invalid(
                VERB,
                format!("cq_period is {period} microseconds, at most {MAX_CQ_PERIOD} are possible"),
            ));
        }
        let mut inner = self.shared.inner.lock();
        let verdict = inner.moderation.set(count, period, sys::now_ns());
        if inner.armed != Armed::No {
            let nic = &self.shared.context.nic;
            let tasks = || nic.first_cq_tasks();
            self.shared.judge(verdict, inner, tasks);
            // The event may be due earlier than the background thread knows.
            nic.after_drive(nic.lock());
        }
        Ok(())
    }

    /// Queue pairs still use it.
    pub fn in_use(&self) -> bool {
        self.shared.facts.users.load(Ordering::Acquire) != 0
    }

    /// Channel events taken by [`CompChannel::get_event`].
    pub fn events_delivered(&self) -> u32 {
        self.shared.events_delivered.load(Ordering::Acquire)
    }

    /// Revokes its channel and asynchronous events that nobody has taken, and has no more events enter the channel; call before
    /// destroying. Does nothing in a forked child, whose descriptors are the parent's.
    pub fn detach(&self) {
        if self.shared.context.nic.check_alive("").is_err() {
            return;
        }
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
        if let Some(home) = self.home.get() {
            self.context.nic.leave_home(*home);
        }
    }
}

/// Capacity as hardware rounds it: a power of two less one.
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
