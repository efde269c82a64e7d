//! What events say.

use crate::addressing::address::AhAttr;

use super::params::Ece;

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
    /// [`Id::establish`](crate::cm::Id::establish).
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
    /// Of [`Id::raise`](crate::cm::Id::raise), for whoever looks names up beside the connection
    /// manager: an address was found.
    AddrInfoResolved = 16,
    /// The same: none was.
    AddrInfoError = 17,
    /// Of [`Id::raise`](crate::cm::Id::raise): what it means is the caller's business.
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
    /// The argument of [`Id::raise`](crate::cm::Id::raise).
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
