//! Atomics: executed once, answered as often as asked.

use super::{Inbound, Refusal, Responder, Silence, confirmation, reth_of};
use crate::rc::Shared;
use crate::{AtomicOp, Device, Refused};
use rnic_wire::{AtomicEth, Bth, Operation, Packet, Payload, Psn};

impl Responder {
    /// Takes an atomic request: executes it and queues its answer.
    pub(super) fn atomic<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Refusal> {
        let Some(header) = packet.ext.atomic else {
            return Err(Refusal::INVALID);
        };
        self.execute_atomic(operation, packet.bth.psn, &header, sh, device)
    }

    /// Takes an atomic request that is expected; false: it is refused, or not the usual one, and
    /// nothing was done.
    #[inline]
    pub(crate) fn take_atomic_fast<H: Device>(
        &mut self,
        bth: &Bth,
        header: &AtomicEth,
        sh: &mut Shared,
        device: &mut H,
    ) -> bool {
        let usual = bth.psn == self.expected && self.nak.is_none() && self.silence == Silence::None;
        // What is wrong is said again by the one who makes something of it.
        let taken = usual
            && bth.opcode.operation().is_some_and(|operation| {
                self.execute_atomic(operation, bth.psn, header, sh, device)
                    .is_ok()
            });
        if taken {
            sh.counters.packets_received += 1;
        }
        taken
    }

    /// Executes the expected request and queues its answer, or changes nothing that would not
    /// change when it is tried again.
    fn execute_atomic<H: Device>(
        &mut self,
        operation: Operation,
        psn: Psn,
        header: &AtomicEth,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Refusal> {
        if !matches!(self.inbound, Inbound::Idle) {
            return Err(Refusal::INVALID);
        }
        if !sh.attr.remote_atomic {
            return Err(Refusal::invalid(Refused::NotAllowed));
        }
        if !header.va.is_multiple_of(8) {
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
        let original = device
            .atomic(self.pd, header.rkey, header.va, op)
            .map_err(Refusal::access)?;
        self.message_done(sh);
        sh.counters.served.atomic.add(8);
        self.resources.executed_atomic(psn, self.msn, original);
        self.expected = psn.next();
        Ok(())
    }

    /// Takes an atomic write (IBTA annex A19): executes it and queues its answer.
    pub(super) fn atomic_write<H: Device>(
        &mut self,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Refusal> {
        let reth = reth_of(packet)?;
        if !matches!(self.inbound, Inbound::Idle) || reth.dma_len != 8 {
            return Err(Refusal::INVALID);
        }
        let value = match packet.payload {
            Payload::Here(bytes) => bytes.try_into().map_err(|_| Refusal::INVALID)?,
            Payload::Detached { from, .. } => {
                let mut value = [0; 8];
                if !device.fetch(from, &mut value) {
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
        device
            .atomic_write(self.pd, reth.rkey, reth.va, value)
            .map_err(Refusal::access)?;
        self.message_done(sh);
        sh.counters.served.atomic.add(8);
        self.resources
            .executed_read(packet.bth.psn, 1, self.msn, confirmation(reth), self.pd);
        self.expected = packet.bth.psn.next();
        Ok(())
    }
}
