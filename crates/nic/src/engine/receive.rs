//! Packets that came: whose they are, what the device checks of them, and their way to their queue
//! pair.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use rnic_host::registry::range_of;
use rnic_host::{MULTICAST_QPN, QP1, SourcePorts};
use rnic_link::{Detached, Look, Received};
use rnic_transport::{QueuePair, Role, Time};
use rnic_wire::{Opcode, Operation, Packet, Service, Usual};

use super::fairness::Fairness;
use super::one_sided::{KeyProof, ProvenKey};
use super::qp_table::QpTable;
use super::receive_hold::{ReceiveHold, Round};
use super::srq_table::SrqTable;
use super::timers::Timers;
use super::{Counted, Flow};
use super::{DropCounters, Engine, lend, schedule, settle};
use crate::engine::cm_service::Taken;
use crate::engine::peer_service::Neighbourhood;
use crate::engine::{Peer, QpEntry};
use crate::memory::{DetachedPacket, MemoryTable, PacketMemory};
use crate::observe::{self, Unheard};
use crate::queues::QpState;

/// Packets taken from the link per call,
const RECEIVE_BUDGET: usize = 256;
/// and where somebody waits for short ones among long ones.
const RECEIVE_SHARED: usize = 24;

impl Engine {
    /// Takes what the link has. Gives the number of packets, and whether these were all.
    pub(super) fn receive(&mut self, now: u64, look: Look) -> (usize, bool) {
        let Engine {
            link,
            memory,
            qps,
            srqs,
            ready,
            counted: Counted { drops, .. },
            timers,
            groups,
            flow:
                Flow {
                    receive_hold,
                    fairness,
                    ..
                },
            cm,
            neighbours,
            proven,
            source_ports,
            ..
        } = self;
        let source_ports = source_ports.as_deref();
        let round = receive_hold.begin(now);
        let budget = if fairness.is_mixed(now) {
            RECEIVE_SHARED
        } else {
            RECEIVE_BUDGET
        };
        let received = link.receive_while(now, budget, look, &mut |received| {
            let mut deliver = |qpn, may_wait| {
                deliver(
                    Time(now),
                    received,
                    qpn,
                    qps,
                    memory,
                    srqs,
                    ready,
                    timers,
                    drops,
                    receive_hold,
                    if may_wait { Some(&round) } else { None },
                    neighbours,
                    proven,
                    fairness,
                    source_ports,
                )
            };
            if received.dest_qpn == QP1 {
                match cm.receive(received) {
                    Taken::Yes => {}
                    Taken::Malformed => drops.malformed += 1,
                    Taken::BadPkey => drops.bad_pkey += 1,
                    Taken::NoRoom => drops.no_room += 1,
                }
                return ControlFlow::Continue(());
            }
            if received.dest_qpn != MULTICAST_QPN {
                return deliver(received.dest_qpn, true);
            }
            let members = groups.members(received.dst);
            // Among several the first would get it twice.
            if let [member] = *members {
                return deliver(member, true);
            }
            for member in members {
                let _ = deliver(*member, false);
            }
            ControlFlow::Continue(())
        });
        if !self.proven.is_empty() {
            self.grant_shown();
        }
        (received, received < budget && !self.link.has_left())
    }
}

