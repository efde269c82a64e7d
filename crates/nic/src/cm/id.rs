//! Ids, as their owners hold them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::channel::EventChannel;
use super::event::Event;
use crate::addressing::gid_table::GidEntry;
use crate::driving::Nic;
use crate::engine::cm_service::{
    Cm, ConnParam, Entry, EventKind, EventParam, IdOption, Key, Marks, PortSpace, Query, Route,
    State, TakenEvent, Waiting, neighbours, resolve,
};
use crate::error::{Error, Result};
use crate::observe;
use crate::queues::{QpAttr, QpAttrMask, QpState, QpType};
use crate::sync::busy::while_busy;

/// An endpoint of the connection manager (`struct rdma_cm_id`). A handle: clones are the same id.
/// It ends with [`Id::destroy`] or with its last handle; calls on one that was destroyed give
/// EINVAL.
#[derive(Clone, Debug)]
pub struct Id {
    pub(super) shared: Arc<IdShared>,
}

#[derive(Debug)]
pub(super) struct IdShared {
    nic: Nic,
    key: Key,
    marks: Arc<Marks>,
    port_space: PortSpace,
    qp_type: QpType,
}

/// A membership in a multicast group; it ends with [`Id::leave_multicast`] or with its id.
#[derive(Clone, Debug)]
pub struct Multicast {
    key: Key,
}

impl Id {
    /// Makes one whose events go to `channel`. `uid` is the caller's own mark.
    ///
    /// # Errors
    /// EINVAL: the port space has no such service (TCP: RC; UDP and IPOIB: UD; IB: any), or the
    /// channel is closed; ENODEV in a forked child.
    pub fn new(
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
        uid: u64,
    ) -> Result<Id> {
        const VERB: &str = "rdma_create_id";
        let only = match port_space {
            PortSpace::Tcp => Some(QpType::Rc),
            PortSpace::Udp | PortSpace::Ipoib => Some(QpType::Ud),
            PortSpace::Ib => None,
        };
        if let Some(only) = only.filter(|only| *only != qp_type) {
            return Err(Error::invalid(
                VERB,
                format!("port space {port_space:?} has {only:?} queue pairs, not {qp_type:?}"),
            ));
        }
        let nic = &channel.shared.nic;
        nic.check_alive(VERB)?;
        let entry = Entry::new(port_space, qp_type, channel.shared.key);
        entry.marks.uid.store(uid, Ordering::Release);
        entry.marks.adopted.store(true, Ordering::Release);
        let mut engine = nic.lock();
        let key = engine.cm.add_id(entry);
        let id = key.and_then(|key| Id::adopt(nic, &mut engine.cm, key));
        drop(engine);
        id.ok_or_else(|| Error::invalid(VERB, "the event channel is closed"))
    }

    /// The handle of an id that its owner holds from now on.
    fn adopt(nic: &Nic, cm: &mut Cm, key: Key) -> Option<Id> {
        let make = |entry: &Entry| {
            Arc::new(IdShared {
                nic: nic.clone(),
                key,
                marks: entry.marks.clone(),
                port_space: entry.port_space,
                qp_type: entry.qp_type,
            })
        };
        cm.adopt(key, make).map(|shared| Id { shared })
    }

    /// The oldest event of a channel, after its token was taken. `None`: its id has ended, or is
    /// about to.
    pub(super) fn next_event(nic: &Nic, cm: &mut Cm, channel: Key, now: u64) -> Option<Event> {
        let TakenEvent {
            kind,
            status,
            owner,
            subject,
            multicast,
            param,
        } = cm.next_event(channel, now)?;
        let id = Id {
            shared: owner.downcast().ok()?,
        };
        let (id, listener) = match subject.and_then(|subject| Id::adopt(nic, cm, subject)) {
            Some(new) => (new, Some(id)),
            None => (id, None),
        };
        Some(Event {
            kind,
            status,
            uid: match (multicast, &listener) {
                (Some(uid), _) => uid,
                (None, Some(listener)) => listener.uid(),
                (None, None) => id.uid(),
            },
            multicast,
            id,
            listener,
            param,
        })
    }

    /// Works on the id under the engine's lock; what it has to say leaves at once.
    fn with<T>(
        &self,
        verb: &'static str,
        work: impl FnOnce(&mut Cm, Key, u64) -> Result<T>,
    ) -> Result<T> {
        let nic = &self.shared.nic;
        nic.check_alive(verb)?;
        let mut engine = nic.lock();
        let now = nic.host().now_ns();
        let result = match engine.cm.ids.get(self.shared.key) {
            Some(_) => work(&mut engine.cm, self.shared.key, now),
            None => Err(Error::invalid(verb, "the id was destroyed")),
        };
        engine.send_cm(now);
        nic.after_drive(engine);
        result
    }

