//! System calls that have no safe wrapper in the standard library.
//!
//! One of the modules of this crate with unsafe code. Everything here takes and gives plain values.

#[cfg_attr(loom, allow(dead_code, reason = "the tests have their own"))]
mod barrier;
mod clock;
mod descriptors;
mod host;
mod memory;
mod process;
mod room;
mod threads;

#[cfg(not(loom))]
pub(crate) use barrier::{barrier_in_all_threads, sleep_while, wake_all};
pub(crate) use barrier::{has_barriers, join_barriers};
pub(crate) use clock::{StreamClock, now_ns, random_bytes, random_u64, ticks_or_ns, wallclock_ns};
pub(crate) use descriptors::{EventFd, FileIdentity, TimerFd, poll};
pub(crate) use host::{
    InterfaceAddress, interface_addresses, interface_mtu, interface_of, knock, way_to,
};
pub(crate) use memory::{
    ForkWitness, Mapping, is_mapped, is_shared_file, memlock_limit, pages, populate, write_back,
};
pub(crate) use process::{
    DEVICE_SLOT, Gate, SLOTS, is_proc, note, own_memory, peek, read_at, write_at,
};
pub use threads::PerThread;
pub(crate) use threads::{
    Thread, at_fork, become_background_thread, spawn, thread_mark, times_preempted, uncancelled,
    with_signals_blocked,
};
