//! How to open the link.

use crate::middleware::faults::FaultSpec;
use crate::xdp::XdpSpec;

/// How to open the link.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Fault injection on what this process sends (`RNIC_FAULTS`).
    pub faults: Option<FaultSpec>,
    /// Append every packet sent and received to this pcap file (`RNIC_PCAP`).
    pub pcap: Option<std::path::PathBuf>,
    /// Interfaces whose packets pass by the kernel's network stack (`RNIC_XDP`). Only the first
    /// link of a process has them.
    pub xdp: Option<XdpSpec>,
    /// Never use GSO (for tests of the fall-back).
    pub no_gso: bool,
    /// Rows of packets by the interfaces of `xdp` leave by the tap that cards without checksum
    /// offload need, whatever the card (for tests).
    pub always_tap_offload: bool,
    /// Packets between processes of one user and host, and within a process, go through memory. Not
    /// with faults or pcap, which need the packets.
    pub host_path: bool,
    /// Processes of one user and host reach each other's registered memory, where
    /// [granted](crate::Grant), without packets. Only with `host_path`.
    pub one_sided: bool,
    /// This process has a link already, and this is its first range
    /// ([`super::RoceLink::card`]): the port of the connection manager, QP 1, stays with that one.
    pub beside: Option<u32>,
}
