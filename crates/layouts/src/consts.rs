//! Values of the enums and macros of verbs.h, under their C names.

#![allow(non_upper_case_globals, reason = "C names")]

/// Declares constants and, for the layout test, a table of their names and values.
macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub const $name: u32 = $value;)*
        /// Every constant of this file by name.
        #[allow(dead_code, reason = "read by tests/layout.rs")]
        pub const ALL: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}
pub(crate) use constants;

/// What the newest headers have and the oldest that we are tested against have not; see
/// docs/symbols.md.
#[allow(dead_code, reason = "the layout test has no use for them")]
pub mod newest {
    pub const IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: u32 = 1 << 2;
    pub const IBV_REG_MR_MASK_IOVA: u32 = 1;
    pub const IBV_REG_MR_MASK_ADDR: u32 = 1 << 1;
    pub const IBV_REG_MR_MASK_FD: u32 = 1 << 2;
    pub const IBV_REG_MR_MASK_FD_OFFSET: u32 = 1 << 3;
    pub const IBV_REG_MR_MASK_DMAH: u32 = 1 << 4;
    pub const IBV_REG_MR_MASK_BUF: u32 = 1 << 5;
}

constants! {
    IBV_NODE_CA = 1;
    IBV_TRANSPORT_IB = 0;
    IBV_ATOMIC_HCA = 1;
    IBV_LINK_LAYER_ETHERNET = 2;
    IBV_PORT_DOWN = 1;
    IBV_PORT_ACTIVE = 4;
    IBV_PORT_CM_SUP = 1 << 16;
    IBV_PORT_IP_BASED_GIDS = 1 << 26;
    IBV_QPF_GRH_REQUIRED = 1;
    IBV_GID_TYPE_ROCE_V2 = 2;
    IBV_FORK_UNNEEDED = 2;

    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    IBV_ACCESS_REMOTE_READ = 1 << 2;
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
    IBV_ACCESS_MW_BIND = 1 << 4;
    IBV_ACCESS_ZERO_BASED = 1 << 5;
    IBV_ACCESS_ON_DEMAND = 1 << 6;
    IBV_ACCESS_HUGETLB = 1 << 7;

    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1;
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1;
    IBV_MW_TYPE_1 = 1;
    IBV_MW_TYPE_2 = 2;
    IBV_ADVISE_MR_ADVICE_PREFETCH = 0;
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1;
    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2;
    IBV_ADVISE_MR_FLAG_FLUSH = 1;
    IBV_ODP_SUPPORT = 1;
    IBV_ODP_SUPPORT_IMPLICIT = 1 << 1;
    IBV_ODP_SUPPORT_SEND = 1;
    IBV_ODP_SUPPORT_RECV = 1 << 1;
    IBV_ODP_SUPPORT_WRITE = 1 << 2;
    IBV_ODP_SUPPORT_READ = 1 << 3;
    IBV_ODP_SUPPORT_ATOMIC = 1 << 4;
    IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5;

    IBV_REREG_MR_CHANGE_TRANSLATION = 1;
    IBV_REREG_MR_CHANGE_PD = 2;
    IBV_REREG_MR_CHANGE_ACCESS = 4;

    IBV_QPT_RC = 2;
    IBV_QPT_UC = 3;
    IBV_QPT_UD = 4;
    IBV_QPT_RAW_PACKET = 8;
    IBV_QPT_XRC_SEND = 9;
    IBV_QPT_XRC_RECV = 10;
    IBV_QPT_DRIVER = 0xff;

    IBV_QPS_RESET = 0;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;
    IBV_QPS_SQD = 4;
    IBV_QPS_SQE = 5;
    IBV_QPS_ERR = 6;

    IBV_QP_STATE = 1;
    IBV_QP_CUR_STATE = 1 << 1;
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2;
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_QKEY = 1 << 6;
    IBV_QP_AV = 1 << 7;
    IBV_QP_PATH_MTU = 1 << 8;
    IBV_QP_TIMEOUT = 1 << 9;
    IBV_QP_RETRY_CNT = 1 << 10;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_RQ_PSN = 1 << 12;
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    IBV_QP_ALT_PATH = 1 << 14;
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    IBV_QP_PATH_MIG_STATE = 1 << 18;
    IBV_QP_CAP = 1 << 19;
    IBV_QP_DEST_QPN = 1 << 20;
    IBV_QP_RATE_LIMIT = 1 << 25;

    IBV_XRCD_INIT_ATTR_FD = 1;
    IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1;
    IBV_QP_OPEN_ATTR_NUM = 1;
    IBV_QP_OPEN_ATTR_XRCD = 1 << 1;
    IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2;
    IBV_QP_OPEN_ATTR_TYPE = 1 << 3;

    IBV_SRQT_BASIC = 0;
    IBV_SRQT_XRC = 1;
    IBV_SRQ_INIT_ATTR_TYPE = 1;
    IBV_SRQ_INIT_ATTR_PD = 1 << 1;
    IBV_SRQ_INIT_ATTR_XRCD = 1 << 2;
    IBV_SRQ_INIT_ATTR_CQ = 1 << 3;

    IBV_QP_INIT_ATTR_PD = 1;
    IBV_QP_INIT_ATTR_XRCD = 1 << 1;
    IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2;
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3;
    IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4;
    IBV_QP_INIT_ATTR_RX_HASH = 1 << 5;
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6;

    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1;
    IBV_QP_CREATE_SCATTER_FCS = 1 << 8;
    IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9;
    IBV_QP_CREATE_SOURCE_QPN = 1 << 10;
    IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11;

    IBV_QP_EX_WITH_RDMA_WRITE = 1;
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1;
    IBV_QP_EX_WITH_SEND = 1 << 2;
    IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3;
    IBV_QP_EX_WITH_RDMA_READ = 1 << 4;
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5;
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6;
    IBV_QP_EX_WITH_LOCAL_INV = 1 << 7;
    IBV_QP_EX_WITH_BIND_MW = 1 << 8;
    IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9;
    IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12;

    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_WR_SEND = 2;
    IBV_WR_SEND_WITH_IMM = 3;
    IBV_WR_RDMA_READ = 4;
    IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
    IBV_WR_LOCAL_INV = 7;
    IBV_WR_BIND_MW = 8;
    IBV_WR_SEND_WITH_INV = 9;
    IBV_WR_TSO = 10;
    IBV_WR_ATOMIC_WRITE = 15;

    IBV_SEND_FENCE = 1;
    IBV_SEND_SIGNALED = 1 << 1;
    IBV_SEND_SOLICITED = 1 << 2;
    IBV_SEND_INLINE = 1 << 3;

    IBV_WC_GRH = 1;
    IBV_WC_WITH_IMM = 1 << 1;
    IBV_WC_WITH_INV = 1 << 3;

    IBV_WC_EX_WITH_BYTE_LEN = 1;
    IBV_WC_EX_WITH_IMM = 1 << 1;
    IBV_WC_EX_WITH_QP_NUM = 1 << 2;
    IBV_WC_EX_WITH_SRC_QP = 1 << 3;
    IBV_WC_EX_WITH_SLID = 1 << 4;
    IBV_WC_EX_WITH_SL = 1 << 5;
    IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6;
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7;
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11;
    IBV_CQ_INIT_ATTR_MASK_FLAGS = 1;
    IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1;
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1;
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1;
    IBV_CQ_ATTR_MODERATE = 1;
    IBV_VALUES_MASK_RAW_CLOCK = 1;

    IBV_EVENT_CQ_ERR = 0;
    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_QP_REQ_ERR = 2;
    IBV_EVENT_QP_ACCESS_ERR = 3;
    IBV_EVENT_COMM_EST = 4;
    IBV_EVENT_SQ_DRAINED = 5;
    IBV_EVENT_PATH_MIG = 6;
    IBV_EVENT_PATH_MIG_ERR = 7;
    IBV_EVENT_DEVICE_FATAL = 8;
    IBV_EVENT_PORT_ACTIVE = 9;
    IBV_EVENT_PORT_ERR = 10;
    IBV_EVENT_SRQ_ERR = 14;
    IBV_EVENT_SRQ_LIMIT_REACHED = 15;
    IBV_EVENT_QP_LAST_WQE_REACHED = 16;
    IBV_EVENT_GID_CHANGE = 18;
}

// Of headers that may be newer than those the layout test compiles against.
pub const IBV_QP_EX_WITH_FLUSH: u32 = 1 << 11;
pub const IBV_WR_FLUSH: u32 = 14;
pub const IBV_FLUSH_GLOBAL: u32 = 1;
pub const IBV_FLUSH_PERSISTENT: u32 = 1 << 1;
pub const IBV_FLUSH_MR: u32 = 1;
pub const IBV_ODP_SUPPORT_FLUSH: u32 = 1 << 6;
pub const IBV_ODP_SUPPORT_ATOMIC_WRITE: u32 = 1 << 7;
pub const IBV_DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
pub const IBV_DEVICE_FLUSH_PERSISTENT: u64 = 1 << 39;
pub const IBV_DEVICE_ATOMIC_WRITE: u64 = 1 << 40;
