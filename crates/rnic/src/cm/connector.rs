//! The active side.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::CmChannel;
use super::connection::{CmConnection, CmPending};
use super::datagram::{CmDatagramPeer, CmSearch};
use super::object::{Kind, Link, Object, Phase, RESOLVE_MS, Ready, Reports, Role};
use crate::datagram::DatagramQueuePair;
use crate::error::CmError;
use crate::error::{Error, Result};
use crate::nic::QpType;
use crate::nic::cm::IdOption;
use crate::qp::{Connected, PreparedQueuePair};

/// Arguments of a connection to a [`CmListener`](super::CmListener), or to any program that listens
/// by librdmacm.
///
/// What the connection can do (READs at a time, retries, ACK timeout, traffic class) is what the
/// queue pair's builder says; its GID and path MTU are chosen here, by the way to the peer.
#[derive(Clone, Debug)]
pub struct CmConnector {
    peers: Vec<SocketAddr>,
    source: Option<SocketAddr>,
    private_data: Vec<u8>,
    timeout: Option<Duration>,
}

/// The first of the addresses that a name stands for decides, as `rdma_resolve_addr` takes one.
pub(super) fn resolve(addr: impl ToSocketAddrs) -> Result<Vec<SocketAddr>> {
    let named = || Error::InvalidArgument("the name stands for no address".to_owned());
    let addrs: Vec<_> = addr
        .to_socket_addrs()
        .map_err(|source| Error::Verb {
            verb: "getaddrinfo",
            reason: source.to_string(),
            source,
        })?
        .collect();
    if addrs.is_empty() {
        return Err(named());
    }
    Ok(addrs)
}

impl CmConnector {
    /// To an address and port (RDMA_PS_TCP's ports for RC, RDMA_PS_IB's for UC, RDMA_PS_UDP's for
    /// datagrams). If a name stands for several addresses, [`CmConnector::connect`] takes the
    /// first.
    ///
    /// # Errors
    /// When the name stands for none.
    pub fn new(peer: impl ToSocketAddrs) -> Result<CmConnector> {
        Ok(CmConnector {
            peers: resolve(peer)?,
            source: None,
            private_data: Vec::new(),
            timeout: None,
        })
    }

    /// Whom it will connect to.
    pub fn peer(&self) -> SocketAddr {
        self.peers[0]
    }

    /// From this address (port 0: any that is free); the route's if not set.
    pub fn source(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// For the peer's application, with the request: at most 56 bytes, 180 for datagrams. Longer
    /// data is refused when it connects.
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.private_data = data.to_vec();
        self
    }

    /// How long [`CmConnector::connect`] waits at most. If not set, as long as the connection
    /// manager tries: when nobody answers it repeats the request every 6.4 seconds and gives up
    /// after 100, as Linux's does.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Connects, and returns when the connection is there (`rdma_connect` of a synchronous id).
    ///
    /// # Errors
    /// [`Error::Connect`] says what the peer or the network did; [`Error::Verb`] which call was
    /// refused here.
    pub fn connect<T: Connected>(&self, qp: PreparedQueuePair<T>) -> Result<CmConnection<T>> {
        let deadline = self.deadline();
        let reports = Reports::private(qp.is_system())?;
        let channel = reports.channel.clone();
        let mut pending = self.begin(reports, qp)?;
        let done = channel.drive(deadline, || pending.finish())?;
        done.unwrap_or_else(|| Err(self.too_late()))
    }

    /// Starts connecting, and returns at once. News come to `channel`, with `token`.
    ///
    /// # Errors
    /// [`Error::Verb`]: which call was refused.
    pub fn start<T: Connected>(
        &self,
        channel: &CmChannel,
        token: u64,
        qp: PreparedQueuePair<T>,
    ) -> Result<CmPending<T>> {
        self.begin(Reports::to(channel, token), qp)
    }

    fn begin<T: Connected>(
        &self,
        reports: Reports,
        qp: PreparedQueuePair<T>,
    ) -> Result<CmPending<T>> {
        reports.check(qp.inner.is_system())?;
        let kind = Kind::Connect(qp.inner.clone(), qp.settings);
        let object = self.object(reports, T::TYPE, kind)?;
        if T::TYPE == QpType::Rc {
            let timeout = IdOption::AckTimeout(qp.settings.timeout);
            object.id.set_option(timeout)?;
        }
        object
            .id
            .set_option(IdOption::Tos(qp.settings.traffic_class))?;
        object
            .id
            .set_option(IdOption::PkeyIndex(qp.settings.pkey_index))?;
        self.go(&object)?;
        Ok(CmPending::new(object, qp.inner))
    }

    /// Finds the queue pair of a service for datagrams (`rdma_connect` of a UD id), and returns
    /// when the peer has answered. `qp` is what will send to it.
    ///
    /// # Errors
    /// As [`CmConnector::connect`].
    pub fn find(&self, qp: &DatagramQueuePair) -> Result<CmDatagramPeer> {
        let reports = Reports::private(qp.is_system())?;
        let channel = reports.channel.clone();
        let mut search = self.search(reports, qp)?;
        let done = channel.drive(self.deadline(), || search.finish())?;
        done.unwrap_or_else(|| Err(self.too_late()))
    }

    /// Starts looking for such a service, and returns at once. News come to `channel`, with
    /// `token`.
    ///
    /// # Errors
    /// [`Error::Verb`]: which call was refused.
    pub fn start_find(
        &self,
        channel: &CmChannel,
        token: u64,
        qp: &DatagramQueuePair,
    ) -> Result<CmSearch> {
        self.search(Reports::to(channel, token), qp)
    }

    fn search(&self, reports: Reports, qp: &DatagramQueuePair) -> Result<CmSearch> {
        reports.check(qp.is_system())?;
        let object = self.object(reports, QpType::Ud, Kind::Datagram)?;
        let partition = IdOption::PkeyIndex(qp.pkey_index());
        object.id.set_option(partition)?;
        self.go(&object)?;
        Ok(CmSearch::new(object, qp.clone()))
    }

    fn object(&self, reports: Reports, service: QpType, kind: Kind) -> Result<Arc<Object>> {
        let link = Link {
            kind,
            private_data: self.private_data.clone(),
            phase: Phase::Working,
        };
        Object::new(reports, service, self.peer(), Role::Link(link))
    }

    fn go(&self, object: &Object) -> Result<()> {
        Ok(object
            .id
            .resolve_addr(self.source, object.peer, RESOLVE_MS)?)
    }

    fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        self.timeout.and_then(|timeout| now.checked_add(timeout))
    }

    fn too_late(&self) -> Error {
        let (peer, after) = (self.peer(), self.timeout.unwrap_or_default());
        CmError::TimedOut { peer, after }.into()
    }
}

/// What became of an attempt; `None`: nothing yet.
pub(super) fn outcome(object: &Object) -> Option<Result<Ready>> {
    let peer = object.peer;
    let failed = || CmError::Closed { peer }.into();
    let Some(mut role) = object.role() else {
        return Some(Err(failed()));
    };
    let Role::Link(link) = &mut *role else {
        return None;
    };
    match &mut link.phase {
        Phase::Working => None,
        Phase::Ready(ready) | Phase::Over(ready) => Some(Ok(ready.clone())),
        Phase::Failed(error) => {
            // Given out once; after that, that it failed.
            Some(Err(error.take().unwrap_or_else(failed)))
        }
    }
}
