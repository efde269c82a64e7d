//! The process's one NIC, and what fork(2) does to it.
//!
//! In a forked child every object made before the fork is dead: its engine thread does not exist
//! there and its sockets belong to the parent. A child may open the device anew and then has an
//! engine of its own; the C ABI does so for a child that goes on with its parent's context
//! (`per_process.rs` of rnic-abi).
//!
//! Every lock is a word of memory (rustix-futex-sync's, or the standard library's), and nothing
//! beside it knows who waits: a thread of the parent that waits at the moment of the fork leaves no
//! trace in the child. Locks that share a table of waiting threads (parking_lot) do: their row
//! stays locked in the child for ever, or a new thread of the child is taken for one of the
//! parent's at the same address. The locks that a child needs are held across the fork; those of
//! the parent's engine are never touched there.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::panic::catch_unwind;
use std::sync::{Arc, Weak};

use rustix_futex_sync::{Mutex, MutexGuard};

use super::nic::{NicHandle, NicShared};
use crate::addressing::gid_table::{RowsGuard, lock_rows};
use crate::engine::Engine;
use crate::error::{self, Result};
use crate::memory::{domains, pieces};
use crate::sync::bias::Guard;

static CURRENT: Mutex<Weak<NicHandle>> = Mutex::new(Weak::new());
/// What the one in [`CURRENT`] shares. Nobody waits for another lock who has this one.
static SHARED: Mutex<Weak<NicShared>> = Mutex::new(Weak::new());

pub(super) fn get_or_open(open: impl FnOnce() -> Result<Arc<NicHandle>>) -> Result<Arc<NicHandle>> {
    let mut current = CURRENT.lock();
    if let Some(handle) = current.upgrade().filter(|h| h.shared.is_alive()) {
        return Ok(handle);
    }
    let handle = open()?;
    *current = Arc::downgrade(&handle);
    *SHARED.lock() = Arc::downgrade(&handle.shared);
    Ok(handle)
}

pub(crate) fn current() -> Option<Arc<NicHandle>> {
    CURRENT.lock().upgrade()
}

type Current = MutexGuard<'static, Weak<NicHandle>>;

/// A shard's lock. In a child it stays locked.
type Locked = ManuallyDrop<Guard<'static, Engine>>;

/// No shard is being opened.
type Still = super::shards::Still<'static>;

/// Locks held across fork(2).
struct Held {
    // Taken in the order current, the number of shards, the engine's shards, rows, report, and the
    // two lists, which nobody has who waits for another lock. Nobody who waits for the engine has
    // what comes after it.
    report: crate::observe::Held,
    engine: Option<(Vec<Locked>, Still, Arc<NicHandle>)>,
    current: Current,
    rows: RowsGuard,
    domains: domains::AllGuard,
    pieces: pieces::AllGuard,
}

thread_local! {
    /// Never dropped with the thread, as that would have to be registered: who forks takes it out
    /// again.
    static HELD: RefCell<Option<ManuallyDrop<Held>>> = const { RefCell::new(None) };
}

/// Has the C library call the handlers of fork(2) from now on, once. The device does so when it is
/// opened; whoever has locks of its own that are taken before the device's registers its handlers
/// after this.
///
/// # Errors
/// ENOMEM.
pub fn guard_forks() -> Result<()> {
    static REGISTERED: Mutex<bool> = Mutex::new(false);
    let mut registered = REGISTERED.lock();
    if !*registered {
        rnic_sys::at_fork(prepare, parent, child)
            .map_err(|_| error::no_memory("ibv_open_device"))?;
        *registered = true;
    }
    Ok(())
}

extern "C" fn prepare() {
    let _ = catch_unwind(before_fork);
}

extern "C" fn parent() {
    let _ = catch_unwind(after_fork_parent);
}

extern "C" fn child() {
    let _ = catch_unwind(after_fork_child);
}

/// A signal's handler forks, which has interrupted this thread within the engine. It waits for no
/// lock: another thread that forks may have it, and wait for the engine's. So the child has what
/// its parent's threads were about, and only ends or executes another program (signal-safety(7)
/// allows no more); the descriptors close by that.
pub fn forks_within() -> bool {
    let shared = SHARED.lock().upgrade();
    shared.is_some_and(|shared| {
        shared
            .shards
            .iter()
            .any(|shard| shard.engine.is_entered_here())
    })
}

/// Takes the locks, so that the child's copy is in order.
fn before_fork() {
    if forks_within() {
        return;
    }
    let current = CURRENT.lock();
    let engine = current
        .upgrade()
        .filter(|handle| handle.shared.is_alive())
        .map(|handle| {
            let still = handle.shared.shards.still();
            // SAFETY: as below.
            let still: Still = unsafe { std::mem::transmute(still) };
            // Nobody else has two of them.
            let shards = handle.shared.shards.iter();
            let guards = shards.map(|shard| {
                let guard = shard.engine.lock();
                // SAFETY: the guard borrows from `handle`, which is kept beside it and dropped
                // after it (`release`).
                let guard: Guard<'static, Engine> = unsafe { std::mem::transmute(guard) };
                ManuallyDrop::new(guard)
            });
            (guards.collect(), still, handle)
        });
    let rows = lock_rows();
    HELD.with_borrow_mut(|held| {
        *held = Some(ManuallyDrop::new(Held {
            report: crate::observe::hold(),
            engine,
            current,
            rows,
            domains: domains::lock_all(),
            pieces: pieces::lock_all(),
        }));
    });
}

fn after_fork_parent() {
    release(|engine| drop(ManuallyDrop::into_inner(engine)));
}

/// The copied engine is dead, its descriptors are closed.
fn after_fork_child() {
    release(|mut engine| {
        engine.link.abandon();
        // Left locked.
    });
}

fn release(with_engine: impl Fn(Locked)) {
    let Some(held) = HELD.with_borrow_mut(Option::take) else {
        return;
    };
    let Held {
        report,
        engine,
        current,
        rows,
        domains,
        pieces,
    } = ManuallyDrop::into_inner(held);
    drop((report, rows, domains, pieces));
    let mut last = None;
    if let Some((guards, still, handle)) = engine {
        guards.into_iter().for_each(with_engine);
        drop(still);
        last = Some(handle);
    }
    drop(current);
    // May be the last handle: closing it takes CURRENT's lock again.
    drop(last);
}
