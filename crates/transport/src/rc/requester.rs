//! The requester: the send queue and where in it the peer and the wire are.
//!
//! # Positions
//! Packets are numbered by 64-bit *positions* from the first one of the connection; the PSN is the
//! position plus a base, modulo 2^24. Every WQE gets a range of positions when its first packet
//! leaves. Three [`Mark`]s cut the line: all before `una` is acknowledged, `nxt` is sent next (it
//! moves back when packets must be sent again), all before `max` was sent at least once. A mark
//! carries beside its position the running totals that the limits are about, so that the bytes in
//! flight are the difference of two marks and never counted twice.
//!
//! # Long READs
//! Nothing but the requester's restraint keeps READ responses from overrunning its receive buffer,
//! and a lost one costs all that follow it. So a READ longer than the window is asked for in pieces
//! of a window each: for the responder they are READs of their own, each counted against
//! `max_rd_atomic`; for the application it is one.
//!
//! # Completion rules
//! A WQE leaves the queue when it is acknowledged (SEND, WRITE) or when its last response has been
//! stored (READ, atomic), and only from the front: completions come in the order of posting. A
//! signaled one makes a completion, an unsignaled one none, a failing one always one.

mod ack;
mod ack_request;
mod admit;
mod execute;
mod local;
mod middle;
mod plan;
mod point;
mod queue;
mod read;
mod retransmit;
mod single;
mod stall;
mod stopped;
mod tail_loss_probe;
mod trains;
mod transmit;
mod window;

#[cfg(test)]
mod tests;

use super::timer::TimerTable;
use super::{Failure, Shared};
use crate::completion::vendor_err;
use crate::scatter::SgCursor;
use crate::{Completion, Device, Immediate, SendOp, SendWqe, ShortSend, Status, Time};
use ack_request::AckRequests;
use alloc::collections::{TryReserveError, VecDeque};
use queue::SendQueue;
use retransmit::Retries;
use rnic_wire::Psn;
use stall::Stall;
use stopped::Peer;
use tail_loss_probe::TailLossProbe;
use trains::Trains;
use window::{PACKET_OVERHEAD, Window};

/// The longest message (IBTA 9.7.7.1).
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;

/// PSNs that may be in flight: beyond half the circle, past and future look alike (IBTA 9.7.1).
const MAX_PSN_SPAN: u64 = 1 << 23;

/// What kind of answer ends a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SEND or WRITE: an ACK.
    Acked,
    /// READ: its responses.
    Read,
    /// Atomic: its response.
    Atomic,
    /// Atomic write or FLUSH: the response of a READ of nothing.
    Confirmed,
    /// Bind or invalidate: nothing leaves; it is done at its turn.
    Local,
}

/// A point on the line of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Packets before this point.
    pos: u64,
    /// Bytes of requests before it, with overhead.
    bytes: u64,
    /// Bytes of READ responses before it, with overhead.
    read: u64,
}

/// A WQE in the send queue.
#[derive(Debug)]
struct Entry {
    wqe: SendWqe,
    /// Where its packets start; set when the first one leaves.
    start: Mark,
    /// Message length; meaningless if `oversize`.
    len: u32,
    /// PSNs it takes.
    packets: u32,
    kind: Kind,
    /// Longer than any message may be.
    oversize: bool,
    /// Local memory was found to be accessible.
    checked: bool,
    /// Some of its packets pointed, and none was said not to have come since.
    pointed: bool,
}

impl Entry {
    /// Becomes what was posted. Inlined, with what calls it, since each call would copy the work
    /// request once more.
    #[inline(always)]
    fn set(&mut self, wqe: SendWqe, mtu: u32) {
        let kind = match wqe.op {
            SendOp::Read { .. } => Kind::Read,
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => Kind::Atomic,
            SendOp::AtomicWrite { .. } | SendOp::Flush(_) => Kind::Confirmed,
            SendOp::BindWindow(_) | SendOp::LocalInvalidate(_) => Kind::Local,
            _ => Kind::Acked,
        };
        let (len, asked) = match &wqe.op {
            SendOp::Flush(flush) if flush.whole_region => (0, 0),
            SendOp::Flush(flush) => (0, flush.length),
            _ => (wqe.data.len(), wqe.data.len()),
        };
        let oversize = asked > MAX_MESSAGE;
        let len = if oversize { 0 } else { len as u32 };
        self.wqe = wqe;
        self.start = NOT_STARTED;
        self.len = len;
        self.packets = Entry::packets_of(kind, len, mtu);
        self.kind = kind;
        (self.oversize, self.checked, self.pointed) = (oversize, false, false);
    }

