//! SEND, with immediate data or invalidate.

use super::{Inbound, Refusal, Responder};
use crate::rc::Shared;
use crate::rc::requester::MAX_MESSAGE;
use crate::{CompletionOpcode, Device, Immediate};
use rnic_wire::{Operation, Packet};

impl Responder {
    /// Takes a packet of a SEND; true if it ends the message.
    pub(super) fn send<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &Shared,
        device: &mut H,
    ) -> Result<bool, Refusal> {
        use Operation::*;
        let first = matches!(
            operation,
            SendFirst | SendOnly | SendOnlyImm | SendOnlyInvalidate
        );
        let last = !matches!(operation, SendFirst | SendMiddle);
        match (first, self.inbound) {
            (true, Inbound::Idle) => self.start_receive(device)?,
            (false, Inbound::Send) => {}
            _ => return Err(Refusal::INVALID),
        }
        let Some(receiving) = &mut self.receive else {
            return Err(Refusal::INVALID);
        };
        let filled = receiving.filled + packet.payload.len() as u64;
        if filled > MAX_MESSAGE {
            return Err(Refusal::INVALID);
        }
        if filled > receiving.room {
            return Err(Refusal::TOO_LONG);
        }
        receiving
            .store(packet.payload, device)
            .map_err(Refusal::not_received)?;
        if !last {
            self.inbound = Inbound::Send;
            return Ok(false);
        }
        let mut immediate = packet
            .ext
            .imm
            .map_or(Immediate::None, |imm| Immediate::Data(imm.0));
        if let Some(ieth) = packet.ext.ieth {
            device
                .invalidate(self.pd, sh.attr.qpn, ieth.rkey)
                .map_err(Refusal::invalidate)?;
            immediate = Immediate::Invalidated(ieth.rkey);
        }
        self.inbound = Inbound::Idle;
        let solicited = packet.bth.solicited;
        self.complete_receive(
            CompletionOpcode::Recv,
            filled as u32,
            immediate,
            solicited,
            sh,
            device,
        );
        Ok(true)
    }
}
