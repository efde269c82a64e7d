//! The process's NIC: the engine behind its lock, and how the application's threads get at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rnic_link::{LinkCounters, LinkError};

use super::background::{self, Background, STREAM};
use super::drive::Acks;
use super::waiters::Waiters;
use super::{DropCounters, Engine, fork, port, spin};
use crate::bias::{Biased, Guard};
use crate::context::AsyncEvents;
use crate::cq::CqTasks;
use crate::error::{Error, Result};
use crate::memory::Windows;
use crate::report;
use crate::sys::{self, ForkWitness};

/// What all threads of the process share.
pub(crate) struct NicShared {
    pub(super) engine: Biased<Engine>,
    pub(super) cq_tasks: Arc<CqTasks>,
    witness: ForkWitness,
    dead: AtomicBool,
    /// Calls of `ibv_poll_cq` and `ibv_post_send`, for the background thread to see that the application polls.
    pub(super) polls: AtomicU64,
    pub(super) background: Background,
    pub(super) waiters: Arc<Waiters>,
    pub(super) contexts: port::Contexts,
    guarded_memory: bool,
    windows: Arc<Windows>,
}

/// What a poll did with the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driven {
    /// It was no more than a glance, and nothing has changed.
    Glanced,
    /// Ran it.
    Round,
    /// Nothing: another thread has it.
    LockedOut,
}

/// The process's NIC: shared by all its contexts, closed with the last.
#[derive(Clone)]
pub(crate) struct Nic {
    handle: Arc<NicHandle>,
}

pub(super) struct NicHandle {
    pub(super) shared: Arc<NicShared>,
}

impl std::fmt::Debug for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nic").finish_non_exhaustive()
    }
}

impl Nic {
    /// The process's NIC, opened if there is none.
    pub(crate) fn get() -> Result<Nic> {
        fork::get_or_open(|| {
            if crate::gid_table().is_empty() {
                return Err(Error::new(
                    "ibv_open_device",
                    libc::ENODEV,
                    "no network interface is up with an address; `ip link set lo up` is enough for this host alone",
                ));
            }
            let engine = Engine::open().map_err(|e| {
                let errno = match &e {
                    LinkError::PortTaken { .. } => libc::EADDRINUSE,
                    LinkError::Io { source, .. } | LinkError::Runtime { source, .. } => {
                        source.raw_os_error().unwrap_or(libc::EINVAL)
                    }
                    _ => libc::ENODEV,
                };
                Error::new("ibv_open_device", errno, e.to_string())
            })?;
            // While the process has few threads, as a rule: later it takes longer.
            sys::join_barriers();
            let shared = Arc::new(NicShared {
                background: Background::new()
                    .map_err(|_| Error::last_os("ibv_open_device", "eventfd"))?,
                cq_tasks: engine.cq_tasks.clone(),
                windows: engine.memory.windows().clone(),
                engine: Biased::new(engine),
                witness: ForkWitness::new(),
                dead: AtomicBool::new(false),
                polls: AtomicU64::new(0),
                waiters: Arc::default(),
                contexts: port::Contexts::default(),
                guarded_memory: sys::guarded_memory(),
            });
            background::start(&shared)?;
            report::opened(&shared);
            Ok(Arc::new(NicHandle { shared }))
        })
        .map(|handle| Nic { handle })
    }

    pub(super) fn shared(&self) -> &NicShared {
        &self.handle.shared
    }

