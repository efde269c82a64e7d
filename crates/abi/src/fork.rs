//! fork(2) and the end of the process.
//!
//! The engine lives in the process's own pages and reads and writes them with its own loads and stores, so the
//! copy-on-write hazard that `ibv_fork_init(3)` guards against in hardware does not exist: it succeeds, and says that
//! it was not needed. What a fork does to the engine itself is the nic crate's affair; the handlers here see to our own locks.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::RefCell;
use std::sync::Once;

use crate::cm;
use crate::device::{self, OpenGuard};
use crate::refusal::{self, LogGuard};
use crate::seam;
use crate::symbols::export;
use crate::types::IBV_FORK_UNNEEDED;

thread_local! {
    /// Our own locks, while the process forks.
    static HELD: RefCell<Option<(cm::Guard, OpenGuard, LogGuard)>> = const { RefCell::new(None) };
}

extern "C" fn prepare() {
    seam::quiet(|| {
        // In a signal's handler: whoever has these locks may be waiting for what the interrupted thread has.
        if rnic_nic::forks_within() {
            return Ok(());
        }
        HELD.with_borrow_mut(|held| {
            *held = Some((cm::hold(), device::lock_open(), refusal::lock_log()))
        });
        Ok(())
    });
}

extern "C" fn release() {
    seam::quiet(|| {
        HELD.take();
        Ok(())
    });
}

/// Registers the fork handlers, once: at the first open, because before it there is nothing to guard and the library
/// is loaded into every child of `rnic run`.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // First: what is registered last prepares first, and our locks are taken before the device's.
        rnic_nic::guard_forks();
        // SAFETY: functions of this library, which is never unloaded (-z nodelete).
        unsafe { libc::pthread_atfork(Some(prepare), Some(release), Some(release)) };
    });
}

/// Runs when the process exits or returns from main, after its own exit handlers.
#[cfg(not(test))]
extern "C" fn library_fini() {
    seam::quiet(|| {
        rnic_nic::shutdown();
        Ok(())
    });
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = library_fini;

extern "C" fn fork_init() -> c_int {
    0
}

extern "C" fn is_fork_initialized() -> c_uint {
    IBV_FORK_UNNEEDED
}

/// `ibv_dontfork_range` and `ibv_dofork_range`: no page needs to be kept from a child.
extern "C" fn fork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

export! {
    ibv_fork_init @@ "IBVERBS_1.1" => fork_init;
    ibv_is_fork_initialized @@ "IBVERBS_1.13" => is_fork_initialized;
    ibv_dontfork_range @@ "IBVERBS_1.1" => fork_range;
    ibv_dofork_range @@ "IBVERBS_1.1" => fork_range;
}
