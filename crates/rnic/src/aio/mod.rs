//! Futures: `send().await`, `recv().await` and the like, on any runtime.
mod arming;
mod core;
mod datagram;
mod lane;
mod pipeline;
mod pool;
mod qp;
mod reactor;
mod receive;
mod request;
mod words;

pub use self::core::block_on;
pub use datagram::DatagramQueuePair;
pub use pipeline::{Flush, Pipeline, Push};
pub use pool::{Pool, Take};
pub use qp::{
    CompletionQueue, CompletionQueueBuilder, PreparedQueuePair, QueuePair, QueuePairBuilder,
};
pub use reactor::{Reactor, Shared, Source, Watch};
pub use receive::{Message, Messages, Receive};
pub use request::{Atomic, Request, RequestError};
