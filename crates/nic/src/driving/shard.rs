//! A shard: an engine behind its lock, and who drives it.
//!
//! Each has a link of its own, with its own QPN ranges, sockets and rings, so to the others it is
//! what another process is: queue pairs of two shards exchange packets through memory, and no
//! thread ever has two shards locked at once (but in fork(2), which takes them in order). A queue
//! pair belongs to one of them for good.

use rnic_settings::ablation::{self, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_link::{Look, QuickPoll};

use super::background::{Background, STREAM};
use super::kernel_events;
use super::waiters::Waiters;
use super::watchdog;
use super::yielding;
use crate::engine::Awaited;
use crate::engine::Engine;
use crate::engine::{Acks, TICK_NS};
use crate::error::Result;
use crate::host::Host;
use crate::queues::CqTasks;
use crate::sync::bias::{Biased, Guard};
use crate::sync::busy::while_busy;

/// What a poll did with a shard. Of several, the last of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Driven {
    /// It was no more than a quick poll, and nothing has changed.
    QuickPolled,
    /// Nothing: another thread has it.
    LockedOut,
    /// Ran it, or made a system call to see that nothing came.
    Round,
}

/// What all threads share of one.
pub(crate) struct Shard {
    /// Its place among the process's.
    pub(super) index: usize,
    pub(super) host: Host,
    pub(super) engine: Biased<Engine>,
    pub(super) cq_tasks: Arc<CqTasks>,
    /// Calls of `ibv_poll_cq` and `ibv_post_send`, for the background thread to see that the
    /// application polls.
    pub(super) polls: AtomicU64,
    /// Packets that polls took in which took in many: as good as so many polls.
    taken: AtomicU64,
    /// Polls when a thread that polls another engine looked last ([`Shard::drive_if_unpolled`]).
    polls_before: AtomicU64,
    pub(super) background: Background,
    pub(super) waiters: Arc<Waiters>,
    /// Those of the first hear of the port.
    pub(super) contexts: kernel_events::Contexts,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").finish_non_exhaustive()
    }
}

impl Shard {
    pub(super) fn new(engine: Engine) -> std::io::Result<Shard> {
        Ok(Shard {
            index: engine.index,
            background: Background::new()?,
            host: engine.common.host.clone(),
            cq_tasks: engine.cq_tasks.clone(),
            engine: Biased::new(engine),
            polls: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            polls_before: AtomicU64::new(0),
            waiters: Waiters::new(),
            contexts: kernel_events::Contexts::default(),
        })
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The engine, waiting for its lock. Not in a forked child ([`super::nic::Nic::check_alive`]).
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Locks the engine for `work` that needs the host's registry, and for what the caller does
    /// then. While another process has that (EBUSY) the engine goes on; if that process is stopped,
    /// this ends with EBUSY after a while. Not in a forked child.
    pub(crate) fn lock_with<T>(
        &self,
        work: impl Fn(&mut Engine) -> Result<T>,
    ) -> Result<(Guard<'_, Engine>, T)> {
        while_busy(|| {
            let mut engine = self.lock();
            work(&mut engine).map(|done| (engine, done))
        })
    }

    #[inline]
    pub(crate) fn count_poll(&self) {
        count(&self.polls, 1);
    }

    /// What the application has done to drive the engine: polls, and packets where a poll took in
    /// many.
    pub(super) fn done(&self) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.polls.load(Ordering::Relaxed).wrapping_add(taken)
    }

