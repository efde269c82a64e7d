//! Packets that point: they say where the payload is, and the peer, a process of this host, copies
//! it from there ([`Device::locate`], [`PacketSink::point`]). They take as many PSNs as the payload
//! needs ([`crate::multi_psn`]); for the peer they are packets whose payload is detached.
//!
//! * Only what **consumes a receive** points. Whoever waits for an RDMA WRITE looks at memory,
//!   where bytes of an attempt that failed must not appear.
//! * **What is sent again is copied**, into packets. On a path by memory packets are taken in
//!   order, so when a work request was acknowledged none is left that points at its memory.
//! * **A packet that could not be followed** is asked for by the peer as one that was lost. It is
//!   no loss of the network: it costs neither a retry nor a part of the window, once per work
//!   request, and what follows is copied for a while.

use super::admit::{admit, check_presence};
use super::plan::{Plan, solicitable};
use super::{Entry, Kind, Requester};
use crate::output::Output;
use crate::rc::{Failure, Role, Shared};
use crate::{Device, IoVecs, PacketSink, SendData, SendOp, Time};
use rnic_wire::{Bth, Ext, Opcode, emit, header_len};

/// Shorter ones are copied faster than the peer gets at them.
const LEAST: u32 = 32 * 1024;
/// PSNs that are copied after a packet could not be followed.
const PAUSE: u64 = 1 << 14;

impl Requester {
    /// May the next packet of `entry`, the current one, point, as far as the transport knows?
    #[inline]
    pub(super) fn may_point(&self, entry: &Entry, sh: &Shared) -> bool {
        entry.len >= LEAST
            && entry.kind == Kind::Acked
            && entry.packets > 1
            && !matches!(entry.wqe.op, SendOp::Write { .. })
            && !entry.oversize
            && self.nxt.pos == self.max.pos
            && self.nxt.pos >= self.point_from
            && !self.tail_loss_probe.alone
            && sh.attr.role == Role::Rc
    }

    /// Emits it; `Some(false)`: there is no room. `None`: it is to be copied.
    pub(super) fn transmit_pointing<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<Option<bool>, Failure> {
        let most = out.most_pointed();
        if most == 0 {
            return Ok(None);
        }
        let Some(entry) = self.queue.get(self.current) else {
            return Ok(None);
        };
        let piece = self.psns_of_next(entry, most, sh);
        let SendData::Gather(list) = &entry.wqe.data else {
            return Ok(None);
        };
        let start = if entry.started() {
            entry.start
        } else {
            self.nxt
        };
        let k = (self.nxt.pos - start.pos) as u32;
        let mut ext = Ext::default();
        let plan = Plan::new(entry, k, piece, sh.mtu, &mut ext);
        if plan.payload < LEAST as usize {
            return Ok(None);
        }
        if !entry.checked {
            admit(entry, sh, device)?;
        }
        let mut iov = IoVecs::default();
        if !device.locate(sh.attr.pd, list, plan.offset, plan.payload as u64, &mut iov) {
            return Ok(None);
        }
        let opcode = Opcode::new(sh.attr.role.service(), plan.operation);
        let Some(buf) = out.point(header_len(opcode), sh.attr.mtu, &iov) else {
            return Ok(Some(false));
        };
        let bth = Bth {
            solicited: plan.last && entry.wqe.solicited && solicitable(&entry.wqe.op),
            // There is nothing behind the headers that would have to be aligned.
            pad: 0,
            // For so many bytes it costs nothing.
            ack_req: true,
            ..sh.bth(opcode, self.base.add(self.nxt.pos as u32))
        };
        emit(&bth, &ext, buf);
        let Some(entry) = self.queue.get_mut(self.current) else {
            return Ok(None);
        };
        entry.checked = true;
        entry.pointed = true;
        entry.start = start;
        let behind = entry.mark_at(k + plan.psns, sh.mtu);
        sh.counters.packets_sent += 1;
        sh.counters.bytes_sent += plan.payload as u64;
        self.tail_loss_probe.sample(self.nxt.pos, now);
        self.ack_requests.note(true, plan.psns, 0, behind.pos);
        (self.nxt, self.max) = (behind, behind);
        if plan.end {
            self.current += 1;
        }
        self.gather = Default::default();
        self.arm_timers(now, sh);
        Ok(Some(true))
    }

    /// The packet at `una`, which the peer says did not come, is one that it could not follow.
    #[cold]
    pub(super) fn was_not_followed<H: Device>(
        &mut self,
        sh: &Shared,
        device: &H,
    ) -> Result<bool, Failure> {
        let Some(front) = self.queue.front_mut() else {
            return Ok(false);
        };
        if !core::mem::take(&mut front.pointed) {
            return Ok(false);
        }
        self.point_from = self.max.pos + PAUSE;
        check_presence(front, sh, device)?;
        Ok(true)
    }

    /// Some packet is unacknowledged that points at memory of this key.
    pub(crate) fn points_at(&self, lkey: u32) -> bool {
        let uses = |entry: &Entry| match &entry.wqe.data {
            SendData::Gather(list) => list.iter().any(|sge| sge.lkey == lkey),
            SendData::Inline(_) => false,
        };
        self.queue
            .iter()
            .take_while(|entry| entry.started())
            .any(|entry| entry.pointed && uses(entry))
    }
}