    /// The engine of this very process. In a forked child there is none: its copy may be locked by a thread that does not
    /// exist there, so every caller of [`Nic::lock`] has asked [`Nic::check_alive`] before, or asks here.
    pub(crate) fn lock_if_alive(&self) -> Option<Guard<'_, Engine>> {
        self.shared().is_alive().then(|| self.lock())
    }

    /// The engine, waiting for its lock.
    pub(crate) fn lock(&self) -> Guard<'_, Engine> {
        self.shared().engine.lock()
    }

    /// All memory windows.
    pub(crate) fn windows(&self) -> &Windows {
        &self.shared().windows
    }

    /// Does it in each shard of the engine, the first one last.
    pub(super) fn each(&self, mut act: impl FnMut(&mut Engine)) {
        self.each_other(&mut act);
        act(&mut self.lock());
    }

    /// The same in all but the first.
    pub(super) fn each_other(&self, _act: impl FnMut(&mut Engine)) {}

    /// Takes in what other processes have said so far.
    pub(crate) fn hear_neighbours(&self) {
        if let Some(mut engine) = self.lock_if_alive() {
            engine.hear_neighbours(sys::now_ns(), true);
        }
    }

    /// What completion queues ask of the engine.
    pub(crate) fn cq_tasks(&self) -> &CqTasks {
        &self.shared().cq_tasks
    }

    /// Fails in a forked child, where the engine is a dead copy, and after shutdown.
    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        if self.shared().is_alive() {
            Ok(())
        } else {
            Err(Error::new(
                verb,
                libc::ENODEV,
                "this object was made before fork(): it belongs to the parent",
            ))
        }
    }

    /// Events of the port and the device go there, too, as long as it lives.
    pub(crate) fn tell_of_the_port(&self, events: &Arc<AsyncEvents>) {
        self.shared().contexts.add(events);
    }

    /// All user memory is to be reached in the guarded way (`RNIC_GUARDED_MEMORY`).
    pub(crate) fn guarded_memory(&self) -> bool {
        self.shared().guarded_memory
    }

    pub(crate) fn count_poll(&self) {
        // Exactness does not matter, only that it moves.
        let polls = &self.shared().polls;
        polls.store(
            polls.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Runs the engine for one round unless another thread is at it.
    ///
    /// `satisfied` is asked after packets were taken in. If the caller has what it waited for, it mostly answers at once:
    /// then what is ready to be sent waits for the answer. At the latest it leaves at the next round, or when the
    /// background thread looks, some milliseconds later; it waits only while that thread leaves the engine to the application.
    /// A stream does not wait: its sender needs the ACK to go on, and the caller will be busy with what came.
    pub(crate) fn drive(
        &self,
        verb: &'static str,
        satisfied: impl FnOnce() -> bool,
    ) -> Result<Driven> {
        self.check_alive(verb)?;
        if let Some(mut engine) = self.shared().engine.try_lock() {
            if engine.glance() {
                return Ok(Driven::Glanced);
            }
            let now = engine.now();
            let owed = engine.ready.len() != engine.held;
            let received = engine.take_in(now, false);
            let acks = self.acks();
            let few = received > 0 && received < STREAM;
            let patient = few && !owed && acks == Acks::MayWait;
            if patient && satisfied() {
                engine.put_off();
            } else {
                engine.send_out(now, acks);
            }
            self.after_drive(engine);
            Ok(Driven::Round)
        } else {
            Ok(Driven::LockedOut)
        }
    }

    /// ACKs may wait while the application polls and the background thread leaves the engine to it.
    pub(crate) fn acks(&self) -> Acks {
        if self.shared().background.wakeup.is_watching() {
            Acks::MayWait
        } else {
            Acks::Leave
        }
    }

    /// Leaves the engine: if it has work or deadlines that the background thread does not know of, tell it.
    pub(crate) fn after_drive(&self, mut engine: Guard<'_, Engine>) {
        engine.tell();
        let wakeup = &self.shared().background.wakeup;
        // Under the lock: a thread that ends to watch looks at the engine after this.
        if wakeup.is_watching() {
            drop(engine);
        } else {
            let work_left = !engine.ready.is_empty() || engine.link.has_left();
            let deadline = engine.next_deadline();
            drop(engine);
            wakeup.hear(work_left, deadline);
        }
        self.shared().cq_tasks.let_go();
    }

    /// The application is about to wait for an event instead of polling.
    pub(crate) fn expect_sleep(&self) {
        self.shared().background.wakeup.stop_watching();
    }

    /// Called after each poll: if cores are short, or somebody else has the engine for long, an application that finds
    /// nothing lets others run.
    pub(crate) fn spin_or_rest(&self, driven: Driven, found: bool) {
        spin::spin_or_rest(self.shared(), driven, found);
    }
}

impl NicShared {
    /// For the report: notes what was counted so far. Gives the number of queue pairs; `None` when all is over.
    pub(crate) fn note_counters(&self) -> Option<usize> {
        if !self.is_alive() {
            return None;
        }
        let engine = self.engine.lock();
        report::note_all(&engine, false);
        (!engine.closed).then(|| engine.qps.len())
    }

    pub(super) fn is_alive(&self) -> bool {
        self.witness.same_process() && !self.dead.load(Ordering::Relaxed)
    }
}

impl Drop for NicHandle {
    fn drop(&mut self) {
        if self.shared.is_alive() {
            background::stop(&self.shared);
            let mut engine = self.shared.engine.lock();
            if !engine.closed {
                engine.close_cm();
            }
            report::note_all(&engine, true);
            return;
        }
        // In a forked child: closing the copy must not tell anyone that the parent's part of the port is gone.
        if let Some(mut engine) = self.shared.engine.try_lock() {
            engine.link.abandon();
        }
        std::mem::forget(self.shared.clone());
    }
}

/// Stops the process's NIC for good (library fini): acknowledgements leave, all memory is revoked, nothing is received.
pub fn shutdown() {
    if let Some(handle) = fork::current()
        && handle.shared.is_alive()
        && let Some(mut engine) = handle
            .shared
            .engine
            .try_lock_for(std::time::Duration::from_millis(50))
    {
        engine.round(false);
        // What arrives from now on finds no memory.
        engine.memory.clear();
        let mut copies = engine.link.revoke(|_| true);
        for qpn in engine.qps.qpns() {
            copies.join(engine.remove_qp(qpn));
        }
        engine.close_cm();
        engine.closed = true;
        report::note_all(&engine, true);
        drop(engine);
        copies.wait();
    }
}

/// The link's counters and the device's drops, if the device is open.
pub fn stats() -> Option<(LinkCounters, DropCounters)> {
    let handle = fork::current()?;
    handle
        .shared
        .is_alive()
        .then(|| handle.shared.engine.lock().counters())
}
