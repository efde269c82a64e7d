//! fork(2) and the end of the process.
//!
//! The engine lives in the process's own pages and reads and writes them with its own loads and
//! stores, so the copy-on-write hazard that `ibv_fork_init(3)` guards against in hardware does not
//! exist: it succeeds, and says that it was not needed. What a fork does to the engine itself is
//! the nic crate's affair; the handlers here see to our own locks.

use core::any::Any;
use core::ffi::{c_int, c_uint, c_void};
use std::cell::RefCell;
use std::mem::ManuallyDrop;

use rustix_futex_sync::{Mutex, MutexGuard};

use crate::c::IBV_FORK_UNNEEDED;
use crate::export::refusal::{LogGuard, lock_log};
use crate::export::seam::{self, ENOMEM, Result};
use crate::export::symbols::export;

/// Locks that a fork takes, in the order in which it does: who has a later one does not wait for an
/// earlier one.
#[derive(Clone, Copy)]
pub enum Lock {
    /// The device that ids of the connection manager share.
    Devices,
    /// The table of event channels.
    Channels,
    /// The table of ids.
    Ids,
    /// The list of open contexts.
    Contexts,
}

const LOCKS: usize = 4;

/// Takes a lock, and returns its guard.
pub type Hold = fn() -> Box<dyn Any>;

type Holds = [Option<Hold>; LOCKS];

/// What to call before a fork, by [`Lock`].
static HOLDS: Mutex<Holds> = Mutex::new([None; LOCKS]);

/// The guards of all locks, that of the log, and that of [`HOLDS`].
type Guards = (
    [Option<Box<dyn Any>>; LOCKS],
    LogGuard,
    MutexGuard<'static, Holds>,
);

thread_local! {
    /// Our own locks, while the process forks. They are never dropped with the thread, as that
    /// would have to be registered: who forks takes them out again.
    static HELD: RefCell<Option<ManuallyDrop<Guards>>> = const { RefCell::new(None) };
}

extern "C" fn prepare() {
    seam::quiet(|| {
        // In a signal's handler: a thread that has these locks may be waiting for what the
        // interrupted thread has.
        if rnic_nic::forks_within() {
            return Ok(());
        }
        // Who registers may have other locks, so the list is free while they are taken.
        let holds = *HOLDS.lock();
        let held = holds.map(|hold| hold.map(|hold| hold()));
        HELD.set(Some(ManuallyDrop::new((held, lock_log(), HOLDS.lock()))));
        Ok(())
    });
}

extern "C" fn release() {
    seam::quiet(|| {
        drop(HELD.take().map(ManuallyDrop::into_inner));
        Ok(())
    });
}

/// Has forks take a lock: each calls `hold` first, and drops the guard at its end, in parent and
/// child.
pub fn hold_at_forks(lock: Lock, hold: Hold) -> Result<()> {
    register()?;
    HOLDS.lock()[lock as usize] = Some(hold);
    Ok(())
}

/// Registers the fork handlers, once: at the first open, because before it there is nothing to
/// guard and the library is loaded into every child of `rnic run`.
fn register() -> Result<()> {
    static REGISTERED: Mutex<bool> = Mutex::new(false);
    let mut registered = REGISTERED.lock();
    if !*registered {
        // First: what is registered last prepares first, and our locks are taken before the
        // device's.
        rnic_nic::guard_forks()?;
        // SAFETY: functions of this library, which is never unloaded (-z nodelete).
        if unsafe { libc::pthread_atfork(Some(prepare), Some(release), Some(release)) } != 0 {
            return Err(ENOMEM);
        }
        *registered = true;
    }
    Ok(())
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
