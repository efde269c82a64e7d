//! The passive side.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::CmChannel;
use super::connection::{CmConnection, CmPending, local_addr};
use super::connector::resolve;
use super::object::{Depths, Kind, Link, Object, Phase, Reports, Role, make_ready, private_data};
use crate::context::default_is_system;
use crate::datagram::DatagramQueuePair;
use crate::device::cm::{Event, Id};
use crate::error::{Error, Result};
use crate::nic::cm::{self, ConnParam, EventParam, IdOption};
use crate::qp::{Connected, PreparedQueuePair, Rc, Transport, Ud};

/// Waits for requests on a port (`rdma_listen`): of RDMA_PS_TCP for [`Rc`], RDMA_PS_IB for
/// [`Uc`](crate::Uc), RDMA_PS_UDP for [`Ud`]. These ports are the connection manager's own: a TCP
/// server on the same port is no obstacle.
///
/// Dropping it frees the port and refuses the requests that nobody took.
pub struct CmListener<T: Transport = Rc> {
    object: Arc<Object>,
    transport: PhantomData<T>,
}

impl<T: Transport> std::fmt::Debug for CmListener<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmListener")
            .field("addr", &self.local_addr().ok())
            .finish_non_exhaustive()
    }
}

/// Arguments of a listener; see [`CmListener::builder`].
#[derive(Debug)]
pub struct CmListenerBuilder<T: Transport> {
    addrs: Vec<SocketAddr>,
    backlog: i32,
    reuse_addr: bool,
    v6_only: bool,
    reports: Option<(CmChannel, u64)>,
    transport: PhantomData<T>,
}

impl<T: Transport> CmListenerBuilder<T> {
    /// Requests that may wait until somebody takes them; 128 if not set, 1024 for 0. More get no
    /// answer, as with Linux: their peers ask again, and may have better luck.
    pub fn backlog(mut self, requests: u16) -> Self {
        self.backlog = requests.into();
        self
    }

    /// The port may be bound by others that say so too, as long as only one listens.
    pub fn reuse_addr(mut self) -> Self {
        self.reuse_addr = true;
        self
    }

    /// `[::]` means IPv6 only; without it also IPv4.
    pub fn v6_only(mut self) -> Self {
        self.v6_only = true;
        self
    }

    /// Reports to this channel, by this token ([`CmEvent::Request`](super::CmEvent::Request)).
    pub fn channel(mut self, channel: &CmChannel, token: u64) -> Self {
        self.reports = Some((channel.clone(), token));
        self
    }

    /// Binds the port and listens.
    ///
    /// # Errors
    /// [`Error::Verb`] with EADDRINUSE: another has the port at that address; EADDRNOTAVAIL: at all
    /// addresses, or the address is not the device's; EACCES: ports below 1024 need a privilege;
    /// ENODEV.
    pub fn listen(self) -> Result<CmListener<T>> {
        let addr = self.addrs[0];
        let reports = match &self.reports {
            Some((channel, token)) => Reports::to(channel, *token),
            None => Reports::private(default_is_system())?,
        };
        let role = Role::Listener(VecDeque::new());
        let object = Object::new(reports, T::TYPE, addr, role)?;
        if self.reuse_addr {
            object.id.set_option(IdOption::ReuseAddr(true))?;
        }
        if self.v6_only {
            object.id.set_option(IdOption::AfOnly(true))?;
        }
        object.id.bind(addr)?;
        object.id.listen(self.backlog)?;
        Ok(CmListener {
            object,
            transport: PhantomData,
        })
    }
}

impl<T: Transport> CmListener<T> {
    /// Listens on an address and port (port 0: any that is free; `0.0.0.0` or `[::]`: all
    /// addresses).
    ///
    /// # Errors
    /// As [`CmListenerBuilder::listen`].
    pub fn bind(addr: impl ToSocketAddrs) -> Result<CmListener<T>> {
        Self::builder(addr)?.listen()
    }

