//! Speaks RC with the accent of Linux's Soft-RoCE: what its responder does otherwise than IBTA
//! says, put over a queue pair of ours from outside.
//!
//! * A READ repeated from the middle is answered MIDDLE ... LAST, not FIRST ... LAST.
//! * It remembers of a READ only what lies behind the last repetition: an earlier part, asked for
//!   again, is dropped.
//! * After an RNR NAK, the packets behind the refused one draw a NAK "PSN sequence error" for the
//!   same PSN.

use rnic_wire::{
    Aeth, Bth, NakCode, Opcode, Operation, Packet, Psn, Service, Syndrome, emit, header_len,
};
use std::collections::VecDeque;

/// A READ as the responder remembers it.
struct Read {
    first: Psn,
    packets: u32,
    /// Offset of the last repetition.
    base: u32,
}

/// The accent of one queue pair.
#[derive(Default)]
pub struct Accent {
    reads: VecDeque<Read>,
}

impl Accent {
    fn find(&mut self, psn: Psn) -> Option<(&mut Read, u32)> {
        self.reads.iter_mut().rev().find_map(|read| {
            let offset = psn.distance_from(read.first);
            (offset >= 0 && (offset as u32) < read.packets).then_some((read, offset as u32))
        })
    }

    /// Whether a packet that arrives is taken; `expected` is the PSN that the responder waits for.
    pub fn hears(&mut self, packet: &Packet<'_>, expected: Psn, mtu: usize) -> bool {
        let (Some(Operation::ReadRequest), Some(reth)) =
            (packet.bth.opcode.operation(), packet.ext.reth)
        else {
            return true;
        };
        let psn = packet.bth.psn;
        if psn == expected {
            if self.reads.len() == 64 {
                self.reads.pop_front();
            }
            self.reads.push_back(Read {
                first: psn,
                packets: reth.dma_len.div_ceil(mtu as u32).max(1),
                base: 0,
            });
            return true;
        }
        match self.find(psn) {
            Some((read, offset)) if psn.is_before(expected) => {
                let known = offset >= read.base;
                read.base = read.base.max(offset);
                known
            }
            _ => true,
        }
    }

    /// What becomes of a packet that is sent.
    pub fn says(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        use Operation::{
            ReadResponseFirst, ReadResponseLast, ReadResponseMiddle, ReadResponseOnly,
        };
        let packet = Packet::parse(&bytes).expect("linted");
        let with_opcode = |operation| Bth {
            opcode: Opcode::new(Service::Rc, operation),
            ..packet.bth
        };
        let middle = self
            .find(packet.bth.psn)
            .is_some_and(|(_, offset)| offset > 0);
        match (packet.bth.opcode.operation(), packet.ext.aeth) {
            (Some(ReadResponseFirst), _) if middle => {
                vec![rebuild(&with_opcode(ReadResponseMiddle), &packet)]
            }
            (Some(ReadResponseOnly), _) if middle => {
                vec![rebuild(&with_opcode(ReadResponseLast), &packet)]
            }
            (_, Some(aeth)) if matches!(aeth.syndrome, Syndrome::RnrNak { .. }) => {
                let mut echo = packet;
                echo.ext.aeth = Some(Aeth {
                    syndrome: Syndrome::Nak(NakCode::PsnSequenceError),
                    ..aeth
                });
                let echo = rebuild(&packet.bth, &echo);
                vec![bytes, echo]
            }
            _ => vec![bytes],
        }
    }
}

fn rebuild(bth: &Bth, packet: &Packet<'_>) -> Vec<u8> {
    let mut ext = packet.ext;
    if bth
        .opcode
        .operation()
        .is_some_and(|operation| !operation.has_aeth())
    {
        ext.aeth = None;
    }
    let header = header_len(bth.opcode);
    let mut bytes = vec![0; header];
    emit(bth, &ext, &mut bytes);
    bytes.extend_from_slice(packet.payload.here());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
