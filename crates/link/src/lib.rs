//! How packets leave: RoCEv2 over UDP sockets that need no privilege.
//!
//! [`RoceLink`] is what the device sees: it builds packets in a staging buffer, takes the ICRC over the copy, sends
//! batches, and hands over received packets whose ICRC held and whose QPN belongs to this process. Beneath it a
//! [`datagram::Link`] carries datagrams: [`udp`] sockets, with [`faults`] and [`pcap`] as wrappers around any of them.
//!
//! # Who may have which QPN
//! All processes of one user in one network namespace share the addresses and UDP port 4791. The [`registry`], a file
//! that only this user can open, gives each of them ranges of 4096 QPNs. Packets find their process by a classic BPF
//! program on the SO_REUSEPORT group ([`steering`]); one that lands in the wrong process is handed to the right one
//! through its [`door`]. What one process has to do on behalf of another they talk about as [`neighbours`]; [`inquiry`] asks all of them from outside. Steering is speed, hand-over is correctness. QP 1 is everybody's: see [`qp1`] and [`ports`].
//!
//! # The IP identification
//! It is under the ICRC of IPv4 packets, and a UDP socket neither sets nor shows it. Unconnected sockets with
//! IP_PMTUDISC_DO send ID 0, and 0, 1, 2, ... within one GSO batch; DF is always set. That is what [`framing`] reckons
//! with, and why no IPv4 socket here is ever connected. A network card with its own UDP segmentation might number
//! otherwise: `RNIC_GSO=local` ([`Gso::LocalOnly`]) keeps GSO to routes that stay on this host.
//!
//! # Panics and hostile input
//! Nothing that arrives by a socket or stands in the registry makes this crate panic, block, or read or write out of
//! range: it is dropped and counted.

pub mod batch;
pub mod datagram;
pub mod domains;
pub mod door;
mod error;
pub mod faults;
pub mod framing;
mod groups;
mod host;
pub mod inquiry;
pub mod neighbours;
pub mod next_hop;
pub mod path;
pub mod pcap;
pub mod ports;
pub mod qp1;
pub mod registry;
mod roce;
mod rtnetlink;
mod segment;
mod senders;
mod share;
mod source_ports;
pub mod steering;
mod stopped;
mod sys;
mod tell;
pub mod udp;
pub mod wills;
mod xdp;

pub use domains::{DomainError, DomainKey};
pub use error::{LinkError, shortage};
pub use faults::FaultSpec;
pub use host::carried::{Apart, Carried, MOST_CARRIED, Vacant};
pub use host::grants::{Grant, GrantName, Request};
pub use host::pointing::{MOST_PIECES, MOST_POINTED, Pointed};
pub use host::reach::{Reach, Whole, tail_of};
pub use host::{Copies, RingId};
pub use neighbours::{Heard, Neighbours, PeerId};
pub use path::{PathId, PathSpec};
pub use ports::{BindFlags, PortClaim, Ports};
pub use qp1::QP1;
pub use registry::QpnRange;
pub use rnic_settings::Gso;
pub use roce::{Glance, Look, Received, RoceLink};
pub use source_ports::SourcePorts;
pub use steering::MULTICAST_QPN;
pub use stopped::is_stopped;
pub use sys::process::{Span, has_ended};
pub use sys::{Fd, RouteEvents, is_safe_memory_file};
pub use tell::tell;
pub use wills::{Estate, WILL_LEN, Will, WillId};
pub use xdp::{Ways, XdpSpec, XdpSpecError};

/// How to open the link.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Fault injection on what this process sends (`RNIC_FAULTS`).
    pub faults: Option<FaultSpec>,
    /// Append every packet sent and received to this pcap file (`RNIC_PCAP`).
    pub pcap: Option<std::path::PathBuf>,
    /// Interfaces whose packets pass by the kernel's network stack (`RNIC_XDP`). Only the first link of a process has them.
    pub xdp: Option<XdpSpec>,
    /// Never use GSO (for tests of the fall-back).
    pub no_gso: bool,
    /// Rows of packets by the interfaces of `xdp` take the way round that cards without checksum offload need, whatever the card (for tests).
    pub always_detour: bool,
    /// Packets between processes of one user and host, and within a process, go through memory. Not with faults or
    /// pcap, which need the packets.
    pub host_path: bool,
    /// Processes of one user and host reach each other's registered memory, where [granted](Grant), without packets. Only
    /// with `host_path`.
    pub one_sided: bool,
    /// This process has a link already, and this is the number of its door ([`RoceLink::card`]): the port of the connection
    /// manager, QP 1, stays with that one.
    pub beside: Option<u32>,
}

