//! What a program holds: the verbs' objects, their handles, rights and states.

pub(crate) mod ah;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod dm;
pub(crate) mod dmabuf;
pub(crate) mod import;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod qp;
mod requests;
pub(crate) mod simulated_device;
pub(crate) mod srq;
pub(crate) mod xrcd;
