//! Ids, as their owners hold them.

use std::net::SocketAddr;

use super::channel::EventChannel;
use super::params::{ConnParam, IdOption, PortSpace};
use super::route::Route;
use crate::error::Result;
use crate::qp::{QpAttr, QpAttrMask, QpState, QpType};

/// An endpoint of the connection manager (`struct rdma_cm_id`). A handle: clones are the same id. It ends with
/// [`Id::destroy`] or with its last handle; calls on one that was destroyed give EINVAL.
#[derive(Clone, Debug)]
pub struct Id;

/// A membership in a multicast group; it ends with [`Id::leave_multicast`] or with its id.
#[derive(Clone, Debug)]
pub struct Multicast;

impl Id {
    /// Makes one whose events go to `channel`. `uid` is the caller's own mark.
    ///
    /// # Errors
    /// EINVAL: the port space has no such service (TCP: RC; UDP and IPOIB: UD; IB: any).
    pub fn new(
        _channel: &EventChannel,
        _port_space: PortSpace,
        _qp_type: QpType,
        _uid: u64,
    ) -> Result<Id> {
        unimplemented!()
    }

    /// The caller's mark. The new id of a connection request has 0, and no event until [`Id::set_uid`] or [`Id::accept`]
    /// gave it one (whoever maps marks to objects could not tell whose it is).
    pub fn uid(&self) -> u64 {
        unimplemented!()
    }

    /// Changes it.
    pub fn set_uid(&self, _uid: u64) {
        unimplemented!()
    }

    /// Its port space.
    pub fn port_space(&self) -> PortSpace {
        unimplemented!()
    }

    /// Its service.
    pub fn qp_type(&self) -> QpType {
        unimplemented!()
    }

    /// Binds it to an address and port (`rdma_bind_addr(3)`). Port 0: any that is free. The unspecified address: all.
    ///
    /// # Errors
    /// EADDRINUSE; EACCES: a port below 1024 without CAP_NET_BIND_SERVICE; ENODEV or EADDRNOTAVAIL: no address of the
    /// device; EINVAL: bound already.
    pub fn bind(&self, _addr: SocketAddr) -> Result<()> {
        unimplemented!()
    }

    /// Finds own address and device for a peer (`rdma_resolve_addr(3)`): AddrResolved, or AddrError with -errno.
    ///
    /// # Errors
    /// What [`Id::bind`] says of `source`; ENETUNREACH, EHOSTUNREACH: no route; EINVAL: resolved already.
    pub fn resolve_addr(
        &self,
        _source: Option<SocketAddr>,
        _peer: SocketAddr,
        _timeout_ms: u32,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Finds the path (`rdma_resolve_route(3)`): RouteResolved, or RouteError with -errno.
    ///
    /// # Errors
    /// EINVAL: the address is not resolved.
    pub fn resolve_route(&self, _timeout_ms: u32) -> Result<()> {
        unimplemented!()
    }

    /// What is known of its addresses and path.
    ///
    /// # Errors
    /// EINVAL: destroyed; ENODEV in a forked child.
    pub fn route(&self) -> Result<Route> {
        unimplemented!()
    }

    /// Asks the peer for a connection, or over UD for its queue pair (`rdma_connect(3)`): ConnectResponse (UD:
    /// Established), Rejected, Unreachable, ConnectError.
    ///
    /// # Errors
    /// EINVAL: the route is not resolved, or too much private data.
    pub fn connect(&self, _param: &ConnParam<'_>) -> Result<()> {
        unimplemented!()
    }

    /// Waits for requests (`rdma_listen(3)`), up to `backlog` (0 or less, or too many: 1024) that nobody took. An unbound
    /// id is bound to the wildcard.
    ///
    /// # Errors
    /// EADDRINUSE, EINVAL.
    pub fn listen(&self, _backlog: i32) -> Result<()> {
        unimplemented!()
    }

    /// Accepts a request (`rdma_accept(3)`). `uid` becomes the id's mark, as all events after it carry it. `None`:
    /// [`Id::establish`].
    ///
    /// # Errors
    /// EINVAL: there is no request, or too much private data.
    pub fn accept(&self, _param: Option<&ConnParam<'_>>, _uid: u64) -> Result<()> {
        unimplemented!()
    }

    /// After ConnectResponse: the own queue pair is in RTS, the peer may know (RTU).
    ///
    /// # Errors
    /// EINVAL: there was no response.
    pub fn establish(&self) -> Result<()> {
        unimplemented!()
    }

    /// Refuses a request or a response (`rdma_reject(3)`).
    ///
    /// `reason`: 28, consumer's, or 35, vendor option not supported; 0 is 28.
    ///
    /// # Errors
    /// EINVAL: another reason, nothing to refuse, or too much private data.
    pub fn reject(&self, _private_data: &[u8], _reason: u16) -> Result<()> {
        unimplemented!()
    }

    /// Ends the connection (`rdma_disconnect(3)`), or says that the end was seen: Disconnected follows on both sides, and
    /// later TimewaitExit.
    ///
    /// # Errors
    /// EINVAL: there is no connection.
    pub fn disconnect(&self) -> Result<()> {
        unimplemented!()
    }

    /// The queue pair has received although the connection is not established (`rdma_notify(3)` of
    /// IBV_EVENT_COMM_EST): it is.
    ///
    /// # Errors
    /// EISCONN: it is established; EINVAL: no answer was given.
    pub fn notify_established(&self) -> Result<()> {
        unimplemented!()
    }

    /// What the queue pair of this id has to be given for a transition to INIT, RTR or RTS.
    ///
    /// # Errors
    /// EINVAL: too early for it, or another state.
    pub fn init_qp_attr(&self, _state: QpState) -> Result<(QpAttr, QpAttrMask)> {
        unimplemented!()
    }

    /// Sets an option.
    ///
    /// # Errors
    /// EINVAL: out of range, or too late for it; EOPNOTSUPP.
    pub fn set_option(&self, _option: IdOption) -> Result<()> {
        unimplemented!()
    }

    /// Has its events go to another channel, also those that wait (`rdma_migrate_id(3)`). Gives the number of its events
    /// that were taken from the old one.
    ///
    /// # Errors
    /// EINVAL: destroyed.
    pub fn migrate(&self, _channel: &EventChannel) -> Result<u32> {
        unimplemented!()
    }

    /// Joins a group (`rdma_join_multicast_ex(3)`): MulticastJoin with its address, or MulticastError. `send_only`: to
    /// send only. The caller attaches its queue pair.
    ///
    /// # Errors
    /// EINVAL: no group, not bound to an address of the device, or not a datagram service; EADDRINUSE: joined already.
    pub fn join_multicast(
        &self,
        _group: SocketAddr,
        _send_only: bool,
        _uid: u64,
    ) -> Result<Multicast> {
        unimplemented!()
    }

    /// Leaves it. Gives the number of events of the membership that were taken.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: left already, or another id's.
    pub fn leave_multicast(&self, _membership: &Multicast) -> Result<u32> {
        unimplemented!()
    }

    /// Ends the id: what it had with a peer is refused or disconnected, its port is free, its events that nobody took
    /// are gone, and requests that nobody took are refused. Gives the number of events that were taken, for callers who
    /// wait for their acknowledgement; 0 if it was destroyed before.
    pub fn destroy(&self) -> u32 {
        unimplemented!()
    }
}
