//! Completion channels and completion queues.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rnic_nic::{CompChannel, Cq, PdHold, Stamp};
use rustix_futex_sync::RawMutex;
use rustix_futex_sync::lock_api::RawMutex as _;

use super::allocator::{Home, Housed};
use super::object::{ACK_ASYNC, Object, owed, wait_for_acks};
use crate::c::*;

#[repr(C)]
pub struct ChannelObject {
    pub c: UnsafeCell<ibv_comp_channel>,
    pub nic: CompChannel,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for ChannelObject {
    type C = ibv_comp_channel;
}

impl ChannelObject {
    /// Completion queues on this channel; programs may read the field.
    pub fn refcnt(&self) -> &AtomicI32 {
        // SAFETY: a live `int` that this library only touches as an atomic.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.c.get()).refcnt) }
    }
}

/// A completion queue. Every one is large enough for the extended interface.
#[repr(C)]
pub struct CqObject {
    pub c: UnsafeCell<ibv_cq_ex>,
    pub nic: ManuallyDrop<Cq>,
    /// Asynchronous events that the program took, under the context's `async_lock`.
    pub async_events_delivered: AtomicU32,
    pub polling: Polling,
    pub home: Home,
    /// Keeps its parent domain in use.
    pub parent: Option<PdHold>,
}

// SAFETY: `repr(C)`, first field, and `ibv_cq_ex` begins with `ibv_cq`.
unsafe impl Object for CqObject {
    type C = ibv_cq;
}

impl Housed for CqObject {
    fn home(&self) -> Home {
        self.home
    }
}

/// The call for events of completion queues.
const ACK_EVENTS: &str = "ibv_ack_cq_events";

impl CqObject {
    /// Waits until the program has acknowledged all channel and asynchronous events of this queue.
    ///
    /// # Safety
    /// The queue is initialised.
    pub unsafe fn wait_for_acks(&self) {
        let base = self.c.get().cast::<ibv_cq>();
        // SAFETY: initialised by contract; the counters are read under the mutex that guards them.
        unsafe {
            let (mutex, cond) = (&raw mut (*base).mutex, &raw mut (*base).cond);
            let name = || format!("CQ {}", self.nic.number());
            wait_for_acks("ibv_destroy_cq", mutex, cond, || {
                let taken = self.nic.events_delivered();
                let of_channel = owed(name, ACK_EVENTS, (*base).comp_events_completed, taken);
                of_channel.or_else(|| {
                    let taken = self.async_events_delivered.load(Ordering::Acquire);
                    owed(name, ACK_ASYNC, (*base).async_events_completed, taken)
                })
            });
        }
    }
}

/// State between `start_poll` and `end_poll`. The lock is held meanwhile, so threads may poll one
/// queue in turns.
pub struct Polling {
    pub lock: RawMutex,
    pub current: UnsafeCell<ibv_wc>,
    pub stamp: UnsafeCell<Stamp>,
    /// The program promised to use the queue from one thread at a time: no lock.
    pub single_threaded: bool,
}

impl Polling {
    pub fn begin(&self) {
        if !self.single_threaded {
            self.lock.lock();
        }
    }

    pub fn end(&self) {
        if !self.single_threaded && self.lock.is_locked() {
            // SAFETY: the program ends what its `start_poll` began.
            unsafe { self.lock.unlock() };
        }
    }
}

impl Default for Polling {
    fn default() -> Polling {
        Polling {
            lock: RawMutex::INIT,
            current: UnsafeCell::default(),
            stamp: UnsafeCell::default(),
            single_threaded: false,
        }
    }
}
