//! Waiting for a word to change: futex(2).

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex;

/// Sleeps until somebody calls [`wake_all`] for `word`, unless it is not `value` any more. May
/// return without a reason.
pub fn sleep_while(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

/// The same, for so long at most.
pub fn sleep_while_for(word: &AtomicU32, value: u32, time: Duration) {
    // A time that the kernel cannot count is none.
    let time = time.try_into().ok();
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, time.as_ref());
}

/// Wakes all threads of this process that are in [`sleep_while`] or [`sleep_while_for`] for `word`.
pub fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
