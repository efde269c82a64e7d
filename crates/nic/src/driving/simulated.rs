//! A device without a thread: whoever simulates it drives it.
//!
//! What the background thread does in a process, [`Nic::run`] does when it is called: it takes in
//! what has arrived, fires timers, and sends. The clock is the device's [`Host`]'s.

use std::sync::Arc;

use rnic_link::{Look, SimulatedPort};

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
        self.shard(0).background.wakeup.watch(polls);
    }

    /// What the background thread does when it wakes. Gives when it wants to do so again, ns.
    pub(crate) fn run(&self) -> Option<u64> {
        let shard = self.shard(0);
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
}
