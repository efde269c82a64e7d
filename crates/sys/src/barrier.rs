//! Barriers on other processors: membarrier(2).

use std::sync::atomic::{AtomicU8, Ordering};

use rustix::thread::{MembarrierCommand, membarrier};

/// Whether this process is registered: not asked yet, yes, no.
static REGISTERED: AtomicU8 = AtomicU8::new(0);

/// From now on [`barrier_everywhere`] of any process is a full barrier in each thread of this one.
/// False: the kernel has no such thing (before 4.16), or forbids it.
pub fn join_barriers() -> bool {
    match REGISTERED.load(Ordering::Relaxed) {
        1 => true,
        2 => false,
        _ => {
            let registered = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
            REGISTERED.store(if registered { 1 } else { 2 }, Ordering::Relaxed);
            registered
        }
    }
}

/// A full barrier in this thread and in all threads of all processes that have joined. A few
/// microseconds.
///
/// A process that was forbidden the call after it had joined waits for as long as any processor may
/// take to let others see what it wrote, many times over.
pub fn barrier_everywhere() {
    if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        REGISTERED.store(2, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Whether this process is registered for barriers of its own threads: not asked yet, yes, no.
static REGISTERED_PRIVATE: AtomicU8 = AtomicU8::new(0);

/// Makes [`barrier_in_all_threads`] possible. It takes longer in a process with many threads.
pub fn join_private_barriers() {
    let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    REGISTERED_PRIVATE.store(if registered { 1 } else { 2 }, Ordering::Relaxed);
}

/// [`barrier_in_all_threads`] does what it says. False: not joined yet, or the kernel (before 4.14)
/// has no such thing.
#[inline]
pub fn has_private_barriers() -> bool {
    REGISTERED_PRIVATE.load(Ordering::Relaxed) == 1
}

/// A full barrier in every thread of this process. A microsecond or two.
///
/// A process that was forbidden the call after it had joined waits as [`barrier_everywhere`] does.
pub fn barrier_in_all_threads() {
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        REGISTERED_PRIVATE.store(2, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}
