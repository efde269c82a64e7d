//! Values of the connection manager (`rdma_cm(7)`): parameters, options, events.

use alloc::vec::Vec;

pub use rnic_wire::cm::PortSpace;

use crate::{AhAttr, Gid, PathMtu};

/// Q_Key of queue pairs in the port spaces UDP and IPOIB (`RDMA_UDP_QKEY`).
pub const UDP_QKEY: u32 = 0x0123_4567;
/// Most private data of `rdma_connect(3)` over RC, UC and XRC: what the IP header leaves of a REQ's
/// 92 bytes.
pub const CONNECT_PRIVATE_DATA: usize = 56;
/// The same over UD: what it leaves of a SIDR_REQ's 216 bytes.
pub const CONNECT_UD_PRIVATE_DATA: usize = 180;
/// Most private data of `rdma_accept(3)` over RC, UC and XRC.
pub const ACCEPT_PRIVATE_DATA: usize = 196;
/// The same over UD, and of `rdma_reject(3)` over UD.
pub const ACCEPT_UD_PRIVATE_DATA: usize = 136;
/// Most private data of `rdma_reject(3)`.
pub const REJECT_PRIVATE_DATA: usize = 148;

/// Enhanced connection establishment (`struct ibv_ece`): what providers agree on beyond the
/// standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ece {
    /// 24 bits.
    pub vendor_id: u32,
    /// The vendor's own.
    pub options: u32,
}

/// Parameters of a connection (`struct rdma_conn_param`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnParam<'a> {
    /// For the peer; limits: [`CONNECT_PRIVATE_DATA`] and its like.
    pub private_data: &'a [u8],
    /// RDMA READs and atomics that this side serves at a time.
    pub responder_resources: u8,
    /// RDMA READs and atomics that this side has outstanding.
    pub initiator_depth: u8,
    /// Of no meaning on RoCE; carried.
    pub flow_control: bool,
    /// Transport retries of both sides; more than 7 is 7. `rdma_accept(3)`
    /// ignores it.
    pub retry_count: u8,
    /// RNR retries that the peer is to make; more than 7 is 7.
    pub rnr_retry_count: u8,
    /// The queue pair uses a shared receive queue.
    pub srq: bool,
    /// The queue pair.
    pub qp_num: u32,
    /// Q_Key of a UD queue pair; 0: that of the port space.
    pub qkey: u32,
    /// To be zero: the device has no vendor options.
    pub ece: Ece,
}

/// An option of an id (`rdma_set_option(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdOption {
    /// RDMA_OPTION_ID_TOS: IPv4 type of service or IPv6 traffic class of the connection.
    Tos(u8),
    /// RDMA_OPTION_ID_REUSEADDR: the address may be bound by others that say so, too, as long as
    /// none listens.
    ReuseAddr(bool),
    /// RDMA_OPTION_ID_AFONLY: an IPv6 wildcard is no IPv4 wildcard.
    AfOnly(bool),
    /// RDMA_OPTION_ID_ACK_TIMEOUT: `timeout` of the queue pair, 0 to 31 (4.096 us * 2^n).
    AckTimeout(u8),
    /// Index of the P_Key of the path that
    /// `rdma_resolve_route(3)` finds. No option of librdmacm.
    PkeyIndex(u16),
    /// RDMA_OPTION_IB_PATH: the path, instead of
    /// `rdma_resolve_route(3)`; gives RouteResolved.
    Path(PathRecord),
}

/// A path record (IBTA vol. 1, 15.2.5.16; `struct ib_user_path_rec`), in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRecord {
    /// Peer.
    pub dgid: Gid,
    /// Own.
    pub sgid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// P_Key.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// What fits the way, as far as this side knows it.
    pub mtu: PathMtu,
    /// `enum ibv_rate`.
    pub rate: u8,
    /// Packet life time, 4.096 us * 2^n.
    pub packet_life_time: u8,
}

/// What happened; the values of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// The address is resolved and the id on the device.
    AddrResolved = 0,
    /// It is not: the status says why.
    AddrError = 1,
    /// The path is known.
    RouteResolved = 2,
    /// There is none.
    RouteError = 3,
    /// Somebody wants a connection with a listener.
    ConnectRequest = 4,
    /// The peer accepted; the caller takes its queue pair to RTS and calls
    /// `rdma_establish(3)`.
    ConnectResponse = 5,
    /// An error in setting up the connection: status -errno.
    ConnectError = 6,
    /// The peer did not answer (-ETIMEDOUT), or, over UD, refused (status of SIDR_REP).
    Unreachable = 7,
    /// The peer refused; the status is the reason of its REJ (IBTA vol. 1, 12.6.7.2).
    Rejected = 8,
    /// The connection is there; over UD, the peer's queue pair is known.
    Established = 9,
    /// The peer, or this side, disconnected, or the peer is gone.
    Disconnected = 10,
    /// The device is gone.
    DeviceRemoval = 11,
    /// A multicast group was joined.
    MulticastJoin = 12,
    /// It was not, or it is lost.
    MulticastError = 13,
    /// The address of the id is no longer the device's.
    AddrChange = 14,
    /// Packets of the connection cannot come any more: the queue pair number may be used anew.
    TimewaitExit = 15,
    /// Of the program's own, which looks names up beside the connection manager: an address was
    /// found.
    AddrInfoResolved = 16,
    /// The same: none was.
    AddrInfoError = 17,
    /// Of the program's own: what it means is its business.
    User = 18,
}

/// More about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventParam {
    /// Nothing.
    None,
    /// Of connected services.
    Conn(ConnEvent),
    /// Of UD and of multicast groups.
    Ud(UdEvent),
    /// What the program gave an event of its own.
    User(u64),
}

/// What the peer said, as seen from here: its initiator depth is given as `responder_resources` and
/// vice versa.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of struct rdma_conn_param")]
pub struct ConnEvent {
    /// The whole field of the message, zeros behind what the peer gave: 56 bytes of a request, 196
    /// of a response, 148 of a rejection; none otherwise.
    pub private_data: Vec<u8>,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: bool,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: bool,
    /// The peer's.
    pub qp_num: u32,
    pub ece: Ece,
}

/// How to send datagrams to a peer or group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of struct rdma_ud_param")]
pub struct UdEvent {
    /// The whole field: 180 bytes of a request, 136 of an answer; none otherwise.
    pub private_data: Vec<u8>,
    pub ah: AhAttr,
    pub qp_num: u32,
    pub qkey: u32,
}
