//! Which process of the SO_REUSEPORT group gets a packet: a classic BPF program over the
//! destination QPN.
//!
//! The program sees a packet from the first byte of the BTH and returns a *reuseport slot*, the
//! number of a socket in the group. Slots shift: when a socket closes, the last one moves into its
//! slot. So a process cannot reckon its own. It learns it from a probe, a packet to the loopback
//! address with QPN `0xffff00 | slot` that the program delivers by exactly that. A probe for a slot
//! that does not exist falls to some member by hash, so of one round of probes the lowest slot that
//! reached a process is its own. A range whose owner does not know its slot yet falls to the hash
//! too, and is handed over.
//!
//! Of the messages to [QP 1](crate::qp1) those go straight to their process that name a
//! communication id of it. The port table is no matter for a BPF program, so all requests go to one
//! process, the taker, which is seen to run, and hands them over. By hash they would also fall to
//! one that is stopped, and their repetitions, of the same ports, as well.
//!
//! A GSO batch and what GRO merged are steered whole by the first packet.

use std::collections::VecDeque;

use rnic_wire::cm::{Attribute, Mad};
use rnic_wire::{Bth, Deth};

use crate::qp1::{ID_BITS, QP1};
use crate::registry::RANGE_BITS;
use rnic_sys::BpfInsn;

/// QPNs from here on are probes (and, the last one, multicast).
pub const FIRST_PROBE_QPN: u32 = 0xff_ff00;

/// Means all members of a multicast group; the group is the packet's destination address (IBTA
/// 9.2.4, annex A17).
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// Most slots that a probe can name.
pub const MAX_SLOTS: usize = 255;

// linux/bpf_common.h
const LD_W_ABS: u16 = 0x20;
const LD_H_ABS: u16 = 0x28;
const AND_K: u16 = 0x54;
const RSH_K: u16 = 0x74;
const JA: u16 = 0x05;
const JEQ_K: u16 = 0x15;
const JGT_K: u16 = 0x25;
const JGE_K: u16 = 0x35;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;

/// No such slot: the kernel takes the hash of the addresses and ports.
const NOWHERE: u32 = u32::MAX;

/// Where the MAD of a packet to QP 1 begins.
const MAD: u32 = (Bth::LEN + Deth::LEN) as u32;
/// In it: which message.
const ATTRIBUTE: u32 = MAD + 16;
/// In a SIDR_REP: the id of the request.
const REQUEST_ID: u32 = MAD + Mad::HEADER_LEN as u32;
/// In all other answers: the receiver's communication id.
const RECEIVER_ID: u32 = REQUEST_ID + 4;

/// The filter of a socket that gets nothing.
pub const NOTHING: [BpfInsn; 1] = [BpfInsn {
    code: RET_K,
    jt: 0,
    jf: 0,
    k: 0,
}];

/// Instructions of a program at most (BPF_MAXINSNS).
const MAX_INSNS: usize = 4096;

