//! FLUSH (IBTA annex A19): its answer says that earlier WRITEs of this connection are placed as it
//! asks.

use super::{Inbound, Refusal, Responder, confirmation, reth_of};
use crate::rc::Shared;
use crate::rc::requester::MAX_MESSAGE;
use crate::{Device, Placement, Refused};
use rnic_wire::{Feth, Packet};

impl Responder {
    /// Takes a FLUSH. Requests are executed in their order, so all WRITEs before it have been.
    pub(super) fn flush_memory<H: Device>(
        &mut self,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Refusal> {
        let reth = reth_of(packet)?;
        let (placement, range) = match packet.ext.feth.and_then(asked_for) {
            Some((placement, true)) => (placement, None),
            Some((placement, false)) if u64::from(reth.dma_len) <= MAX_MESSAGE => {
                (placement, Some((reth.va, reth.dma_len)))
            }
            _ => return Err(Refusal::INVALID),
        };
        if !matches!(self.inbound, Inbound::Idle) {
            return Err(Refusal::INVALID);
        }
        let allowed = sh.attr.flush;
        if placement.global && !allowed.global || placement.persistent && !allowed.persistent {
            return Err(Refusal::invalid(Refused::NotAllowed));
        }
        if !self.resources.make_room() {
            return Err(Refusal::invalid(Refused::TooManyReads));
        }
        device
            .flush(self.pd, reth.rkey, range, placement)
            .map_err(Refusal::access)?;
        self.message_done(sh);
        sh.counters.served.flush.add(0);
        let answer = confirmation(reth);
        self.resources
            .executed_read(packet.bth.psn, 1, self.msn, answer, self.pd);
        self.expected = packet.bth.psn.next();
        Ok(())
    }
}

/// The placement, and whether all of the region is meant; `None` for reserved values and for
/// nothing at all.
fn asked_for(feth: Feth) -> Option<(Placement, bool)> {
    let placement = Placement {
        global: feth.placement & Feth::GLOBAL != 0,
        persistent: feth.placement & Feth::PERSISTENT != 0,
    };
    let known = Feth::GLOBAL | Feth::PERSISTENT;
    if feth.placement == 0 || feth.placement & !known != 0 {
        return None;
    }
    match feth.selectivity {
        Feth::RANGE => Some((placement, false)),
        Feth::REGION => Some((placement, true)),
        _ => None,
    }
}
