//! Why a connection or a service is refused.

use core::fmt;

/// Rejection reason (IBTA 12.6.7.2). It is the status of `RDMA_CM_EVENT_REJECTED`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RejectReason(pub u16);

#[allow(missing_docs, reason = "Display says what each means")]
impl RejectReason {
    pub const NO_QP: RejectReason = RejectReason(1);
    pub const NO_EEC: RejectReason = RejectReason(2);
    pub const NO_RESOURCES: RejectReason = RejectReason(3);
    pub const TIMEOUT: RejectReason = RejectReason(4);
    pub const UNSUPPORTED_REQUEST: RejectReason = RejectReason(5);
    pub const INVALID_COMM_ID: RejectReason = RejectReason(6);
    pub const INVALID_COMM_INSTANCE: RejectReason = RejectReason(7);
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    pub const INVALID_TRANSPORT: RejectReason = RejectReason(9);
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    pub const RDC_DOES_NOT_EXIST: RejectReason = RejectReason(11);
    pub const INVALID_GID: RejectReason = RejectReason(12);
    pub const INVALID_LID: RejectReason = RejectReason(13);
    pub const INVALID_SL: RejectReason = RejectReason(14);
    pub const INVALID_TRAFFIC_CLASS: RejectReason = RejectReason(15);
    pub const INVALID_HOP_LIMIT: RejectReason = RejectReason(16);
    pub const INVALID_PACKET_RATE: RejectReason = RejectReason(17);
    pub const INVALID_ALT_GID: RejectReason = RejectReason(18);
    pub const INVALID_ALT_LID: RejectReason = RejectReason(19);
    pub const INVALID_ALT_SL: RejectReason = RejectReason(20);
    pub const INVALID_ALT_TRAFFIC_CLASS: RejectReason = RejectReason(21);
    pub const INVALID_ALT_HOP_LIMIT: RejectReason = RejectReason(22);
    pub const INVALID_ALT_PACKET_RATE: RejectReason = RejectReason(23);
    pub const PORT_CM_REDIRECT: RejectReason = RejectReason(24);
    pub const PORT_REDIRECT: RejectReason = RejectReason(25);
    pub const INVALID_MTU: RejectReason = RejectReason(26);
    pub const INSUFFICIENT_RESPONDER_RESOURCES: RejectReason = RejectReason(27);
    pub const CONSUMER_DEFINED: RejectReason = RejectReason(28);
    pub const INVALID_RNR_RETRY: RejectReason = RejectReason(29);
    pub const DUPLICATE_COMM_ID: RejectReason = RejectReason(30);
    pub const INVALID_CLASS_VERSION: RejectReason = RejectReason(31);
    pub const INVALID_FLOW_LABEL: RejectReason = RejectReason(32);
    pub const INVALID_ALT_FLOW_LABEL: RejectReason = RejectReason(33);
    pub const VENDOR_OPTION_NOT_SUPPORTED: RejectReason = RejectReason(35);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "no queue pair available",
            2 => "no end-to-end context available",
            3 => "no resources",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "invalid service id: nobody listens",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "reliable datagram channel does not exist",
            12 => "primary remote GID rejected",
            13 => "primary remote LID rejected",
            14 => "invalid primary service level",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote GID rejected",
            19 => "alternate remote LID rejected",
            20 => "invalid alternate service level",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "the connection manager is at another port",
            25 => "the service is at another port",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "rejected by the application",
            29 => "invalid RNR retry count",
            30 => "duplicate local communication id",
            31 => "unsupported class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option not supported",
            other => return write!(f, "unknown reason {other}"),
        })
    }
}

/// Status of a SIDR_REP (IBTA 12.11.2). If not 0, it is the status of `RDMA_CM_EVENT_UNREACHABLE`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SidrStatus(pub u8);

#[allow(missing_docs, reason = "Display says what each means")]
impl SidrStatus {
    pub const VALID: SidrStatus = SidrStatus(0);
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    pub const REJECTED: SidrStatus = SidrStatus(2);
    pub const NO_QP: SidrStatus = SidrStatus(3);
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "valid",
            1 => "service id not supported: nobody listens",
            2 => "rejected by the service",
            3 => "no queue pair available",
            4 => "the service is at another port",
            5 => "unsupported version",
            other => return write!(f, "unknown status {other}"),
        })
    }
}
