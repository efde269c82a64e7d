//! The two back ends: for each kind of handle an enum of the software NIC's and of one of the
//! system's libibverbs. All else of this crate goes through these, and does not know which it is.
//!
//! What only one of them has is refused here by name, as the capabilities say
//! ([`Context::capabilities`](crate::Context::capabilities)).

pub(crate) mod cm;
mod context;
mod cq;
mod memory;
mod qp;
mod srq;

pub(crate) use context::{Context, system_devices};
pub(crate) use cq::{CompChannel, Cq};
pub(crate) use memory::{Ah, Mr, Mw, Pd, Xrcd, system_window};
pub(crate) use qp::{Qp, QpInit, Request, Work};
pub(crate) use srq::Srq;

use crate::nic;

/// Of objects that do not belong together.
fn of_another_device(verb: &'static str) -> nic::Error {
    nic::Error::invalid(verb, "it is of another device than what it is used with")
}

/// Does the same with either.
macro_rules! either {
    ($of:ident, $self:expr, $handle:ident => $what:expr) => {
        match $self {
            $of::Software($handle) => $what,
            $of::System($handle) => $what,
        }
    };
}
use either;
