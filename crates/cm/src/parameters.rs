//! What the host says to begin or to answer a connection.

use rnic_wire::PathMtu;
use rnic_wire::cm::{IpCmHeader, ReqPath, ServiceId, SidrStatus, Transport};

/// A connection to be requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Which service.
    pub service: ServiceId,
    /// Addresses and source port, if and only if the service is a port of rdma_cm.
    pub ip: Option<IpCmHeader>,
    /// The path. Packets of this connection go from its `local_gid` to its `remote_gid`.
    pub path: ReqPath,
    /// MTU of the path.
    pub path_mtu: PathMtu,
    /// P_Key of the queue pair.
    pub pkey: u16,
    /// Transport of the queue pair.
    pub transport: Transport,
    /// Our queue pair, 24 bits.
    pub qpn: u32,
    /// PSN with which the peer's send queue is to start, 24 bits.
    pub starting_psn: u32,
    /// How many RDMA READs and atomics at a time we are ready to answer.
    pub responder_resources: u8,
    /// How many RDMA READs and atomics at a time we want to have under way.
    pub initiator_depth: u8,
    /// We use end-to-end credits.
    pub flow_control: bool,
    /// Transport retries, 0..=7.
    pub retry_count: u8,
    /// RNR retries, 0..=7.
    pub rnr_retry_count: u8,
    /// Our queue pair has a shared receive queue.
    pub srq: bool,
    /// Q_Key, 0 for connected transports.
    pub qkey: u32,
    /// At most 92 bytes, 56 with addresses.
    pub private_data: &'a [u8],
}

/// Our side of a connection that a peer has requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accept<'a> {
    /// Our queue pair, 24 bits.
    pub qpn: u32,
    /// PSN with which the peer's send queue is to start, 24 bits.
    pub starting_psn: u32,
    /// How many RDMA READs and atomics at a time we are ready to answer.
    pub responder_resources: u8,
    /// How many RDMA READs and atomics at a time we want to have under way.
    pub initiator_depth: u8,
    /// We use end-to-end credits.
    pub flow_control: bool,
    /// RNR retries, 0..=7.
    pub rnr_retry_count: u8,
    /// Our queue pair has a shared receive queue.
    pub srq: bool,
    /// Q_Key, 0 for connected transports.
    pub qkey: u32,
    /// At most 196 bytes.
    pub private_data: &'a [u8],
}

/// A datagram service to be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrConnect<'a> {
    /// Which service.
    pub service: ServiceId,
    /// Addresses and source port, if and only if the service is a port of rdma_cm.
    pub ip: Option<IpCmHeader>,
    /// The path of the request and its answer.
    pub address: crate::Address,
    /// P_Key of the service.
    pub pkey: u16,
    /// At most 216 bytes, 180 with addresses.
    pub private_data: &'a [u8],
}

/// The answer to a service ID resolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrAnswer<'a> {
    /// Whether the rest means anything.
    pub status: SidrStatus,
    /// QP of the service, 24 bits.
    pub qpn: u32,
    /// Q_Key of the service.
    pub qkey: u32,
    /// At most 72 bytes that the status needs in addition.
    pub info: &'a [u8],
    /// At most 136 bytes.
    pub private_data: &'a [u8],
}
