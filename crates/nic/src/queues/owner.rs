//! To whom a queue belongs, and what it asks of the device above it.

use std::fmt::Debug;
use std::sync::Arc;

use super::cq_tasks::CqTasks;
use rnic_types::AsyncEvent;

use super::events::AsyncEvents;
use crate::error::Result;
use crate::host::Host;

/// What queues ask of the device above them. They lie below the engine and the threads that drive
/// it, so the device is handed down to them as this trait.
pub(crate) trait DeviceUpcalls: Debug + Send + Sync {
    /// Fails in a forked child, where all is a dead copy, and after the device has ended.
    fn check_alive(&self, verb: &'static str) -> Result<()>;

    /// What completion queues ask of the engine that has this queue pair.
    fn cq_tasks(&self, qpn: u32) -> &CqTasks;

    /// What they ask of the first engine.
    fn first_cq_tasks(&self) -> &CqTasks;

    /// Completion queue `cq` of so many entries had no room for a completion of this queue pair.
    fn overran(&self, qpn: u32, cq: u32, capacity: u32);

    /// The first engine learns that they have asked for something.
    fn attend_to_tasks(&self);

    /// The engine for queue pairs that send to a completion queue from now on: `near`, if it is
    /// given. `sleeps`: threads wait for events of the queue.
    fn enter_home(&self, near: Option<usize>, sleeps: bool) -> usize;

    /// That completion queue has ended.
    fn leave_home(&self, home: usize);
}

/// The context that a queue was made in, as far as queues need it.
#[derive(Debug)]
pub(crate) struct Owner {
    /// No other context of the process has it.
    pub(crate) id: u64,
    pub(crate) events: Arc<AsyncEvents>,
    /// The machine that the device is on.
    pub(crate) host: Host,
    pub(crate) device: Arc<dyn DeviceUpcalls>,
}

impl Owner {
    /// Whether this process opened the context, and the device goes on.
    pub(crate) fn is_alive(&self) -> bool {
        self.device.check_alive("").is_ok()
    }

    pub(crate) fn post_event(&self, event: AsyncEvent) {
        self.events.post(event);
    }

    /// Drops events that wait for a destroyed object. In a forked child they are the parent's, and
    /// so is the descriptor.
    pub(crate) fn revoke_events(&self, matches: impl Fn(&AsyncEvent) -> bool) {
        if self.is_alive() {
            self.events.revoke(matches);
        }
    }
}