    /// Becomes a short message of which the one packet has left.
    #[inline(always)]
    fn set_sent(&mut self, short: &ShortSend<'_>, start: Mark) {
        short.put(&mut self.wqe);
        self.start = start;
        self.len = short.len() as u32;
        self.packets = 1;
        self.kind = Kind::Acked;
        (self.oversize, self.checked, self.pointed) = (false, true, false);
    }

    #[inline]
    fn packets_of(kind: Kind, len: u32, mtu: u32) -> u32 {
        match kind {
            Kind::Atomic | Kind::Confirmed => 1,
            Kind::Local => 0,
            // A division costs more than all the rest of a short message.
            _ if len <= mtu => 1,
            _ => len.div_ceil(mtu),
        }
    }

    /// The mark behind the first `k` of its packets.
    #[inline]
    fn mark_at(&self, k: u32, mtu: u32) -> Mark {
        let mut mark = self.start;
        mark.pos += u64::from(k);
        if k == 0 {
            return mark;
        }
        let payload = u64::from(self.len).min(u64::from(k) * u64::from(mtu));
        match self.kind {
            Kind::Acked => mark.bytes += u64::from(k) * PACKET_OVERHEAD + payload,
            Kind::Read | Kind::Atomic => {
                mark.bytes += PACKET_OVERHEAD;
                mark.read += u64::from(k) * PACKET_OVERHEAD + payload;
            }
            Kind::Confirmed => {
                mark.bytes += PACKET_OVERHEAD + payload;
                mark.read += PACKET_OVERHEAD;
            }
            Kind::Local => {}
        }
        mark
    }

    #[inline]
    fn end(&self, mtu: u32) -> Mark {
        self.mark_at(self.packets, mtu)
    }

    #[inline]
    fn started(&self) -> bool {
        self.start.pos != NOT_STARTED.pos
    }

    fn completion(&self, qpn: u32, status: Status, vendor_err: u32) -> Completion {
        let byte_len = match self.kind {
            Kind::Acked | Kind::Confirmed | Kind::Local => 0,
            Kind::Read => self.len,
            Kind::Atomic => 8,
        };
        let success = status == Status::Success;
        Completion {
            wr_id: self.wqe.wr_id,
            status,
            opcode: self.wqe.op.completion_opcode(),
            byte_len: if success { byte_len } else { 0 },
            vendor_err,
            qpn,
            src_qpn: 0,
            immediate: Immediate::None,
            grh: None,
            pkey_index: 0,
            solicited: !success,
        }
    }
}

/// The start of a WQE whose turn has not come: behind every position.
const NOT_STARTED: Mark = Mark {
    pos: u64::MAX,
    bytes: 0,
    read: 0,
};

/// An answer ahead of the awaited response was seen: that response is lost, and was asked for
/// again.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The awaited position.
    at: u64,
    /// The first response that was seen ahead of it.
    first: u64,
}

/// Where a READ request or atomic that was sent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestEnd {
    at: u64,
    /// Not when it was first sent: an earlier request reaches further.
    cut: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    queue: SendQueue,
    /// The entry that holds `nxt`; `queue.len()` when all was sent.
    current: usize,
    una: Mark,
    nxt: Mark,
    max: Mark,
    /// PSN of position 0.
    base: Psn,
    /// Where in `current`'s list the next payload byte is.
    gather: SgCursor,
    /// Where in the front READ's list the next response goes.
    scatter: SgCursor,
    /// Bytes of the front WQE that were executed without packets.
    executed: u32,
    /// What the peer acknowledges behind this position it has taken from this connection, as it is
    /// addressed now.
    known_from: u64,
    /// The current WQE waits for acknowledgements, so that it can be executed without packets.
    holding: bool,
    /// No WQE starts (SQD).
    pub(super) halted: bool,
    /// Nothing new leaves: others have their turn.
    held_back: bool,
    /// Bytes of the READ response that the front WQE fails of.
    wrong_response: Option<u32>,
    /// `current` cannot be sent; it fails when it is at the front.
    fault: Option<Failure>,
    /// No packet points before this position.
    point_from: u64,
    ack_requests: AckRequests,
    /// WQEs are expected to be posted soon of which one is signaled.
    pub(super) more: bool,
    /// Where the READ requests and atomics end that are under way: at most `max_rd_atomic`.
    pieces: VecDeque<u64>,
    trains: Trains,
    /// Where those end that were ever sent: more than `pieces` only while some are being repeated.
    requests: VecDeque<RequestEnd>,
    gap: Option<Gap>,
    window: Window,
    tail_loss_probe: TailLossProbe,
    retries: Retries,
    /// ACK timeouts since there was progress.
    pub(super) consecutive_ack_timeouts: u32,
    /// Where progress last stopped long enough to cost a retry.
    stall: Option<Stall>,
    peer: Peer,
    /// What the peer expects, as its last answer says that lies outside of what was sent.
    peer_expects: Option<Psn>,
    /// The oldest position when an ACK timeout was last overslept.
    overslept_at: Option<u64>,
    pub(super) timers: TimerTable,
}

