//! What the requester sends next.

use super::admit::{admit, check_presence};
use super::execute::Executed;
use super::plan::{Plan, solicitable};
use super::tail_loss_probe::PROBE_PSNS;
use super::window::PACKET_OVERHEAD;
use super::{Entry, Kind, MAX_PSN_SPAN, RequestEnd, Requester};
use crate::multi_psn;
use crate::output::Output;
use crate::rc::{Failure, Role, Shared};
use crate::scatter::SgCursor;
use crate::{Device, Load, PacketSink, SendData, Time};
use rnic_wire::{Bth, Ext, Opcode, Xrceth, emit, header_len, pad_len};

impl Requester {
    /// A packet may leave now.
    #[inline]
    pub(crate) fn can_send(&self, sh: &Shared) -> bool {
        match self.queue.get(self.current) {
            Some(entry) => {
                let waits = self.is_stopped()
                    || self.waits_for_receiver()
                    || self.holding && !entry.started() && self.una.pos != self.max.pos;
                self.fault.is_none()
                    && !waits
                    && (!self.halted || entry.started() || self.executed > 0)
                    && self.within_limits(entry, sh)
            }
            None => false,
        }
    }

    /// It is held back, and nothing is under way for which nobody would ask: what left since a
    /// packet asked has one follow that does, and what the probe repeats is under way already.
    #[inline]
    fn is_stopped(&self) -> bool {
        let asks = self.tail_loss_probe.alone
            || self.ack_requests.is_owed() && self.nxt.pos == self.max.pos;
        self.held_back && !(asks && self.max.pos > self.una.pos)
    }

    /// Window, outstanding READs, fence: may the next packet of `entry` leave?
    #[inline]
    fn within_limits(&self, entry: &Entry, sh: &Shared) -> bool {
        if entry.kind == Kind::Local {
            return self.local_may_start(entry);
        }
        if self.tail_loss_probe.alone && self.awaits_answer() {
            return false;
        }
        let k = if entry.started() {
            self.nxt.pos - entry.start.pos
        } else {
            0
        };
        if k == 0 && entry.wqe.fence && !self.pieces.is_empty() {
            return false;
        }
        let window = self.window.bytes();
        let left = u64::from(entry.len).saturating_sub(k * u64::from(sh.mtu));
        let (psns, payload) = match entry.kind {
            Kind::Acked | Kind::Local => (1, left.min(u64::from(sh.mtu))),
            Kind::Read | Kind::Atomic | Kind::Confirmed => {
                // Responses share the way back and our receive buffer; one request may always go.
                // What is asked for ahead keeps the responder busy, and others waiting.
                let ahead = if self.window.is_head_of_line_limited() {
                    1
                } else {
                    2
                };
                if k == 0 && self.trains.holds(entry.len) {
                    return false;
                }
                let Some(piece) = self.piece(entry, k as u32) else {
                    return false;
                };
                let psns = u64::from(piece);
                let len = left.min(psns * u64::from(sh.mtu));
                let asked = self.nxt.read - self.una.read;
                if self.pieces.len() >= usize::from(sh.attr.max_rd_atomic.max(1))
                    || asked > 0 && asked + len + psns * PACKET_OVERHEAD > ahead * window
                {
                    return false;
                }
                (psns, 0)
            }
        };
        let unacknowledged = self.nxt.bytes - self.una.bytes;
        self.nxt.pos - self.una.pos + psns <= MAX_PSN_SPAN
            && (unacknowledged == 0 || unacknowledged + PACKET_OVERHEAD + payload <= window)
    }

