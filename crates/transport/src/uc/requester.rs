//! What leaves: messages cut into packets, each work request done with its last one.

use super::Uc;
use crate::completion::{Failure, vendor_err};
use crate::middle::{WORTH, emit_row};
use crate::output::Output;
use crate::rc::MAX_MESSAGE;
use crate::unreliable::State;
use crate::{Device, PacketSink, Pd, SendData, SendOp, SendWqe, Status, multi_psn};
use rnic_wire::{Bth, Ext, ImmDt, Opcode, Operation, Reth, Service, emit, header_len, pad_len};

impl Uc {
    pub(super) fn transmit<H: Device, S: PacketSink>(
        &mut self,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) {
        loop {
            match self.transmit_one(device, out) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => {
                    self.state = State::SendError;
                    self.sent = 0;
                    self.sends
                        .fail_front(failure, self.attr.qpn, MAX_MESSAGE, device);
                    return;
                }
            }
        }
    }

    /// Emits the next packet; false if there is none, or no room for it. An error concerns the
    /// front WQE.
    #[inline]
    fn transmit_one<H: Device, S: PacketSink>(
        &mut self,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        if !self.may_send() {
            return Ok(false);
        }
        if self.sent == 0 && self.execute(device, out) {
            return Ok(true);
        }
        let Some(wqe) = self.sends.queue.front() else {
            return Ok(false);
        };
        if wqe.op.is_local() {
            let (pd, qpn) = (self.attr.pd, self.attr.qpn);
            match wqe.op {
                SendOp::BindWindow(bind) => device.bind_window(pd, qpn, &bind),
                SendOp::LocalInvalidate(rkey) => device.local_invalidate(pd, qpn, rkey),
                _ => Ok(()),
            }
            .map_err(Failure::bind)?;
            self.sends.complete_front(qpn, &mut self.counters, device);
            return Ok(true);
        }
        let mtu = self.attr.mtu.bytes();
        let len = wqe.data.len();
        if self.sent == 0 {
            admit(wqe, len, mtu, self.attr.pd, device)?;
        }
        let offset = u64::from(self.sent) * mtu as u64;
        let first = self.sent == 0;
        let left = len.saturating_sub(offset);
        let packets = u32::try_from(left.div_ceil(mtu as u64)).unwrap_or(u32::MAX);
        let most = out.most_payload(mtu as u32);
        let middles = packets.saturating_sub(1);
        if !first && middles >= WORTH && most <= mtu {
            let operation = plan(&wqe.op, false, false, len as u32, &mut Ext::default());
            return self.transmit_middles(middles, operation, offset, device, out);
        }
        let psns = multi_psn::fitting(packets.max(1), most, mtu as u32);
        let multi_psn = (psns > 1).then_some(self.attr.mtu);
        let size = left.min(u64::from(psns) * mtu as u64) as usize;
        let last = size as u64 == left;
        let mut ext = Ext::default();
        let operation = plan(&wqe.op, first, last, len as u32, &mut ext);
        let opcode = Opcode::new(Service::Uc, operation);
        let header = header_len(opcode);
        let pad = pad_len(size);
        let takes_receive = !matches!(wqe.op, SendOp::Write { .. });
        let bth = Bth {
            solicited: last && wqe.solicited && takes_receive,
            pad,
            ..self.bth(opcode)
        };
        let body = size + usize::from(pad);
        let Some(buf) = out.packet_or_multi_psn(multi_psn, header, body) else {
            return Ok(false);
        };
        emit(&bth, &ext, buf);
        let (payload, padding) = buf[header..].split_at_mut(size);
        let filled = self.sends.fill(self.attr.pd, offset, payload, device);
        padding.fill(0);
        if let Err(fault) = filled {
            out.retract();
            return Err(Failure::local(fault));
        }
        self.sends.psn = self.sends.psn.add(psns);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += size as u64;
        self.sent += psns;
        if last {
            self.sent = 0;
            self.sends
                .complete_front(self.attr.qpn, &mut self.counters, device);
            self.sends.note_drained(device);
        }
        Ok(true)
    }

    /// The BTH of the next packet, if it has no payload.
    #[inline]
    fn bth(&self, opcode: Opcode) -> Bth {
        Bth {
            opcode,
            // "Migrated", the state of a queue pair without an alternate path (IBTA 17.2.8).
            mig_req: true,
            pkey: self.attr.pkey,
            dest_qp: self.attr.dest_qpn,
            psn: self.sends.psn,
            ..Bth::default()
        }
    }

    /// Emits at most so many packets of the middle of the front message, the first of which begins
    /// at `offset`; false: there is no room.
    #[inline]
    fn transmit_middles<H: Device, S: PacketSink>(
        &mut self,
        most: u32,
        operation: Operation,
        mut offset: u64,
        device: &H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        let mtu = self.attr.mtu.bytes() as u32;
        let bth = self.bth(Opcode::new(Service::Uc, operation));
        let (pd, sends) = (self.attr.pd, &mut self.sends);
        let (count, filled) = emit_row(out, most, &bth, mtu, |payload| {
            sends.fill(pd, offset, payload, device)?;
            offset += u64::from(mtu);
            Ok(())
        });
        self.sends.psn = self.sends.psn.add(count);
        self.counters.packets_sent += u64::from(count);
        self.counters.bytes_sent += u64::from(count) * u64::from(mtu);
        self.sent += count;
        filled.map_err(Failure::local)?;
        Ok(count > 0)
    }
}