    /// Runs the engine for one round unless another thread is at it.
    ///
    /// `satisfied` is asked after packets were taken in. If the caller has what it waited for, it
    /// mostly answers at once: then what is ready to be sent waits for the answer. At the latest it
    /// leaves at the next round, or when the background thread looks, some milliseconds later; it
    /// waits only while that thread leaves the engine to the application. A stream does not wait,
    /// nor does the ACK of a peer by memory that sends one message at a time: the sender needs it
    /// to go on, and the caller will be busy with what came.
    #[inline]
    pub(super) fn drive(&self, satisfied: impl FnOnce() -> bool) -> Driven {
        if let Some(mut engine) = self.engine.try_lock() {
            match engine.quick_poll() {
                QuickPoll::Something => {}
                QuickPoll::NothingInMemory => return Driven::QuickPolled,
                QuickPoll::NothingAtSocket => return Driven::Round,
            }
            let now = engine.now();
            let owed = engine.ready.len() != engine.held;
            let received = engine.take_in(now, Look::Poll);
            let acks = self.acks();
            let few = received < STREAM;
            let patient = few
                && received > 0
                && !owed
                && acks == Acks::MayWait
                && !engine.strict
                && !ablation::is_out(Policy::PutOff);
            let awaited = match patient {
                true => engine.acknowledge_awaited(now),
                false => Awaited::Owed,
            };
            match awaited {
                Awaited::Left => {}
                Awaited::None if satisfied() => engine.put_off(),
                _ => engine.send_out(now, acks),
            }
            let more = || Shard::have_senders_wake(&mut engine);
            self.waiters.leave_packets_of_poll(now, TICK_NS, more);
            self.after_drive(engine);
            if self.background.wakeup.is_watching() {
                let mut now = now;
                if !few {
                    count(&self.taken, received as u64);
                    // To take in so much may have lasted longer than a tick.
                    now = self.host.now_ns();
                }
                self.background.alarm.put_off(now, self.done(), self.tick());
            }
            Driven::Round
        } else {
            Driven::LockedOut
        }
    }

    /// Any ACK may wait while the application polls and the background thread leaves the engine to
    /// it.
    #[inline]
    pub(crate) fn acks(&self) -> Acks {
        if self.background.wakeup.is_watching() {
            Acks::MayWait
        } else {
            Acks::MayWaitForAnswer
        }
    }

    /// Leaves the engine: if it has work or deadlines that the background thread does not know of,
    /// tell it.
    #[inline]
    pub(crate) fn after_drive(&self, mut engine: Guard<'_, Engine>) {
        engine.publish_counters();
        let wakeup = &self.background.wakeup;
        // Under the lock: a thread that ends to watch looks at the engine after this.
        if wakeup.is_watching() {
            drop(engine);
        } else {
            let work_left = engine.has_turns() || engine.link.has_left();
            let deadline = engine.next_deadline();
            drop(engine);
            wakeup.hear(work_left, deadline);
        }
        self.cq_tasks.let_go();
    }

    /// After a round: a thread that waits may sleep on the descriptors of packets, and is woken by
    /// those that come.
    pub(super) fn leave_packets(&self, engine: &mut Engine) {
        self.waiters
            .leave_packets(|| Shard::have_senders_wake(engine));
    }

    /// How long the background thread leaves the engine to an application that does not poll, ns.
    pub(super) fn tick(&self) -> u64 {
        match self.waiters.are_unwoken() {
            true => watchdog::SLEEPERS_TICK_NS,
            false => TICK_NS,
        }
    }

    /// From now on senders wake this process. True: something was there already, and was taken in.
    fn have_senders_wake(engine: &mut Engine) -> bool {
        let left = engine.link.fall_asleep();
        if left {
            engine.round(true);
        }
        left
    }

    /// Leaves the engine with what may wait, for the application's next call or until the next
    /// deadline.
    #[inline]
    pub(crate) fn leave_for_later(&self, engine: Guard<'_, Engine>) {
        let deadline = engine.next_deadline();
        drop(engine);
        self.background.wakeup.hear(false, deadline);
    }

    /// The application is about to wait for an event instead of polling.
    pub(crate) fn expect_sleep(&self) {
        self.background.wakeup.stop_watching();
    }
}

/// Exactness does not matter, only that it moves.
#[inline]
fn count(counter: &AtomicU64, more: u64) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(more), Ordering::Relaxed);
}

/// Where application threads spin: see [`super::yielding`].
impl Shard {
    /// Called after each poll: if cores are short, an application that finds nothing lets others
    /// run. True: its polls have been in vain for a moment.
    #[inline]
    pub(super) fn spin_or_yield(&self, driven: Driven, found: bool) -> bool {
        yielding::spin_or_yield(self, driven, found)
    }

    /// Drives the engine if its background thread leaves it to threads that poll, and none has
    /// polled since the last call.
    pub(super) fn drive_if_unpolled(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        let before = self.polls_before.swap(polls, Ordering::Relaxed);
        if before == polls && self.background.wakeup.is_watching() {
            self.drive(|| false);
        }
    }
}