/// Counts of what passed and what was dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that the kernel took.
    pub tx_packets: u64,
    /// Their bytes, BTH to ICRC.
    pub tx_bytes: u64,
    /// Those of them that went to multicast groups.
    pub tx_multicast: u64,
    /// System calls that sent something.
    pub tx_syscalls: u64,
    /// Packets that were lost on the way out: too long for the path, no route, no room.
    pub tx_errors: u64,
    /// Packets for which a socket's send buffer had no room at first.
    pub tx_waited: u64,
    /// Packets of `tx_packets` that went through memory.
    pub tx_host_packets: u64,
    /// Their bytes, with an ICRC each that they do not have.
    pub tx_host_bytes: u64,
    /// Packets of `tx_packets` that went past the kernel's network stack.
    pub tx_xdp_packets: u64,
    /// Those of them that the card read by itself (zero copy).
    pub tx_zero_copy_packets: u64,
    /// Packets of `tx_packets` that took the way round that a card without checksum offload needs.
    pub tx_detour_packets: u64,
    /// Packets that arrived, whatever became of them.
    pub rx_packets: u64,
    /// Their bytes, BTH to ICRC.
    pub rx_bytes: u64,
    /// Those of them that came to multicast groups.
    pub rx_multicast: u64,
    /// System calls that received something.
    pub rx_syscalls: u64,
    /// Dropped: the ICRC does not hold.
    pub rx_bad_icrc: u64,
    /// Dropped: too short for BTH and ICRC, or longer than the receive buffer.
    pub rx_truncated: u64,
    /// Lost: the socket's receive buffer, or AF_XDP's ring, had no room. Only in [`RoceLink::all_counters`].
    pub rx_overrun: u64,
    /// Given to the process whose QPN range it is.
    pub rx_handed_over: u64,
    /// Taken from a process to which it came by mistake.
    pub rx_adopted: u64,
    /// Dropped: nobody has that QPN range, or its owner's door is full.
    pub rx_unknown_qpn: u64,
    /// Dropped: to QP 1, but no message of the connection manager.
    pub rx_bad_mad: u64,
    /// Packets of `rx_packets` that came past the kernel's network stack, whoever they were for.
    pub rx_xdp_packets: u64,
    /// Packets of `rx_packets` that came through memory.
    pub rx_host_packets: u64,
    /// Their bytes, with an ICRC each that they do not have.
    pub rx_host_bytes: u64,
    /// Those of them whose payload was copied from the sender's memory.
    pub rx_host_pointed: u64,
    /// Rings given up because the other process wrote nonsense.
    pub host_rings_wrong: u64,
    /// Processes of this host whose memory the kernel does not let this one reach.
    pub host_out_of_reach: u64,
    /// Bytes written into memory of processes of this host without packets.
    pub tx_reached_bytes: u64,
    /// Bytes read from it.
    pub rx_reached_bytes: u64,
}

impl std::ops::AddAssign for LinkCounters {
    fn add_assign(&mut self, other: LinkCounters) {
        // All of them, so that none is forgotten.
        let LinkCounters {
            tx_packets,
            tx_bytes,
            tx_multicast,
            tx_syscalls,
            tx_errors,
            tx_waited,
            tx_host_packets,
            tx_host_bytes,
            tx_xdp_packets,
            tx_zero_copy_packets,
            tx_detour_packets,
            rx_packets,
            rx_bytes,
            rx_multicast,
            rx_syscalls,
            rx_bad_icrc,
            rx_truncated,
            rx_overrun,
            rx_handed_over,
            rx_adopted,
            rx_unknown_qpn,
            rx_bad_mad,
            rx_xdp_packets,
            rx_host_packets,
            rx_host_bytes,
            rx_host_pointed,
            host_rings_wrong,
            host_out_of_reach,
            tx_reached_bytes,
            rx_reached_bytes,
        } = other;
        self.tx_packets += tx_packets;
        self.tx_bytes += tx_bytes;
        self.tx_multicast += tx_multicast;
        self.tx_syscalls += tx_syscalls;
        self.tx_errors += tx_errors;
        self.tx_waited += tx_waited;
        self.tx_host_packets += tx_host_packets;
        self.tx_host_bytes += tx_host_bytes;
        self.tx_xdp_packets += tx_xdp_packets;
        self.tx_zero_copy_packets += tx_zero_copy_packets;
        self.tx_detour_packets += tx_detour_packets;
        self.rx_packets += rx_packets;
        self.rx_bytes += rx_bytes;
        self.rx_multicast += rx_multicast;
        self.rx_syscalls += rx_syscalls;
        self.rx_bad_icrc += rx_bad_icrc;
        self.rx_truncated += rx_truncated;
        self.rx_overrun += rx_overrun;
        self.rx_handed_over += rx_handed_over;
        self.rx_adopted += rx_adopted;
        self.rx_unknown_qpn += rx_unknown_qpn;
        self.rx_bad_mad += rx_bad_mad;
        self.rx_xdp_packets += rx_xdp_packets;
        self.rx_host_packets += rx_host_packets;
        self.rx_host_bytes += rx_host_bytes;
        self.rx_host_pointed += rx_host_pointed;
        self.host_rings_wrong += host_rings_wrong;
        self.host_out_of_reach += host_out_of_reach;
        self.tx_reached_bytes += tx_reached_bytes;
        self.rx_reached_bytes += rx_reached_bytes;
    }
}

impl LinkCounters {
    /// Packets counted as handed over did not get through the door. Those from before the counters began are in neither count.
    fn hand_over_lost(&mut self, lost: u64) {
        let lost = lost.min(self.rx_handed_over);
        self.rx_handed_over -= lost;
        self.rx_unknown_qpn += lost;
    }
}
