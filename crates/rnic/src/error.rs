//! Errors: which verb failed, the errno as the source, and what to do about it.

mod cm;
mod completion;

use std::io;
use std::time::Duration;

pub use cm::{CmError, RejectReason};
pub use completion::{CompletionError, usual_cause};

use crate::nic::{self, TransitionError};

/// What can go wrong.
///
/// A failed verb names itself and keeps its errno as [`source`](std::error::Error::source), so that
/// `error.source()` downcasts to the [`io::Error`] that C programs see in `errno`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A verb refused its arguments or could not do its work.
    #[error("{verb}: {reason}")]
    Verb {
        /// The C name of the verb, `ibv_modify_qp` for example; its man page has the details.
        verb: &'static str,
        /// Why, in words.
        reason: String,
        /// The errno.
        source: io::Error,
    },
    /// The state table has no such change of a queue pair; the device was not asked
    /// ([`ManualQueuePair::modify`](crate::ManualQueuePair::modify)).
    #[error("ibv_modify_qp: {0}")]
    Transition(#[source] TransitionError),
    /// The queue has no room. Not fatal: poll the completion queue and post again.
    #[error(
        "{verb}: the queue of {qpn} is full ({depth} work requests, none of them polled yet). \
         Poll the completion queue, then post again; signal at least one send per queue depth"
    )]
    QueueFull {
        /// `ibv_post_send`, `ibv_post_recv` or `ibv_post_srq_recv`.
        verb: &'static str,
        /// The queue pair, or shared receive queue.
        qpn: u32,
        /// How many work requests it holds.
        depth: u32,
        /// ENOMEM, what the C verb returns.
        source: io::Error,
    },
    /// The host has no address that a queue pair could use.
    #[error(
        "no usable address: no interface that is up has an IP address, so the GID table is empty. \
         Bring one up (`ip link set lo up` is enough for one host) and look with `rnic devices`"
    )]
    NoGid,
    /// The GID table has no such entry.
    #[error("{what} is not in the GID table; `rnic devices` lists the entries")]
    UnknownGid {
        /// The index or address asked for.
        what: String,
    },
    /// An argument lies outside a buffer or region.
    #[error("{what}: {offset}+{len} lies outside of {size} bytes")]
    OutOfRange {
        /// What was addressed.
        what: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What there is.
        size: u64,
    },
    /// A call was given something it cannot take.
    #[error("{0}")]
    InvalidArgument(String),
    /// Bytes that should be an [`Endpoint`](crate::Endpoint) or a
    /// [`RemoteMemory`](crate::RemoteMemory) are not.
    #[error("not {what}: {reason}")]
    Decode {
        /// What was expected.
        what: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The two ends cannot talk to each other.
    #[error(
        "the local GID is {local} and the peer's is {remote}: one is IPv4, the other IPv6. \
         Choose GIDs of the same kind on both sides (`rnic devices` lists them)"
    )]
    GidMismatch {
        /// Own address.
        local: std::net::IpAddr,
        /// The peer's.
        remote: std::net::IpAddr,
    },
    /// What was waited for, a completion or an event, did not come in time.
    #[error("nothing came within {0:?}")]
    Timeout(Duration),
    /// A work request completed with an error.
    #[error(transparent)]
    Completion(#[from] CompletionError),
    /// The connection manager made no connection.
    #[error(transparent)]
    Connect(#[from] CmError),
    /// The out-of-band exchange failed.
    #[error("out-of-band exchange: {what}")]
    Exchange {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno a C program would see, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Verb { source, .. }
            | Error::QueueFull { source, .. }
            | Error::Exchange { source, .. } => source.raw_os_error(),
            Error::Transition(_) => Some(libc::EINVAL),
            _ => None,
        }
    }

    /// The queue had no room: poll, then post again.
    pub fn is_queue_full(&self) -> bool {
        matches!(self, Error::QueueFull { .. })
    }
}

/// For functions that read and write: the error is kept whole as its source
/// ([`io::Error::get_ref`]), under the kind that a socket would give.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Verb { source, .. }
            | Error::QueueFull { source, .. }
            | Error::Exchange { source, .. } => source.kind(),
            Error::Timeout(_) => io::ErrorKind::TimedOut,
            Error::Completion(_) => io::ErrorKind::ConnectionReset,
            Error::Connect(_) => io::ErrorKind::ConnectionRefused,
            Error::NoGid | Error::UnknownGid { .. } => io::ErrorKind::AddrNotAvailable,
            Error::Decode { .. } => io::ErrorKind::InvalidData,
            Error::OutOfRange { .. }
            | Error::InvalidArgument(_)
            | Error::GidMismatch { .. }
            | Error::Transition(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

// For `?` within this crate; no part of its interface, like the type it converts.
#[doc(hidden)]
impl From<nic::Error> for Error {
    fn from(error: nic::Error) -> Error {
        Error::Verb {
            verb: error.verb(),
            reason: error.reason().to_owned(),
            source: io::Error::from_raw_os_error(error.errno()),
        }
    }
}
