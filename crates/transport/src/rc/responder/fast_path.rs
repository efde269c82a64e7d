//! The usual request: a SEND of one packet that is expected, and whose receive has room in one
//! piece. And the usual answer.

use super::{Inbound, Responder, Silence};
use crate::rc::Shared;
use crate::rc::resources::{Answer, Body};
use crate::{Completion, CompletionOpcode, Device, Immediate, PacketSink, Status};
use rnic_wire::{Aeth, AtomicAckEth, Bth, Opcode, Operation, Service};

impl Responder {
    /// Emits the oldest answer, which is all that there is to say, if it is one to an atomic;
    /// false: it is not, or there is no room, and nothing was done.
    #[inline]
    pub(crate) fn answer_fast<H: Device, S: PacketSink>(
        &mut self,
        sh: &mut Shared,
        device: &H,
        sink: &mut S,
    ) -> bool {
        const HEADERS: usize = Bth::LEN + Aeth::LEN;
        let Some(&Answer {
            psn,
            msn,
            body: Body::Atomic(original),
            ..
        }) = self.resources.answers.front()
        else {
            return false;
        };
        let bth = sh.bth(Opcode::new(Service::Rc, Operation::AtomicAcknowledge), psn);
        let aeth = Aeth {
            msn,
            ..self.ack_aeth(device)
        };
        let mut packet = [0; HEADERS + AtomicAckEth::LEN];
        bth.emit(&mut packet);
        aeth.emit(&mut packet[Bth::LEN..]);
        AtomicAckEth { original }.emit(&mut packet[HEADERS..]);
        if !sink.send_short(&packet) {
            return false;
        }
        self.resources.answers.pop_front();
        sh.counters.packets_sent += 1;
        true
    }

    /// Emits the ACK that is owed; false: that is not all there is to say, or there is no room, and
    /// nothing was done.
    #[inline]
    pub(crate) fn acknowledge_fast<H: Device, S: PacketSink>(
        &mut self,
        sh: &mut Shared,
        device: &H,
        sink: &mut S,
    ) -> bool {
        let Some(psn) = self.ack.filter(|_| self.owes_only_ack()) else {
            return false;
        };
        let bth = sh.bth(Opcode::new(Service::Rc, Operation::Acknowledge), psn);
        let mut packet = [0; Bth::LEN + Aeth::LEN];
        bth.emit(&mut packet);
        self.ack_aeth(device).emit(&mut packet[Bth::LEN..]);
        if !sink.send_short(&packet) {
            return false;
        }
        self.acknowledged();
        sh.counters.packets_sent += 1;
        true
    }

    /// Takes that request; false: it is not the usual one, and nothing was done.
    #[inline]
    pub(crate) fn take_fast<H: Device>(
        &mut self,
        bth: &Bth,
        payload: &[u8],
        sh: &mut Shared,
        device: &mut H,
    ) -> bool {
        let usual = bth.psn == self.expected
            && matches!(self.inbound, Inbound::Idle)
            && self.receive.is_none()
            && self.nak.is_none()
            && self.silence == Silence::None
            && payload.len() <= sh.mtu as usize;
        if !usual {
            return false;
        }
        // Its own: a shared receive queue may be of another protection domain.
        let Some(wqe) = device.next_receive() else {
            return false;
        };
        let wr_id = wqe.wr_id;
        let [sge] = *wqe.sges else {
            return false;
        };
        let len = payload.len();
        // What is wrong is said again by the one who makes something of it.
        if len > sge.length as usize {
            return false;
        }
        let taken = device.take_receive();
        if len > 0
            && device
                .write_local(self.pd, sge.lkey, sge.addr, payload)
                .is_err()
        {
            taken.into_iter().for_each(|wqe| device.return_receive(wqe));
            return false;
        }
        sh.counters.packets_received += 1;
        sh.counters.bytes_received += len as u64;
        sh.counters.served.served(Operation::SendOnly, len, true);
        self.message_done(sh);
        self.last_taken = bth.psn;
        self.expected = bth.psn.next();
        if bth.ack_req {
            self.ack = Some(bth.psn);
        }
        device.complete_recv(Completion {
            wr_id,
            status: Status::Success,
            opcode: CompletionOpcode::Recv,
            byte_len: len as u32,
            vendor_err: 0,
            qpn: sh.attr.qpn,
            src_qpn: sh.attr.dest_qpn,
            immediate: Immediate::None,
            grh: None,
            pkey_index: 0,
            solicited: bth.solicited,
        });
        true
    }
}
