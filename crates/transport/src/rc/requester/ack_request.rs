//! Which packets ask for an acknowledge (AckReq, IBTA vol. 1, 9.2.6), each of which costs both
//! sides a system call and a way through the network stack.
//!
//! The last one of a message does, for its completion; one within a long message, so that the
//! window opens in time. A message that is not signaled leaves it to one that follows: one that is
//! behind it in the send queue, or that the device expects
//! ([`AckRequest::Later`](crate::AckRequest)). An ACK answers for all before it (9.7.5.1.2).
//!
//! Nobody waits for such a message, but its place in the send queue does, and what has to be told
//! in order. So what leaves some milliseconds after the first that did not ask asks, whatever it
//! is; and if nothing leaves, the last packet is sent again and asks. It holds up nothing. A queue
//! pair whose ACK timeout is not much longer, or none, asks for all.

use super::{Entry, Kind, Requester};
use crate::rc::Shared;
use crate::rc::timer::Timer;
use crate::time::ack_timeout_ns;
use crate::{Device, Time};

/// Packets after which one asks, unless a quarter of the window makes one ask earlier.
const ACK_EVERY: u32 = 256;

/// How long a message may go without asking for an ACK, itself or by a later packet, ns.
const MAX_DEFERRAL_NS: u64 = 4_000_000;

/// A packet that asked counts as unanswered after the ACK timeout divided by this.
const UNANSWERED_DIVISOR: u64 = 4;

/// The ACK request policy: what has left since a packet asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckRequests {
    packets: u32,
    bytes: u64,
    /// Messages among it, none of which asks, the last of all included: since when,
    since: Time,
    /// and when the last one left.
    last: Time,
    whole: bool,
    /// Where the last packet ended that asked.
    asked: u64,
    /// Whatever leaves asks: the requester is held back, and nothing would follow.
    all: bool,
}

impl AckRequests {
    /// A packet of that many PSNs, which costs so much of the window, may leave without asking.
    #[inline]
    pub(super) fn may_grow(self, psns: u32, cost: u64, window: u64) -> bool {
        !self.all && self.packets + psns < ACK_EVERY && (self.bytes + cost) * 4 < window
    }

    /// Packets of one PSN that may leave so, one after the other.
    #[inline]
    pub(super) fn room(self, cost: u64, window: u64) -> u32 {
        if self.all {
            return 0;
        }
        let packets = ACK_EVERY.saturating_sub(self.packets + 1);
        let bytes = window.saturating_sub(self.bytes * 4 + 1) / (cost * 4).max(1);
        packets.min(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// It has left, and ends before `end`.
    #[inline]
    pub(super) fn note(&mut self, asked: bool, psns: u32, cost: u64, end: u64) {
        if asked {
            self.forget();
            self.asked = end;
        } else {
            self.packets += psns;
            self.bytes += cost;
        }
    }

    /// What was sent is sent again, and asks.
    pub(super) fn forget(&mut self) {
        (self.packets, self.bytes, self.whole) = (0, 0, false);
    }

    /// From now on all packets ask, or not.
    pub(super) fn request_always(&mut self, all: bool) {
        self.all = all;
    }

    /// Something left since a packet asked.
    #[inline]
    pub(super) fn is_owed(self) -> bool {
        self.packets > 0 || self.whole
    }
}

impl Requester {
    /// The current WQE need not ask on its own behalf: nobody waits for its completion, and another
    /// one that will ask is behind it, or expected.
    #[inline]
    pub(super) fn needs_no_ack_request<H: Device>(
        &self,
        now: Time,
        sh: &Shared,
        device: &H,
    ) -> bool {
        let leaves_out = |entry: &Entry| !entry.wqe.signaled && entry.kind == Kind::Acked;
        // One without packets would wait for its ACK instead.
        let asks = |entry: &Entry| entry.kind != Kind::Local && !device.may_execute();
        self.nxt.pos == self.max.pos
            && self.queue.get(self.current).is_some_and(leaves_out)
            && self.queue.get(self.current + 1).map_or(self.more, asks)
            && self.may_defer_ack_request(now, sh)
    }

    /// The packet that leaves next need not ask if one that does is expected: if none follows, the
    /// timer asks, well ahead of the ACK timeout.
    #[inline]
    pub(super) fn may_defer_ack_request(&self, now: Time, sh: &Shared) -> bool {
        let overdue =
            self.ack_requests.whole && now.0 >= self.ack_requests.since.0 + MAX_DEFERRAL_NS;
        let is_long = |timeout| UNANSWERED_DIVISOR * MAX_DEFERRAL_NS <= timeout;
        !overdue
            && !self.ack_requests.all
            && !self.tail_loss_probe.is_lossy()
            && ack_timeout_ns(sh.attr.timeout).is_some_and(is_long)
    }

    /// The last packet of a message has left without asking.
    #[inline]
    pub(super) fn defer_ack_request(&mut self, now: Time) {
        if !self.ack_requests.whole {
            (self.ack_requests.whole, self.ack_requests.since) = (true, now);
        }
        self.ack_requests.last = now;
        if !self.timers.is_set(Timer::AckRequest) {
            self.timers
                .set(Timer::AckRequest, now.after(MAX_DEFERRAL_NS));
        }
    }

    /// A whole message leaves for the first time, in one packet.
    #[inline]
    pub(super) fn note_ack_request(&mut self, asked: bool, cost: u64, now: Time) {
        self.ack_requests.note(asked, 1, cost, self.nxt.pos + 1);
        if asked {
            self.tail_loss_probe.sample(self.nxt.pos, now);
        } else {
            self.defer_ack_request(now);
        }
    }

    /// [`Timer::AckRequest`]: nothing that asks has left for long, perhaps.
    pub(super) fn on_ack_request_timer(&mut self, now: Time, sh: &Shared) {
        if !self.ack_requests.whole || self.nxt.pos < self.max.pos || !self.awaits_answer() {
            return;
        }
        let quiet = now.0.saturating_sub(self.ack_requests.last.0);
        // As long as one that asked is under way, its answer is what everything waits for. It may
        // be lost.
        let asked = self.una.pos < self.ack_requests.asked;
        let timeout = ack_timeout_ns(sh.attr.timeout).unwrap_or(u64::MAX);
        let wait = if asked {
            timeout / UNANSWERED_DIVISOR
        } else {
            MAX_DEFERRAL_NS
        };
        if quiet < wait {
            let next = (wait - quiet).min(MAX_DEFERRAL_NS);
            self.timers.set(Timer::AckRequest, now.after(next));
        } else {
            self.go_back(self.last_whole(), sh.mtu);
        }
    }

    /// Where the last packet is of the last message that left as a whole.
    fn last_whole(&self) -> u64 {
        let end = match self.queue.get(self.current) {
            Some(entry) if entry.started() && entry.start.pos < self.nxt.pos => entry.start.pos,
            _ => self.max.pos,
        };
        (end - 1).max(self.una.pos)
    }

    /// The ACK timeout of packets none of which asks is over: the device did not come to run when
    /// it was to ask ([`MAX_DEFERRAL_NS`]), and nobody owes an answer. Asks now.
    pub(super) fn request_overdue_ack(&mut self, sh: &Shared) -> bool {
        let late = self.ack_requests.whole
            && self.nxt.pos == self.max.pos
            && self.una.pos >= self.ack_requests.asked;
        if late {
            self.go_back(self.last_whole(), sh.mtu);
        }
        late
    }
}

#[cfg(test)]
mod tests;
