//! How packets leave: RoCEv2 over UDP sockets that need no privilege.
//!
//! [`RoceLink`] is what the device sees: it builds packets in a staging buffer, takes the ICRC over the copy, sends
//! batches, and hands over received packets whose ICRC held and whose QPN belongs to this process. Beneath it a
//! [`staging::datagram::Link`] carries datagrams: [`udp`] sockets, with [`middleware`] as wrappers around any of them.
//!
//! # Who may have which QPN
//! All processes of one user in one network namespace share the addresses and UDP port 4791. The [`registry`], a file
//! that only this user can open, gives each of them ranges of 4096 QPNs. Packets find their process by a classic BPF
//! program on the SO_REUSEPORT group ([`steering`]); one that lands in the wrong process is handed to the right one
//! through its [`door`]. What one process has to do on behalf of another they talk about as [`neighbours`]; [`inquiry`] asks all of them from outside. Steering is speed, hand-over is correctness. QP 1 is everybody's: see [`qp1`] and [`ports`].
//!
//! # The IP identification
//! It is under the ICRC of IPv4 packets, and a UDP socket neither sets nor shows it. Unconnected sockets with
//! IP_PMTUDISC_DO send ID 0, and 0, 1, 2, ... within one GSO batch; DF is always set. That is what [`staging::framing`] reckons
//! with, and why no IPv4 socket here is ever connected. A network card with its own UDP segmentation might number
//! otherwise: `RNIC_GSO=local` ([`Gso::LocalOnly`]) keeps GSO to routes that stay on this host.
//!
//! # Panics and hostile input
//! Nothing that arrives by a socket or stands in the registry makes this crate panic, block, or read or write out of
//! range: it is dropped and counted.

mod addresses;
mod counters;
pub mod domains;
pub mod door;
mod error;
pub mod inquiry;
pub mod middleware;
pub mod neighbours;
pub mod netlink;
mod port;
pub mod ports;
pub mod qp1;
pub mod registry;
mod segment;
mod senders;
mod share;
mod shm;
mod source_ports;
pub mod staging;
pub mod steering;
mod stopped;
mod sys;
mod tell;
mod train;
pub mod udp;
pub mod wills;
mod xdp;

pub use counters::LinkCounters;
pub use domains::{DomainError, DomainKey};
pub use error::{LinkError, shortage};
pub use middleware::faults::{self, FaultSpec};
pub use neighbours::{Heard, Neighbours, PeerId};
pub use netlink::next_hop;
pub use port::{Glance, LinkConfig, Look, RoceLink};
pub use ports::{BindFlags, PortClaim, Ports};
pub use qp1::QP1;
pub use registry::QpnRange;
pub use rnic_settings::Gso;
pub use shm::apart::Apart;
pub use shm::carried::{Carried, MOST_CARRIED, Vacant};
pub use shm::grants::{Grant, GrantName, Request};
pub use shm::pointing::{MOST_PIECES, MOST_POINTED, Pointed};
pub use shm::reach::{Reach, Whole, tail_of};
pub use shm::{Copies, Received, RingId};
pub use source_ports::SourcePorts;
pub use staging::path::{PathId, PathSpec};
pub use steering::MULTICAST_QPN;
pub use stopped::is_stopped;
pub use sys::process::{Span, has_ended};
pub use sys::{Fd, RouteEvents, is_safe_memory_file};
pub use tell::tell;
pub use wills::{Estate, WILL_LEN, Will, WillId};
pub use xdp::{Ways, XdpSpec, XdpSpecError};
