//! Safe RDMA verbs on a NIC made of software: connections and datagrams over RoCEv2, on any Linux
//! machine, without privileges, kernel modules or RDMA hardware.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rnic::{Context, Rc, SendRequest};
//!
//! let context = Context::open()?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(16).build()?;
//! let prepared = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! prepared.post_recv(pd.buffer(64)?, 1)?;
//! let peer = prepared.endpoint(); // itself; another one's comes by `exchange`, or use `cm`
//! let qp = prepared.handshake(peer)?;
//! qp.post(SendRequest::send(pd.buffer_from(b"hello, verbs")?).unsignaled())?;
//! let received = cq.wait(std::time::Duration::from_secs(5))?.ok()?;
//! assert_eq!(received.data(), b"hello, verbs");
//! # Ok(())
//! # }
//! ```
//! [`guide`] says which buffer is for what, and what the calls of C and of other crates are here.
//! `examples` has a program per task: `echo`, `key_value`, `datagrams`, `multicast`, `xrc`,
//! `hardware`.
//!
//! # The shape of it
//! * Handles ([`Context`], [`ProtectionDomain`], [`CompletionQueue`], [`QueuePair`], ...) are
//!   reference counted: cheap to clone, `Send + Sync`, without lifetimes. An object keeps alive
//!   what it needs, so no drop order is wrong.
//! * The transport is in the type: `pd.create_qp::<Rc>(..)`, [`Uc`], [`Ud`] or [`Xrc`]. A connected
//!   queue pair is built ([`QueuePairBuilder`]), prepared ([`PreparedQueuePair`]: receives can be
//!   posted, nothing can be sent), and connected by a handshake with the peer's [`Endpoint`]
//!   ([`QueuePair`]), or by the connection manager ([`cm`]). One for datagrams is ready when it is
//!   built ([`DatagramQueuePair`]).
//! * Posting *moves* the buffer into the queue, the [`Completion`] gives it back. Memory that the
//!   NIC may write is never reachable through a slice, and what it may touch is never freed.
//! * A request has one buffer or several ([`SendRequest::and`]), and requests are posted one by one or
//!   as a [`Batch`]. Memory that the program has made is used where it lies
//!   ([`ProtectionDomain::adopt`]).
//! * There are three kinds of memory: [`Buffer`] is local only, a plain `[u8]` while it is not
//!   posted; [`ReadableRegion`] may be read by peers, so it is read-only here; [`WritableRegion`]
//!   may be written by peers at any time, so its bytes are copied in and out. A [`MemoryWindow`]
//!   opens part of the last kind for a while.
//! * Calls block, or are futures on any runtime ([`aio`]).
//! * Errors name the verb and keep its errno; a failed completion says what usually causes it.
//!   Queues and tables that there is no memory for are ENOMEM, and traffic takes no memory beyond
//!   that of its buffers. The small parts of objects come from the program's own allocator, and a
//!   Rust program without memory for those ends, as it does anywhere.
//!
//! # Two queue pairs in one process
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use rnic::{Context, Rc, SendRequest};
//!
//! let context = Context::open()?;
//! let gid = context.loopback_gid()?;
//! let pd = context.alloc_pd()?;
//! let cq = context.create_cq(64).build()?;
//!
//! let left = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()?;
//! let right = pd.create_qp::<Rc>(&cq, &cq).gid(&gid).build()?;
//! right.post_recv(pd.buffer(64)?, 1)?;
//! let (to_right, to_left) = (right.endpoint(), left.endpoint());
//! let left = left.handshake(to_right)?;
//! let right = right.handshake(to_left)?;
//!
//! left.post(SendRequest::send(pd.buffer_from(b"hello, verbs")?).id(2))?;
//! for _ in 0..2 {
//!     let completion = cq.wait(Duration::from_secs(5))?.ok()?;
//!     if completion.qpn() == right.qpn() {
//!         assert_eq!(completion.data(), b"hello, verbs");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//! `examples/ping_pong.rs` is the same between two processes.
//!
//! # Two back ends
//! [`Context::open`] opens the software NIC. [`Context::open_by_name`], or the environment variable
//! `RNIC_DEVICE`, opens a device of the system's libibverbs instead, which is loaded then; connections
//! by [`cm`] are those of librdmacm. [`devices`] lists both kinds and opens none. All else is the
//! same, but for what [`Context::capabilities`] names. Objects of two devices do not mix: that is an
//! error. The contract of safety is the same, too: memory is freed when the device has said that it
//! let go, and otherwise never.
//!
//! # What carries over to hardware
//! A successful send completion means that the buffer may be used again, not that the peer's
//! program has seen the data. A peer gets no event from a WRITE without immediate. Timing out on
//! one side does not revoke what the peer may write: destroy the queue pair or drop the region for
//! that.
//!
//! # What is public
//! The items of this crate, and nothing else. The device and the packet formats are crates of their
//! own (`rnic-nic`, `rnic-wire`, ...), which make no promise from one release to the next; what
//! this crate's signatures need of them are plain values, named below. `public-api.txt` beside this
//! crate's `Cargo.toml` lists the whole surface.
#![deny(unsafe_code)]