/// Checks what the transport leaves to the device, and hands the packet to queue pair `qpn`; with a
/// `round` of [`super::receive_hold`] it may be left for later.
#[allow(
    clippy::too_many_arguments,
    reason = "the parts of the engine, lent one by one"
)]
#[inline]
fn deliver(
    now: Time,
    received: &Received<'_>,
    qpn: u32,
    qps: &mut QpTable,
    memory: &MemoryTable,
    srqs: &SrqTable,
    ready: &mut VecDeque<u32>,
    timers: &mut Timers,
    drops: &mut DropCounters,
    receive_hold: &mut ReceiveHold,
    round: Option<&Round>,
    neighbours: &mut Neighbourhood,
    proven: &mut Vec<ProvenKey>,
    fairness: &mut Fairness,
    source_ports: Option<&SourcePorts>,
) -> ControlFlow<()> {
    const DONE: ControlFlow<()> = ControlFlow::Continue(());
    let Some(entry) = qps.get_mut(qpn) else {
        drops.unknown_qpn += 1;
        unheard(qpn, received, Unheard::UnknownQpn);
        return DONE;
    };
    match &mut entry.peer {
        Some(peer) if peer.remote != received.src || peer.local != received.dst => {
            drops.wrong_address += 1;
            unheard(qpn, received, Unheard::OtherAddress);
            return DONE;
        }
        // Whatever comes by a ring is this user's.
        Some(peer) if peer.here && received.src_port != peer.port && received.ring.is_none() => {
            if is_forged(peer, entry.attr.dest_qp_num, received, source_ports) {
                drops.wrong_process += 1;
                unheard(qpn, received, Unheard::OtherProcess);
                return DONE;
            }
        }
        Some(_) => {}
        // Datagrams come from anywhere.
        None if matches!(entry.transport, QueuePair::Ud(_)) => {}
        None => {
            drops.not_ready += 1;
            let why = Unheard::NotReady(entry.shared.state());
            unheard(qpn, received, why);
            return DONE;
        }
    }
    let detached = received.detached.map(|(payload, mtu)| DetachedPacket {
        mtu,
        payload,
        headers: received.bytes.len(),
    });
    let parsed = match &detached {
        None => match take_fast(now, received, entry, memory, srqs) {
            Some(Took::Message) => {
                fairness.short(qpn, now.0);
                // Neither did it fail, nor are there other timers than before.
                schedule(entry, ready);
                return DONE;
            }
            Some(Took::Answer) => {
                fairness.short(qpn, now.0);
                settle(entry, ready, timers);
                return DONE;
            }
            Some(Took::Acknowledge) => {
                settle(entry, ready, timers);
                return DONE;
            }
            None => Packet::parse(received.bytes).ok(),
        },
        Some(detached) => parse_detached(received, detached, entry),
    };
    let Some(packet) = parsed else {
        drops.malformed += 1;
        return DONE;
    };
    if !entry.takes_pkey(packet.bth.pkey) {
        drops.bad_pkey += 1;
        observe::other_partition(qpn, entry.fast.pkey(), packet.bth.pkey);
        return DONE;
    }
    // It drops and counts it; the sender hears nothing of it.
    let own = entry.shared.qp_type;
    let service = packet.bth.opcode.service();
    if service != crate::queues::service(own) && service != Service::Cnp {
        unheard(qpn, received, Unheard::OtherService(own));
    }
    // One of UD has no peer that would tell.
    let state = entry.shared.state();
    if matches!(state, QpState::Err | QpState::Reset | QpState::Init) {
        unheard(qpn, received, Unheard::NotReady(state));
    }
    if let Some(round) = round
        && receive_hold.must_wait(round, entry, &packet)
    {
        return ControlFlow::Break(());
    }
    if let Some(remote_srq) = &mut entry.remote_srq
        && remote_srq.keep(received.bytes)
    {
        return DONE;
    }
    let proof = KeyProof::begin(entry, received.ring, &packet);
    let (transport, mut device) = lend(entry, memory, srqs);
    device.from = Some(&received.src);
    device.packet = detached.as_ref().map(|packet| packet as &dyn PacketMemory);
    transport.handle_packet(now, &packet, || received.network_header(), &mut device);
    if let Some(proof) = proof {
        proven.extend(proof.finish(entry));
    }
    if entry.remote_srq.is_some() {
        neighbours.note(entry, Some(received.bytes));
    }
    fairness.came(qpn, &packet, now.0);
    // The last packet of a message asks, as a rule.
    let spared = !packet.bth.ack_req && ends_message(&packet);
    // What answers is none of the peer's messages.
    let request = packet.bth.opcode.operation().filter(|o| o.is_request());
    if entry.transport.owes_only_ack() {
        if let Some(last) = request {
            entry.held_ack.arrived(now.0, !spared);
            // An ACK may come behind the WRITE.
            entry.piggyback.came(is_silent(last));
        }
    } else if spared {
        entry.held_ack.spared();
    }
    settle(entry, ready, timers);
    DONE
}