    /// PSNs that the READ request or atomic at the `k`-th PSN of `entry` asks for; `None` if it has
    /// to wait.
    ///
    /// A repeated request keeps the ends of all that were sent before, whichever of them the
    /// responder remembers. It may be cut once more, but then the next cut waits until it is
    /// answered: Linux forgets what lies before a repetition.
    #[inline]
    fn piece(&self, entry: &Entry, k: u32) -> Option<u32> {
        let most = if self.tail_loss_probe.alone {
            PROBE_PSNS
        } else {
            self.window.packets()
        };
        let fits = most.min(entry.packets.saturating_sub(k));
        if self.nxt.pos == self.max.pos {
            return Some(fits);
        }
        let begins = k == 0
            || self.requests.contains(&RequestEnd {
                at: self.nxt.pos,
                cut: false,
            });
        if !begins && !self.pieces.is_empty() {
            return None;
        }
        let end = self.requests.iter().find(|end| end.at > self.nxt.pos)?;
        Some(u64::from(fits).min(end.at - self.nxt.pos) as u32)
    }

    /// PSNs that the next packet of `entry`, a SEND or WRITE, takes: one, or as many as path and
    /// window have room for.
    #[inline]
    pub(super) fn psns_of_next(&self, entry: &Entry, most_payload: usize, sh: &Shared) -> u32 {
        let k = if entry.started() {
            (self.nxt.pos - entry.start.pos) as u32
        } else {
            0
        };
        if sh.attr.role != Role::Rc {
            return 1;
        }
        let fits = multi_psn::fitting(entry.packets.saturating_sub(k), most_payload, sh.mtu);
        if fits == 1 {
            return 1;
        }
        // The first of them may leave (`within_limits`); for more there must be room.
        let unacknowledged = self.nxt.bytes - self.una.bytes;
        let room = self.window.bytes().saturating_sub(unacknowledged);
        let room = room / (u64::from(sh.mtu) + PACKET_OVERHEAD);
        let psns = MAX_PSN_SPAN - (self.nxt.pos - self.una.pos);
        u64::from(fits).min(room).min(psns).max(1) as u32
    }

