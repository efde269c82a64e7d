//! librdmacm over `rnic_nic::cm`. `rdma_event_str` is in [`crate::strings`].

mod addrinfo;
mod channel;
mod connect;
mod devices;
mod ep;
mod event;
mod id;
mod multicast;
mod qp;
mod resolve;
pub mod stub;
