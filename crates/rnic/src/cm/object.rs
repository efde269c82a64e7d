//! What has an id: listeners, attempts to connect, connections, memberships; and what the events do
//! to each.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix_futex_sync::{Mutex, MutexGuard};

use super::channel::{CmChannel, CmEvent};
use crate::connect::{self, Settings};
use crate::device::cm::{Event, Id};
use crate::endpoint::Endpoint;
use crate::error::CmError;
use crate::error::{Error, Result};
use crate::nic::cm::{self, ConnParam, EventKind, EventParam};
use crate::nic::{self, PathMtu, QpState, QpType};
use crate::qp::Inner;

/// Patience of address and route resolution, as librdmacm's programs have it.
pub(super) const RESOLVE_MS: u32 = 2000;

/// One id and what became of it. Dropping it destroys the id: a peer is disconnected or refused.
pub(super) struct Object {
    pub(super) id: Id,
    /// Names it in its channel's events.
    pub(super) uid: u64,
    /// The user's name for it.
    token: u64,
    pub(super) channel: CmChannel,
    /// The channel is the user's, who takes its events.
    pub(super) shared: bool,
    /// The other side: peer, or group.
    pub(super) peer: SocketAddr,
    pub(super) role: Mutex<Role>,
}

pub(super) enum Role {
    /// Requests that nobody took.
    Listener(VecDeque<Event>),
    Link(Link),
}

/// An attempt, and the connection or membership that it leads to.
pub(super) struct Link {
    pub(super) kind: Kind,
    /// For the peer, with the request.
    pub(super) private_data: Vec<u8>,
    pub(super) phase: Phase,
}

pub(super) enum Kind {
    /// The active side of a connection.
    Connect(Arc<Inner>, Settings),
    /// The passive side; its queue pair is ready.
    Accept(Arc<Inner>, Ready),
    /// Looks for a peer's queue pair for datagrams.
    Datagram,
    /// Joins a group.
    Group,
}

pub(super) enum Phase {
    Working,
    Ready(Ready),
    /// It was ready, and is over.
    Over(Ready),
    Failed(Option<Error>),
}

#[derive(Clone)]
pub(super) enum Ready {
    Connection {
        remote: Endpoint,
        path_mtu: PathMtu,
        private_data: Vec<u8>,
    },
    Datagrams(cm::UdEvent),
}

/// Where an object reports, and by which name.
pub(super) struct Reports {
    pub(super) channel: CmChannel,
    pub(super) shared: bool,
    pub(super) token: u64,
}

impl Reports {
    pub(super) fn to(channel: &CmChannel, token: u64) -> Reports {
        Reports {
            channel: channel.clone(),
            shared: true,
            token,
        }
    }

    /// Refuses a queue pair of the other back end.
    pub(super) fn check(&self, of_system: bool) -> Result<()> {
        match self.channel.raw().is_system() == of_system {
            true => Ok(()),
            false => Err(Error::InvalidArgument(
                "the channel is of another back end than the queue pair: CmChannel::of".to_owned(),
            )),
        }
    }

    /// A channel for one object, whose calls wait.
    pub(super) fn private(of_system: bool) -> Result<Reports> {
        Ok(Reports {
            channel: CmChannel::make(of_system)?,
            shared: false,
            token: 0,
        })
    }
}

impl Object {
    /// A new id.
    pub(super) fn new(
        reports: Reports,
        service: QpType,
        peer: SocketAddr,
        role: Role,
    ) -> Result<Arc<Object>> {
        let uid = crate::next_cookie();
        let id = Id::new(reports.channel.raw(), service, uid)?;
        Ok(Object::around(id, uid, reports, peer, role))
    }

    /// Of an id that came with a request.
    pub(super) fn around(
        id: Id,
        uid: u64,
        reports: Reports,
        peer: SocketAddr,
        role: Role,
    ) -> Arc<Object> {
        let object = Arc::new(Object {
            id,
            uid,
            token: reports.token,
            channel: reports.channel,
            shared: reports.shared,
            peer,
            role: Mutex::new(role),
        });
        object.channel.register(&object);
        object
    }

