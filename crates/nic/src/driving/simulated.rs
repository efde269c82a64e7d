//! A device without a thread: whoever simulates it drives it.
//!
//! What the background thread does in a process, [`SimulatedDevice`] does when it is called: it
//! takes in what has arrived, fires timers, and sends. The clock is the device's [`Host`]'s. Any
//! number of them may be in one process, beside the process's own.

use std::sync::Arc;

use rnic_link::{Look, SimulatedPort};

use super::nic::{Nic, NicHandle, NicShared};
use super::shards::Shards;
use crate::engine::{Acks, Engine};
use crate::error::Result;
use crate::host::Host;
use crate::objects::context::Context;
use crate::{DropCounters, LinkCounters};

/// A device that somebody else drives.
#[derive(Clone, Debug)]
pub struct SimulatedDevice {
    nic: Nic,
}

impl SimulatedDevice {
    /// On that host, with that port. It has one engine.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn open(host: Host, port: SimulatedPort) -> Result<SimulatedDevice> {
        let shards = Shards::of_one(Engine::on(host, port.into()))?;
        let shared = Arc::new(NicShared::of(shards));
        let handle = Arc::new(NicHandle { shared });
        Ok(SimulatedDevice {
            nic: Nic::of(handle),
        })
    }

    /// Opens the device for a program.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn context(&self) -> Result<Context> {
        Context::open_on(self.nic.clone(), None)
    }

    /// The machine that it is on.
    pub fn host(&self) -> &Host {
        self.nic.host()
    }

    /// The application polls from now on, and has the engine to itself; or it does not any more.
    /// See `election`.
    pub fn leave_to_polling(&self, polls: bool) {
        self.nic.shard(0).background.wakeup.watch(polls);
    }

    /// What the background thread does when it wakes. Gives the time at which it wants to do so
    /// again, ns, if nothing arrives before; a time that has passed: at once.
    pub fn run(&self) -> Option<u64> {
        let shard = self.nic.shard(0);
        let mut engine = shard.lock();
        let watches = shard.background.wakeup.is_watching();
        let now = engine.now();
        let is_due = engine.next_deadline_of_polled().is_some_and(|at| at <= now);
        if watches && !is_due {
            engine.send_out(now, Acks::Leave);
        } else {
            engine.round_with(Look::Handover, Acks::MayWaitForAnswer);
        }
        let deadline = match watches {
            true => engine.next_deadline_of_polled(),
            false => engine.next_deadline(),
        };
        let more = engine.has_turns() || engine.link.has_left() && !engine.waits_for_receives();
        drop(engine);
        shard.cq_tasks.let_go();
        match more && !watches {
            true => Some(now),
            false => deadline,
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> (LinkCounters, DropCounters) {
        self.nic.lock().counters()
    }
}
