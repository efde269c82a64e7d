//! Asking early on a path that loses packets.
//!
//! When the last packet of a burst is lost, or a NAK, or the packet that a NAK asked for, nothing comes back, and the
//! ACK timeout (67 ms at the usual code 14) would be most of the time that a transfer takes. Once a path has been seen
//! to lose packets and to recover, the requester therefore repeats its oldest packet alone after a few round trips
//! without progress, then after twice as long, and so on up to the ACK timeout. A responder that has it already
//! acknowledges it again. A probe is no retry: `retry_cnt` and the ACK timeout know nothing of it, so that a peer that
//! is gone is found out when IBTA says, and on a path that loses nothing there never is one.

use super::Requester;
use crate::Time;
use crate::rc::Shared;
use crate::rc::timer::Timer;
use crate::time::ack_timeout_ns;

/// A peer that answers at all may be kept from it this long by its scheduler.
const SHORTEST_NS: u64 = 200_000;

/// PSNs that a READ request asks for when it is a probe.
pub(super) const PROBE_PSNS: u32 = 8;

/// Whether and when to probe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
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
}

impl Probe {
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
}

impl Requester {
    /// `una` moved; `after_loss`: only because packets were sent again.
    pub(super) fn probe_progress(&mut self, after_loss: bool, now: Time) {
        let probe = &mut self.probe;
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
        probe.wait_ns = probe.round_trip_ns.saturating_mul(4).max(SHORTEST_NS);
    }

    /// Starts the wait for a probe, unless it runs or the ACK timeout comes first anyway.
    #[inline]
    pub(super) fn arm_probe(&mut self, now: Time, sh: &Shared) {
        if !self.probe.lossy || self.timers.is_set(Timer::Probe) {
            return;
        }
        if ack_timeout_ns(sh.attr.timeout).is_some_and(|timeout| self.probe.wait_ns < timeout) {
            self.timers.set(Timer::Probe, now.after(self.probe.wait_ns));
        }
    }

    /// No progress for a while.
    pub(super) fn probe_now(&mut self, sh: &Shared) {
        if self.awaits_answer() {
            self.probe.wait_ns = self.probe.wait_ns.saturating_mul(2);
            self.probe.alone = true;
            self.go_back(self.una.pos, sh.mtu);
        }
    }
}
