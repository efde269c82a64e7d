//! How queue pairs talk: the transport layer as state machines without I/O.
//!
//! This crate knows no socket, no clock, no thread and no raw pointer. A queue pair is *fed*
//! ([`QueuePair::handle_packet`], [`QueuePair::handle_timeout`], [`QueuePair::post_send`]) and
//! *drained* ([`QueuePair::poll_transmit`], [`QueuePair::next_timeout`]); memory, receive queue and
//! completion queues are what it asks of a [`Device`]. Time is the caller's: nanoseconds from an
//! arbitrary zero. The same code therefore runs on a real socket and in a simulated network with a
//! seed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod completion;
mod counters;
pub mod device;
mod evidence;
mod fifo;
mod middle;
mod multi_psn;
mod output;
mod queue_pair;
pub mod rc;
mod receiving;
mod scatter;
pub mod time;
pub mod uc;
pub mod ud;
mod unreliable;
pub mod work;

pub use completion::{Completion, CompletionOpcode, Immediate, NetworkHeader, Status};
pub use counters::{ByOperation, Counters, Traffic};
pub use device::{
    AtomicOp, BindFault, Device, IoVec, IoVecs, Load, LocalFault, Misplaced, OneSided, PacketSink,
    Pd, RemoteAccess, RemoteFault,
};
pub use evidence::{Dropped, Evidence, Refused, RequestRefused, SendFailed};
pub use fifo::Fifo;
pub use queue_pair::QueuePair;
pub use rc::{Delegate, Rc, RcAttr, Role, Verdict};
pub use rnic_types::QpEvent;
pub use time::{Time, ack_timeout_ns};
pub use uc::{Uc, UcAttr};
pub use ud::{Ud, UdAttr};
pub use work::{
    AckRequest, Address, BindWindow, Flush, InlineBytes, MAX_SHORT, Placement, RecvWqe, SendData,
    SendOp, SendWqe, SgList, Sge, ShortData, ShortSend,
};
