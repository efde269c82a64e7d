//! Connections that did not come about: what the connection manager knew.

use std::net::{IpAddr, SocketAddr};

use rnic_cm::{Incoming, Request};
use rnic_wire::PathMtu;
use rnic_wire::cm::ServiceId;

use super::{Line, state, write};
use crate::qp::QpType;

/// The side that asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) service: ServiceId,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// One record, as far as there is room for more.
fn tell(what: &str, fill: impl FnOnce(&mut Line)) {
    let Some(mut state) = state() else {
        return;
    };
    if state.spend() {
        let mut line = state.record("connection");
        line.text("what", what);
        fill(&mut line);
        write(line);
    }
}

fn write_request(line: &mut Line, incoming: &Incoming, wanted: IpAddr) {
    line.text("service", &incoming.service.to_string())
        .text("address", &wanted.to_string())
        .text("from", &incoming.remote_gid.ip().to_string());
}

/// A request for which nobody listens was refused.
#[cold]
pub(crate) fn nobody_listens(incoming: &Incoming, wanted: IpAddr) {
    tell("nobody listens", |line| {
        write_request(line, incoming, wanted);
    });
}

/// A request for a service that the listener does not have was refused.
#[cold]
pub(crate) fn other_service(incoming: &Incoming, wanted: IpAddr, listener: QpType) {
    let asked = match incoming.transport {
        None => "Ud".to_string(),
        Some(transport) => format!("{transport:?}"),
    };
    tell("other service", |line| {
        write_request(line, incoming, wanted);
        line.text("asked", &asked)
            .text("listener", &format!("{listener:?}"));
    });
}

/// A request was dropped, as too many wait for the application.
#[cold]
pub(crate) fn backlog_full(incoming: &Incoming, wanted: IpAddr) {
    tell("backlog full", |line| {
        write_request(line, incoming, wanted);
    });
}

/// A request was refused because of its path MTU.
#[cold]
pub(crate) fn too_wide(request: &Request, wanted: IpAddr, fits: PathMtu) {
    tell("path mtu", |line| {
        line.text("service", &request.req.service_id.to_string())
            .text("address", &wanted.to_string())
            .text("from", &request.address.remote_gid.ip().to_string())
            .number(
                "asked",
                request.path_mtu().map_or(0, |mtu| mtu.bytes() as u64),
            )
            .number("fits", fits.bytes() as u64);
    });
}

fn write_attempt(line: &mut Line, attempt: &Attempt) {
    line.text("service", &attempt.service.to_string());
    if let Some(local) = attempt.local {
        line.text("local", &local.to_string());
    }
    if let Some(peer) = attempt.peer {
        line.text("peer", &peer.to_string());
    }
}

/// The peer refused, with the reason of its REJ.
#[cold]
pub(crate) fn rejected(attempt: &Attempt, reason: u16) {
    tell("rejected", |line| {
        write_attempt(line, attempt);
        line.number("reason", reason.into());
    });
}

/// The peer's datagram service refused, with the status of its SIDR_REP.
#[cold]
pub(crate) fn datagrams_refused(attempt: &Attempt, status: u8) {
    tell("datagrams refused", |line| {
        write_attempt(line, attempt);
        line.number("status", status.into());
    });
}

/// The peer never answered.
#[cold]
pub(crate) fn unreachable(attempt: &Attempt) {
    tell("unreachable", |line| write_attempt(line, attempt));
}

/// An address is not the device's, or cannot be reached: -errno of the event.
#[cold]
pub(crate) fn address_error(attempt: &Attempt, status: i32) {
    tell("address error", |line| {
        write_attempt(line, attempt);
        line.number("errno", status.unsigned_abs().into());
    });
}

/// The process of a peer on this host is dead.
#[cold]
pub(crate) fn peer_died(attempt: &Attempt) {
    tell("peer died", |line| write_attempt(line, attempt));
}
