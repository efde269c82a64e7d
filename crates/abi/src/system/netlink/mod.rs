//! NETLINK_RDMA, by which `rdma` of iproute2 and others ask the kernel for RDMA devices, their
//! ports and what processes have of them.
//!
//! The kernel does not know rnic0, and may not have this protocol at all. So a socket of this
//! protocol is one of another ([`socket`]), and what is sent to the kernel by it is answered here:
//! [`message`] is the format of netlink(7), [`nldev`] says what `drivers/infiniband/core/nldev.c`
//! of Linux says of a device. As everywhere below rnic, programs see rnic0 instead of the machine's
//! devices.
//!
//! Programs that make system calls themselves (Go) are not served: the kernel answers them.

mod message;
mod nldev;
pub mod socket;
