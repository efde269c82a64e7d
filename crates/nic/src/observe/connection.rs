//! The lives of queue pairs: with whom each was connected, what became of it, and packets that none
//! took. A peer that gets no answer may be of another `rnic run`, which reads this.

use rnic_link::Address;
use rnic_wire::{Opcode, Operation};

use super::failure::name_sender;
use super::{Connection, Kind, State, lint, state, write};
use crate::queues::{QpAttr, QpShared, QpState, QpType};

/// A queue pair's state or attributes were changed. `ends`: its own address and its peer's, if it
/// is connected.
pub(crate) fn modified(shared: &QpShared, attr: &QpAttr, ends: Option<(Address, Address)>) {
    let Some(mut state) = state() else {
        return;
    };
    let (qpn, now) = (shared.qpn, shared.state());
    if matches!(now, QpState::Reset | QpState::Err) {
        state.left(qpn, &now.to_string());
    }
    if now == QpState::Reset {
        // What comes is another life of it.
        state.forget(qpn);
    }
    if let Some((local, remote)) = ends {
        state.connected(shared, attr, (local, remote));
    } else if shared.qp_type == QpType::Ud && matches!(now, QpState::Rtr | QpState::Rts) {
        state.readied(shared);
    }
    if lint::is_on() {
        lint::reached(&mut state, shared, attr, ends);
    }
}

impl State {
    fn connected(&mut self, shared: &QpShared, attr: &QpAttr, (local, remote): (Address, Address)) {
        let qpn = shared.qpn;
        let known = self.connections.get(&qpn).map(|known| known.since_ns);
        let connection = Connection {
            local,
            remote,
            attr: *attr,
            since_ns: known.unwrap_or_else(rnic_sys::now_ns),
        };
        self.connections.insert(qpn, connection);
        if known.is_none() && self.spend(Kind::Life) {
            let mut line = self.record("connected");
            self.name_qp(&mut line, qpn);
            line.text("qp_type", shared.type_name())
                .number("rq_psn", attr.rq_psn.into());
            if let Some(mtu) = attr.path_mtu {
                line.number("path_mtu", mtu.bytes() as u64);
            }
            write(line);
        }
    }

    /// A queue pair of UD, which has no peer, takes datagrams from now on.
    fn readied(&mut self, shared: &QpShared) {
        let qpn = shared.qpn;
        if self.datagrams.insert(qpn) && self.spend(Kind::Life) {
            let mut line = self.record("connected");
            self.name_qp(&mut line, qpn);
            line.text("qp_type", shared.type_name());
            write(line);
        }
    }

    /// A queue pair takes nothing any more, as the program wants it.
    pub(super) fn left(&mut self, qpn: u32, how: &str) {
        let known = self.connections.contains_key(&qpn) || self.datagrams.contains(&qpn);
        if known && self.spend(Kind::Life) {
            let mut line = self.record("left");
            self.name_qp(&mut line, qpn);
            line.text("how", how);
            write(line);
        }
    }
}

/// Why no queue pair took a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unheard {
    /// No queue pair of this process has the number.
    UnknownQpn,
    /// It is not connected: its state takes nothing.
    NotReady(QpState),
    /// It is of another type than the packet.
    OtherService(QpType),
    /// It is connected with another address.
    OtherAddress,
    /// It is connected with another process of this host.
    OtherProcess,
}

/// A packet for a queue pair was dropped: its opcode, from where to where it went, which queue pair
/// sent it as far as the packet says that, and why. The
/// sender hears nothing of it; the first one of each cause is told.
#[cold]
pub(crate) fn unheard(
    qpn: u32,
    opcode: Option<Opcode>,
    (from, to): (Address, Address),
    src_qpn: Option<u32>,
    why: Unheard,
) {
    let Some(mut state) = state() else {
        return;
    };
    let cause = match why {
        Unheard::UnknownQpn => "unknown qpn",
        Unheard::NotReady(_) => "not ready",
        Unheard::OtherService(_) => "other service",
        Unheard::OtherAddress => "other address",
        Unheard::OtherProcess => "other process",
    };
    let operation = opcode.and_then(Opcode::operation);
    let is_request = operation.is_some_and(Operation::is_request);
    if state.unheard.contains(&(qpn, cause, is_request)) || !state.spend(Kind::Unheard) {
        return;
    }
    state.unheard.insert((qpn, cause, is_request));
    let mut line = state.record("unheard");
    state.name_qp(&mut line, qpn);
    line.text("cause", cause)
        .text("from", &from.to_string())
        .text("to", &to.to_string())
        .flag("request", is_request);
    name_sender(&mut line, Some(from), src_qpn);
    match why {
        Unheard::NotReady(now) => {
            line.text("state", &now.to_string());
        }
        Unheard::OtherService(own) => {
            line.text("state", own.name());
        }
        _ => {}
    }
    write(line);
}
