//! The connection manager: the software NIC's own, or the system's librdmacm.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Weak;

use rnic_libibverbs::cm as system;

use super::{Qp, either, of_another_device};
use crate::nic::cm::{self, ConnParam, EventKind, EventParam, IdOption, PortSpace};
use crate::nic::{Futures, QpAttr, QpAttrMask, QpState, QpType, Result};

/// Where events come.
#[derive(Clone)]
pub(crate) enum EventChannel {
    Software(cm::EventChannel),
    System(system::EventChannel),
}

/// What happened.
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// 0, -errno, or a reason as the kind says.
    pub(crate) status: i32,
    /// The mark of whom it is told.
    pub(crate) whose: u64,
    /// The new id of a request.
    pub(crate) request: Option<Id>,
    pub(crate) param: EventParam,
}

impl EventChannel {
    pub(crate) fn new(of_system: bool) -> Result<EventChannel> {
        Ok(match of_system {
            false => EventChannel::Software(cm::EventChannel::new()?),
            true => EventChannel::System(system::EventChannel::new()?),
        })
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self, EventChannel::System(_))
    }

    pub(crate) fn fd(&self) -> RawFd {
        either!(EventChannel, self, channel => channel.fd())
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        either!(EventChannel, self, channel => channel.check_alive())
    }

    /// The calling thread waits from now on, as the software NIC tells those that ask.
    pub(crate) fn begin_wait(&self, verb: &'static str) {
        if let EventChannel::Software(channel) = self {
            channel.begin_wait(verb);
        }
    }

    /// The software NIC asks these futures, which its events wake, what they sleep for.
    pub(crate) fn know_futures(&self, futures: Weak<dyn Futures>) {
        if let EventChannel::Software(channel) = self {
            channel.know_futures(futures);
        }
    }

    pub(crate) fn get(&self) -> Result<Event> {
        match self {
            EventChannel::Software(channel) => {
                let event = channel.get()?;
                let whose = event.listener.as_ref().unwrap_or(&event.id).uid();
                let is_request = event.kind == EventKind::ConnectRequest;
                Ok(Event {
                    kind: event.kind,
                    status: event.status,
                    whose,
                    request: is_request.then_some(Id::Software(event.id)),
                    param: event.param,
                })
            }
            EventChannel::System(channel) => {
                let event = channel.get()?;
                Ok(Event {
                    kind: event.kind,
                    status: event.status,
                    whose: event.whose,
                    request: event.request.map(Id::System),
                    param: event.param,
                })
            }
        }
    }
}

/// Whom a channel tells of.
pub(crate) enum Id {
    Software(cm::Id),
    System(system::Id),
}

impl Id {
    pub(crate) fn new(channel: &EventChannel, service: QpType, uid: u64) -> Result<Id> {
        let port_space = match service {
            QpType::Ud => PortSpace::Udp,
            QpType::Rc => PortSpace::Tcp,
            _ => PortSpace::Ib,
        };
        Ok(match channel {
            EventChannel::Software(channel) => {
                Id::Software(cm::Id::new(channel, port_space, service, uid)?)
            }
            EventChannel::System(channel) => {
                Id::System(system::Id::new(channel, port_space, service, uid)?)
            }
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        either!(Id, self, id => id.is_alive())
    }

    /// Refuses a queue pair that is not of the device that this is on.
    pub(crate) fn check_device(&self, qp: &Qp) -> Result<()> {
        let fits = match (self, qp) {
            (Id::Software(_), Qp::Software(_)) => true,
            (Id::System(id), Qp::System(qp)) => {
                let device = id.device();
                device.is_none_or(|device| device == qp.context().name())
            }
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(of_another_device("rdma_connect")),
        }
    }

    /// Own address and the peer's.
    pub(crate) fn addresses(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        match self {
            Id::Software(id) => {
                let route = id.route()?;
                Ok((route.local, route.peer))
            }
            Id::System(id) => Ok(id.addresses()),
        }
    }

    pub(crate) fn bind(&self, addr: SocketAddr) -> Result<()> {
        either!(Id, self, id => id.bind(addr))
    }

    pub(crate) fn listen(&self, backlog: i32) -> Result<()> {
        either!(Id, self, id => id.listen(backlog))
    }

    pub(crate) fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: u32,
    ) -> Result<()> {
        either!(Id, self, id => id.resolve_addr(source, peer, timeout_ms))
    }

    pub(crate) fn resolve_route(&self, timeout_ms: u32) -> Result<()> {
        either!(Id, self, id => id.resolve_route(timeout_ms))
    }

    pub(crate) fn connect(&self, param: &ConnParam<'_>) -> Result<()> {
        either!(Id, self, id => id.connect(param))
    }

    pub(crate) fn accept(&self, param: &ConnParam<'_>, uid: u64) -> Result<()> {
        match self {
            Id::Software(id) => id.accept(Some(param), uid),
            Id::System(id) => id.accept(param, uid),
        }
    }

    pub(crate) fn establish(&self) -> Result<()> {
        either!(Id, self, id => id.establish())
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<()> {
        match self {
            Id::Software(id) => id.reject(private_data, 0),
            Id::System(id) => id.reject(private_data),
        }
    }

    pub(crate) fn disconnect(&self) -> Result<()> {
        either!(Id, self, id => id.disconnect())
    }

    /// What its queue pair has to be given for a transition to this state.
    pub(crate) fn init_qp_attr(&self, state: QpState) -> Result<(QpAttr, QpAttrMask)> {
        match self {
            Id::Software(id) => {
                let (attr, mask) = id.init_qp_attr(state)?;
                // A request brings its partition along.
                Ok(match state {
                    QpState::Rtr => (attr, mask | QpAttrMask::PKEY_INDEX),
                    _ => (attr, mask),
                })
            }
            Id::System(id) => id.init_qp_attr(state),
        }
    }

    pub(crate) fn set_option(&self, option: IdOption) -> Result<()> {
        either!(Id, self, id => id.set_option(option))
    }

    pub(crate) fn migrate(&self, channel: &EventChannel) -> Result<()> {
        match (self, channel) {
            (Id::Software(id), EventChannel::Software(channel)) => id.migrate(channel).map(drop),
            (Id::System(id), EventChannel::System(channel)) => id.migrate(channel),
            _ => Err(of_another_device("rdma_migrate_id")),
        }
    }

    pub(crate) fn join_multicast(&self, group: SocketAddr) -> Result<()> {
        match self {
            Id::Software(id) => id.join_multicast(group, false, 0).map(drop),
            Id::System(id) => id.join_multicast(group),
        }
    }

    /// Ends it. The system's ends when it is dropped.
    pub(crate) fn destroy(&self) {
        if let Id::Software(id) = self {
            id.destroy();
        }
    }
}
