//! Rows of packets from the middle of a SEND or RDMA WRITE (see [`crate::middle`]).

use super::window::PACKET_OVERHEAD;
use super::{Entry, Kind, MAX_PSN_SPAN, Requester};
use crate::middle::{WORTH, emit_row};
use crate::output::Output;
use crate::rc::{Failure, Role, Shared};
use crate::{Device, PacketSink, SendData, SendOp, Time};
use rnic_wire::{Opcode, Operation};

impl Requester {
    /// Packets of the middle of `entry` that may leave next for the first time, none of which asks
    /// for an ACK.
    #[inline]
    fn middles(&self, entry: &Entry, sh: &Shared) -> u32 {
        if !entry.started()
            || entry.kind != Kind::Acked
            || self.nxt.pos < self.max.pos
            || self.tail_loss_probe.alone
            || sh.attr.role != Role::Rc
        {
            return 0;
        }
        let gone = self.nxt.pos - entry.start.pos;
        // Its first packet was to leave, and was taken back for want of its memory.
        if gone == 0 {
            return 0;
        }
        let last = u64::from(entry.packets).saturating_sub(1);
        let psns = MAX_PSN_SPAN.saturating_sub(self.nxt.pos - self.una.pos);
        let cost = PACKET_OVERHEAD + u64::from(sh.mtu);
        let window = self.window.bytes();
        let room = window.saturating_sub(self.nxt.bytes - self.una.bytes) / cost;
        let unrequested = u64::from(self.ack_requests.room(cost, window));
        last.saturating_sub(gone)
            .min(psns)
            .min(room)
            .min(unrequested) as u32
    }

    /// Emits a row of them; false: there is none, or no room. An error concerns the current WQE.
    #[inline]
    pub(super) fn transmit_middles<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        let Some(entry) = self.queue.get(self.current) else {
            return Ok(false);
        };
        let SendData::Gather(list) = &entry.wqe.data else {
            return Ok(false);
        };
        // A path by memory has better.
        if out.most_payload(sh.mtu) > sh.mtu as usize {
            return Ok(false);
        }
        let most = self.middles(entry, sh);
        if most < WORTH {
            return Ok(false);
        }
        let operation = match entry.wqe.op {
            SendOp::Write { .. } | SendOp::WriteImm { .. } => Operation::WriteMiddle,
            _ => Operation::SendMiddle,
        };
        let bth = sh.bth(
            Opcode::new(sh.attr.role.service(), operation),
            self.base.add(self.nxt.pos as u32),
        );
        let k = (self.nxt.pos - entry.start.pos) as u32;
        let pd = sh.attr.pd;
        let mut cursor = self.gather;
        cursor.seek(list, u64::from(k) * u64::from(sh.mtu));
        let (count, filled) = emit_row(out, most, &bth, sh.mtu, |payload| {
            cursor.gather(device, pd, list, payload)
        });
        let behind = entry.mark_at(k + count, sh.mtu);
        self.gather = cursor;
        if count > 0 {
            let cost = behind.bytes - self.nxt.bytes;
            self.ack_requests.note(false, count, cost, behind.pos);
            sh.counters.packets_sent += u64::from(count);
            sh.counters.bytes_sent += u64::from(count) * u64::from(sh.mtu);
            self.nxt = behind;
            self.max = behind;
            self.arm_timers(now, sh);
        }
        filled.map_err(Failure::local)?;
        Ok(count > 0)
    }
}

#[cfg(test)]
mod tests;
