//! What came out of a socket: trains are cut into packets, and each is looked at.

use std::io;

use rnic_wire::{Bth, Flow, ICRC_LEN, ROCE_PORT};

use super::groups::Groups;
use super::hand_over::{Origin, foreign, foreign_run, is_for_us};
use crate::LinkCounters;
use crate::senders::Senders;
use crate::shm::{Deliver, Received};
use crate::staging::datagram::{Arrival, Link};
use rnic_host::handover::{self, HEADER_LEN, MESSAGE_LEN};
use rnic_host::membership::Membership;
use rnic_host::qp1::QP1;
use rnic_host::steering::MULTICAST_QPN;
use rnic_host::train::Train;

/// The receiving side: buffer and what is known about senders.
pub(super) struct Inbox {
    pub(super) buffer: Box<[u8]>,
    senders: Senders,
    /// The multicast groups that this process is a member of.
    pub(super) groups: Groups,
    pub(super) handover_until: u64,
    calls: u32,
    /// What a quick poll found: it lies in the buffer, and nothing else does.
    pub(super) found: Option<Train>,
    /// What nobody took yet of the buffer.
    pub(super) rest: Option<Rest>,
    /// Packets to QP 1 since the last look: each costs system calls.
    pub(super) managed: usize,
    /// The time at the last call of `receive`.
    pub(super) now_ns: u64,
}

/// Packets in the buffer that wait; the ICRC of the first is right.
pub(super) struct Rest {
    start: usize,
    /// Of what is left.
    train: Train,
    /// Where the hand-over socket's message ends that the train is part of; `None`: it came through
    /// the port.
    message_end: Option<usize>,
}

/// While nothing comes through the hand-over socket, it is looked at in every so many calls: a
/// thread that sleeps waits for its descriptors, and this is only for when that thread does not get
/// a core.
const HANDOVER_EVERY: u32 = 4096;

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            buffer: vec![0; MESSAGE_LEN].into(),
            senders: Senders::default(),
            groups: Groups::default(),
            handover_until: 0,
            calls: 0,
            found: None,
            rest: None,
            managed: 0,
            now_ns: 0,
        }
    }
}

