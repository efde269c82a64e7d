//! Plain values of the verbs: states, statuses, rights, attributes, work requests, completions and
//! events.
//!
//! A program names them, and every device does, be it rnic's own or one of the system's libibverbs.
//! They hold no object and do no I/O; what a value means to a device is the device's. The names and
//! numbers are those of IBTA vol. 1 and of the manual pages of rdma-core, which each item cites.
//!
//! [`Gid`], [`PathMtu`] and [`cm::PortSpace`] come from `rnic-wire`, because packets carry them.
//! Counters stay with the layers that count: only rnic's own device has them.
//!
//! The crate needs no operating system. The feature `std` adds [`Error`], whose text has the
//! system's words for an errno.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod access;
mod address;
pub mod cm;
mod completion;
mod device;
#[cfg(feature = "std")]
mod error;
mod events;
mod qp;
mod srq;
pub mod transitions;
mod work;

pub use access::Access;
pub use address::{AhAttr, GidEntry};
pub use completion::{Completion, CompletionOpcode, Immediate, NetworkHeader, Stamp, Status};
pub use device::{DeviceAttr, PortAttr, PortState};
#[cfg(feature = "std")]
pub use error::{Error, Result};
pub use events::{AsyncEvent, QpEvent};
pub use qp::{QpAttr, QpAttrMask, QpCap, QpState, QpType};
pub use rnic_wire::{Gid, PathMtu};
pub use srq::{SrqAttr, SrqAttrMask};
pub use transitions::{TransitionError, check_transition};
pub use work::{
    Address, BindWindow, Flush, InlineBytes, Placement, RecvWqe, SendData, SendOp, SendWqe, SgList,
    Sge,
};
