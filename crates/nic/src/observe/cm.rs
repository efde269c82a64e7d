//! Connections that did not come about: what the connection manager knew.

use std::net::{IpAddr, SocketAddr};

use rnic_cm::{Incoming, Request};
use rnic_host::ports::{PortUse, Ports};
use rnic_host::registry::RANGE_BITS;
use rnic_wire::PathMtu;
use rnic_wire::cm::{RejectReason, ServiceId, SidrStatus};

use super::failure::name_process;
use super::way::error_of;
use super::{Kind, Line, state, write};
use crate::addressing::gid_table::gid_table;
use crate::addressing::pkey_table::PkeyTable;
use crate::queues::QpType;

/// The side that asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) service: ServiceId,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// One record, as far as there is room for more.
fn record(what: &str, fill: impl FnOnce(&mut Line)) {
    let Some(mut state) = state() else {
        return;
    };
    let kind = match what {
        "no answer yet" => Kind::Slowness,
        "answered" => Kind::Answer,
        what if what.starts_with("request") => Kind::Request,
        _ => Kind::Connection,
    };
    if state.spend(kind) {
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
    record("nobody listens", |line| {
        write_request(line, incoming, wanted);
    });
}

/// A request for a service that the listener does not have was refused.
#[cold]
pub(crate) fn other_service(incoming: &Incoming, wanted: IpAddr, listener: QpType) {
    let asked = match incoming.transport {
        None => "UD".to_owned(),
        Some(transport) => format!("{transport:?}").to_uppercase(),
    };
    record("other service", |line| {
        write_request(line, incoming, wanted);
        line.text("asked", &asked).text("listener", listener.name());
    });
}

/// A request was dropped, as too many wait for the application.
#[cold]
pub(crate) fn backlog_full(incoming: &Incoming, wanted: IpAddr) {
    record("backlog full", |line| {
        write_request(line, incoming, wanted);
    });
}

/// A request was refused because of its path MTU.
#[cold]
pub(crate) fn too_wide(request: &Request, wanted: IpAddr, fits: PathMtu) {
    record("path mtu", |line| {
        line.text("service", &request.req.service_id.to_string())
            .text("address", &wanted.to_string())
            .text("from", &request.address.remote_gid.ip().to_string())
            .number(
                "asked_mtu",
                request.path_mtu().map_or(0, |mtu| mtu.bytes() as u64),
            )
            .number("most_mtu", fits.bytes() as u64);
    });
}

/// A request was refused, or a packet with one was dropped, because it is in none of the port's
/// partitions. `between`: the address that it was for, and its sender's.
#[cold]
pub(crate) fn other_partition(
    service: ServiceId,
    between: (IpAddr, IpAddr),
    pkey: u16,
    pkeys: &PkeyTable,
) {
    record("partition", |line| {
        line.text("service", &service.to_string())
            .text("address", &between.0.to_string())
            .text("from", &between.1.to_string())
            .number("asked_pkey", pkey.into())
            .text("pkeys", &pkeys.to_string());
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
pub(crate) fn rejected(attempt: &Attempt, reason: u16, private_data: &[u8], ports: Option<&Ports>) {
    record("rejected", |line| {
        write_attempt(line, attempt);
        line.number("reason", reason.into());
        write_private_data(line, private_data);
        if reason == RejectReason::INVALID_SERVICE_ID.0 {
            write_listeners(line, attempt, ports);
        }
    });
}

/// What the peer's application said, as a person may read it.
fn write_private_data(line: &mut Line, data: &[u8]) {
    let end = data.iter().rposition(|byte| *byte != 0);
    let said = &data[..end.map_or(0, |last| last + 1)];
    line.text("private_data", &said.escape_ascii().to_string());
}

/// Most listeners that are named.
const NAMED: usize = 8;

fn is_here(peer: SocketAddr) -> bool {
    gid_table().iter().any(|row| row.addr == peer.ip())
}

/// Who does listen on this host, if the peer is here.
fn write_listeners(line: &mut Line, attempt: &Attempt, ports: Option<&Ports>) {
    let Some(ports) = ports.filter(|_| attempt.peer.is_some_and(is_here)) else {
        return;
    };
    let listeners = ports.listeners();
    let mut names: Vec<String> = listeners.iter().take(NAMED).map(name_of).collect();
    if listeners.len() > NAMED {
        names.push(format!("and {} more", listeners.len() - NAMED));
    }
    line.text("listeners", &names.join(", "));
}

/// A port that somebody has, with its process.
pub(crate) fn name_of(port: &PortUse) -> String {
    let at = match port.addr {
        any if any.is_unspecified() => "any address".to_owned(),
        addr => addr.to_string(),
    };
    let service = ServiceId(port.service.into());
    let pid = rnic_host::registry::owner(port.range << 12);
    match pid {
        Some(pid) => {
            let name = rnic_sys::process::name(pid).unwrap_or_default();
            format!("{service} at {at} ({} pid {pid})", name.trim())
        }
        None => format!("{service} at {at}"),
    }
}

/// The peer's datagram service refused, with the status of its SIDR_REP.
#[cold]
pub(crate) fn datagrams_refused(
    attempt: &Attempt,
    status: u8,
    private_data: &[u8],
    ports: Option<&Ports>,
) {
    record("datagrams refused", |line| {
        write_attempt(line, attempt);
        line.number("status", status.into());
        write_private_data(line, private_data);
        if status == SidrStatus::UNSUPPORTED.0 {
            write_listeners(line, attempt, ports);
        }
    });
}

/// How often, and how long, somebody has asked in vain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub(crate) tries: u32,
    pub(crate) waited_ns: u64,
}

/// A peer is asked for a connection. What ICMP says of the way is there once no answer has come.
#[cold]
pub(crate) fn asked(attempt: &Attempt) {
    if let (Some(local), Some(peer)) = (attempt.local, attempt.peer)
        && !is_here(peer)
    {
        error_of(local.ip().into(), peer.ip().into());
    }
}

fn record_silence(what: &str, attempt: &Attempt, silence: Silence, ports: Option<&Ports>) {
    let ends = attempt.local.zip(attempt.peer);
    let elsewhere = ends.filter(|(_, peer)| !is_here(*peer));
    let error = elsewhere.and_then(|(local, peer)| error_of(local.ip().into(), peer.ip().into()));
    record(what, |line| {
        write_silence(line, attempt, silence, ports);
        if let Some(error) = error {
            line.number("way_errno", error.into());
        }
    });
}

fn write_silence(line: &mut Line, attempt: &Attempt, silence: Silence, ports: Option<&Ports>) {
    write_attempt(line, attempt);
    let here = attempt.peer.filter(|peer| is_here(*peer));
    let asked = here.zip(ports).and_then(|(peer, ports)| {
        let range = ports.listener_of(attempt.service, Some(peer.ip()))?;
        rnic_host::registry::owner(range << RANGE_BITS)
    });
    if let Some(pid) = asked.filter(|pid| rnic_host::is_stopped(*pid)) {
        name_process(line, pid);
    }
    let here = here.is_some();
    line.number("tries", silence.tries.into())
        .number("waited_ns", silence.waited_ns)
        .flag("peer_here", here);
}

/// The peer never answered.
#[cold]
pub(crate) fn unreachable(attempt: &Attempt, silence: Silence, ports: Option<&Ports>) {
    record_silence("unreachable", attempt, silence, ports);
}

/// The peer has not answered yet.
#[cold]
pub(crate) fn no_answer_yet(attempt: &Attempt, silence: Silence, ports: Option<&Ports>) {
    record_silence("no answer yet", attempt, silence, ports);
}

/// Who had asked for a connection went away before it was there: before the program had answered, or
/// before that answer was there (`accepted`).
#[cold]
pub(crate) fn asker_left(attempt: &Attempt, accepted: bool) {
    record("asker left", |line| {
        write_attempt(line, attempt);
        line.flag("accepted", accepted);
    });
}

/// Some connection did not come about: what becomes of the next ones is of interest.
pub(crate) fn has_told() -> bool {
    state().is_some_and(|state| state.written[Kind::Connection as usize] > 0)
}

/// What became of a request for a connection, at the side that was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// It is an event for the program.
    Came,
    /// The program has called `rdma_accept`.
    Accepted,
    /// The program has called `rdma_reject`.
    Rejected,
    /// The program has called `rdma_accept`, which was refused, and the request with it.
    Unacceptable,
    /// The program has called `rdma_destroy_id`, without an answer.
    Destroyed,
    /// The program has ended, without an answer.
    Ended,
}

/// A request for a connection from `attempt.peer` has come, or was answered. A peer that is told
/// little, or nothing, may be of another run, which reads this.
#[cold]
pub(crate) fn request(attempt: &Attempt, asked: Asked) {
    let what = match asked {
        Asked::Came => "request",
        Asked::Accepted => "request accepted",
        Asked::Rejected => "request rejected",
        Asked::Unacceptable => "request unacceptable",
        Asked::Destroyed => "request destroyed",
        Asked::Ended => "request ended",
    };
    record(what, |line| write_attempt(line, attempt));
}

/// It has, after that was noted, or after others had been refused.
#[cold]
pub(crate) fn answered(attempt: &Attempt) {
    record("answered", |line| write_attempt(line, attempt));
}

/// An address is not the device's, or cannot be reached: -errno of the event, and why.
#[cold]
pub(crate) fn address_error(attempt: &Attempt, status: i32, why: &str) {
    record("address error", |line| {
        write_attempt(line, attempt);
        line.number("errno", status.unsigned_abs().into())
            .text("reason_text", why);
    });
}

/// The process of a peer on this host is dead.
#[cold]
pub(crate) fn peer_died(attempt: &Attempt) {
    record("peer died", |line| write_attempt(line, attempt));
}