impl Inbox {
    /// Something in the buffer was not taken in yet.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.rest.is_some() || self.found.is_some()
    }

    /// One look at the port. A train that came lies in the buffer.
    #[inline]
    pub(super) fn look(
        &mut self,
        link: &mut dyn Link,
        thorough: bool,
        counters: &mut LinkCounters,
    ) -> io::Result<Arrival> {
        counters.rx_syscalls += 1;
        let arrival = link.receive(&mut self.buffer, thorough);
        counters.rx_truncated += u64::from(matches!(arrival, Ok(Arrival::Useless)));
        arrival
    }

    pub(super) fn handover_is_due(&mut self, now_ns: u64) -> bool {
        self.calls = self.calls.wrapping_add(1);
        now_ns < self.handover_until || self.calls.is_multiple_of(HANDOVER_EVERY)
    }

    /// Offers what was left once more. Returns packets delivered.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        now_ns: u64,
        membership: &mut Membership,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        match self.rest.take() {
            None => 0,
            Some(rest) => self.go_on_with(&rest, now_ns, membership, counters, deliver),
        }
    }

    #[cold]
    fn go_on_with(
        &mut self,
        rest: &Rest,
        now_ns: u64,
        membership: &mut Membership,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let Rest { start, train, .. } = rest;
        let origin = match rest.message_end {
            None => Origin::Port { now_ns },
            Some(end) => Origin::Handover { end },
        };
        let mut delivered = self.train(*start, train, true, origin, membership, counters, deliver);
        if let Some(end) = rest.message_end
            && self.rest.is_none()
        {
            delivered += self.message(start + train.len, end, membership, counters, deliver);
        }
        delivered
    }

    /// Sorts a message of the hand-over socket, or its end, which lies in the buffer from `at` to
    /// `len`. Returns packets delivered.
    pub(super) fn message(
        &mut self,
        mut at: usize,
        len: usize,
        membership: &mut Membership,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let mut delivered = 0;
        while at < len && self.rest.is_none() {
            let Some(train) = handover::decode_header(&self.buffer[at..len]) else {
                counters.rx_truncated += 1;
                break;
            };
            at += HEADER_LEN;
            let origin = Origin::Handover { end: len };
            delivered += self.train(at, &train, false, origin, membership, counters, deliver);
            at += train.len;
        }
        delivered
    }

    /// Sorts the packets of a train, which lies in the buffer from `start` on; `checked`: the ICRC
    /// of the first is right. Returns packets delivered.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of the link, lent one by one"
    )]
    pub(super) fn train(
        &mut self,
        start: usize,
        train: &Train,
        mut checked: bool,
        origin: Origin,
        membership: &mut Membership,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let Inbox {
            buffer,
            senders,
            groups,
            rest: left,
            managed,
            now_ns,
            ..
        } = self;
        let mut rest = &buffer[start..start + train.len];
        let flow = Flow {
            src: train.src,
            dst: train.dst,
            src_port: train.src_port,
            dst_port: ROCE_PORT,
        };
        let now_ms = (*now_ns / 1_000_000) as u32;
        let mut sender = senders.of(&flow);
        // The number of the packet in the train.
        let mut number = 0;
        let came_before = counters.rx_packets;
        let mut delivered = 0;
        while !rest.is_empty() {
            let (packet, behind) = rest.split_at(train.segment.min(rest.len()));
            match Bth::dest_qpn_of_sealed(packet) {
                // Each member has a copy of its own; a unicast packet cannot claim to be one.
                Some(qpn)
                    if !(membership.owns(qpn)
                        || qpn == MULTICAST_QPN
                            && train.dst.is_multicast()
                            && groups.may_hear(train.dst)
                        || qpn == QP1 && checked) =>
                {
                    if qpn == QP1 {
                        *managed += 1;
                        checked = sender.check(packet, train.ids, number, now_ms).is_ok();
                        if checked && is_for_us(packet, origin, membership, counters, train) {
                            continue;
                        }
                        counters.rx_bad_icrc += u64::from(!checked);
                        counters.rx_packets += 1;
                        counters.rx_bytes += packet.len() as u64;
                        checked = false;
                        rest = behind;
                        number += 1;
                        continue;
                    }
                    let n = foreign_run(rest, train.segment, qpn);
                    let (run, behind) = rest.split_at((n * train.segment).min(rest.len()));
                    foreign(train, run, n, qpn, origin, membership, counters);
                    rest = behind;
                    number += n;
                    continue;
                }
                Some(qpn) if checked || sender.check(packet, train.ids, number, now_ms).is_ok() => {
                    let taken = deliver(&Received {
                        src: flow.src.into(),
                        dst: flow.dst.into(),
                        src_port: flow.src_port,
                        marks: train.marks,
                        bytes: &packet[..packet.len() - ICRC_LEN],
                        detached: None,
                        dest_qpn: qpn,
                        ring: None,
                    });
                    if taken.is_break() {
                        *left = Some(Rest {
                            start: start + train.len - rest.len(),
                            train: train.behind(number, rest.len()),
                            message_end: origin.message_end(),
                        });
                        break;
                    }
                    delivered += 1;
                }
                Some(_) => counters.rx_bad_icrc += 1,
                None => counters.rx_truncated += 1,
            }
            counters.rx_packets += 1;
            counters.rx_bytes += packet.len() as u64;
            counters.rx_adopted += u64::from(origin.message_end().is_some());
            checked = false;
            rest = behind;
            number += 1;
        }
        if train.dst.is_multicast() {
            counters.rx_multicast += counters.rx_packets - came_before;
        }
        delivered
    }
}