pub mod aio;
mod batch;
mod capabilities;
pub mod cm;
mod completion;
mod connect;
mod context;
mod cq;
mod datagram;
mod device;
mod endpoint;
mod error;
pub mod exchange;
mod gather;
pub mod guide;
#[cfg(feature = "raw")]
#[allow(unsafe_code, reason = "to hand out an object beneath takes a promise")]
pub mod handles;
mod manual;
pub mod monitor;
mod pd;
mod post;
mod qp;
#[allow(
    unsafe_code,
    reason = "the one place: registered memory, file descriptors, raw handles"
)]
mod raw;
mod srq;
mod turn;
mod window;
mod work;
mod xrc;

use std::sync::atomic::{AtomicU64, Ordering};

// The device beneath. Private: its types are no part of this crate's interface but for those named
// below.
use rnic_nic as nic;

pub use batch::{Batch, BatchError};
pub use capabilities::{BackEnd, Capabilities};
pub use cm::{
    CmChannel, CmConnection, CmConnector, CmError, CmEvent, CmListener, CmMulticast, CmPending,
    CmRequest,
};
pub use completion::{Completion, Timestamp};
pub use context::{Context, Device, DeviceClock, devices};
pub use cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder};
pub use datagram::{AddressHandle, DatagramQueuePair, Destination, HEADER_LEN, MULTICAST_QPN};
pub use endpoint::{Endpoint, RemoteMemory};
pub use error::{CompletionError, Error, Result, usual_cause};
pub use manual::{ManualQueuePair, ManualXrcTarget, QpChange};
pub use pd::{DmabufRegion, Given, ProtectionDomain, WritableRegionBuilder, Zeroed};
pub use post::{PostError, RecvError, RequestError, SendRequest};
pub use qp::{
    Connected, PreparedQueuePair, QueuePair, QueuePairBuilder, Rc, Transport, Uc, Ud, Xrc,
};
pub use raw::given::{RawMemory, SharedMemory, StableMemory};
pub use raw::mapping::{HugePageSize, Mapping, SharedMapping};
pub use raw::memory::{AdoptError, Buffer, ReadableRegion, WritableRegion};
pub use srq::SharedReceiveQueue;
pub use window::{MemoryWindow, WindowRights};
pub use xrc::{PreparedXrcTarget, XrcDomain, XrcReceiveQueue, XrcTarget, XrcTargetBuilder};

// Plain values that signatures here need: those that all devices have, and what ours counts.
#[doc(inline)]
pub use nic::{ByOperation, Counters, DropCounters, LinkCounters, Traffic};
#[doc(inline)]
pub use rnic_types::{
    Access, AhAttr, AsyncEvent, CompletionOpcode, DeviceAttr, Gid, GidEntry, PathMtu, PortAttr,
    PortState, QpAttr, QpAttrMask, QpCap, QpEvent, QpState, QpType, Status, TransitionError,
};

/// Names an object in asynchronous events.
fn next_cookie() -> u64 {
    static COOKIES: AtomicU64 = AtomicU64::new(1);
    COOKIES.fetch_add(1, Ordering::Relaxed)
}

/// Counts of everything this process sent and received through the NIC, and of packets that no
/// queue pair took; `None` before the device was first opened.
pub fn stats() -> Option<(LinkCounters, DropCounters)> {
    nic::stats()
}

/// Makes the examples of README.md tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
