//! Which two directions belong together, where no connection manager said so.

use std::net::IpAddr;

use rnic_wire::{Operation, Service};

use super::Dissector;
use crate::end::End;
use crate::model::Pairing;
use crate::packet::Packet;
use crate::tracker::Tracker;

/// Unpaired queue pairs between two addresses that are looked at for an answer.
const CANDIDATES: usize = 1024;
/// Answers that look for their requests, per flow.
const ATTEMPTS: u32 = 64;
/// One direction: all that a packet says of where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FlowKey {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub qpn: u32,
    pub service: u8,
}

impl Dissector {
    /// Looks for the requests that an answer belongs to.
    pub(crate) fn pair(
        &mut self,
        p: &Packet,
        op: Operation,
        service: Service,
        key: FlowKey,
        own: Option<(usize, End)>,
    ) -> Option<(usize, End)> {
        if let Some((index, _)) = own {
            let live = &mut self.live[index];
            live.attempts += 1;
            if live.attempts > ATTEMPTS {
                return own;
            }
        }
        let addresses = (key.dst, key.src);
        let Some((found, score, others)) = self.who_waits(p, op, service, addresses, own) else {
            return own;
        };
        debug_assert!(score > 0);
        let request = self.live[found].trackers[0]
            .packet_of(p.bth.psn)
            .unwrap_or(self.live[found].numbers.0);
        self.no_longer_waits(addresses, found);
        let pairing = Pairing::Inferred {
            request,
            answer: p.number,
            others,
        };
        let src_port = Some(p.outer.flow.src_port);
        let Some((own, _)) = own else {
            let live = &mut self.live[found];
            live.pairing = pairing;
            live.ends[0].qpn = Some(p.bth.dest_qp);
            live.ends[1].src_port = src_port;
            self.flows.insert(key, (found, 1));
            return Some((found, 1));
        };
        // Both directions had requests before either had an answer: one of the two conversations
        // takes the other in.
        self.no_longer_waits((key.src, key.dst), own);
        let (keep, gone) = (own.min(found), own.max(found));
        let moved = std::mem::replace(&mut self.live[gone].trackers[0], Tracker::new(0, false, 0));
        let notes = std::mem::take(&mut self.live[gone].notes);
        let gone_live = &mut self.live[gone];
        gone_live.merged = Some((keep, true));
        let (qpn, port) = (gone_live.ends[1].qpn, gone_live.ends[0].src_port);
        let (packets, numbers, time) = (gone_live.packets, gone_live.numbers, gone_live.time);
        let (mtu, ecn) = (gone_live.mtu, std::mem::take(&mut gone_live.ecn_marked));
        // The flow of the one that goes is now the other direction of the one that stays.
        let gone_key = FlowKey {
            src: gone_live.ends[0].addr,
            dst: gone_live.ends[1].addr,
            qpn: qpn.unwrap_or_default(),
            service: service.code(),
        };
        self.flows.insert(gone_key, (keep, 1));
        let live = &mut self.live[keep];
        live.pairing = pairing;
        live.ends[0].qpn = qpn;
        live.ends[1].src_port = port;
        // Answers that the one that stays had, before anybody knew whose they are, say nothing any
        // more.
        live.trackers[1] = Tracker { end: 1, ..moved };
        live.notes.absorb(notes, 1);
        live.packets[1] += packets[0];
        live.numbers.1 = live.numbers.1.max(numbers.1);
        live.time.1 = live.time.1.max(time.1);
        live.ecn_marked.append(&ecn);
        if live.mtu.is_none() {
            live.mtu = mtu;
        }
        Some((keep, usize::from(own == gone)))
    }

    /// The conversation of one direction that an answer fits best: its index, how well, and how
    /// many others it fits as well.
    fn who_waits(
        &self,
        p: &Packet,
        op: Operation,
        service: Service,
        addresses: (IpAddr, IpAddr),
        own: Option<(usize, End)>,
    ) -> Option<(usize, u32, u32)> {
        let waiting = self.unpaired.get(&addresses)?;
        let mut best: Option<(u32, u64, usize)> = None;
        let mut others = 0;
        for &index in waiting.iter().rev().take(CANDIDATES) {
            let live = &self.live[index];
            if Some(index) == own.map(|(index, _)| index)
                || live.is_paired()
                || live.merged.is_some()
                || live.service != service
            {
                continue;
            }
            let mut score = live.trackers[0].expects(p.bth.psn, op) * 2;
            if score == 0 {
                continue;
            }
            // Linux has both directions of a connection use one source port.
            if live.ends[0].src_port == Some(p.outer.flow.src_port) {
                score += 3;
            }
            let since = u64::MAX - live.trackers[0].last_time;
            match best {
                Some((known, ..)) if known > score => {}
                Some((known, time, _)) if known == score => {
                    others += 1;
                    // Who has waited longer.
                    if since > time {
                        best = Some((score, since, index));
                    }
                }
                _ => {
                    others = 0;
                    best = Some((score, since, index));
                }
            }
        }
        best.map(|(score, _, index)| (index, score, others))
    }

    fn no_longer_waits(&mut self, addresses: (IpAddr, IpAddr), index: usize) {
        if let Some(waiting) = self.unpaired.get_mut(&addresses)
            && let Some(place) = waiting.iter().rposition(|&known| known == index)
        {
            waiting.remove(place);
        }
    }

    /// An answer that fits nothing in the conversation that its flow was inferred to belong to, but
    /// what another queue pair waits for: the answering queue pair's number has a new peer.
    pub(crate) fn pair_anew(
        &mut self,
        p: &Packet,
        op: Operation,
        service: Service,
        key: FlowKey,
        own: (usize, End),
    ) -> (usize, End) {
        let (index, from) = own;
        let live = &mut self.live[index];
        let inferred = matches!(live.pairing, Pairing::Inferred { .. });
        if !inferred
            || live.trackers[from ^ 1].expects(p.bth.psn, op) > 1
            || live.attempts > ATTEMPTS
        {
            return own;
        }
        live.attempts += 1;
        let addresses = (key.dst, key.src);
        match self.who_waits(p, op, service, addresses, None) {
            // At least: open, and this very PSN is the next to be answered.
            Some((_, score, _)) if score >= 8 => {
                self.flows.remove(&key);
                self.pair(p, op, service, key, None).unwrap_or(own)
            }
            _ => own,
        }
    }
}

pub(crate) fn flow_key(p: &Packet, service: Service) -> FlowKey {
    FlowKey {
        src: p.outer.flow.src,
        dst: p.outer.flow.dst,
        qpn: p.bth.dest_qp,
        service: service.code(),
    }
}
