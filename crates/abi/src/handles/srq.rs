//! Shared receive queues.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;

use rnic_nic::Srq;

use super::allocator::{Home, Housed};
use super::object::Object;
use crate::c::*;

/// A shared receive queue.
#[repr(C)]
pub struct SrqObject {
    pub c: UnsafeCell<ibv_srq>,
    pub nic: Srq,
    pub max_sge: u32,
    /// Asynchronous events that the program took, under the context's `async_lock`.
    pub async_events_delivered: AtomicU32,
    pub home: Home,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for SrqObject {
    type C = ibv_srq;
}

impl Housed for SrqObject {
    fn home(&self) -> Home {
        self.home
    }
}
