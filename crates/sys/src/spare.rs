//! One descriptor in reserve, for moments when the process has no other left.

use std::sync::{Mutex, PoisonError, TryLockError};

use super::{Fd, socket};

static SPARE: Mutex<Option<Fd>> = Mutex::new(None);

fn fresh() -> Option<Fd> {
    socket(libc::AF_UNIX, libc::SOCK_STREAM).ok()
}

/// Puts one by.
pub fn keep_spare() {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    if spare.is_none() {
        *spare = fresh();
    }
}

/// Runs `needy`, which needs one descriptor for a moment, with the spare one free. `None`: there is
/// none; a process that has no descriptor left cannot be helped while another thread is (nor in a
/// child that was forked then).
pub fn with_spare<T>(needy: impl FnOnce() -> T) -> Option<T> {
    let mut spare = match SPARE.try_lock() {
        Ok(spare) => spare,
        Err(TryLockError::Poisoned(spare)) => spare.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    drop(spare.take().or_else(fresh)?);
    let done = needy();
    *spare = fresh();
    Some(done)
}