impl Requester {
    /// Takes memory for so many WQEs.
    pub(crate) fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        self.queue.try_reserve(most)
    }

    /// A new one with the memory of this one's queue.
    pub(crate) fn reset(mut self) -> Requester {
        self.queue.clear();
        Requester {
            queue: self.queue,
            ..Requester::default()
        }
    }

    /// Takes the attributes of RTS; the first PSN only before anything was sent.
    pub(crate) fn start(&mut self, sh: &Shared) {
        if self.max.pos == 0 {
            self.base = sh.attr.sq_psn;
        }
        self.retries = Retries::full(&sh.attr);
        self.window = Window::open(sh);
        self.pieces.reserve(usize::from(sh.attr.max_rd_atomic));
        self.requests.reserve(usize::from(sh.attr.max_rd_atomic));
        self.queue.for_each_from(0, |entry| {
            if !entry.started() {
                entry.packets = Entry::packets_of(entry.kind, entry.len, sh.mtu);
            }
        });
    }

    /// Another address, from which the peer has taken nothing yet.
    pub(super) fn address_changed(&mut self) {
        self.known_from = self.max.pos;
    }

    /// Another path.
    pub(super) fn reopen_window(&mut self, sh: &Shared) {
        self.window = Window::open(sh);
    }

    pub(crate) fn limit_head_of_line(&mut self, others_wait: bool) {
        self.window.limit_head_of_line(others_wait);
    }

    pub(crate) fn send_in_trains(&mut self, trains: bool) {
        self.trains.on = trains;
    }

    #[inline(always)]
    pub(crate) fn post(&mut self, wqe: SendWqe, sh: &Shared) {
        self.queue.push().set(wqe, sh.mtu);
    }

    /// No WQE is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.fault.is_none()
            && self.executed == 0
            && self.queue.front().is_none_or(|front| !front.started())
    }

    /// The attributes that say how often to retry have changed.
    pub(crate) fn refill_retries(&mut self, sh: &Shared) {
        self.retries = Retries::full(&sh.attr);
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.queue.len()
    }

    /// PSN of the first packet that was never sent.
    pub(crate) fn next_new_psn(&self) -> Psn {
        self.psn_of(self.max.pos)
    }

    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.nxt.bytes - self.una.bytes + (self.nxt.read - self.una.read)
    }

    #[inline]
    fn psn_of(&self, pos: u64) -> Psn {
        self.base.add(pos as u32)
    }

    /// The position that `psn` means, seen from `una`; `None` if it lies before the first packet.
    #[inline]
    fn pos_of(&self, psn: Psn) -> Option<u64> {
        let distance = psn.distance_from(self.psn_of(self.una.pos));
        self.una.pos.checked_add_signed(i64::from(distance))
    }

    pub(super) fn hold_back(&mut self, held: bool) {
        self.held_back = held;
        self.ack_requests.request_always(held);
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Packets that were acknowledged, since RESET.
    #[inline]
    pub(super) fn acknowledged(&self) -> u64 {
        self.una.pos
    }

    /// Some packet was sent and is not acknowledged, and is not about to be sent again.
    #[inline]
    fn awaits_answer(&self) -> bool {
        self.nxt.pos > self.una.pos
    }

    /// Moves `una` up to `limit` over SENDs and WRITEs, retiring those that end before it; stops at
    /// a READ or atomic, which only its own response ends. The caller has checked `limit <= max`.
    ///
    /// Returns whether it got to `limit`.
    fn acknowledge_before<H: Device>(
        &mut self,
        limit: u64,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> bool {
        let before = self.una;
        while self.una.pos < limit {
            let Some(front) = self.queue.front() else {
                break;
            };
            if front.kind != Kind::Acked {
                break;
            }
            let k = limit - front.start.pos;
            if k >= u64::from(front.packets) {
                self.retire(sh, device);
            } else {
                self.una = front.mark_at(k as u32, sh.mtu);
            }
        }
        if self.una.pos != before.pos {
            self.progress(before, now, sh);
        }
        self.una.pos >= limit
    }

    /// The front WQE is done: completes it and takes it off the queue.
    fn retire<H: Device>(&mut self, sh: &mut Shared, device: &mut H) {
        // Looked at where it is: to take it out would copy it.
        let Some(front) = self.queue.front() else {
            return;
        };
        self.una = front.end(sh.mtu);
        sh.counters.messages_sent += 1;
        sh.counters
            .requested
            .requested(&front.wqe.op, u64::from(front.len));
        if front.wqe.signaled {
            device.complete_send(front.completion(sh.attr.qpn, Status::Success, 0));
        }
        self.queue.pop_front();
        self.tail_loss_probe.retired();
        self.scatter = SgCursor::default();
        if self.current > 0 {
            self.current -= 1;
        } else {
            // It was to be sent again, and now need not be.
            self.nxt = self.una;
            self.gather = SgCursor::default();
            self.fault = None;
        }
        self.retire_local(sh, device);
    }

    /// A READ request or an atomic left, which ends at `end`.
    #[inline]
    fn note_request(&mut self, end: u64, sh: &Shared) {
        self.pieces.push_back(end);
        let most = usize::from(sh.attr.max_rd_atomic);
        self.trains.left(self.pieces.len(), most);
    }

    /// The peer got further than `before`: retry counters start afresh, and so does the ACK
    /// timeout.
    fn progress(&mut self, before: Mark, now: Time, sh: &Shared) {
        if self.nxt.pos < self.una.pos {
            self.nxt = self.una;
        }
        while self.pieces.front().is_some_and(|&end| end <= self.una.pos) {
            self.pieces.pop_front();
        }
        let most = usize::from(sh.attr.max_rd_atomic);
        self.trains.answered(self.pieces.len(), most);
        while self
            .requests
            .front()
            .is_some_and(|end| end.at <= self.una.pos)
        {
            self.requests.pop_front();
        }
        self.window
            .grow(self.una.bytes - before.bytes + (self.una.read - before.read));
        self.gap = None;
        let packets = self.una.pos - before.pos;
        self.probe_progress(packets, self.retries.used(&sh.attr), now);
        self.retries = Retries::full(&sh.attr);
        self.consecutive_ack_timeouts = 0;
        self.peer_answers();
        self.restart_timers(now, sh);
    }

    /// Moves `nxt` back to `pos`, which lies at or behind `una`.
    fn go_back(&mut self, pos: u64, mtu: u32) {
        if pos >= self.nxt.pos {
            return;
        }
        let index = self
            .queue
            .partition_point(|entry| entry.start.pos <= pos)
            .saturating_sub(1);
        let Some(entry) = self.queue.get(index) else {
            return;
        };
        self.nxt = entry.mark_at((pos - entry.start.pos) as u32, mtu);
        self.current = index;
        while self.pieces.back().is_some_and(|&end| end > pos) {
            self.pieces.pop_back();
        }
        self.trains.go_back();
        self.gather = SgCursor::default();
        self.fault = None;
        self.ack_requests.forget();
        self.tail_loss_probe.forget_sample();
    }

    /// `Err` when the WQE that cannot be sent is the oldest one.
    fn check_fault(&self) -> Result<(), Failure> {
        match self.fault {
            Some(failure) if self.current == 0 => Err(failure),
            _ => Ok(()),
        }
    }

    /// Completes the front WQE with an error.
    pub(crate) fn fail_front<H: Device>(&mut self, failure: Failure, sh: &Shared, device: &mut H) {
        if let Some(front) = self.queue.pop_front() {
            device.complete_send(front.completion(sh.attr.qpn, failure.status, failure.vendor_err));
        }
    }

    /// Completes all WQEs as flushed.
    pub(crate) fn flush<H: Device>(&mut self, sh: &Shared, device: &mut H) {
        while let Some(front) = self.queue.pop_front() {
            let flushed =
                front.completion(sh.attr.qpn, Status::WorkRequestFlushed, vendor_err::FLUSHED);
            device.complete_send(flushed);
        }
        // Positions stay, for `sq_psn`; nothing of them is in the queue any more.
        *self = Requester {
            base: self.base,
            una: self.max,
            nxt: self.max,
            max: self.max,
            window: self.window,
            known_from: self.known_from,
            ..Requester::default()
        };
    }
}
