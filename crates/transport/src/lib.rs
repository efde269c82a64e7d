//! How queue pairs talk: the transport layer as state machines without I/O.
//!
//! This crate knows no socket, no clock, no thread and no raw pointer. A queue pair is *fed*
//! ([`Rc::handle_packet`], [`Rc::handle_timeout`], [`Rc::post_send`]) and *drained*
//! ([`Rc::poll_transmit`], [`Rc::next_timeout`]); whatever it needs of the device (memory, receive
//! queue, completion queues) it asks of a [`Host`]. Time is the caller's: nanoseconds from an arbitrary
//! zero. The same code therefore runs on a real socket and in a simulated network with a seed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod completion;
pub mod host;
pub mod rc;
pub mod time;
pub mod work;

pub use completion::{Completion, CompletionOpcode, Immediate, Status};
pub use host::{AtomicOp, Host, LocalFault, PacketSink, Pd, QpEvent, RemoteAccess, RemoteFault};
pub use rc::{Counters, Rc, RcAttr};
pub use time::Time;
pub use work::{RecvWqe, SendData, SendOp, SendWqe, SgList, Sge};
