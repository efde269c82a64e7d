//! The usual case: a SEND or WRITE of one packet, or an atomic, that leaves for the first time.
//!
//! It does what [`Requester::transmit_one`] does, of which nearly all is decided beforehand: the
//! packet is the first and the last of its message, and is checked by being copied.

use super::admit::admit;
use super::plan::{atomic_of, solicitable};
use super::transmit::fill;
use super::window::PACKET_OVERHEAD;
use super::{Entry, Kind, MAX_PSN_SPAN, RequestEnd, Requester};
use crate::output::Output;
use crate::rc::{Failure, Role, Shared};
use crate::scatter::SgCursor;
use crate::{
    AckRequest, Device, MAX_SHORT, PacketSink, SendData, SendOp, ShortData, ShortSend, Time,
};
use rnic_wire::{AtomicEth, Bth, Opcode, Operation, Reth, Service, pad_len};

/// Of a WRITE.
const HEADER: usize = Bth::LEN + Reth::LEN;

impl Requester {
    /// Emits a short SEND and queues it as sent; false: it may not leave now, or cannot, and
    /// nothing was done.
    ///
    /// It becomes an entry of the queue when all is over, so that nothing is written twice.
    #[inline(always)]
    pub(crate) fn transmit_short<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        short: &ShortSend<'_>,
        ack_request: AckRequest,
        sh: &mut Shared,
        device: &H,
        sink: &mut S,
    ) -> bool {
        let len = short.len();
        let cost = PACKET_OVERHEAD + len as u64;
        let unacknowledged = self.nxt.bytes - self.una.bytes;
        // That of [`Requester::can_send`] and [`Requester::is_single`].
        let may_leave = len <= MAX_SHORT.min(sh.mtu as usize)
            && sh.attr.role == Role::Rc
            && self.current == self.queue.len()
            && self.nxt.pos == self.max.pos
            && self.fault.is_none()
            && !self.halted
            && !self.holding
            && !self.tail_loss_probe.alone
            && !self.waits_for_receiver()
            && self.nxt.pos - self.una.pos < MAX_PSN_SPAN
            && (unacknowledged == 0 || unacknowledged + cost <= self.window.bytes());
        if !may_leave {
            return false;
        }
        let pad = pad_len(len);
        let later = ack_request == AckRequest::Later
            && !short.signaled
            && unacknowledged > 0
            && self.ack_requests.may_grow(1, cost, self.window.bytes())
            && self.may_defer_ack_request(now, sh);
        let bth = Bth {
            solicited: short.solicited,
            pad,
            ack_req: !later,
            ..sh.bth(
                Opcode::new(Service::Rc, Operation::SendOnly),
                self.base.add(self.nxt.pos as u32),
            )
        };
        let mut packet = [0; Bth::LEN + MAX_SHORT];
        bth.emit(&mut packet);
        let payload = &mut packet[Bth::LEN..Bth::LEN + len];
        match short.data {
            ShortData::Registered(sge) if len > 0 => {
                // Said again by the one who makes something of it.
                if device
                    .read_local(sh.attr.pd, sge.lkey, sge.addr, payload)
                    .is_err()
                {
                    return false;
                }
            }
            ShortData::Registered(_) => {}
            ShortData::Inline(bytes) => payload.copy_from_slice(bytes),
        }
        if !sink.send_short(&packet[..Bth::LEN + len + usize::from(pad)]) {
            return false;
        }
        let start = self.nxt;
        self.note_ack_request(!later, cost, now);
        self.nxt.pos += 1;
        self.nxt.bytes += cost;
        self.max.pos += 1;
        self.max.bytes += cost;
        sh.counters.packets_sent += 1;
        sh.counters.bytes_sent += len as u64;
        self.queue.push().set_sent(short, start);
        self.current += 1;
        self.arm_timers(now, sh);
        true
    }

    /// Emits what was posted last, if it is of that kind, or another request that is one packet,
    /// may not do without, and may leave now. An error has come to the oldest WQE.
    #[inline]
    pub(crate) fn transmit_fast<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        if self.current + 1 != self.queue.len() {
            return Ok(false);
        }
        let Some(entry) = self.queue.get(self.current) else {
            return Ok(false);
        };
        let may_need_none = matches!(entry.wqe.op, SendOp::Write { .. } | SendOp::Read { .. });
        if may_need_none && device.may_execute() {
            return Ok(false);
        }
        let plain = self.is_single(entry, sh);
        if !plain && !is_one_request(entry, sh) || !self.can_send(sh) {
            return Ok(false);
        }
        let is_atomic = entry.kind == Kind::Atomic && self.is_first(entry);
        let sent = if plain {
            self.transmit_single(now, sh, device, out)
        } else if is_atomic {
            self.transmit_atomic(now, sh, device, out)
        } else {
            self.transmit_one(now, sh, device, out)
        };
        sent.or_else(|failure| {
            // As in [`Requester::transmit`].
            self.fault = Some(failure);
            self.check_fault().map(|()| false)
        })
    }

    /// Is the next packet of `entry`, the current one, of that kind?
    #[inline]
    pub(super) fn is_single(&self, entry: &Entry, sh: &Shared) -> bool {
        entry.packets == 1
            && matches!(entry.wqe.op, SendOp::Send | SendOp::Write { .. })
            && entry.kind == Kind::Acked
            && self.is_first(entry)
            && !entry.oversize
            && sh.attr.role == Role::Rc
    }

    /// Nothing of it was sent before, nor anything behind what was sent last.
    #[inline]
    fn is_first(&self, entry: &Entry) -> bool {
        !entry.started() && self.nxt.pos == self.max.pos && !self.tail_loss_probe.alone
    }

    /// Emits the current entry, an atomic; false if there is no room.
    #[inline]
    fn transmit_atomic<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        let Some(entry) = self.queue.get_mut(self.current) else {
            return Ok(false);
        };
        let Some((operation, header)) = atomic_of(&entry.wqe.op) else {
            return Ok(false);
        };
        admit(entry, sh, device)?;
        let bth = Bth {
            ack_req: true,
            ..sh.bth(
                Opcode::new(Service::Rc, operation),
                self.base.add(self.nxt.pos as u32),
            )
        };
        let mut packet = [0; Bth::LEN + AtomicEth::LEN];
        bth.emit(&mut packet);
        header.emit(&mut packet[Bth::LEN..]);
        if !out.send_short(&packet) {
            return Ok(false);
        }
        entry.checked = true;
        entry.start = self.nxt;
        let behind = entry.mark_at(1, sh.mtu);
        self.note_ack_request(true, PACKET_OVERHEAD, now);
        (self.nxt, self.max) = (behind, behind);
        self.note_request(behind.pos, sh);
        // The last of all.
        self.requests.push_back(RequestEnd {
            at: behind.pos,
            cut: false,
        });
        sh.counters.packets_sent += 1;
        self.current += 1;
        self.arm_timers(now, sh);
        Ok(true)
    }

    /// Emits it; false if there is no room.
    #[inline]
    pub(super) fn transmit_single<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        let needs_no_ack_request = self.needs_no_ack_request(now, sh, device);
        let (ack_requests, window) = (self.ack_requests, self.window.bytes());
        let Some(entry) = self.queue.get_mut(self.current) else {
            return Ok(false);
        };
        let len = entry.len as usize;
        let cost = PACKET_OVERHEAD + len as u64;
        let later = needs_no_ack_request && ack_requests.may_grow(1, cost, window);
        let pad = pad_len(len);
        let (operation, header) = match entry.wqe.op {
            SendOp::Write { .. } => (Operation::WriteOnly, HEADER),
            _ => (Operation::SendOnly, Bth::LEN),
        };
        let Some(buf) = out.packet(header + len + usize::from(pad)) else {
            return Ok(false);
        };
        entry.checked = true;
        entry.start = self.nxt;
        let bth = Bth {
            solicited: entry.wqe.solicited && solicitable(&entry.wqe.op),
            pad,
            ack_req: !later,
            ..sh.bth(
                Opcode::new(Service::Rc, operation),
                self.base.add(self.nxt.pos as u32),
            )
        };
        bth.emit(buf);
        if let SendOp::Write { remote_addr, rkey } = entry.wqe.op {
            let reth = Reth {
                va: remote_addr,
                rkey,
                dma_len: entry.len,
            };
            reth.emit(&mut buf[Bth::LEN..]);
        }
        if len > 0 {
            let (payload, padding) = buf[header..].split_at_mut(len);
            let filled = match &entry.wqe.data {
                SendData::Gather(list) if list.len() == 1 => device
                    .read_local(sh.attr.pd, list[0].lkey, list[0].addr, payload)
                    .map_err(Failure::local),
                data => {
                    let filled = fill(&mut self.gather, data, 0, payload, sh, device);
                    self.gather = SgCursor::default();
                    filled
                }
            };
            if let Err(failure) = filled {
                out.retract();
                return Err(failure);
            }
            // At most three; there is no call for none.
            for byte in padding {
                *byte = 0;
            }
        }
        let mut behind = self.nxt;
        behind.pos += 1;
        behind.bytes += cost;
        self.note_ack_request(!later, cost, now);
        (self.nxt, self.max) = (behind, behind);
        sh.counters.packets_sent += 1;
        sh.counters.bytes_sent += len as u64;
        self.current += 1;
        self.arm_timers(now, sh);
        Ok(true)
    }
}

/// Is it another request of one packet?
#[inline]
fn is_one_request(entry: &Entry, sh: &Shared) -> bool {
    let takes_a_packet = matches!(
        entry.wqe.op,
        SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::WriteImm { .. }
            | SendOp::Read { .. }
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::Flush(_)
    );
    takes_a_packet && entry.packets == 1 && !entry.oversize && sh.attr.role == Role::Rc
}
