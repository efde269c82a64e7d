//! The usual request: a SEND of one packet that is expected, and whose receive has room in one piece.

use super::{Inbound, Responder, Silence};
use crate::rc::Shared;
use crate::{Completion, CompletionOpcode, Host, Immediate, Status};
use rnic_wire::{Bth, Operation};

impl Responder {
    /// Takes it; false: it is not the usual one, and nothing was done.
    #[inline]
    pub(crate) fn take_straight<H: Host>(
        &mut self,
        bth: &Bth,
        payload: &[u8],
        sh: &mut Shared,
        host: &mut H,
    ) -> bool {
        let usual = bth.psn == self.expected
            && matches!(self.inbound, Inbound::Idle)
            && self.receive.is_none()
            && self.nak.is_none()
            && self.silence == Silence::None
            && payload.len() <= sh.mtu as usize
            // Its own: a shared receive queue may be of another protection domain.
            && host.receives_posted().is_some();
        if !usual {
            return false;
        }
        let Some(wqe) = host.take_receive() else {
            return false;
        };
        let stored = match &*wqe.sges {
            _ if payload.is_empty() => true,
            [sge] if payload.len() <= sge.length as usize => host
                .write_local(self.pd, sge.lkey, sge.addr, payload)
                .is_ok(),
            _ => false,
        };
        if !stored {
            // Said again by the one who makes something of it.
            host.return_receive(wqe);
            return false;
        }
        let len = payload.len();
        sh.counters.packets_received += 1;
        sh.counters.bytes_received += len as u64;
        sh.counters.served.served(Operation::SendOnly, len, true);
        self.message_done(sh);
        self.last_taken = bth.psn;
        self.expected = bth.psn.next();
        if bth.ack_req {
            self.ack = Some(bth.psn);
        }
        host.complete_recv(Completion {
            wr_id: wqe.wr_id,
            status: Status::Success,
            opcode: CompletionOpcode::Recv,
            byte_len: len as u32,
            vendor_err: 0,
            qpn: sh.attr.qpn,
            src_qpn: sh.attr.dest_qpn,
            immediate: Immediate::None,
            grh: None,
            solicited: bth.solicited,
        });
        true
    }
}