    /// The same for who changes the table of ports. While another process does, the engine goes on;
    /// if that process is stopped, this ends with EBUSY after a while. What `work` did before it
    /// came to the table, it does again.
    fn with_ports<T>(
        &self,
        verb: &'static str,
        mut work: impl FnMut(&mut Cm, Key, u64) -> Result<T>,
    ) -> Result<T> {
        while_busy(|| self.with(verb, &mut work))
    }

    /// The connection manager knows the host's addresses as they are.
    fn refresh(&self, verb: &'static str, table: &[GidEntry]) -> Result<()> {
        self.with(verb, |cm, _, _| {
            cm.refresh(table);
            Ok(())
        })
    }

    /// As [`Id::with`], with its entry.
    fn with_entry<T>(
        &self,
        verb: &'static str,
        work: impl FnOnce(&mut Entry) -> Result<T>,
    ) -> Result<T> {
        self.with(verb, |cm, key, _| work(cm.entry(verb, key)?))
    }

    /// The caller's mark. The new id of a connection request has 0, and no event until
    /// [`Id::set_uid`] or [`Id::accept`] gave it one (whoever maps marks to objects could not tell
    /// whose it is).
    pub fn uid(&self) -> u64 {
        self.shared.marks.uid.load(Ordering::Acquire)
    }

    /// Changes it.
    pub fn set_uid(&self, uid: u64) {
        self.shared.marks.uid.store(uid, Ordering::Release);
        self.shared.marks.adopted.store(true, Ordering::Release);
    }

    /// Whether calls on it can work: in a forked child, and after [`crate::shutdown`], they give
    /// ENODEV.
    pub fn is_alive(&self) -> bool {
        self.shared.nic.check_alive("rdma_query_route").is_ok()
    }

    /// Its port space.
    pub fn port_space(&self) -> PortSpace {
        self.shared.port_space
    }

    /// Its service.
    pub fn qp_type(&self) -> QpType {
        self.shared.qp_type
    }

    /// Binds it to an address and port (`rdma_bind_addr(3)`). Port 0: any that is free. The
    /// unspecified address: all.
    ///
    /// # Errors
    /// EADDRINUSE: another has the port at that address; EADDRNOTAVAIL: at all addresses, or no
    /// address of the device; EBUSY: a process that was about to take a port is stopped; EACCES: a
    /// port below 1024 without CAP_NET_BIND_SERVICE; EINVAL: bound already, or a link-local address
    /// without scope.
    pub fn bind(&self, addr: SocketAddr) -> Result<()> {
        const VERB: &str = "rdma_bind_addr";
        // Before the engine is locked, as it takes system calls.
        let host = self.shared.nic.host();
        let table = host.gid_table();
        let source = resolve::bindable(VERB, addr, &table, host)?;
        self.refresh(VERB, &table)?;
        self.with_ports(VERB, |cm, key, _| {
            let entry = cm.entry(VERB, key)?;
            entry.expect(VERB, &[State::Idle])?;
            let claim = cm.claim(VERB, key, addr)?;
            let entry = cm.entry(VERB, key)?;
            entry.local = Some(claim.addr());
            entry.claim = Some(claim);
            entry.source = source;
            entry.state = State::Bound;
            Ok(())
        })
    }