    /// The same with more to say.
    ///
    /// # Errors
    /// When the name stands for no address.
    pub fn builder(addr: impl ToSocketAddrs) -> Result<CmListenerBuilder<T>> {
        Ok(CmListenerBuilder {
            addrs: resolve(addr)?,
            backlog: 128,
            reuse_addr: false,
            v6_only: false,
            reports: None,
            transport: PhantomData,
        })
    }

    /// Its address and port.
    ///
    /// # Errors
    /// In a forked child.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        local_addr(&self.object.id)
    }

    /// The channel it reports on.
    pub fn channel(&self) -> &CmChannel {
        &self.object.channel
    }

    /// Takes the oldest request if there is one; on a channel given by the caller, if its events
    /// have brought one.
    ///
    /// # Errors
    /// As [`CmChannel::try_event`].
    pub fn try_request(&self) -> Result<Option<CmRequest<T>>> {
        match self.object.shared {
            true => Ok(self.take()),
            false => self.object.channel.look(|| self.take()),
        }
    }

    fn take(&self) -> Option<CmRequest<T>> {
        let event = match &mut *self.object.role()? {
            Role::Listener(requests) => requests.pop_front()?,
            Role::Link(_) => return None,
        };
        Some(CmRequest {
            event: Some(event),
            transport: PhantomData,
        })
    }

    /// Waits for a request (`rdma_get_request`); [`Error::Timeout`] if there is none in time,
    /// `None` waits for ever. Any number of threads may wait.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it reports to a channel given by the caller, where the news
    /// arrive.
    pub fn request(&self, timeout: Option<Duration>) -> Result<CmRequest<T>> {
        if self.object.shared {
            return Err(Error::InvalidArgument(
                "the listener's channel is the caller's: CmEvent::Request tells".to_owned(),
            ));
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let request = self.object.channel.drive(deadline, || self.take())?;
        request.ok_or(Error::Timeout(timeout.unwrap_or_default()))
    }
}

/// Somebody wants a connection, or over [`Ud`] the way to the service. Dropping it refuses.
pub struct CmRequest<T: Transport = Rc> {
    /// Until it is answered.
    event: Option<Event>,
    transport: PhantomData<T>,
}

impl<T: Transport> std::fmt::Debug for CmRequest<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmRequest")
            .field("peer", &self.peer_addr().ok())
            .finish_non_exhaustive()
    }
}

fn answered() -> Error {
    Error::InvalidArgument("the request is answered".to_owned())
}

impl<T: Transport> CmRequest<T> {
    fn event(&self) -> Result<&Event> {
        self.event.as_ref().ok_or_else(answered)
    }

    /// The new id.
    fn id(&self) -> Result<&Id> {
        self.event()?.request.as_ref().ok_or_else(answered)
    }

    fn end(&mut self) {
        if let Some(id) = self.event.take().and_then(|event| event.request) {
            id.destroy();
        }
    }

    /// Who asks.
    ///
    /// # Errors
    /// In a forked child.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        let unknown = || Error::InvalidArgument("the request does not say from where".to_owned());
        self.id()?.addresses()?.1.ok_or_else(unknown)
    }

    /// The address that was called.
    ///
    /// # Errors
    /// In a forked child.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        local_addr(self.id()?)
    }

    /// What the peer's application said with its request: 56 bytes, or 180 over [`Ud`], zeros
    /// behind what it gave.
    pub fn private_data(&self) -> &[u8] {
        match self.event.as_ref().map(|event| &event.param) {
            Some(EventParam::Conn(conn)) => &conn.private_data,
            Some(EventParam::Ud(ud)) => &ud.private_data,
            _ => &[],
        }
    }

    /// Refuses it (`rdma_reject`): the peer gets REJ reason 28 and these at most 148 bytes (136
    /// over [`Ud`]).
    ///
    /// # Errors
    /// When the data is too long (the request is refused nevertheless, without data), or the peer
    /// gave up meanwhile.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        let refused = self.id()?.reject(private_data);
        self.end();
        Ok(refused?)
    }
}

