//! The verbs: a file for each kind of object, with the functions that programs call.
//!
//! * [`device`], [`query`]: the device list, opening and closing; questions about the device.
//! * [`import`]: further handles of objects, also those of other processes.
//! * [`post`], [`wr`]: work requests, as lists and as calls.
//! * [`ops`]: the table of operations that each context has.

pub mod ah;
pub mod buf;
pub mod cq;
pub mod cq_ex;
pub mod device;
pub mod dm;
pub mod event;
pub mod import;
pub mod mr;
pub mod mw;
pub mod ops;
pub mod pd;
pub mod post;
pub mod qp;
pub mod query;
pub mod srq;
pub mod wr;
pub mod xrcd;
