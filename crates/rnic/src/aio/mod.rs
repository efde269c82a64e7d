//! Futures: `send().await`, `recv().await` and the like, on any runtime.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rnic::{Context, Rc, aio::{self, CompletionQueue}};
//!
//! let context = Context::open()?;
//! let (gid, pd) = (context.loopback_gid()?, context.alloc_pd()?);
//! let cq = CompletionQueue::new(&context, 256)?;
//! let left = cq.create_qp::<Rc>(&pd).gid(&gid).build()?;
//! let right = cq.create_qp::<Rc>(&pd).gid(&gid).receives(8, 64).build()?;
//! let (to_left, to_right) = (left.endpoint(), right.endpoint());
//! let (left, right) = (left.handshake(to_right)?, right.handshake(to_left)?);
//! aio::block_on(async {
//!     left.send(pd.buffer_from(b"hello, futures")?).await?;
//!     assert_eq!(&right.recv().await?[..], b"hello, futures");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! * **Requests** ([`QueuePair::send`], `read`, `write`, `compare_swap`, ...) own their buffers and
//!   give them back with the completion. A full send queue is waited for. Many requests with few
//!   completions go through a [`Pipeline`].
//! * **Messages** ([`QueuePair::recv`]) land in receives that are posted beforehand, and again when
//!   the [`Message`] is dropped. Queue pairs may share them: [`SharedReceiveQueue`].
//! * **Connections** are made by [`PreparedQueuePair::connect`] and a [`Listener`];
//!   [`DeviceEvents`] are a stream. [`ByteStream`] has `AsyncRead` and `AsyncWrite`.
//!   [`DatagramQueuePair`] is for datagrams.
//!
//! # Cancelling
//! Every future may be dropped at any time: by `select!`, by a time-out, or with its runtime. A
//! request that is not posted never will be. One that is goes on, and the device keeps its buffers
//! until it is done; then they are freed, or put into a [`Pool`]. A message goes to whoever asks
//! next. Nothing is ever freed while the device may use it, since buffers are held by the queue
//! pair and not by the future.
//!
//! # Runtimes
//! Futures use wakers alone, so that any executor runs them: tokio, smol, or [`block_on`]. Who
//! waits for the device's descriptors is a [`Reactor`]: a thread that all runtimes share, [`Tokio`]
//! with the feature `tokio`, or one's own in ten lines. It also hands completions out: a task that
//! is not polled holds up no other. A reactor whose runtime ends is replaced by the shared one.
//!
//! A future first looks for its completion for 50 us, in turns with other tasks, and then sleeps
//! ([`CompletionQueueBuilder::spin`]). `examples/futures_cost.rs` measures both against calls that
//! block.
//!
//! # Beside calls that block
//! A completion queue is either for futures or for calls that block, by its type. Queue pairs of
//! both kinds connect with each other, share protection domains and regions, and may be used in one
//! program. A thread without a runtime uses [`block_on`]. In a forked child, futures of the
//! parent's queue pairs give ENODEV and may be dropped.
//!
//! # Errors
//! A request that fails gives its own error. The queue pair is in ERR then: what is behind the
//! request is flushed, so that every future ends, and [`QueuePair::recv`] tells the cause behind
//! the last message. A device that fails ends all of them. A peer that is gone is told by the
//! connection manager ([`Connection`]); without one, the next request tells.
//!
//! [`Tokio`]: Reactor

mod arming;
mod connect;
mod core;
mod datagram;
mod driving;
mod events;
mod lane;
mod manager;
mod pipeline;
mod pool;
mod qp;
mod reactor;
mod receive;
mod request;
mod srq;
mod stream;
#[cfg(feature = "tokio")]
mod tokio;
mod words;

pub use self::core::block_on;
#[cfg(feature = "tokio")]
pub use self::tokio::Tokio;
pub use connect::{Accept, Connect, ConnectRequest, Connection, Disconnected, Listener};
pub use datagram::DatagramQueuePair;
pub use events::DeviceEvents;
pub use pipeline::{Flush, Pipeline, Push};
pub use pool::{Pool, Take};
pub use qp::{
    CompletionQueue, CompletionQueueBuilder, PreparedQueuePair, QueuePair, QueuePairBuilder,
};
pub use reactor::{Reactor, Shared, Source, Watch};
pub use receive::{Message, Messages, Receive};
pub use request::{Atomic, Request, RequestError};
pub use srq::SharedReceiveQueue;
pub use stream::{
    ByteReader, ByteStream, ByteStreamBuilder, ByteWriter, Chunk, PreparedByteStream,
};