/// What came for that queue pair was dropped, and the sender does not hear of it.
#[cold]
fn unheard(qpn: u32, received: &Received<'_>, why: Unheard) {
    let opcode = received.bytes.first().copied().map(Opcode);
    // Datagrams alone name their sender.
    let deth = Packet::parse(received.bytes)
        .ok()
        .and_then(|packet| packet.ext.deth);
    let src_qpn = deth.map(|deth| deth.src_qp);
    observe::unheard(qpn, opcode, (received.src, received.dst), src_qpn, why);
}

/// Another user of this host has sent it: anybody there may send from the peer's address, but not
/// from its process's ports.
#[cold]
fn is_forged(
    peer: &mut Peer,
    dest_qpn: u32,
    received: &Received<'_>,
    source_ports: Option<&SourcePorts>,
) -> bool {
    let range = range_of(dest_qpn);
    let own = source_ports.and_then(|s| s.is_from(range, received.src.ip()?, received.src_port));
    if own == Some(true) {
        peer.port = received.src_port;
    }
    own == Some(false)
}

/// Of an RDMA WRITE the program is not told.
#[inline]
fn is_silent(last: Operation) -> bool {
    matches!(last, Operation::WriteOnly | Operation::WriteLast)
}

/// Is it the last of a request that an ACK would answer?
#[inline]
fn ends_message(packet: &Packet<'_>) -> bool {
    let operation = packet.bth.opcode.operation();
    operation.is_some_and(|operation| {
        (operation.is_send() || operation.is_write())
            && (operation.is_last() || operation.is_only())
    })
}

/// A packet whose payload is detached, if the queue pair is one that takes such.
#[inline(never)]
fn parse_detached<'a>(
    received: &Received<'a>,
    detached: &DetachedPacket<'_>,
    entry: &QpEntry,
) -> Option<Packet<'a>> {
    let takes = match &entry.transport {
        QueuePair::Rc(rc) => rc.attr().role == Role::Rc,
        QueuePair::Uc(_) => matches!(detached.payload, Detached::ByValue(_)),
        QueuePair::Ud(_) => false,
    };
    let len = received.bytes.len() + detached.payload.len();
    takes
        .then(|| Packet::parse_front(received.bytes, len, detached.mtu).ok())
        .flatten()
}

/// What [`take_fast`] took.
enum Took {
    Message,
    /// Of an atomic.
    Answer,
    Acknowledge,
}

/// [`deliver`] of the usual short message or atomic, and of its ACK or answer; `None`: it is
/// neither, and nothing was done.
#[inline]
fn take_fast(
    now: Time,
    received: &Received<'_>,
    entry: &mut QpEntry,
    memory: &MemoryTable,
    srqs: &SrqTable,
) -> Option<Took> {
    let (bth, usual) = Usual::parse(received.bytes)?;
    if !entry.may_take_fast() || !entry.takes_pkey(bth.pkey) {
        return None;
    }
    let (QueuePair::Rc(rc), mut device) = lend(entry, memory, srqs) else {
        return None;
    };
    if !rc.take_fast(now, &bth, usual, &mut device) {
        return None;
    }
    match usual {
        Usual::Acknowledge(_) => Some(Took::Acknowledge),
        Usual::AtomicAcknowledge(..) => Some(Took::Answer),
        // It has an answer, and no receive.
        Usual::Atomic(_) => Some(Took::Message),
        Usual::Send(_) => {
            if rc.owes_only_ack() {
                entry.held_ack.arrived(now.0, bth.ack_req);
                entry.piggyback.came(false);
            } else if !bth.ack_req {
                entry.held_ack.spared();
            }
            Some(Took::Message)
        }
    }
}
