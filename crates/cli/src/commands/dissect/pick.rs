//! `--qp`: which packets are those of a queue pair. A BTH names its receiver alone, so of requests
//! it is known only when their conversation is.

use std::collections::VecDeque;

use rnic_dissect::{Dissector, Packet, Place};

use super::KEPT_PACKETS;

/// Packets in their order; those of which it cannot be told yet hold up what comes behind them.
pub struct Pick {
    qp: Option<u32>,
    waiting: VecDeque<(Packet, Option<Place>)>,
}

impl Pick {
    pub fn new(qp: Option<u32>) -> Pick {
        let waiting = VecDeque::new();
        Pick { qp, waiting }
    }

    pub fn push(&mut self, packet: &Packet, place: Option<Place>) {
        self.waiting.push_back((*packet, place));
    }

    /// The next one that is asked for. At the end of the capture, and if very many wait, those of
    /// which nothing is known are not.
    pub fn next(&mut self, dissector: &Dissector, at_end: bool) -> Option<(Packet, Option<Place>)> {
        while let Some((packet, place)) = self.waiting.front() {
            let wanted = match self.qp {
                None => Some(true),
                Some(qp) if names(packet, qp) => Some(true),
                Some(qp) => match place {
                    Some(place) => dissector.concerns(*place, qp),
                    None => Some(false),
                },
            };
            if wanted.is_none() && !at_end && self.waiting.len() <= KEPT_PACKETS {
                return None;
            }
            let next = self.waiting.pop_front();
            if wanted == Some(true) {
                return next;
            }
        }
        None
    }
}

/// Whether a packet itself says that it is from or for the queue pair.
fn names(packet: &Packet, qp: u32) -> bool {
    packet.bth.dest_qp == qp || packet.ext.deth.is_some_and(|deth| deth.src_qp == qp)
}
