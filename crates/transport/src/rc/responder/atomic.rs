//! Atomics: executed once, answered as often as asked.

use super::{Inbound, Refusal, Responder, confirmation, reth_of};
use crate::rc::Shared;
use crate::{AtomicOp, Host, Refused};
use rnic_wire::{Operation, Packet, Payload};

impl Responder {
    /// Takes an atomic request: executes it and queues its answer.
    pub(super) fn atomic<H: Host>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let Some(header) = packet.ext.atomic else {
            return Err(Refusal::INVALID);
        };
        if !matches!(self.inbound, Inbound::Idle) {
            return Err(Refusal::INVALID);
        }
        if !sh.attr.remote_atomic {
            return Err(Refusal::invalid(Refused::NotAllowed));
        }
        if header.va % 8 != 0 {
            return Err(Refusal::invalid(Refused::Unaligned));
        }
        if !self.resources.make_room() {
            return Err(Refusal::invalid(Refused::TooManyReads));
        }
        let op = if operation == Operation::CompareSwap {
            AtomicOp::CompareSwap {
                compare: header.compare,
                swap: header.swap_or_add,
            }
        } else {
            AtomicOp::FetchAdd {
                add: header.swap_or_add,
            }
        };
        let original = host
            .atomic(self.pd, header.rkey, header.va, op)
            .map_err(Refusal::access)?;
        self.message_done(sh);
        sh.counters.served.atomic.add(8);
        self.resources
            .executed_atomic(packet.bth.psn, self.msn, original);
        self.expected = packet.bth.psn.next();
        Ok(())
    }

    /// Takes an atomic write (IBTA annex A19): executes it and queues its answer.
    pub(super) fn atomic_write<H: Host>(
        &mut self,
        packet: &Packet<'_>,
        sh: &mut Shared,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let reth = reth_of(packet)?;
        if !matches!(self.inbound, Inbound::Idle) || reth.dma_len != 8 {
            return Err(Refusal::INVALID);
        }
        let value = match packet.payload {
            Payload::Here(bytes) => bytes.try_into().map_err(|_| Refusal::INVALID)?,
            Payload::Elsewhere { from, .. } => {
                let mut value = [0; 8];
                if !host.fetch(from, &mut value) {
                    return Err(Refusal::Lost);
                }
                value
            }
        };
        if !sh.attr.remote_write {
            return Err(Refusal::invalid(Refused::NotAllowed));
        }
        if reth.va % 8 != 0 {
            return Err(Refusal::invalid(Refused::Unaligned));
        }
        if !self.resources.make_room() {
            return Err(Refusal::invalid(Refused::TooManyReads));
        }
        host.atomic_write(self.pd, reth.rkey, reth.va, value)
            .map_err(Refusal::access)?;
        self.message_done(sh);
        sh.counters.served.atomic.add(8);
        self.resources
            .executed_read(packet.bth.psn, 1, self.msn, confirmation(reth), self.pd);
        self.expected = packet.bth.psn.next();
        Ok(())
    }
}
