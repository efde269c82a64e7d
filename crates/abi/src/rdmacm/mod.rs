//! librdmacm over [`rnic_nic::cm`], which is to it what the kernel's `rdma_ucm` is to the stock
//! library.
//!
//! * [`channel`], [`id`], [`event`]: the objects; what the program holds are addresses of ours,
//!   looked up in tables, so that what is none (any more) is an error.
//! * [`complete`]: synchronous ids.
//! * [`resolve`], [`connect`], [`multicast`], [`options`], [`ece`]: the calls, by duty; [`route`]:
//!   the fields of an id that programs read.
//! * [`qp`], [`states`], [`devices`]: the verbs side of ids; [`verbs`]: our own verbs as they need
//!   them.
//! * [`addrinfo`], [`resolution`], [`ep`]: addresses by name, and ids from them.
//!
//! `rdma_event_str` is in [`crate::convert::strings`].

mod address;
mod addrinfo;
mod channel;
mod complete;
mod connect;
mod devices;
mod ece;
mod ep;
mod event;
mod id;
mod multicast;
mod options;
mod qp;
mod resolution;
mod resolve;
mod route;
mod states;
mod verbs;
