//! The objects beneath the handles (feature `raw`): for what this crate has no call for.
//!
//! **Nothing here is stable.** What a [`Handle`] is of is a part of rnic or of the system's library,
//! and may be another with every release of rnic. Cargo.toml had better name this crate's version
//! with `=`.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::datagram::DatagramQueuePair;
use crate::device;
use crate::manual::ManualQueuePair;
use crate::pd::ProtectionDomain;
use crate::qp::{QueuePair, Transport};
use crate::raw::memory::WritableRegion;
use crate::srq::SharedReceiveQueue;

/// An object of a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Handle<'a> {
    /// Of the software NIC: the type of the same name of the crate `rnic-nic`, of the very version
    /// that this crate is built with: `Context`, `Pd`, `Mr`, `Cq`, `Qp`, `Srq`.
    Software(&'a (dyn Any + Send + Sync)),
    /// Of a device of the system: `struct ibv_context *`, `ibv_pd *`, `ibv_mr *`, `ibv_cq *`,
    /// `ibv_qp *` or `ibv_srq *` of the libibverbs that was loaded, alive as long as the handle is
    /// borrowed.
    System(NonNull<c_void>),
}

mod sealed {
    pub trait Sealed {}
}

/// What has an object beneath.
pub trait AsHandle: sealed::Sealed {
    /// The object.
    ///
    /// # Safety
    /// The program leaves to this crate what it does itself. It posts no request to a queue of this
    /// crate and takes no completion or event out of one. It ends no registration, destroys nothing,
    /// and does not modify a queue pair. It has no memory written that this crate may have lent as a
    /// slice: that is the memory of every buffer and readable region.
    unsafe fn handle(&self) -> Handle<'_>;
}

fn of_system<T>(pointer: *mut T) -> Handle<'static> {
    let pointer = NonNull::new(pointer.cast()).unwrap_or(NonNull::dangling());
    Handle::System(pointer)
}

fn of_qp(qp: &device::Qp) -> Handle<'_> {
    match qp {
        device::Qp::Software(qp) => Handle::Software(qp),
        device::Qp::System(qp) => of_system(qp.as_ptr()),
    }
}

impl sealed::Sealed for Context {}
impl AsHandle for Context {
    unsafe fn handle(&self) -> Handle<'_> {
        match &self.raw {
            device::Context::Software(context) => Handle::Software(context),
            device::Context::System(context) => of_system(context.as_ptr()),
        }
    }
}

impl sealed::Sealed for ProtectionDomain {}
impl AsHandle for ProtectionDomain {
    unsafe fn handle(&self) -> Handle<'_> {
        match self.raw() {
            device::Pd::Software(pd) => Handle::Software(pd),
            device::Pd::System(pd) => of_system(pd.as_ptr()),
        }
    }
}

impl sealed::Sealed for CompletionQueue {}
impl AsHandle for CompletionQueue {
    unsafe fn handle(&self) -> Handle<'_> {
        match self.raw() {
            device::Cq::Software(cq) | device::Cq::Stamped(cq) => Handle::Software(cq),
            device::Cq::System(cq) => of_system(cq.as_ptr()),
        }
    }
}

impl sealed::Sealed for SharedReceiveQueue {}
impl AsHandle for SharedReceiveQueue {
    unsafe fn handle(&self) -> Handle<'_> {
        match self.raw() {
            device::Srq::Software(srq) => Handle::Software(srq),
            device::Srq::System(srq) => of_system(srq.as_ptr()),
        }
    }
}

impl sealed::Sealed for WritableRegion {}
impl AsHandle for WritableRegion {
    unsafe fn handle(&self) -> Handle<'_> {
        match self.mr() {
            device::Mr::Software(mr) => Handle::Software(mr),
            device::Mr::System(mr) => of_system(mr.as_ptr()),
        }
    }
}

impl<T: Transport> sealed::Sealed for QueuePair<T> {}
impl<T: Transport> AsHandle for QueuePair<T> {
    unsafe fn handle(&self) -> Handle<'_> {
        of_qp(&self.inner.qp)
    }
}

impl<T: Transport> sealed::Sealed for ManualQueuePair<T> {}
impl<T: Transport> AsHandle for ManualQueuePair<T> {
    unsafe fn handle(&self) -> Handle<'_> {
        of_qp(self.raw())
    }
}

impl sealed::Sealed for DatagramQueuePair {}
impl AsHandle for DatagramQueuePair {
    unsafe fn handle(&self) -> Handle<'_> {
        of_qp(self.raw())
    }
}
