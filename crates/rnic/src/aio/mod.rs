//! Futures: `send().await`, `recv().await` and the like, on any runtime.
mod arming;
mod connect;
mod core;
mod datagram;
mod events;
mod lane;
mod manager;
mod pipeline;
mod pool;
mod qp;
mod reactor;
mod receive;
mod request;
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
pub use stream::{
    ByteReader, ByteStream, ByteStreamBuilder, ByteWriter, Chunk, PreparedByteStream,
};
