//! What programs look for past the verbs, and what the process itself does.
//!
//! * [`sysfs`], [`counters`]: the device's files; [`hooks`]: the functions of libc that show them.
//! * [`netlink`]: the sockets that `rdma` of iproute2 asks.
//! * [`fork`]: fork(2) and the end of the process.
//! * [`cancel`]: threads that are cancelled while they wait for events.
//! * `sanitizers`: what AddressSanitizer and ThreadSanitizer are told.
//! * [`waits`]: threads that wait for descriptors of which some are completion channels'.

pub mod cancel;
pub mod counters;
pub mod fork;
pub mod hooks;
pub mod netlink;
#[cfg(not(any(test, thread_sanitizer, address_sanitizer)))]
mod sanitizers;
pub mod sysfs;
#[cfg_attr(
    any(test, thread_sanitizer),
    allow(dead_code, reason = "the calls are interposed in the library alone")
)]
pub mod waits;
