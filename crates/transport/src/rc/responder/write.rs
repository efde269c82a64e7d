//! RDMA WRITE, with immediate data or without.

use super::{Inbound, Refusal, Responder, reth_of};
use crate::rc::Shared;
use crate::rc::requester::MAX_MESSAGE;
use crate::scatter::store_remote;
use crate::{CompletionOpcode, Device, Immediate, Pd, Refused, RemoteAccess};
use rnic_wire::{ImmDt, Operation, Packet, Payload};

impl Responder {
    /// Takes a packet of a WRITE; true if it ends the message.
    #[inline]
    pub(super) fn write<H: Device>(
        &mut self,
        operation: Operation,
        packet: &Packet<'_>,
        sh: &Shared,
        device: &mut H,
    ) -> Result<bool, Refusal> {
        use Operation::*;
        let len = packet.payload.len() as u32;
        // In every packet: it may have been taken away since the first.
        if !sh.attr.remote_write {
            return Err(Refusal::invalid(Refused::NotAllowed));
        }
        let (va, rkey, left, total) = match (operation, self.inbound) {
            (WriteFirst | WriteOnly | WriteOnlyImm, Inbound::Idle) => {
                let reth = reth_of(packet)?;
                if u64::from(reth.dma_len) > MAX_MESSAGE {
                    return Err(Refusal::INVALID);
                }
                // Of a message of one packet the copy below checks as much.
                if operation == WriteFirst {
                    let whole = u64::from(reth.dma_len);
                    device
                        .check_remote(self.pd, reth.rkey, reth.va, whole, RemoteAccess::Write)
                        .map_err(Refusal::access)?;
                }
                (reth.va, reth.rkey, reth.dma_len, reth.dma_len)
            }
            (
                WriteMiddle | WriteLast | WriteLastImm,
                Inbound::Write {
                    va,
                    rkey,
                    left,
                    total,
                },
            ) => (va, rkey, left, total),
            _ => return Err(Refusal::INVALID),
        };
        if matches!(operation, WriteFirst | WriteMiddle) {
            // Something must be left for the packets that follow.
            if len >= left {
                return Err(Refusal::INVALID);
            }
            store_remote(device, self.pd, rkey, va, packet.payload)
                .map_err(Refusal::not_written)?;
            let va = va.wrapping_add(u64::from(len));
            self.inbound = Inbound::Write {
                va,
                rkey,
                left: left - len,
                total,
            };
            return Ok(false);
        }
        if len != left {
            return Err(Refusal::INVALID);
        }
        if let Some(ImmDt(imm)) = packet.ext.imm {
            // The receive is taken before anything is stored, but not for a WRITE that will be
            // refused.
            if len > 0 {
                device
                    .check_remote(self.pd, rkey, va, u64::from(len), RemoteAccess::Write)
                    .map_err(Refusal::access)?;
            }
            self.start_receive(device)?;
            store(self.pd, rkey, va, packet.payload, device)?;
            let (opcode, immediate) = (CompletionOpcode::RecvRdmaWithImm, Immediate::Data(imm));
            self.complete_receive(opcode, total, immediate, packet.bth.solicited, sh, device);
        } else {
            store(self.pd, rkey, va, packet.payload, device)?;
        }
        self.inbound = Inbound::Idle;
        Ok(true)
    }
}

/// Stores the last packet. Key and address of an empty message mean nothing (IBTA 9.7.4.1.5).
#[inline]
fn store<H: Device>(
    pd: Pd,
    rkey: u32,
    va: u64,
    payload: Payload<'_>,
    device: &mut H,
) -> Result<(), Refusal> {
    if payload.is_empty() {
        return Ok(());
    }
    store_remote(device, pd, rkey, va, payload).map_err(Refusal::not_written)
}
