//! Waiting for a word to change: futex(2).

use std::sync::atomic::AtomicU32;

use rustix::thread::futex;

/// Sleeps until somebody calls [`wake_all`] for `word`, unless it is not `value` any more. May
/// return without a reason.
pub fn sleep_while(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, None);
}

/// Wakes all threads of this process that are in [`sleep_while`] for `word`.
pub fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
