//! Barriers in the process's other threads: membarrier(2). And waiting for a word to change:
//! futex(2).

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use libc::c_int;

const PRIVATE_EXPEDITED: c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

/// Whether this process is registered: not asked yet, yes, no.
static REGISTERED: AtomicU8 = AtomicU8::new(0);

fn membarrier(command: c_int) -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Makes [`barrier_in_all_threads`] possible. It takes longer in a process with many threads.
pub(crate) fn join_barriers() {
    let registered = membarrier(REGISTER_PRIVATE_EXPEDITED);
    REGISTERED.store(if registered { 1 } else { 2 }, Ordering::Relaxed);
}

/// [`barrier_in_all_threads`] does what it says. False: not joined yet, or the kernel (before 4.14)
/// has no such thing.
#[inline]
pub(crate) fn has_barriers() -> bool {
    REGISTERED.load(Ordering::Relaxed) == 1
}

/// A full barrier in every thread of this process. A microsecond or two.
///
/// A process that was forbidden the call after it had joined waits for as long as any processor may
/// take to let others see what it wrote, many times over.
pub(crate) fn barrier_in_all_threads() {
    if !membarrier(PRIVATE_EXPEDITED) {
        REGISTERED.store(2, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    fence(Ordering::SeqCst);
}

/// Sleeps until somebody calls [`wake_all`] for `word`, unless it is not `value` any more. May
/// return without a reason.
pub(crate) fn sleep_while(word: &AtomicU32, value: u32) {
    let never: *const libc::timespec = std::ptr::null();
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel reads the word, which lives as long as the call; there is no timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, never) };
}

/// Wakes who sleeps in [`sleep_while`].
pub(crate) fn wake_all(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: takes an address that it does not read.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, c_int::MAX) };
}
