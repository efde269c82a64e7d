//! Work requests (`ibv_post_send(3)`, `ibv_post_recv(3)`).

use crate::{CompletionOpcode, QpType};
use smallvec::SmallVec;

/// One entry of a scatter/gather list (`struct ibv_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the memory region that covers them.
    pub lkey: u32,
}

/// A scatter/gather list; up to two entries live inside the WQE itself.
pub type SgList = SmallVec<[Sge; 2]>;

/// Inline data of a work request.
pub type InlineBytes = SmallVec<[u8; 64]>;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The way there: a number that the device gave to an address handle.
    pub path: u32,
    /// QP number; 0xffffff: the members of a multicast group.
    pub qpn: u32,
    /// Queue key; with the highest bit set that of the sending queue pair counts instead (IBTA
    /// 10.2.5).
    pub qkey: u32,
}

/// A bind of a memory window (IBTA 10.6.7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindWindow {
    /// The window's new key; its upper 24 bits are those of every key of the window.
    pub rkey: u32,
    /// Key of the region that it opens.
    pub lkey: u32,
    /// First byte, as the region names it.
    pub addr: u64,
    /// Bytes; 0 closes the window.
    pub length: u64,
    /// Peers may READ.
    pub read: bool,
    /// Peers may WRITE.
    pub write: bool,
    /// Peers may execute atomics.
    pub atomic: bool,
    /// Peers name the first byte as 0.
    pub zero_based: bool,
}

/// What a FLUSH makes sure of before it is answered (IBTA annex A19); the bits of `enum
/// ibv_placement_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Whoever reads the memory sees what was written.
    pub global: bool,
    /// What was written outlasts the loss of power.
    pub persistent: bool,
}

/// A FLUSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Where at the peer. No matter if `whole_region`, nor is `length`.
    pub remote_addr: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Bytes.
    pub length: u64,
    /// All of the region of that key (`IBV_FLUSH_MR`).
    pub whole_region: bool,
    /// What of them.
    pub placement: Placement,
}

/// What a send work request asks for, with the arguments of that operation alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    #[default]
    Send,
    /// SEND with immediate (the four bytes as they go on the wire).
    SendImm([u8; 4]),
    /// SEND with invalidate of the peer's `rkey`.
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write {
        /// Where at the peer.
        remote_addr: u64,
        /// The peer's key.
        rkey: u32,
    },
    /// RDMA WRITE with immediate.
    WriteImm {
        /// Where at the peer.
        remote_addr: u64,
        /// The peer's key.
        rkey: u32,
        /// The four bytes as they go on the wire.
        imm: [u8; 4],
    },
    /// SEND to an address of its own, over UD.
    Datagram {
        /// Where to.
        to: Address,
        /// Immediate data, as on the wire.
        imm: Option<[u8; 4]>,
    },
    /// RDMA READ.
    Read {
        /// Where at the peer.
        remote_addr: u64,
        /// The peer's key.
        rkey: u32,
    },
    /// Atomic compare-and-swap of 8 bytes.
    CompareSwap {
        /// Where at the peer; a multiple of 8.
        remote_addr: u64,
        /// The peer's key.
        rkey: u32,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Atomic write of 8 bytes.
    AtomicWrite {
        /// Where at the peer; a multiple of 8.
        remote_addr: u64,
        /// The peer's key.
        rkey: u32,
    },
    /// Atomic fetch-and-add of 8 bytes.
    FetchAdd {
        /// Where at the peer; a multiple of 8.
        remote_addr: u64,
        /// The peer's key.
        rkey: u32,
        /// Addend.
        add: u64,
    },
    /// FLUSH. It has no bytes of its own.
    Flush(Flush),
    /// Binds a memory window. Nothing leaves.
    BindWindow(BindWindow),
    /// Invalidates the type-2 window of this key. Nothing leaves.
    LocalInvalidate(u32),
}

impl SendOp {
    /// The opcode of its completion.
    #[inline]
    pub fn completion_opcode(&self) -> CompletionOpcode {
        match self {
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::Datagram { .. } => CompletionOpcode::Send,
            SendOp::Write { .. } | SendOp::WriteImm { .. } => CompletionOpcode::RdmaWrite,
            SendOp::Read { .. } => CompletionOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => CompletionOpcode::CompareSwap,
            SendOp::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            SendOp::AtomicWrite { .. } => CompletionOpcode::AtomicWrite,
            SendOp::Flush(_) => CompletionOpcode::Flush,
            SendOp::BindWindow(_) => CompletionOpcode::BindMw,
            SendOp::LocalInvalidate(_) => CompletionOpcode::LocalInvalidate,
        }
    }

    /// RDMA READ and atomics: they use the responder's resources (`max_rd_atomic`) and write
    /// locally.
    #[inline]
    pub fn is_read_or_atomic(&self) -> bool {
        matches!(
            self,
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        )
    }

    /// Done by the device alone, in the order of the send queue.
    #[inline]
    pub fn is_local(&self) -> bool {
        matches!(self, SendOp::BindWindow(_) | SendOp::LocalInvalidate(_))
    }

    /// A queue pair of this type has the operation (ibv_post_send(3), the table of opcodes and
    /// services).
    #[inline]
    pub fn is_of(&self, qp_type: QpType) -> bool {
        use SendOp::*;
        match qp_type {
            QpType::Ud => matches!(self, Datagram { .. }),
            QpType::Uc => {
                self.is_local()
                    || matches!(self, Send | SendImm(_) | Write { .. } | WriteImm { .. })
            }
            _ => !matches!(self, Datagram { .. }),
        }
    }
}

/// Where the bytes of a send work request are (or go, for READ and atomics).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendData {
    /// In registered memory.
    Gather(SgList),
    /// Copied into the WQE at post time (`IBV_SEND_INLINE`).
    Inline(InlineBytes),
}

impl Default for SendData {
    /// No bytes.
    fn default() -> SendData {
        SendData::Gather(SgList::new())
    }
}

impl SendData {
    /// Bytes in total. 64 bits wide: hostile lists may add up to more than 4 GiB.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            SendData::Gather(list) => list.iter().map(|s| u64::from(s.length)).sum(),
            SendData::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// No bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A send work queue entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendWqe {
    /// The caller's cookie.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Its bytes.
    pub data: SendData,
    /// A successful end makes a completion.
    pub signaled: bool,
    /// Asks the receiver for a solicited event.
    pub solicited: bool,
    /// Starts only after all earlier READs and atomics have completed.
    pub fence: bool,
    /// XRC: number of the peer's SRQ that the message is for. Other services have no use for it.
    pub srqn: u32,
}

/// A receive work queue entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecvWqe {
    /// The caller's cookie.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: SgList,
}
