//! The process's one NIC, and what fork(2) does to it.
//!
//! In a forked child every object made before the fork is dead: its engine thread does not exist there and its sockets
//! belong to the parent. A child may open the device anew and then has an engine of its own.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::{Engine, NicHandle};
use crate::error::Result;

static CURRENT: Mutex<Weak<NicHandle>> = Mutex::new(Weak::new());

pub(super) fn get_or_open(open: impl FnOnce() -> Result<Arc<NicHandle>>) -> Result<Arc<NicHandle>> {
    let mut current = CURRENT.lock();
    if let Some(handle) = current.upgrade().filter(|h| h.shared.is_alive()) {
        return Ok(handle);
    }
    let handle = open()?;
    *current = Arc::downgrade(&handle);
    Ok(handle)
}

pub(super) fn current() -> Option<Arc<NicHandle>> {
    CURRENT.lock().upgrade()
}

/// Locks held across fork(2).
struct Held {
    // Order matters: the engine is released before the registry of engines, and the report, which it uses, before it.
    report: MutexGuard<'static, crate::report::State>,
    engine: Option<(ManuallyDrop<MutexGuard<'static, Engine>>, Arc<NicHandle>)>,
    current: MutexGuard<'static, Weak<NicHandle>>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// `pthread_atfork` prepare handler: takes the locks, so that the child's copy is in order.
pub fn before_fork() {
    let current = CURRENT.lock();
    let engine = current
        .upgrade()
        .filter(|handle| handle.shared.is_alive())
        .map(|handle| {
            let guard = handle.shared.engine.lock();
            // SAFETY: the guard borrows from `handle`, which is kept beside it and dropped after it (`release`).
            let guard: MutexGuard<'static, Engine> = unsafe { std::mem::transmute(guard) };
            (ManuallyDrop::new(guard), handle)
        });
    HELD.with_borrow_mut(|held| {
        *held = Some(Held {
            report: crate::report::hold(),
            engine,
            current,
        })
    });
}

/// `pthread_atfork` parent handler.
pub fn after_fork_parent() {
    release(|_| {});
}

/// `pthread_atfork` child handler: the copied engine is dead, its descriptors are closed.
pub fn after_fork_child() {
    release(|engine| engine.link.abandon());
}

fn release(with_engine: impl FnOnce(&mut Engine)) {
    let Some(held) = HELD.with_borrow_mut(Option::take) else {
        return;
    };
    let Held {
        report,
        engine,
        current,
    } = held;
    drop(report);
    let mut last = None;
    if let Some((mut guard, handle)) = engine {
        with_engine(&mut guard);
        drop(ManuallyDrop::into_inner(guard));
        last = Some(handle);
    }
    drop(current);
    // May be the last handle: closing it takes CURRENT's lock again.
    drop(last);
}
