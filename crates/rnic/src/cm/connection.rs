//! Connections, and attempts that become one.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connector::outcome;
use super::object::{Object, Phase, Ready, Role};
use crate::device::cm::Id;
use crate::error::{Error, Result};
use crate::qp::{Connected, Inner, QueuePair, Rc};

/// An attempt to connect or to accept that is under way on a [`CmChannel`](super::CmChannel).
/// Dropping it gives up.
pub struct CmPending<T: Connected> {
    peer: SocketAddr,
    /// Until it is finished.
    attempt: Option<(Arc<Object>, Arc<Inner>)>,
    transport: PhantomData<T>,
}

impl<T: Connected> std::fmt::Debug for CmPending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmPending")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl<T: Connected> CmPending<T> {
    pub(super) fn new(object: Arc<Object>, qp: Arc<Inner>) -> CmPending<T> {
        CmPending {
            peer: object.peer,
            attempt: Some((object, qp)),
            transport: PhantomData,
        }
    }

    /// The connection, or why there is none; `None` as long as neither
    /// [`CmEvent::Connected`](super::CmEvent::Connected) nor
    /// [`CmEvent::Failed`](super::CmEvent::Failed) has come, and once the answer was given.
    pub fn finish(&mut self) -> Option<Result<CmConnection<T>>> {
        let (object, _) = self.attempt.as_ref()?;
        let ready = outcome(object)?;
        let (object, inner) = self.attempt.take()?;
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return Some(Err(error)),
        };
        let Ready::Connection {
            remote,
            path_mtu,
            private_data,
        } = ready
        else {
            return None;
        };
        Some(Ok(CmConnection {
            qp: QueuePair {
                inner,
                remote,
                path_mtu,
                transport: PhantomData,
            },
            private_data,
            object,
        }))
    }

    /// Whom it will be connected with.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

/// A connection that the connection managers of both sides keep: a [`QueuePair`], to which it
/// dereferences, and the knowledge of its end.
///
/// Dropping it disconnects: the queue pair goes to ERR, and the peer is told. Clones of the queue
/// pair itself live on, in ERR, to be polled for what was flushed.
pub struct CmConnection<T: Connected = Rc> {
    pub(super) qp: QueuePair<T>,
    pub(super) private_data: Vec<u8>,
    pub(super) object: Arc<Object>,
}

impl<T: Connected> std::fmt::Debug for CmConnection<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmConnection")
            .field("peer", &self.object.peer)
            .field("qp", &self.qp)
            .finish_non_exhaustive()
    }
}

impl<T: Connected> Deref for CmConnection<T> {
    type Target = QueuePair<T>;
    fn deref(&self) -> &QueuePair<T> {
        &self.qp
    }
}

impl<T: Connected> CmConnection<T> {
    /// The queue pair.
    pub fn qp(&self) -> &QueuePair<T> {
        &self.qp
    }

    /// What the peer's application said: with its request (56 bytes) or with its answer (196
    /// bytes), zeros behind what it gave.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Own address and port.
    ///
    /// # Errors
    /// In a forked child.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        local_addr(&self.object.id)
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.object.peer
    }

    /// Ends the connection (`rdma_disconnect`): what is posted is flushed, the peer is told. Once
    /// is enough; more is not an error.
    ///
    /// The peer's NIC throws away what is still on the way to it: a message has arrived for sure
    /// when its send has completed.
    pub fn disconnect(&self) {
        if let Some(role) = self.object.role()
            && let Role::Link(link) = &*role
        {
            self.object.end(link);
        }
    }

    /// Whether the connection has ended; on a channel given by the caller, as far as the events
    /// taken from it tell.
    pub fn is_disconnected(&self) -> bool {
        if !self.object.shared {
            // An error: a forked child, in which the connection is the parent's.
            let _ = self.object.channel.look(|| self.is_over().then_some(()));
        }
        self.is_over()
    }

    fn is_over(&self) -> bool {
        match self.object.role().as_deref() {
            Some(Role::Link(link)) => !matches!(link.phase, Phase::Ready(_)),
            Some(Role::Listener(_)) | None => true,
        }
    }

    /// Waits until the connection has ended: the peer disconnected, ended or died, or it was ended
    /// here and the peer has answered. [`Error::Timeout`] if it has not in time; `None` waits for
    /// ever.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it was made on a channel given by the caller, where the news
    /// arrive.
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Result<()> {
        if self.object.shared {
            return Err(Error::InvalidArgument(
                "the connection's channel is the caller's: CmEvent::Disconnected tells".to_owned(),
            ));
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let done = || self.is_over().then_some(());
        match self.object.channel.drive(deadline, done)? {
            Some(()) => Ok(()),
            None => Err(Error::Timeout(timeout.unwrap_or_default())),
        }
    }
}

pub(super) fn local_addr(id: &Id) -> Result<SocketAddr> {
    let unbound = || Error::InvalidArgument("it is bound to no address".to_owned());
    id.addresses()?.0.ok_or_else(unbound)
}
