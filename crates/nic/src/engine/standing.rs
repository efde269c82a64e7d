//! How queue pairs and ids stand whose completions or events somebody waits for: for the report.

use std::sync::Arc;

use crate::engine::cm_service::{Entry, Phase, ServiceId, State};
use crate::engine::{Engine, QpEntry};
use crate::observe::waits::{Facts, IdStanding, Long, QpStanding};
use crate::queues::{CqShared, ReceiveSource};

impl Engine {
    /// Adds what it has that could end the wait.
    pub(crate) fn facts_of(&self, long: &Long, facts: &mut Facts) {
        let among = |cq: &Arc<CqShared>| long.cqs.iter().any(|own| Arc::ptr_eq(own, cq));
        if !long.cqs.is_empty() {
            let own = |qpn: u32| long.qpn().is_none_or(|own| own == qpn);
            for entry in self.entries().filter(|entry| own(entry.shared.qpn)) {
                let shared = &entry.shared;
                let sends_here = shared.send_cq.as_ref().is_some_and(among);
                let receives_here = shared.recv_cq.as_ref().is_some_and(among);
                if sends_here || receives_here {
                    facts.add_qp(|| queue_pair(entry, sends_here, receives_here));
                }
            }
            let xrc = self.srqs.iter().filter_map(|srq| srq.xrc.as_ref());
            facts.xrc_srqs += xrc.filter(|xrc| among(&xrc.cq)).count() as u64;
        }
        // The connection manager is the first engine's.
        if self.index == 0 {
            let channels = match long.is_of_sockets() {
                true => self.cm.channel_fds(),
                false => long.cm_channels(),
            };
            for entry in channels.iter().flat_map(|fd| self.cm.ids_on(*fd)) {
                facts.add_id(|| id(entry));
            }
        }
    }
}

fn queue_pair(entry: &QpEntry, sends_here: bool, receives_here: bool) -> QpStanding {
    let shared = &entry.shared;
    let (receives, srq) = match &shared.source {
        ReceiveSource::Own => (entry.receives.len(), None),
        ReceiveSource::Srq(srq) => (srq.queue.lock().receives.len(), Some(srq.number)),
        ReceiveSource::Xrc(_) => (0, None),
    };
    let (signaled, unsignaled) = entry.signals.expected();
    let holds = entry.transport.holds_receive();
    QpStanding {
        qpn: shared.qpn,
        qp_type: shared.type_name(),
        state: shared.state(),
        sends_here,
        receives_here,
        sends: entry.transport.sends_outstanding().into(),
        signaled: signaled as u64,
        unsignaled: unsignaled.into(),
        receives: receives as u64 + u64::from(holds),
        srq,
        received: entry.transport.counters().messages_received,
    }
}

fn id(entry: &Entry) -> IdStanding {
    let leaves = entry.connection.is_some_and(|c| c.leaves);
    let standing = match (entry.state, entry.connection.map(|c| c.phase)) {
        (State::Idle, _) => "new",
        (State::Bound, _) => "bound",
        (State::AddrQuery, _) => "resolving address",
        (State::AddrResolved, _) => "address resolved",
        (State::RouteResolved, _) => "route resolved",
        (State::Listen, _) => "listening",
        (State::Disconnect, _) => "disconnected",
        (State::Connect, Some(Phase::Requested)) => "asked",
        (State::Connect, Some(Phase::Answered)) => "answered",
        (State::Connect, Some(Phase::Request)) => "request",
        (State::Connect, Some(Phase::Accepted)) => "accepted",
        (State::Connect, Some(Phase::Established)) if leaves => "leaving",
        (State::Connect, Some(Phase::Established)) => "connected",
        (State::Connect, Some(Phase::Ended) | None) => "ended",
    };
    let port = match entry.state {
        State::Listen | State::Bound => entry.local.map(|addr| addr.port()),
        _ => entry.peer.map(|addr| addr.port()),
    };
    IdStanding {
        standing,
        service: port.map(|port| ServiceId::new(entry.port_space, port).to_string()),
        local: entry.local.map(|addr| addr.to_string()),
        peer: entry.peer.map(|addr| addr.to_string()),
    }
}
