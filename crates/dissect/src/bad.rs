//! Packets with a wrong ICRC: no part of any conversation, but why something is missing in one.

use std::collections::HashMap;
use std::net::IpAddr;

use rnic_wire::Psn;

use crate::end::other;
use crate::finding::What;
use crate::model::Conversation;
use crate::packet::Packet;

/// So many are remembered.
const KEPT: usize = 4096;
/// So many are named per finding.
const NAMED: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Dropped {
    psn: Psn,
    number: u64,
    answer: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Bad {
    /// By source, destination, and queue pair there.
    flows: HashMap<(IpAddr, IpAddr, u32), Vec<Dropped>>,
    count: usize,
}

impl Bad {
    pub fn push(&mut self, p: &Packet) {
        let Some(op) = p.bth.opcode.operation() else {
            return;
        };
        if self.count == KEPT {
            return;
        }
        self.count += 1;
        let flow = &p.outer.flow;
        let key = (flow.src, flow.dst, p.bth.dest_qp);
        self.flows.entry(key).or_default().push(Dropped {
            psn: p.bth.psn,
            number: p.number,
            answer: op.is_response(),
        });
    }

    /// Names them in the findings that say that something is missing.
    pub fn explain(&self, conversation: &mut Conversation) {
        if self.count == 0 {
            return;
        }
        let ends = conversation.ends;
        let sides = &conversation.sides;
        for finding in &mut conversation.findings {
            let (me, peer) = (finding.side, other(finding.side));
            // PSNs of requests that are missing, or those of the answers that would do.
            let (answer, from, count) = match finding.what {
                What::Gap { psn, count, .. } => (false, psn, count),
                What::Lost { psn, sent: None } => (false, psn, 1),
                What::ResponseGap { psn, count } => (true, psn, count),
                What::Unanswered { message, .. } | What::GaveUp { message, .. } => {
                    let mut messages = sides[me].messages.iter();
                    let Some(found) = messages.find(|known| known.id == message) else {
                        continue;
                    };
                    // An ACK of later ones is one of this, too.
                    (true, found.last_psn(), 1 << 16)
                }
                _ => continue,
            };
            let (src, dst) = if answer { (peer, me) } else { (me, peer) };
            let Some(qpn) = ends[dst].qpn else { continue };
            let flow = self.flows.get(&(ends[src].addr, ends[dst].addr, qpn));
            let fits = |bad: &&Dropped| {
                let at = bad.psn.distance_from(from);
                bad.answer == answer && at >= 0 && (at as u32) < count
            };
            let bad = flow.into_iter().flatten().filter(fits).take(NAMED);
            finding.bad = bad.map(|bad| bad.number).collect();
        }
    }
}
