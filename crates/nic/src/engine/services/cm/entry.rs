//! An id, as the engine knows it, and the events that wait for its owner.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

use rnic_cm::{ConnId, SidrId};
use rnic_host::last_words::LastWordsId;
use rnic_host::ports::PortClaim;
use rnic_wire::PathMtu;

use super::PortSpace;
use super::slab::Key;
use crate::addressing::address::AhAttr;
use crate::addressing::gid_table::GidEntry;
use crate::queues::QpType;
use rnic_types::cm::{EventKind, EventParam, PathRecord};

/// How far an id has come; the states of Linux' cma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Bound,
    /// Waits for the neighbour on the way to the peer.
    AddrQuery,
    AddrResolved,
    RouteResolved,
    /// From the request on, on both sides, whatever becomes of it.
    Connect,
    /// The end of the connection was told.
    Disconnect,
    Listen,
}

/// What the owner of an id may change without the engine.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) uid: AtomicU64,
    /// Events may be told: whoever gets them knows whose they are.
    pub(crate) adopted: AtomicBool,
}

/// The device's row that an id is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) addr: IpAddr,
    pub(crate) scope_id: u32,
    pub(crate) gid_index: u32,
    pub(crate) netdev_mtu: u32,
}

impl Source {
    pub(crate) fn of(row: &GidEntry) -> Source {
        Source {
            addr: row.addr,
            scope_id: row.scope_id,
            gid_index: row.index,
            netdev_mtu: row.netdev_mtu,
        }
    }
}

/// What an id has with a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) number: Number,
    pub(crate) phase: Phase,
    pub(crate) terms: Terms,
    /// The range of the peer's process if it is on this host and watched.
    pub(crate) peer_range: Option<u32>,
    /// What would be said to a peer elsewhere, should this process be killed.
    pub(crate) last_words: Option<LastWordsId>,
    /// When this side asked.
    pub(crate) asked_at: u64,
    /// That there is no answer was noted for a report.
    pub(crate) noted: bool,
    /// The program has called `rdma_disconnect`.
    pub(crate) leaves: bool,
}

/// How the endpoint calls it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Conn(ConnId),
    Sidr(SidrId),
}

impl Number {
    /// Connections and resolutions have numbers of one kind.
    pub(crate) fn value(self) -> u32 {
        match self {
            Number::Conn(conn) => conn.0,
            Number::Sidr(sidr) => sidr.0,
        }
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// This side asked.
    Requested,
    /// The peer has answered, and waits for this side.
    Answered,
    /// The peer asked, and waits for the answer.
    Request,
    /// This side has answered.
    Accepted,
    Established,
    /// Refused, unreachable or disconnected.
    Ended,
}

/// Options of an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) tos: Option<u8>,
    pub(crate) reuse_addr: bool,
    pub(crate) af_only: Option<bool>,
    pub(crate) ack_timeout: Option<u8>,
}

/// What the owner of an id holds. It lies above the engine, which only keeps it.
pub(crate) type Handle = dyn Any + Send + Sync;

/// An event that was taken.
#[derive(Debug)]
pub(crate) struct TakenEvent {
    pub(crate) kind: EventKind,
    pub(crate) status: i32,
    /// Whom it is told.
    pub(crate) owner: Arc<Handle>,
    /// The id that a request made, which nobody holds yet.
    pub(crate) subject: Option<Key>,
    /// The mark of the membership that it is about.
    pub(crate) multicast: Option<u64>,
    pub(crate) param: EventParam,
}

/// An id.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) port_space: PortSpace,
    pub(crate) qp_type: QpType,
    pub(crate) channel: Key,
    pub(crate) marks: Arc<Marks>,
    /// Its owner's; none before a request is taken.
    pub(crate) handle: Weak<Handle>,
    /// Events that were taken.
    pub(crate) reported: u32,
    /// Events that wait.
    pub(crate) waiting: u32,
    pub(crate) options: Options,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) source: Option<Source>,
    /// The own address was not given, but found for the peer: if that cannot be reached, it is
    /// nothing to go by.
    pub(crate) found: bool,
    /// It has gone, and that was told.
    pub(crate) source_lost: bool,
    /// What the way to the peer carries.
    pub(crate) mtu: Option<PathMtu>,
    pub(crate) path: Option<PathRecord>,
    /// Its place in the P_Key table: that of its path, once it has one.
    pub(crate) pkey_index: u16,
    pub(crate) claim: Option<PortClaim>,
    /// Of a listener: requests that may still wait to be taken.
    pub(crate) backlog: u32,
    /// Q_Key of a datagram id in a port space without one.
    pub(crate) qkey: u32,
    pub(crate) connection: Option<Connection>,
    /// The queue pair that its owner has told the peer of; 0: none.
    pub(crate) qpn: u32,
    pub(crate) memberships: Vec<Key>,
}

/// An id, for whoever looks from outside.
pub(crate) struct Facts {
    /// No other that exists has it.
    pub(crate) number: u32,
    pub(crate) qpn: u32,
    pub(crate) qp_type: QpType,
    pub(crate) port_space: PortSpace,
    /// Of Linux' `enum rdma_cm_state`.
    pub(crate) state: u8,
    /// On a row of the device, or on all.
    pub(crate) on_device: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

impl State {
    pub(crate) fn of_linux(self) -> u8 {
        match self {
            State::Idle => 0,
            State::AddrQuery => 1,
            State::AddrResolved => 2,
            State::RouteResolved => 4,
            State::Connect => 5,
            State::Disconnect => 6,
            State::Bound => 7,
            State::Listen => 8,
        }
    }
}

impl Entry {
    pub(crate) fn new(port_space: PortSpace, qp_type: QpType, channel: Key) -> Entry {
        Entry {
            state: State::Idle,
            port_space,
            qp_type,
            channel,
            marks: Arc::default(),
            handle: Weak::<()>::new(),
            reported: 0,
            waiting: 0,
            options: Options::default(),
            local: None,
            peer: None,
            source: None,
            found: false,
            source_lost: false,
            mtu: None,
            path: None,
            pkey_index: 0,
            claim: None,
            backlog: 0,
            qkey: 0,
            connection: None,
            qpn: 0,
            memberships: Vec::new(),
        }
    }
}

/// An event that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The id that it is told to; the listener of a request.
    pub(crate) id: Key,
    pub(crate) kind: EventKind,
    pub(crate) status: i32,
    pub(crate) param: EventParam,
    /// The new id of a request.
    pub(crate) subject: Option<Key>,
    /// A membership and its mark.
    pub(crate) multicast: Option<(Key, u64)>,
}

impl Waiting {
    pub(crate) fn new(id: Key, kind: EventKind) -> Waiting {
        Waiting {
            id,
            kind,
            status: 0,
            param: EventParam::None,
            subject: None,
            multicast: None,
        }
    }
}

/// What the two sides of a connection agreed on, as the own queue pair needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ah: AhAttr,
    pub(crate) path_mtu: PathMtu,
    pub(crate) remote_qpn: u32,
    /// PSN that the peer starts from; this side chose it.
    pub(crate) rq_psn: u32,
    /// PSN to start from; the peer chose it.
    pub(crate) sq_psn: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) timeout: u8,
}
