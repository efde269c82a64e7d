//! Atomics: executed once, answered as often as asked.

use super::{Inbound, Refusal, Responder};
use crate::rc::Shared;
use crate::{AtomicOp, Host, Refused};
use rnic_wire::{Operation, Packet};

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
}
