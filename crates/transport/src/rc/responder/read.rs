//! RDMA READ.

use super::{Inbound, Refusal, Responder, reth_of};
use crate::rc::Shared;
use crate::rc::requester::MAX_MESSAGE;
use crate::{Device, Refused, RemoteAccess};
use rnic_wire::Packet;

impl Responder {
    /// Takes a READ request: grants it and queues its answer.
    pub(super) fn read<H: Device>(
        &mut self,
        packet: &Packet<'_>,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Refusal> {
        let reth = reth_of(packet)?;
        let len = u64::from(reth.dma_len);
        if !matches!(self.inbound, Inbound::Idle) || len > MAX_MESSAGE {
            return Err(Refusal::INVALID);
        }
        if !sh.attr.remote_read {
            return Err(Refusal::invalid(Refused::NotAllowed));
        }
        if !self.resources.make_room() {
            return Err(Refusal::invalid(Refused::TooManyReads));
        }
        if len > 0 {
            device
                .check_remote(self.pd, reth.rkey, reth.va, len, RemoteAccess::Read)
                .map_err(Refusal::access)?;
        }
        let packets = reth.dma_len.div_ceil(sh.mtu).max(1);
        self.message_done(sh);
        sh.counters.served.read.add(len);
        self.resources
            .executed_read(packet.bth.psn, packets, self.msn, reth, self.pd);
        self.expected = packet.bth.psn.add(packets);
        Ok(())
    }
}