/// The program for these (range, slot) pairs, in the order of the ranges, and requests to QP 1.
/// Ranges next to each other with one slot take one test; what does not fit is left to the hash.
pub fn program(routes: &[(u32, u8)], requests: Option<u8>) -> Vec<BpfInsn> {
    let insn = |code, jt, jf, k| BpfInsn { code, jt, jf, k };
    let mut out = vec![
        insn(LD_W_ABS, 0, 0, 4),
        insn(AND_K, 0, 0, 0xff_ffff),
        insn(JGE_K, 0, 2, FIRST_PROBE_QPN),
        insn(AND_K, 0, 0, 0xff),
        insn(RET_A, 0, 0, 0),
        // To QP 1?
        insn(JEQ_K, 0, 10, QP1),
        insn(LD_H_ABS, 0, 0, ATTRIBUTE),
        insn(JEQ_K, 1, 0, Attribute::Req as u32),
        insn(JEQ_K, 0, 1, Attribute::SidrReq as u32),
        insn(RET_K, 0, 0, requests.map_or(NOWHERE, u32::from)),
        insn(JEQ_K, 0, 2, Attribute::SidrRep as u32),
        insn(LD_W_ABS, 0, 0, REQUEST_ID),
        insn(JA, 0, 0, 1),
        insn(LD_W_ABS, 0, 0, RECEIVER_ID),
        insn(RSH_K, 0, 0, ID_BITS),
        insn(JA, 0, 0, 1),
        // To a range.
        insn(RSH_K, 0, 0, RANGE_BITS),
    ];
    for group in routes.chunk_by(|a, b| a.0 + 1 == b.0 && a.1 == b.1) {
        let [(first, slot), ..] = *group else {
            continue;
        };
        let last = first + group.len() as u32 - 1;
        if out.len() + 4 > MAX_INSNS {
            break;
        }
        if first == last {
            out.push(insn(JEQ_K, 0, 1, first));
        } else {
            out.push(insn(JGE_K, 0, 2, first));
            out.push(insn(JGT_K, 1, 0, last));
        }
        out.push(insn(RET_K, 0, 0, slot.into()));
    }
    out.push(insn(RET_K, 0, 0, NOWHERE));
    out
}

/// A probe: tells the process that receives it its slot in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The slot it was sent to.
    pub slot: u8,
    /// The registry's cookie: only processes of this user know it.
    pub cookie: u64,
    /// The same in all probes that were sent together.
    pub round: u64,
}

const MAGIC: [u8; 8] = *b"rnic?you";
/// No opcode of the specification: service 7 (manufacturer), operation 31.
const OPCODE: u8 = 0xff;
/// Length of a probe.
pub const PROBE_LEN: usize = 36;

impl Probe {
    /// As a datagram.
    pub fn encode(&self) -> [u8; PROBE_LEN] {
        let mut out = [0; PROBE_LEN];
        out[0] = OPCODE;
        out[4..8].copy_from_slice(&(FIRST_PROBE_QPN | u32::from(self.slot)).to_be_bytes());
        out[12..20].copy_from_slice(&MAGIC);
        out[20..28].copy_from_slice(&self.cookie.to_ne_bytes());
        out[28..36].copy_from_slice(&self.round.to_ne_bytes());
        out
    }

    /// From a datagram; `None` if it is something else.
    pub fn decode(packet: &[u8]) -> Option<Probe> {
        let qpn = Bth::dest_qpn_of_sealed(packet)?;
        let packet: &[u8; PROBE_LEN] = packet.try_into().ok()?;
        if qpn < FIRST_PROBE_QPN || packet[0] != OPCODE || packet[12..20] != MAGIC {
            return None;
        }
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&packet[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Some(Probe {
            slot: (qpn & 0xff) as u8,
            cookie: word(20),
            round: word(28),
        })
    }
}

/// Rounds of probes that may be under way at once and are told apart: each process that comes, goes
/// or finds packets astray sends one.
const ROUNDS: usize = 8;

/// A process's slot as far as probes have told. Probes of several rounds may come mixed: those of
/// an older one say nothing any more of the slot, and are not taken for another new round.
#[derive(Debug, Default)]
pub struct KnownSlot {
    /// The newest last, each with the lowest slot that it has told.
    rounds: VecDeque<(u64, u8)>,
}

impl KnownSlot {
    /// Its number in the group.
    pub fn number(&self) -> Option<u8> {
        self.rounds.back().map(|(_, lowest)| *lowest)
    }

    /// A probe arrived; true: the slot is new or another one than before.
    pub fn learn(&mut self, probe: &Probe) -> bool {
        let before = self.number();
        let seen = self.rounds.iter().position(|(id, _)| *id == probe.round);
        match seen {
            Some(at) => {
                let (_, lowest) = &mut self.rounds[at];
                *lowest = probe.slot.min(*lowest);
            }
            None => {
                if self.rounds.len() == ROUNDS {
                    self.rounds.pop_front();
                }
                self.rounds.push_back((probe.round, probe.slot));
            }
        }
        self.number() != before
    }
}

#[cfg(test)]
mod tests;