/// Local checks before the first packet of a WQE leaves, so that a bad one sends nothing.
#[inline]
fn admit<H: Device>(
    wqe: &SendWqe,
    len: u64,
    mtu: usize,
    pd: Pd,
    device: &H,
) -> Result<(), Failure> {
    match wqe.op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::Write { .. } | SendOp::WriteImm { .. } => {}
        _ => {
            return Err(Failure {
                status: Status::LocalQpOperationError,
                vendor_err: vendor_err::WRONG_SERVICE,
            });
        }
    }
    if len > MAX_MESSAGE {
        return Err(Failure {
            status: Status::LocalLengthError,
            vendor_err: vendor_err::MESSAGE_TOO_LONG,
        });
    }
    // A message of one packet is copied whole before it leaves, which checks as much.
    if let SendData::Gather(list) = &wqe.data
        && len > mtu as u64
    {
        for sge in list.iter().filter(|sge| sge.length > 0) {
            device.check_local(pd, sge, false).map_err(Failure::local)?;
        }
    }
    Ok(())
}

/// Operation and extension headers of one packet of a message of `len` bytes.
#[inline]
fn plan(op: &SendOp, first: bool, last: bool, len: u32, ext: &mut Ext) -> Operation {
    use Operation::*;
    let select = |f, m, l, o| match (first, last) {
        (true, false) => f,
        (false, false) => m,
        (false, true) => l,
        (true, true) => o,
    };
    let reth = |va, rkey| {
        first.then_some(Reth {
            va,
            rkey,
            dma_len: len,
        })
    };
    match *op {
        SendOp::SendImm(data) => {
            ext.imm = last.then_some(ImmDt(data));
            select(SendFirst, SendMiddle, SendLastImm, SendOnlyImm)
        }
        SendOp::Write { remote_addr, rkey } => {
            ext.reth = reth(remote_addr, rkey);
            select(WriteFirst, WriteMiddle, WriteLast, WriteOnly)
        }
        SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        } => {
            ext.reth = reth(remote_addr, rkey);
            ext.imm = last.then_some(ImmDt(imm));
            select(WriteFirst, WriteMiddle, WriteLastImm, WriteOnlyImm)
        }
        // `admit` lets nothing else pass.
        _ => select(SendFirst, SendMiddle, SendLast, SendOnly),
    }
}
