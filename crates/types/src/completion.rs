//! What a completion says (`ibv_poll_cq(3)`).

/// Completion status; the discriminants are those of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of IBTA vol. 1, 11.6.2")]
pub enum Status {
    Success = 0,
    LocalLengthError = 1,
    LocalQpOperationError = 2,
    LocalProtectionError = 4,
    WorkRequestFlushed = 5,
    MemoryWindowBindError = 6,
    BadResponse = 7,
    LocalAccessError = 8,
    RemoteInvalidRequest = 9,
    RemoteAccessError = 10,
    RemoteOperationError = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
    RemoteAborted = 16,
    FatalError = 19,
    ResponseTimeout = 20,
    GeneralError = 21,
}

/// Which kind of work request completed; the discriminants are those of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names say it")]
pub enum CompletionOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    BindMw = 5,
    LocalInvalidate = 6,
    Flush = 8,
    AtomicWrite = 9,
    Recv = 128,
    RecvRdmaWithImm = 129,
}

/// What a received message carried beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Immediate {
    /// Nothing.
    #[default]
    None,
    /// Immediate data, as on the wire.
    Data([u8; 4]),
    /// The local key that a SEND with invalidate revoked.
    Invalidated(u32),
}

/// What a UD receive's first 40 bytes are (IBTA Annex A17, 17.4.5.1: a completion says which).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkHeader {
    /// 20 undefined bytes, then an IPv4 header.
    Ipv4,
    /// An IPv6 header, laid out as a GRH.
    Ipv6,
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The cookie of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Bytes received (receives; over UD with the 40 bytes in front), read (READ) or 8 (atomics);
    /// undefined on errors, 0 then.
    pub byte_len: u32,
    /// Detail of a failure, rnic's own codes; 0 on success.
    pub vendor_err: u32,
    /// Local QP number.
    pub qpn: u32,
    /// The peer's QP number on receives.
    pub src_qpn: u32,
    /// Immediate data or invalidated key of a receive.
    pub immediate: Immediate,
    /// The first 40 bytes of the receive are this network header (UD); `None`: they mean nothing.
    pub grh: Option<NetworkHeader>,
    /// The index of the P_Key that the datagram was sent to (UD).
    pub pkey_index: u16,
    /// The completion may wake a waiter for solicited events: sender asked for it, or status is an
    /// error.
    pub solicited: bool,
}

/// When a completion arose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The device's clock, which `ibv_query_rt_values_ex(3)` reads: nanoseconds of CLOCK_MONOTONIC.
    pub raw: u64,
    /// Nanoseconds since the epoch.
    pub wallclock: u64,
}