    /// Emits requests until none may leave or `out` takes no more.
    pub(crate) fn transmit<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<(), Failure> {
        while self.can_send(sh) {
            match self.transmit_one(now, sh, device, out) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) => {
                    // Earlier WQEs may still succeed; this one fails when it is the oldest.
                    self.fault = Some(failure);
                    return self.check_fault();
                }
            }
        }
        Ok(())
    }

    /// Emits the next packet; false if there is no room for it. An error concerns the current WQE.
    #[inline]
    pub(super) fn transmit_one<H: Device, S: PacketSink>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
        out: &mut Output<'_, S>,
    ) -> Result<bool, Failure> {
        if self.may_execute(sh) {
            match self.execute(sh, device, out)? {
                Executed::No => {}
                Executed::Yes => return Ok(true),
                Executed::Later => return Ok(false),
            }
        } else if self.should_hold(sh, device) {
            self.holding = true;
            return Ok(false);
        }
        let Some(entry) = self.queue.get(self.current) else {
            return Ok(false);
        };
        if self.is_single(entry, sh) {
            return self.transmit_single(now, sh, device, out);
        }
        if self.may_point(entry, sh)
            && let Some(sent) = self.transmit_pointing(now, sh, device, out)?
        {
            return Ok(sent);
        }
        if self.transmit_middles(now, sh, device, out)? {
            return Ok(true);
        }
        let Some(entry) = self.queue.get(self.current) else {
            return Ok(false);
        };
        if entry.pointed && self.nxt.pos < self.max.pos {
            check_presence(entry, sh, device)?;
        }
        let piece = match entry.kind {
            Kind::Local => return self.do_local(sh, device).map(|()| true),
            Kind::Acked => self.psns_of_next(entry, out.most_payload(sh.mtu), sh),
            Kind::Read | Kind::Atomic | Kind::Confirmed => {
                let k = if entry.started() {
                    self.nxt.pos - entry.start.pos
                } else {
                    0
                };
                self.piece(entry, k as u32).unwrap_or(1)
            }
        };
        let later = self.needs_no_ack_request(now, sh, device);
        let Some(entry) = self.queue.get_mut(self.current) else {
            return Ok(false);
        };
        let start = if entry.started() {
            entry.start
        } else {
            if !entry.checked {
                admit(entry, sh, device)?;
                entry.checked = true;
            }
            self.nxt
        };
        let k = (self.nxt.pos - start.pos) as u32;
        let mut ext = Ext::default();
        let plan = Plan::new(entry, k, piece, sh.mtu, &mut ext);
        if sh.attr.role == Role::XrcInitiator {
            ext.xrceth = Some(Xrceth {
                srqn: entry.wqe.srqn,
            });
        }
        let opcode = Opcode::new(sh.attr.role.service(), plan.operation);
        let header = header_len(opcode);
        let pad = pad_len(plan.payload);
        let multi_psn = (plan.payload > sh.mtu as usize).then_some(sh.attr.mtu);
        let carried = match &entry.wqe.data {
            SendData::Gather(list) if multi_psn.is_some() => {
                let load = Load::Local {
                    pd: sh.attr.pd,
                    list,
                    offset: plan.offset,
                };
                out.carry(header, plan.payload, sh.attr.mtu, &load)
            }
            _ => None,
        };
        let (buf, here) = match carried {
            Some(buf) => (buf, 0),
            None => {
                let body = plan.payload + usize::from(pad);
                let Some(buf) = out.packet_or_multi_psn(multi_psn, header, body) else {
                    return Ok(false);
                };
                (buf, plan.payload)
            }
        };
        // Not before: it does not begin where there is no room (SQD).
        entry.start = start;

        let cost = PACKET_OVERHEAD + plan.payload as u64;
        let ack_req = plan.last && !later
            || self.tail_loss_probe.alone
            || !self
                .ack_requests
                .may_grow(plan.psns, cost, self.window.bytes());
        let bth = Bth {
            solicited: plan.last && entry.wqe.solicited && solicitable(&entry.wqe.op),
            pad,
            ack_req,
            ..sh.bth(opcode, self.base.add(self.nxt.pos as u32))
        };
        emit(&bth, &ext, buf);
        let body = &mut buf[header..];
        let (payload, padding) = body.split_at_mut(here);
        if !payload.is_empty() {
            let filled = fill(
                &mut self.gather,
                &entry.wqe.data,
                plan.offset,
                payload,
                sh,
                device,
            );
            if let Err(failure) = filled {
                out.retract();
                return Err(failure);
            }
        }
        padding.fill(0);

        let end = self.nxt.pos + u64::from(plan.psns);
        self.ack_requests.note(ack_req, plan.psns, cost, end);
        sh.counters.packets_sent += 1;
        sh.counters.bytes_sent += plan.payload as u64;
        if self.nxt.pos < self.max.pos {
            sh.counters.retransmitted_packets += 1;
        } else if ack_req {
            self.tail_loss_probe.sample(self.nxt.pos, now);
        }
        // Stored twice and not copied: a copy of what was stored just now, in other pieces, waits
        // for the stores.
        let behind = entry.mark_at(k + plan.psns, sh.mtu);
        let cut = behind.pos < self.max.pos;
        self.nxt = behind;
        if !cut {
            self.max = behind;
        }
        if entry.kind != Kind::Acked {
            let at = behind.pos;
            self.note_request(at, sh);
            let index = self.requests.partition_point(|end| end.at < at);
            if self.requests.get(index).is_none_or(|end| end.at != at) {
                self.requests.insert(index, RequestEnd { at, cut });
            }
        }
        if plan.end {
            self.current += 1;
            self.gather = SgCursor::default();
        }
        if plan.last && !ack_req {
            self.defer_ack_request(now);
        }
        self.arm_timers(now, sh);
        Ok(true)
    }
}

#[inline]
pub(super) fn fill<H: Device>(
    cursor: &mut SgCursor,
    data: &SendData,
    offset: u64,
    payload: &mut [u8],
    sh: &Shared,
    device: &H,
) -> Result<(), Failure> {
    match data {
        SendData::Gather(list) => {
            cursor.seek(list, offset);
            cursor
                .gather(device, sh.attr.pd, list, payload)
                .map_err(Failure::local)
        }
        SendData::Inline(bytes) => {
            let from = offset as usize;
            payload.copy_from_slice(&bytes[from..from + payload.len()]);
            Ok(())
        }
    }
}
