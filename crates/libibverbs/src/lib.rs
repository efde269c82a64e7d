//! The devices of the system's libibverbs.
//!
//! The library is loaded by dlopen(3) when a device is first asked for, so nothing depends on it
//! when a program is built or started. Control verbs are found by name and version, data verbs
//! through the tables of an open device, whose layouts `rnic-layouts` has.
//!
//! The handles have the names of `rnic-types`'s, its plain values as arguments and results, and its
//! [`Error`](rnic_types::Error). They are reference counted: each keeps alive what it needs, so that
//! nothing is destroyed before what was made of it. What the library refuses to destroy stays.
//!
//! In a forked child every call is ENODEV, and nothing is destroyed: the objects are the parent's.
#![deny(unsafe_code)]

pub mod cm {
    //! The connection manager of the system's librdmacm, which is loaded as libibverbs is.

    pub use crate::objects::cm::{Event, EventChannel, Id, is_there};
}
mod convert;
mod errors;
mod gids;
#[allow(unsafe_code, reason = "loads the library, and finds its functions")]
mod library;
#[allow(unsafe_code, reason = "calls the library's functions")]
mod objects;

pub use objects::clock::DeviceClock;
pub use objects::context::{Context, Device, devices};
pub use objects::cq::{CompChannel, Cq};
pub use objects::memory::{Mr, Mw, Pd};
pub use objects::probe::Abilities;
pub use objects::qp::{Qp, QpInit, SendWork};
pub use objects::srq::{Srq, SrqInit};
pub use objects::ud::Ah;
pub use objects::xrcd::Xrcd;
