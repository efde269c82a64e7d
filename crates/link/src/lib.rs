//! How packets leave: RoCEv2 over UDP sockets that need no privilege.
//!
//! [`RoceLink`] is what the device sees: it builds packets in a staging buffer, takes the ICRC over
//! the copy, sends batches, and hands over received packets whose ICRC held and whose QPN belongs
//! to this process. Beneath it a [`staging::datagram::Link`] carries datagrams: [`udp`] sockets,
//! with [`middleware`] as wrappers around any of them.
//!
//! What the processes of a host share, and which packet belongs to which of them, is the crate
//! [`rnic_host`]'s to know.
//!
//! # The IP identification
//! It is under the ICRC of IPv4 packets, and a UDP socket neither sets nor shows it. Unconnected
//! sockets with IP_PMTUDISC_DO send ID 0, and 0, 1, 2, ... within one GSO batch; DF is always set.
//! That is what [`staging::framing`] reckons with, and why no IPv4 socket here is ever connected. A
//! network card with its own UDP segmentation might number otherwise: `RNIC_GSO=local`
//! ([`Gso::LocalOnly`]) keeps GSO to routes that stay on this host.
//!
//! # Panics and hostile input
//! Nothing that arrives by a socket or through a ring makes this crate panic, block, or read or
//! write out of range: it is dropped and counted.

mod counters;
mod error;
pub mod middleware;
pub mod netlink;
mod port;
mod roce;
mod senders;
mod shm;
pub mod staging;
pub mod udp;
mod xdp;

pub use counters::LinkCounters;
pub use error::{LinkError, shortage};
pub use middleware::faults::{self, FaultSpec};
pub use netlink::next_hop;
pub use port::{Frame, Port, SimulatedFolder, SimulatedPort, SimulatedPortConfig, Wire};
pub use rnic_settings::{Gso, HostPath};
pub use roce::{LinkConfig, Look, QuickPoll, RoceLink};
pub use shm::by_reference::{ByReference, MOST_BY_REFERENCE, MOST_PIECES};
pub use shm::by_value::{ByValue, MOST_BY_VALUE, Uncopied, Vacant};
pub use shm::cma::{CmaWindow, Whole, tail_of};
pub use shm::detached::Detached;
pub use shm::grants::{Grant, GrantName, Request};
pub use shm::{Copies, Received, RingId};
pub use staging::address::{Address, AddressVector, IbPath};
pub use staging::path::{PathId, PathSpec};
pub use xdp::{Ways, XdpSpec, XdpSpecError};
