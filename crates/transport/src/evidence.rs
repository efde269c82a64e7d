//! What a queue pair knows of a failure beyond its status: for people, who ask why.
//!
//! Evidence is given to [`Device::evidence`](crate::Device::evidence) on the way into a failure
//! only; gathering it costs the data path nothing.

use crate::SendOp;
use rnic_wire::{Operation, Psn};

/// One thing that went wrong, as the side that noticed knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The oldest send work request fails; its completion comes next.
    SendFailed(SendFailed),
    /// As responder: a request of the peer was refused for good.
    RequestRefused(RequestRefused),
    /// The peer has had no receive posted for a while, and this side waits for ever (`rnr_retry`
    /// 7). Said once per wait.
    ReceiverNeverReady {
        /// RNR NAKs since the last progress.
        naks: u32,
        /// Nanoseconds since the first of them.
        waited_ns: u64,
    },
    /// The peer's process has been stopped for a while, and this side waits for it. Said once per
    /// wait.
    PeerStopped {
        /// Nanoseconds since the oldest request without an answer was sent, as far as is known.
        waited_ns: u64,
        /// Over XRC, the shared receive queue that this request names, whose process it may be.
        srq: Option<u32>,
    },
    /// UD: a datagram does not fit the receive, whose completion comes next.
    DatagramTooLong {
        /// Bytes that the receive takes.
        room: u64,
        /// Bytes that it would need, with the 40 of the GRH.
        length: u64,
    },
    /// A message was dropped without a word to the peer, as UC and UD do. Said once of each cause.
    MessageDropped {
        /// The cause.
        why: Dropped,
        /// UD: the queue pair that sent it (DETH). A packet of UC does not say.
        src_qpn: Option<u32>,
    },
    /// As responder: the first request that came has another PSN than the first one expected. Either
    /// the start PSNs of the two sides differ, or what came before it was lost. Said once.
    OtherStartPsn {
        /// `rq_psn`.
        expected: Psn,
        /// PSN of the request.
        came: Psn,
    },
}

/// Why UC or UD dropped a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// UD: the datagram has another Q_Key than the queue pair.
    WrongQkey {
        /// The datagram's.
        came: u32,
        /// The queue pair's.
        own: u32,
    },
    /// No receive was posted.
    NoReceive,
    /// The message is longer than the receive.
    TooLong {
        /// Bytes that the receive takes.
        room: u64,
        /// Bytes of the message that have come; there may be more.
        length: u64,
    },
    /// UC: the access flags, the key, its range or rights do not allow the WRITE.
    Access,
    /// UC: some of its packets did not come.
    Incomplete,
    /// A packet of so many bytes of payload does not fit the path MTU: as a rule the peer has
    /// another one.
    PacketLength(u32),
    /// Opcode out of sequence, or lengths that do not fit the opcode.
    Malformed,
}

/// What became of a send work request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendFailed {
    /// The operation, with remote address and key.
    pub op: SendOp,
    /// Bytes of the message.
    pub len: u64,
    /// Bytes of the longest message that the queue pair may send; over UD it is one packet.
    pub longest: u64,
    /// Oldest PSN without an answer.
    pub psn: Psn,
    /// Some packet of the request has left.
    pub sent: bool,
    /// How often the retries let that PSN go out: 1 is once. 0 if no retry was used.
    pub tries: u32,
    /// Packets that came from the peer since the first retry.
    pub received: u64,
    /// Packets that ever came from the peer.
    pub received_ever: u64,
    /// Some request of this connection was acknowledged before.
    pub answered: bool,
    /// First PSN sent on this connection (`sq_psn`).
    pub start_psn: Psn,
    /// The PSN that the peer expects, if its answers name one that this side has never sent or has
    /// begun behind: its `rq_psn` is not this side's `sq_psn`.
    pub peer_expects: Option<Psn>,
    /// Nanoseconds since that PSN was first sent, as far as the first retry shows it.
    pub waited_ns: u64,
    /// Nanoseconds of these in which the peer's process was found stopped.
    pub stopped_ns: u64,
    /// Bytes of payload of the READ response that was not what was awaited; `None`: there was none.
    pub response: Option<u32>,
}

/// Why a responder refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Key, range or right of memory: the device has said which.
    Access,
    /// The posted receive names memory that cannot be written: the device has said why.
    ReceiveMemory,
    /// The message is longer than the receive.
    TooLong,
    /// The queue pair's access flags lack the operation.
    NotAllowed,
    /// More READs, atomics and FLUSHes than `max_dest_rd_atomic`.
    TooManyReads,
    /// The address of an atomic is no multiple of 8.
    Unaligned,
    /// The key of a SEND with invalidate cannot be invalidated.
    Invalidate,
    /// A packet of so many bytes of payload: this path MTU has the packets of its message longer or
    /// shorter. As a rule the peer has another one.
    PacketLength(u32),
    /// Opcode out of sequence, or lengths that do not fit the opcode.
    Malformed,
}

/// A request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRefused {
    /// Its opcode, without the service.
    pub operation: Operation,
    /// Its PSN.
    pub psn: Psn,
    /// Why.
    pub why: Refused,
    /// Bytes that the receive takes which is being filled; 0 without one.
    pub room: u64,
    /// Bytes of the message that have come for it; there may be more.
    pub length: u64,
}
