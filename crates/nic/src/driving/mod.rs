//! Who runs a round of the engine, and how a thread waits.
//!
//! The engine ([`crate::engine`]) has no thread. It is driven by whoever has its lock: a call of
//! the application, a thread of it that waits for an event ([`event_wait`]), or the background
//! thread ([`background`]). [`election`] decides which of them does. [`halt_poll`] decides whether
//! a thread stays awake, and [`yielding`] which other thread one that spins lets run. [`watchdog`]
//! decides how often the background thread looks after an application that polls. [`waiters`]
//! decides which of several threads that wait drives. [`wakeup`] is the promise that no work is
//! left behind. A device in a simulation has no thread: [`simulated`].

mod background;
mod election;
mod event_wait;
mod fork;
mod halt_poll;
mod kernel_events;
mod nic;
mod regions;
mod shard;
mod shards;
mod simulated;
mod waiters;
mod wakeup;
mod watchdog;
mod yielding;

pub(crate) use event_wait::end_wait;
pub(crate) use fork::current;
pub use fork::{forks_within, guard_forks};
pub(crate) use nic::{Nic, NicShared};
pub use nic::{key_violations, objects, port_counters, shutdown, stats};
pub(crate) use regions::NoKey;
pub(crate) use shard::{Driven, Shard};
pub use shards::{shards_asleep_by_default, shards_by_default};
pub use waiters::{Packets, Readable, Waiting};
