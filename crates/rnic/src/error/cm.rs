//! What can go wrong between two connection managers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::nic::cm::EventKind;

/// Why there is no connection. The errors of the calls themselves (`rdma_bind_addr`: the port is
/// taken, ...) are [`Error::Verb`](crate::Error::Verb).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// The peer, or its connection manager, refused (`RDMA_CM_EVENT_REJECTED`).
    #[error("{peer} refused the connection: {reason}{}", told(private_data))]
    Rejected {
        /// Who.
        peer: SocketAddr,
        /// Why, as the message says.
        reason: RejectReason,
        /// What the peer's application said with it: the whole field of 148 bytes, zeros behind;
        /// empty from a peer whose application was not asked.
        private_data: Vec<u8>,
    },
    /// Nobody answered, after all retries (`RDMA_CM_EVENT_UNREACHABLE`): the default ones take 100
    /// seconds.
    #[error(
        "{peer} does not answer. Is the host up, does a process use RDMA on that address, does UDP port 4791 get through? \
         (`rnic explain RDMA_CM_EVENT_UNREACHABLE`)"
    )]
    Unreachable {
        /// Who.
        peer: SocketAddr,
        /// ETIMEDOUT.
        source: io::Error,
    },
    /// The peer answers, and offers no such service to datagrams (SIDR_REP).
    #[error("{peer} has no such service for datagrams: {}{}", sidr_words(*.status), told(private_data))]
    NoService {
        /// Who.
        peer: SocketAddr,
        /// Status of the answer (IBTA vol. 1, 12.11): 1 nobody listens, 2 the application refused,
        /// 3 it has no queue pair.
        status: i32,
        /// What the peer's application said with it: 136 bytes.
        private_data: Vec<u8>,
    },
    /// No address of the device leads to the peer (`RDMA_CM_EVENT_ADDR_ERROR`,
    /// `RDMA_CM_EVENT_ROUTE_ERROR`).
    #[error("no address of the device leads to {peer}. `rnic devices` and `ip route get {}` tell more", peer.ip())]
    NoRoute {
        /// Who.
        peer: SocketAddr,
        /// ENODEV, ENETUNREACH, EHOSTUNREACH, ETIMEDOUT.
        source: io::Error,
    },
    /// Setting up the connection failed at this end (`RDMA_CM_EVENT_CONNECT_ERROR`).
    #[error("connecting with {peer} failed at this end")]
    Failed {
        /// With whom.
        peer: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The peer ended the connection before it was there.
    #[error("{peer} ended the connection before it was established")]
    Closed {
        /// Who.
        peer: SocketAddr,
    },
    /// The multicast group could not be joined (`RDMA_CM_EVENT_MULTICAST_ERROR`).
    #[error("cannot join the multicast group {}", group.ip())]
    Multicast {
        /// Which.
        group: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Not in the time that the caller has.
    #[error("no connection with {peer} within {after:?}")]
    TimedOut {
        /// With whom.
        peer: SocketAddr,
        /// The time it had.
        after: Duration,
    },
}

impl CmError {
    /// Of an event that ends an attempt.
    pub(crate) fn of(
        kind: EventKind,
        status: i32,
        peer: SocketAddr,
        private_data: Vec<u8>,
    ) -> CmError {
        let source = io::Error::from_raw_os_error(status.saturating_neg());
        match kind {
            EventKind::Rejected => CmError::Rejected {
                peer,
                reason: RejectReason(status as u16),
                private_data,
            },
            EventKind::Unreachable if status > 0 => CmError::NoService {
                peer,
                status,
                private_data,
            },
            EventKind::Unreachable => CmError::Unreachable { peer, source },
            EventKind::AddrError | EventKind::RouteError => CmError::NoRoute { peer, source },
            EventKind::MulticastError => CmError::Multicast {
                group: peer,
                source,
            },
            EventKind::Disconnected => CmError::Closed { peer },
            _ => CmError::Failed { peer, source },
        }
    }
}

/// Private data as a person may read it; nothing if there is none.
fn told(data: &[u8]) -> String {
    let end = data
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |i| i + 1);
    match end {
        0 => String::new(),
        end => format!(". It says \"{}\"", data[..end].escape_ascii()),
    }
}

fn sidr_words(status: i32) -> &'static str {
    match status {
        1 => "nobody listens on that port in RDMA_PS_UDP",
        2 => "its application refused",
        3 => "its application has no queue pair",
        4 => "it is elsewhere (redirect)",
        5 => "its connection manager speaks another version",
        _ => "a status that is not known",
    }
}

/// Reason of a REJ message (IBTA vol. 1, 12.6.7.2). Displays as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// Nobody listens there.
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    /// The peer still has a connection with this queue pair number.
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    /// The address that was called is not the peer's.
    pub const INVALID_GID: RejectReason = RejectReason(12);
    /// The application refused.
    pub const CONSUMER: RejectReason = RejectReason(28);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            1 => "it has no queue pair left",
            3 => "it lacks resources, or its backlog of requests is full",
            4 => "it waited too long for the end of the handshake",
            5 => "it does not support the request",
            6 | 7 => "it does not know this connection",
            8 => "nobody listens on that port",
            9 => "its service is of another type (RC, UC, XRC)",
            10 => "it still has an old connection with this queue pair number; try again",
            12 => "the address called is not one of its GIDs",
            13..=23 | 32 | 33 => "it does not like the path",
            24 | 25 => "the service is elsewhere (redirect)",
            26 => "the path MTU is too large for it",
            27 => "it cannot serve so many READs and atomics at once",
            28 => "its application refused",
            29 => "it does not like the RNR retry count",
            30 => "it already has a connection of that number from here",
            31 => "its connection manager speaks another version",
            35 => "it does not take the vendor's extension",
            _ => "a reason that is not known",
        };
        write!(f, "{words} (REJ reason {})", self.0)
    }
}

#[cfg(test)]
mod tests;