impl<T: Transport> Drop for CmRequest<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T: Connected> CmRequest<T> {
    /// Accepts it with this queue pair, and returns when the connection is there (`rdma_accept` of
    /// a synchronous id). Receives should have been posted: the peer may send at once.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer gave up meanwhile; [`Error::Verb`] which call was refused
    /// here.
    pub fn accept(self, qp: PreparedQueuePair<T>) -> Result<CmConnection<T>> {
        self.accept_with(qp, &[])
    }

    /// The same with at most 196 bytes for the peer's application.
    ///
    /// # Errors
    /// As [`CmRequest::accept`].
    pub fn accept_with(
        self,
        qp: PreparedQueuePair<T>,
        private_data: &[u8],
    ) -> Result<CmConnection<T>> {
        let reports = Reports::private(qp.is_system())?;
        let channel = reports.channel.clone();
        let mut pending = self.begin(reports, qp, private_data)?;
        match channel.drive(None, || pending.finish())? {
            Some(result) => result,
            None => Err(Error::Timeout(Duration::ZERO)),
        }
    }

    /// Accepts it, and returns at once. News come to `channel`, with `token`.
    ///
    /// # Errors
    /// [`Error::Verb`]: which call was refused.
    pub fn start(
        self,
        channel: &CmChannel,
        token: u64,
        qp: PreparedQueuePair<T>,
        private_data: &[u8],
    ) -> Result<CmPending<T>> {
        self.begin(Reports::to(channel, token), qp, private_data)
    }

    fn begin(
        mut self,
        reports: Reports,
        qp: PreparedQueuePair<T>,
        data: &[u8],
    ) -> Result<CmPending<T>> {
        let peer = self.peer_addr()?;
        let asked = match &self.event()?.param {
            EventParam::Conn(conn) => conn.clone(),
            _ => cm::ConnEvent::default(),
        };
        let settings = qp.settings;
        let depths = Depths {
            responder_resources: asked.responder_resources.min(settings.max_dest_rd_atomic),
            initiator_depth: asked.initiator_depth.min(settings.max_rd_atomic),
        };
        let told = private_data(&self.event()?.param);
        let ready = make_ready(self.id()?, &qp.inner, &settings, Some(depths), told)?;
        let id = self.event.take().and_then(|event| event.request);
        let id = id.ok_or_else(answered)?;
        let link = Link {
            kind: Kind::Accept(qp.inner.clone(), ready),
            private_data: Vec::new(),
            phase: Phase::Working,
        };
        let uid = crate::next_cookie();
        let object = Object::around(id, uid, reports, peer, Role::Link(link));
        object.id.migrate(object.channel.raw())?;
        let param = ConnParam {
            private_data: data,
            responder_resources: depths.responder_resources,
            initiator_depth: depths.initiator_depth,
            rnr_retry_count: settings.rnr_retry,
            srq: qp.inner.has_srq(),
            qp_num: qp.inner.qp.qpn(),
            ..ConnParam::default()
        };
        object.id.accept(&param, uid)?;
        Ok(CmPending::new(object, qp.inner))
    }
}

impl CmRequest<Ud> {
    /// Tells the peer to send its datagrams to this queue pair, and at most 136 bytes for its
    /// application.
    ///
    /// # Errors
    /// [`Error::Verb`]: which call was refused.
    pub fn accept(mut self, qp: &DatagramQueuePair, private_data: &[u8]) -> Result<()> {
        self.id()?.check_device(qp.raw())?;
        let param = ConnParam {
            private_data,
            qp_num: qp.qpn(),
            qkey: qp.qkey(),
            ..ConnParam::default()
        };
        self.id()?.accept(&param, 0)?;
        // The id has done its duty with the answer.
        self.end();
        Ok(())
    }
}
