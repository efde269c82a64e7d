//! Queue pair attributes (`ibv_modify_qp(3)`, `ibv_query_qp(3)`).

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Access, AhAttr, PathMtu};

/// Transport service type; the values of `enum ibv_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QpType {
    /// Reliable connected.
    Rc = 2,
    /// Unreliable connected.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// Extended reliable connected: the side that sends (`IBV_QPT_XRC_SEND`).
    XrcSend = 9,
    /// Extended reliable connected: the side that receives (`IBV_QPT_XRC_RECV`).
    XrcRecv = 10,
}

impl QpType {
    /// As the verbs spell it: `RC`, `XRC_SEND`.
    pub fn name(self) -> &'static str {
        match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::XrcSend => "XRC_SEND",
            QpType::XrcRecv => "XRC_RECV",
        }
    }
}

impl core::fmt::Display for QpType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// State; the values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of IBTA vol. 1, 10.3.1")]
pub enum QpState {
    #[default]
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl core::fmt::Display for QpState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        })
    }
}

impl QpState {
    /// The state of a number of `enum ibv_qp_state`.
    pub fn from_ibv(value: u32) -> Option<QpState> {
        use QpState::*;
        [Reset, Init, Rtr, Rts, Sqd, Sqe, Err]
            .into_iter()
            .find(|s| *s as u32 == value)
    }
}

/// Sizes of a queue pair (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of ibv_create_qp(3)")]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// Attributes of a queue pair (`struct ibv_qp_attr`).
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the names are those of ibv_modify_qp(3)")]
pub struct QpAttr {
    pub qp_state: QpState,
    pub cur_qp_state: QpState,
    pub path_mtu: Option<PathMtu>,
    pub path_mig_state: u8,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: Access,
    pub cap: QpCap,
    pub ah: AhAttr,
    pub alt_ah: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// Which attributes a call means; the bits of `enum ibv_qp_attr_mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QpAttrMask(pub u32);

macro_rules! masks {
    ($($name:ident = $bit:expr),* $(,)?) => {
        #[allow(missing_docs, reason = "the names are those of ibv_modify_qp(3)")]
        impl QpAttrMask {
            $(pub const $name: QpAttrMask = QpAttrMask(1 << $bit);)*
            const NAMES: &[(QpAttrMask, &str)] = &[$((QpAttrMask::$name, concat!("IBV_QP_", stringify!($name)))),*];
        }
    };
}

masks! {
    STATE = 0, CUR_STATE = 1, EN_SQD_ASYNC_NOTIFY = 2, ACCESS_FLAGS = 3, PKEY_INDEX = 4, PORT = 5, QKEY = 6, AV = 7,
    PATH_MTU = 8, TIMEOUT = 9, RETRY_CNT = 10, RNR_RETRY = 11, RQ_PSN = 12, MAX_QP_RD_ATOMIC = 13, ALT_PATH = 14,
    MIN_RNR_TIMER = 15, SQ_PSN = 16, MAX_DEST_RD_ATOMIC = 17, PATH_MIG_STATE = 18, CAP = 19, DEST_QPN = 20,
    RATE_LIMIT = 25,
}

impl QpAttrMask {
    /// Every bit of `other` is set.
    pub const fn contains(self, other: QpAttrMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    pub const fn or(self, other: QpAttrMask) -> QpAttrMask {
        QpAttrMask(self.0 | other.0)
    }

    /// The bits not in `other`.
    pub const fn without(self, other: QpAttrMask) -> QpAttrMask {
        QpAttrMask(self.0 & !other.0)
    }

    /// The names of the bits, as C programs spell them.
    pub fn names(self) -> String {
        let mut names: Vec<&str> = Self::NAMES
            .iter()
            .filter(|(bit, _)| self.contains(*bit))
            .map(|(_, name)| *name)
            .collect();
        let known = Self::NAMES.iter().fold(0, |all, (bit, _)| all | bit.0);
        if self.0 & !known != 0 {
            names.push("unknown bits");
        }
        names.join(" | ")
    }
}

impl core::ops::BitOr for QpAttrMask {
    type Output = QpAttrMask;
    fn bitor(self, other: QpAttrMask) -> QpAttrMask {
        self.or(other)
    }
}