    /// What it is and how far it has come. `None` in a forked child, where whoever has it locked
    /// may not exist.
    pub(super) fn role(&self) -> Option<MutexGuard<'_, Role>> {
        self.id.is_alive().then(|| self.role.lock())
    }

    /// Does what an event asks for; gives what the user should know.
    pub(super) fn handle(&self, event: Event) -> Option<CmEvent> {
        match &mut *self.role()? {
            Role::Listener(requests) => {
                if event.kind != EventKind::ConnectRequest {
                    return None;
                }
                requests.push_back(event);
                Some(CmEvent::Request(self.token))
            }
            Role::Link(link) => self.advance(link, event),
        }
    }

    fn advance(&self, link: &mut Link, event: Event) -> Option<CmEvent> {
        let (status, private_data) = (event.status, private_data(&event.param));
        let step = match (&link.phase, event.kind) {
            (Phase::Working, EventKind::AddrResolved) => match link.kind {
                Kind::Group => self.id.join_multicast(self.peer).map(|()| None),
                _ => self.id.resolve_route(RESOLVE_MS).map(|()| None),
            },
            (Phase::Working, EventKind::RouteResolved) => self.connect(link).map(|()| None),
            (Phase::Working, EventKind::ConnectResponse) => {
                self.respond(link, private_data).map(Some)
            }
            (Phase::Working, EventKind::Established | EventKind::MulticastJoin) => {
                match (&link.kind, event.param) {
                    (Kind::Accept(_, ready), _) => Ok(Some(ready.clone())),
                    (Kind::Datagram | Kind::Group, EventParam::Ud(how)) => {
                        Ok(Some(Ready::Datagrams(how)))
                    }
                    _ => Ok(None),
                }
            }
            (Phase::Ready(ready), EventKind::Disconnected | EventKind::DeviceRemoval) => {
                let ready = ready.clone();
                self.end(link);
                link.phase = Phase::Over(ready);
                return Some(CmEvent::Disconnected(self.token));
            }
            (
                Phase::Working,
                EventKind::AddrError
                | EventKind::RouteError
                | EventKind::ConnectError
                | EventKind::Unreachable
                | EventKind::Rejected
                | EventKind::Disconnected
                | EventKind::MulticastError
                | EventKind::DeviceRemoval,
            ) => {
                let error = CmError::of(event.kind, status, self.peer, private_data);
                return Some(self.fail(link, error.into()));
            }
            _ => Ok(None),
        };
        match step {
            Ok(None) => None,
            Ok(Some(ready)) => {
                link.phase = Phase::Ready(ready);
                Some(CmEvent::Connected(self.token))
            }
            Err(error) => Some(self.fail(link, error.into())),
        }
    }

    fn fail(&self, link: &mut Link, error: Error) -> CmEvent {
        link.phase = Phase::Failed(Some(error));
        CmEvent::Failed(self.token)
    }

    fn connect(&self, link: &Link) -> nic::Result<()> {
        let param = match &link.kind {
            Kind::Connect(qp, settings) => ConnParam {
                private_data: &link.private_data,
                responder_resources: settings.max_dest_rd_atomic,
                initiator_depth: settings.max_rd_atomic,
                retry_count: settings.retry_cnt,
                rnr_retry_count: settings.rnr_retry,
                srq: qp.has_srq(),
                qp_num: qp.qp.qpn(),
                ..ConnParam::default()
            },
            _ => ConnParam {
                private_data: &link.private_data,
                ..ConnParam::default()
            },
        };
        self.id.connect(&param)
    }

    /// The peer accepted: the queue pair becomes ready, and the peer learns of it.
    fn respond(&self, link: &Link, private_data: Vec<u8>) -> nic::Result<Ready> {
        let Kind::Connect(qp, settings) = &link.kind else {
            return self
                .id
                .establish()
                .map(|()| Ready::Datagrams(cm::UdEvent::default()));
        };
        let ready = make_ready(&self.id, qp, settings, None, private_data);
        match ready {
            Ok(ready) => self.id.establish().map(|()| ready),
            Err(error) => {
                let _ = self.id.reject(&[]);
                Err(error)
            }
        }
    }

    /// The connection is over, whoever ended it: what is posted is flushed, and the peer gets its
    /// answer.
    pub(super) fn end(&self, link: &Link) {
        if let Kind::Connect(qp, _) | Kind::Accept(qp, _) = &link.kind {
            qp.fail();
        }
        // EINVAL: it was over already.
        let _ = self.id.disconnect();
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.channel.forget(self.uid);
        if let Role::Link(link) = self.role.get_mut()
            && matches!(link.phase, Phase::Ready(_))
            && let Kind::Connect(qp, _) | Kind::Accept(qp, _) = &link.kind
        {
            qp.fail();
        }
        self.id.destroy();
    }
}

/// READs and atomics that an accepting side agreed to.
#[derive(Clone, Copy)]
pub(super) struct Depths {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// INIT to RTR to RTS by what the connection manager has agreed on with the peer. What is this
/// side's own business, the waits, is what the queue pair's builder said.
pub(super) fn make_ready(
    id: &Id,
    qp: &Inner,
    settings: &Settings,
    depths: Option<Depths>,
    private_data: Vec<u8>,
) -> nic::Result<Ready> {
    id.check_device(&qp.qp)?;
    let (mut rtr, mask) = id.init_qp_attr(QpState::Rtr)?;
    rtr.min_rnr_timer = settings.min_rnr_timer;
    if let Some(depths) = depths {
        rtr.max_dest_rd_atomic = depths.responder_resources;
    }
    qp.qp.modify(&rtr, mask)?;
    let (mut rts, mask) = id.init_qp_attr(QpState::Rts)?;
    rts.timeout = settings.timeout;
    if let Some(depths) = depths {
        rts.max_rd_atomic = depths.initiator_depth;
    }
    qp.qp.modify(&rts, mask)?;
    let path_mtu = rtr.path_mtu.unwrap_or(PathMtu::M1024);
    Ok(Ready::Connection {
        remote: Endpoint {
            gid: rtr.ah.dgid,
            qpn: rtr.dest_qp_num,
            psn: rtr.rq_psn,
            path_mtu,
        },
        path_mtu,
        private_data,
    })
}

impl Inner {
    /// To ERR: everything posted is flushed.
    fn fail(&self) {
        connect::fail(&self.qp);
    }
}

pub(super) fn private_data(param: &EventParam) -> Vec<u8> {
    match param {
        EventParam::None | EventParam::User(_) => Vec::new(),
        EventParam::Conn(conn) => conn.private_data.clone(),
        EventParam::Ud(ud) => ud.private_data.clone(),
    }
}
