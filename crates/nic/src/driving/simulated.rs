//! A device without a thread: whoever simulates it drives it.
//!
//! What the background thread does in a process, [`Nic::run`] does when it is called: it takes in
//! what has arrived, fires timers, sends, and goes to sleep. Whether it would wake for what others
//! of its host have done, or for what its program left, is [`Nic::is_rung`]'s to say. The clock is the device's [`Host`]'s.

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
        Ok(Nic::of(Arc::new(NicHandle { shared })))
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

    /// The background thread, if it sleeps, wakes: another process of the host, or the program, has
    /// seen to that. Which descriptors are readable is the kernel's to say.
    pub(crate) fn is_rung(&self) -> bool {
        let shard = self.shard(0);
        let engine = shard.lock();
        let mut fds = wait_set(&engine, shard.background.wakeup.is_watching());
        fds.push(shard.background.wakeup.bell().fd());
        ready(&fds).contains(&true)
    }

    /// What the background thread does when it wakes. Gives when it wants to do so again, ns.
    pub(crate) fn run(&self) -> Option<u64> {
        let shard = self.shard(0);
        let mut engine = shard.lock();
        let watches = shard.background.wakeup.is_watching();
        let now = engine.now();
        let rung = ready(&[shard.background.wakeup.bell().fd()]).contains(&true);
        shard.background.wakeup.woke(rung);
        let fds = wait_set(&engine, watches);
        let ready = ready(&fds);
        if let [_, rings] = ready[..] {
            engine.link.woken(now, true, rings);
        }
        let is_due = engine.next_deadline_of_polled().is_some_and(|at| at <= now);
        if watches && !is_due && !ready.contains(&true) {
            engine.send_out(now, Acks::Leave);
        } else {
            engine.round_with(Look::Handover, Acks::MayWaitForAnswer);
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
fn wait_set(engine: &Engine, watches: bool) -> Vec<RawFd> {
    let mut fds = engine.link.handover_fds();
    if !watches && !engine.waits_for_receives() {
        fds.push(engine.link.wake_fd());
    }
    fds.retain(|fd| *fd >= 0);
    fds
}

/// Which of them are readable.
fn ready(fds: &[RawFd]) -> Vec<bool> {
    match fds {
        [] => Vec::new(),
        _ => rnic_sys::poll(fds, Some(Duration::ZERO))
            .map_or(Vec::new(), |ready| ready[..fds.len()].to_vec()),
    }
}
