//! What callers say: port spaces, connection parameters, options.

use super::path_record::PathRecord;

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
    /// For the peer; limits: [`super::CONNECT_PRIVATE_DATA`] and its like.
    pub private_data: &'a [u8],
    /// RDMA READs and atomics that this side serves at a time.
    pub responder_resources: u8,
    /// RDMA READs and atomics that this side has outstanding.
    pub initiator_depth: u8,
    /// Of no meaning on RoCE; carried.
    pub flow_control: bool,
    /// Transport retries of both sides; more than 7 is 7. [`Id::accept`](crate::cm::Id::accept)
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
    /// [`Id::resolve_route`](crate::cm::Id::resolve_route) finds. No option of librdmacm.
    PkeyIndex(u16),
    /// RDMA_OPTION_IB_PATH: the path, instead of
    /// [`Id::resolve_route`](crate::cm::Id::resolve_route); gives RouteResolved.
    Path(PathRecord),
}
