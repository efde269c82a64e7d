//! The contexts that are open.

use core::ffi::c_int;

use rustix_futex_sync::{Mutex, MutexGuard};

use crate::export::seam::Result;
use crate::system::fork::{self, Lock};

/// The `cmd_fd` of all contexts that are open.
pub static OPEN: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

/// The list of open contexts, locked.
pub type OpenGuard = MutexGuard<'static, Vec<c_int>>;

/// Held across fork(2), so that the child finds it free.
pub fn lock_open() -> OpenGuard {
    OPEN.lock()
}

/// Has forks take the lock of the list.
pub fn guard_forks() -> Result<()> {
    fork::hold_at_forks(Lock::Contexts, || Box::new(lock_open()))
}