    /// Finds own address and device for a peer (`rdma_resolve_addr(3)`): AddrResolved, or AddrError
    /// with -errno.
    ///
    /// # Errors
    /// What [`Id::bind`] says of `source`; ENETUNREACH, EHOSTUNREACH: no route; EINVAL: resolved
    /// already.
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: u32,
    ) -> Result<()> {
        const VERB: &str = "rdma_resolve_addr";
        let peer = resolve::meant(peer);
        let bound = self.with_entry(VERB, |entry| {
            entry.expect(VERB, &[State::Idle, State::Bound])?;
            Ok(entry.local)
        })?;
        let host = self.shared.nic.host();
        let table = host.gid_table();
        if let (None, Some(source)) = (bound, source) {
            resolve::bindable(VERB, source, &table, host)?;
        }
        let from = bound.or(source);
        let way = resolve::find_way(VERB, from, peer, &table, host)?;
        // Nobody has to be asked for the way to oneself.
        let elsewhere = !table.iter().any(|row| row.addr == peer.ip());
        let unknown = match elsewhere {
            true => neighbours::unknown(way.addr, peer, host),
            false => None,
        };
        self.refresh(VERB, &table)?;
        self.with_ports(VERB, |cm, key, now| {
            let entry = cm.entry(VERB, key)?;
            entry.expect(VERB, &[State::Idle, State::Bound])?;
            let given = from.filter(|from| !from.ip().is_unspecified());
            entry.found = given.is_none();
            if entry.claim.is_none() {
                // The source address is known: no need to take the port of all others.
                let mut claimed = given.unwrap_or(way.addr);
                claimed.set_port(from.map_or(0, |from| from.port()));
                let claim = cm.claim(VERB, key, claimed)?;
                let entry = cm.entry(VERB, key)?;
                entry.local = Some(claim.addr());
                entry.claim = Some(claim);
                entry.state = State::Bound;
            }
            let entry = cm.entry(VERB, key)?;
            entry.peer = Some(peer);
            if let (Some(own), Some(_)) = (entry.local, way.source) {
                let mut addr = way.addr;
                addr.set_port(own.port());
                entry.local = Some(addr);
                entry.source = way.source;
                entry.mtu = Some(way.mtu);
                if let Some(hop) = unknown {
                    entry.state = State::AddrQuery;
                    let ends = (way.addr, peer);
                    cm.queries.add(Query::new(key, hop, ends, timeout_ms, now));
                } else {
                    entry.state = State::AddrResolved;
                    cm.post(Waiting::new(key, EventKind::AddrResolved));
                }
            } else {
                cm.note(Some(key), |attempt| {
                    let why = resolve::not_the_devices(way.addr.ip(), host);
                    observe::cm::address_error(attempt, -libc::ENODEV, &why);
                });
                cm.entry(VERB, key)?.forget_what_was_found();
                cm.post(Waiting {
                    status: -libc::ENODEV,
                    ..Waiting::new(key, EventKind::AddrError)
                });
            }
            Ok(())
        })
    }

    /// Finds the path (`rdma_resolve_route(3)`): RouteResolved, or RouteError with -errno. On RoCE
    /// there is nobody to ask, and nothing to wait for.
    ///
    /// # Errors
    /// EINVAL: the address is not resolved.
    pub fn resolve_route(&self, _timeout_ms: u32) -> Result<()> {
        const VERB: &str = "rdma_resolve_route";
        self.with(VERB, |cm, key, _| {
            let pkeys = cm.host.pkeys().clone();
            let entry = cm.entry(VERB, key)?;
            entry.expect(VERB, &[State::AddrResolved])?;
            entry.path = resolve::path_record(entry, &pkeys);
            entry.state = State::RouteResolved;
            cm.post(Waiting::new(key, EventKind::RouteResolved));
            Ok(())
        })
    }

    /// What is known of its addresses and path.
    ///
    /// # Errors
    /// EINVAL: destroyed; ENODEV in a forked child.
    pub fn route(&self) -> Result<Route> {
        const VERB: &str = "rdma_query_route";
        self.with(VERB, |cm, key, _| {
            let guid = cm.endpoint.config().guid;
            let pkeys = cm.host.pkeys().clone();
            Ok(Route::of(cm.entry(VERB, key)?, guid, &pkeys))
        })
    }

    /// Asks the peer for a connection, or over UD for its queue pair (`rdma_connect(3)`):
    /// ConnectResponse (UD: Established), Rejected, Unreachable, ConnectError.
    ///
    /// # Errors
    /// EINVAL: the route is not resolved, or too much private data.
    pub fn connect(&self, param: &ConnParam<'_>) -> Result<()> {
        self.with("rdma_connect", |cm, key, now| cm.connect(key, param, now))
    }

    /// Waits for requests (`rdma_listen(3)`), up to `backlog` (0 or less, or too many: 1024) that
    /// nobody took. An unbound id is bound to the wildcard.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EINVAL; EBUSY as [`Id::bind`].
    pub fn listen(&self, backlog: i32) -> Result<()> {
        self.with_ports("rdma_listen", |cm, key, _| cm.listen(key, backlog))
    }

    /// Accepts a request (`rdma_accept(3)`). `uid` becomes the id's mark, as all events after it
    /// carry it. `None`: [`Id::establish`].
    ///
    /// # Errors
    /// EINVAL: there is no request, or too much private data.
    pub fn accept(&self, param: Option<&ConnParam<'_>>, uid: u64) -> Result<()> {
        if param.is_some() {
            self.set_uid(uid);
        }
        self.with("rdma_accept", |cm, key, now| cm.accept(key, param, now))
    }

    /// There is a request or a response that `rdma_accept(3)` may answer.
    ///
    /// # Errors
    /// EINVAL: there is none.
    pub fn may_accept(&self) -> Result<()> {
        self.with("rdma_accept", |cm, key, _| cm.may_accept(key))
    }

    /// After ConnectResponse: the own queue pair is in RTS, the peer may know (RTU).
    ///
    /// # Errors
    /// EINVAL: there was no response.
    pub fn establish(&self) -> Result<()> {
        self.accept(None, 0)
    }

    /// Refuses a request or a response (`rdma_reject(3)`).
    ///
    /// `reason`: 28, consumer's, or 35, vendor option not supported; 0 is 28.
    ///
    /// # Errors
    /// EINVAL: another reason, nothing to refuse, or too much private data.
    pub fn reject(&self, private_data: &[u8], reason: u16) -> Result<()> {
        self.with("rdma_reject", |cm, key, now| {
            cm.reject(key, private_data, reason, now)
        })
    }

    /// Ends the connection (`rdma_disconnect(3)`), or says that the end was seen: Disconnected
    /// follows on both sides, and later TimewaitExit.
    ///
    /// # Errors
    /// EINVAL: there is no connection.
    pub fn disconnect(&self) -> Result<()> {
        self.with("rdma_disconnect", |cm, key, now| cm.disconnect(key, now))
    }

    /// The queue pair has received although the connection is not established (`rdma_notify(3)` of
    /// IBV_EVENT_COMM_EST): it is.
    ///
    /// # Errors
    /// EISCONN: it is established; EINVAL: no answer was given.
    pub fn notify_established(&self) -> Result<()> {
        self.with("rdma_notify", |cm, key, now| cm.notify(key, now))
    }

    /// What the queue pair of this id has to be given for a transition to INIT, RTR or RTS.
    ///
    /// # Errors
    /// EINVAL: too early for it, or another state.
    pub fn init_qp_attr(&self, state: QpState) -> Result<(QpAttr, QpAttrMask)> {
        self.with_entry("rdma_init_qp_attr", |entry| entry.qp_attr(state))
    }

    /// Sets an option.
    ///
    /// # Errors
    /// EINVAL: out of range, or too late for it.
    pub fn set_option(&self, option: IdOption) -> Result<()> {
        self.with_ports("rdma_set_option", |cm, key, _| cm.set_option(key, option))
    }

    /// Has its events go to another channel, also those that wait (`rdma_migrate_id(3)`). Gives the
    /// number of its events that were taken from the old one.
    ///
    /// # Errors
    /// EINVAL: destroyed, or the channel is closed.
    pub fn migrate(&self, channel: &EventChannel) -> Result<u32> {
        const VERB: &str = "rdma_migrate_id";
        let to = channel.shared.key;
        self.with(VERB, |cm, key, _| {
            let taken = cm.migrate(key, to);
            taken.ok_or_else(|| Error::invalid(VERB, "the event channel is closed"))
        })
    }

    /// Joins a group (`rdma_join_multicast_ex(3)`): MulticastJoin with its address, or
    /// MulticastError. `send_only`: to send only. The caller attaches its queue pair.
    ///
    /// # Errors
    /// EINVAL: no group, not bound to an address of the device, connected, or not a datagram
    /// service.
    pub fn join_multicast(
        &self,
        group: SocketAddr,
        send_only: bool,
        uid: u64,
    ) -> Result<Multicast> {
        let _ = send_only;
        self.with("rdma_join_multicast", |cm, key, _| {
            cm.join(key, group, uid).map(|key| Multicast { key })
        })
    }

    /// Leaves it. Gives the number of events of the membership that were taken.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: left already, or another id's.
    pub fn leave_multicast(&self, membership: &Multicast) -> Result<u32> {
        self.with("rdma_leave_multicast", |cm, key, _| {
            cm.leave(key, membership.key)
        })
    }

    /// Tells itself something: an event that waits in line with the others
    /// (`rdma_write_cm_event(3)`).
    ///
    /// # Errors
    /// EINVAL: not one of the kinds that are raised so.
    pub fn raise(&self, kind: EventKind, status: i32, argument: u64) -> Result<()> {
        const VERB: &str = "rdma_write_cm_event";
        use EventKind::{AddrInfoError, AddrInfoResolved, User};
        if !matches!(kind, AddrInfoResolved | AddrInfoError | User) {
            return Err(Error::invalid(
                VERB,
                format!("{kind:?} is the connection manager's own"),
            ));
        }
        self.with(VERB, |cm, key, _| {
            cm.post(Waiting {
                status,
                param: EventParam::User(argument),
                ..Waiting::new(key, kind)
            });
            Ok(())
        })
    }

    /// Ends the id: what it had with a peer is refused or disconnected, its port is free, its
    /// events that nobody took are gone, and requests that nobody took are refused. Gives the
    /// number of events that were taken, for callers who wait for their acknowledgement; 0 if it
    /// was destroyed before.
    pub fn destroy(&self) -> u32 {
        self.shared.destroy()
    }
}

impl IdShared {
    fn destroy(&self) -> u32 {
        let Some(mut engine) = self.nic.lock_if_alive() else {
            return 0;
        };
        let now = self.nic.host().now_ns();
        let reported = engine.cm.destroy(self.key, now);
        engine.send_cm(now);
        self.nic.after_drive(engine);
        reported
    }
}

impl Drop for IdShared {
    fn drop(&mut self) {
        self.destroy();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
