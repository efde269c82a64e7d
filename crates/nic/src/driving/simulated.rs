//! A device without a thread: whoever simulates it drives it.
//!
//! What the background thread does in a process, [`Nic::run`] does when it is called: it takes in
//! what has arrived, fires timers, sends, and goes to sleep. What it would wake for, when its
//! program or others of its host have done something, [`Nic::is_rung`] and [`Nic::waits_for`] say. The clock is the device's [`Host`]'s.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use rnic_link::{Look, QuickPoll, SimulatedPort};

use super::nic::{Nic, NicHandle, NicShared};
use super::shards::Shards;
use crate::engine::{Acks, Engine};
use crate::error::Result;
use crate::host::Host;

impl Nic {
    /// On that host, with that port. It has one engine.
    pub(crate) fn simulated(host: Host, port: SimulatedPort) -> Result<Nic> {
        let shards = Shards::of_one(Engine::on(host, port.into()))?;
        let shared = Arc::new(NicShared::of(shards));
        Ok(Nic::of(Arc::new(NicHandle {
            shared,
            reporter: None,
        })))
    }

    /// The application has the engine to itself from now on, or it does not any more.
    pub(crate) fn leave_to_polling(&self, polls: bool) {
        let shard = self.shard(0);
        shard.background.wakeup.watch(polls);
        shard.lock().link.leave_to_polling(polls);
    }

    /// The background thread stays awake from now on, and [looks](Nic::look_awake) for itself, or
    /// goes to sleep, with a [run](Nic::run) before.
    pub(crate) fn stay_awake(&self, awake: bool) {
        self.lock().link.leave_to_polling(awake);
    }

    /// One look of the background thread while it stays awake.
    pub(crate) fn look_awake(&self) {
        let shard = self.shard(0);
        let mut engine = shard.lock();
        if engine.quick_poll() == QuickPoll::Something {
            engine.round_with(Look::Poll, Acks::MayWaitForAnswer);
        }
        drop(engine);
        shard.cq_tasks.let_go();
    }

    /// The program has rung the background thread's bell.
    pub(crate) fn is_rung(&self) -> bool {
        self.shard(0).background.wakeup.is_rung()
    }

    /// The background thread wakes, too, when one of these becomes readable: another process of the
    /// host sees to that. Which are is the kernel's to say.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = RawFd> {
        let shard = self.shard(0);
        let watches = shard.background.wakeup.is_watching();
        wait_set(&shard.lock(), watches).into_iter().flatten()
    }

    /// What the background thread does when it wakes. Gives when it wants to do so again, ns.
    pub(crate) fn run(&self) -> Option<u64> {
        let shard = self.shard(0);
        let mut engine = shard.lock();
        let watches = shard.background.wakeup.is_watching();
        let now = engine.now();
        shard.background.wakeup.woke(self.is_rung());
        let [handover, rings] = ready(wait_set(&engine, watches));
        engine.link.woken(now, true, rings);
        let is_due = engine.next_deadline_of_polled().is_some_and(|at| at <= now);
        if watches && !is_due && !handover && !rings {
            engine.send_out(now, Acks::Leave);
        } else {
            // Where it has just heard that nothing is there it does not look.
            let may_be_there = watches || handover || rings || engine.waits_for_receives();
            let look = match may_be_there {
                true => Look::Handover,
                false => Look::Drain,
            };
            engine.round_with(look, Acks::MayWaitForAnswer);
        }
        engine.batching.one_sided.looked(now);
        let maintain_at = engine.link.maintain(now).saturating_add(now);
        let deadline = match watches {
            true => engine.next_deadline_of_polled(),
            false => engine.next_deadline(),
        };
        let deadline = deadline
            .into_iter()
            .chain((maintain_at < u64::MAX).then_some(maintain_at));
        let deadline = deadline.min();
        let arrived = !watches && engine.link.fall_asleep() && !engine.waits_for_receives();
        let more = engine.has_turns() || arrived;
        let sleeps_until = if more {
            0
        } else {
            deadline.unwrap_or(u64::MAX)
        };
        shard.background.wakeup.will_sleep(sleeps_until);
        drop(engine);
        shard.cq_tasks.let_go();
        match more && !watches {
            true => Some(now),
            false => deadline,
        }
    }
}

/// What it waits for: new rings, and, unless the application polls or messages wait for receives,
/// those that wake it.
fn wait_set(engine: &Engine, watches: bool) -> [Option<RawFd>; 2] {
    let waits_for_rings = !watches && !engine.waits_for_receives();
    let handover = engine.link.handover_fds().into_iter().next();
    let rings = Some(engine.link.wake_fd()).filter(|fd| waits_for_rings && *fd >= 0);
    [handover, rings]
}

/// Which of them are readable.
fn ready(fds: [Option<RawFd>; 2]) -> [bool; 2] {
    if fds == [None; 2] {
        return [false; 2];
    }
    // The kernel passes over a negative number.
    let fds = fds.map(|fd| fd.unwrap_or(-1));
    let ready = rnic_sys::poll(&fds, Some(Duration::ZERO)).unwrap_or_default();
    [ready[0], ready[1]]
}
