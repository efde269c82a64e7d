//! Tail loss probes (the idea of RFC 8985, 7): asking early on a path that loses packets.
//!
//! When the last packet of a burst is lost, or a NAK, or the packet that a NAK asked for, nothing
//! comes back, and the ACK timeout (67 ms at the usual code 14) would be most of the time that a
//! transfer takes. Once a path has been seen to lose packets and to recover, the requester
//! therefore repeats its oldest packet alone after a few round trips without progress, then after
//! twice as long, and so on up to the ACK timeout. (RFC 8985 repeats the newest packet. RC takes
//! packets in order alone, so only the oldest helps.) A responder that has it already acknowledges
//! it again. A probe is no retry: `retry_cnt` and the ACK timeout know nothing of it, so that a
//! peer that is gone is found out when IBTA says, and on a path that loses nothing there never is
//! one.
//!
//! Nothing may have been lost, though: what is under way may lie in a receive buffer behind the
//! packets of a hundred others. If the answer is about more than the probe, packets behind it have
//! arrived, and sending goes on where it was; to send them all again would fill that buffer further
//! (the idea of RFC 5682). If the peer took the probe itself and nothing else, it goes on behind
//! it. After the former the time to the next probe stays as long as it has become, within limits,
//! until a packet that was sent once has been answered (RFC 6298, 5.5 and 3): the way may take
//! longer than it did. But the answer may have been what was lost, so the limits are narrow.

use super::{Mark, Requester};
use crate::Time;
use crate::rc::Shared;
use crate::rc::timer::Timer;
use crate::scatter::SgCursor;
use crate::time::ack_timeout_ns;

/// A peer that answers at all may be kept from it this long by its scheduler.
const SHORTEST_NS: u64 = 200_000;

/// By how much the wait for a probe may have grown that was needless.
const MOST_GROWN: u64 = 16;

/// PSNs that a READ request asks for when it is a probe.
pub(super) const PROBE_PSNS: u32 = 8;

/// Whether and when to probe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TailLossProbe {
    /// The path loses packets: probing is worth it.
    lossy: bool,
    /// The oldest packet is repeated alone: nothing else leaves before something comes back.
    pub(super) alone: bool,
    /// Time to the next probe.
    wait_ns: u64,
    /// Smoothed time from a packet to its answer; 0: none seen yet.
    round_trip_ns: u64,
    /// A packet that was sent once, and when.
    sample: Option<(u64, Time)>,
    /// What was under way when the oldest was repeated.
    sent: Option<Sent>,
}

/// Where sending goes on if nothing was lost.
#[derive(Clone, Copy, Debug)]
struct Sent {
    nxt: Mark,
    current: usize,
}

impl TailLossProbe {
    /// The packet at `pos` leaves for the first time and asks for an answer.
    #[inline]
    pub(super) fn sample(&mut self, pos: u64, now: Time) {
        if self.sample.is_none() {
            self.sample = Some((pos, now));
        }
    }

    /// The path loses packets, as far as is known.
    #[inline]
    pub(super) fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Packets are sent again: what is answered from now on may be either copy (Karn's rule).
    pub(super) fn forget_sample(&mut self) {
        self.sample = None;
    }

    /// All that is under way is sent again.
    pub(super) fn end(&mut self) {
        self.alone = false;
        self.sent = None;
    }

    /// The front WQE is taken off the send queue.
    #[inline]
    pub(super) fn retired(&mut self) {
        if let Some(sent) = &mut self.sent {
            sent.current = sent.current.saturating_sub(1);
        }
    }
}

impl Requester {
    /// `una` moved by so many packets; `after_loss`: only because packets were sent again.
    pub(super) fn probe_progress(&mut self, packets: u64, after_loss: bool, now: Time) {
        let needless = self
            .tail_loss_probe
            .sent
            .take()
            .filter(|sent| packets > 1 && sent.nxt.pos > self.nxt.pos);
        if let Some(sent) = needless {
            (self.nxt, self.current) = (sent.nxt, sent.current);
            self.gather = SgCursor::default();
        }
        let probe = &mut self.tail_loss_probe;
        probe.lossy |= after_loss;
        probe.alone = false;
        if let Some((pos, sent)) = probe.sample
            && self.una.pos > pos
        {
            let sample = now.0.saturating_sub(sent.0);
            probe.round_trip_ns = match probe.round_trip_ns {
                0 => sample,
                smoothed => smoothed - smoothed / 8 + sample / 8,
            };
            probe.sample = None;
        }
        let least = probe.round_trip_ns.saturating_mul(4).max(SHORTEST_NS);
        let most = match needless {
            Some(_) => least.saturating_mul(MOST_GROWN),
            None => least,
        };
        probe.wait_ns = probe.wait_ns.clamp(least, most);
    }

    /// Starts the wait for a probe, unless it runs or the ACK timeout comes first anyway.
    #[inline]
    pub(super) fn arm_tail_loss_probe(&mut self, now: Time, sh: &Shared) {
        if !self.tail_loss_probe.lossy || self.timers.is_set(Timer::TailLossProbe) {
            return;
        }
        if ack_timeout_ns(sh.attr.timeout)
            .is_some_and(|timeout| self.tail_loss_probe.wait_ns < timeout)
        {
            self.timers.set(
                Timer::TailLossProbe,
                now.after(self.tail_loss_probe.wait_ns),
            );
        }
    }

    /// No progress for a while.
    pub(super) fn send_tail_loss_probe(&mut self, sh: &Shared) {
        if self.awaits_answer() && !self.peer_is_stopped() {
            self.tail_loss_probe.wait_ns = self.tail_loss_probe.wait_ns.saturating_mul(2);
            self.tail_loss_probe.alone = true;
            // Responses to READs that are under way would have to be told from those to the probe.
            if self.tail_loss_probe.sent.is_none() && self.pieces.is_empty() {
                self.tail_loss_probe.sent = Some(Sent {
                    nxt: self.nxt,
                    current: self.current,
                });
            }
            self.go_back(self.una.pos, sh.mtu);
        }
    }
}
