//! Asking early on a path that loses packets.
//!
//! When the last packet of a burst is lost, or a NAK, or the packet that a NAK asked for, nothing comes back, and the
//! ACK timeout (67 ms at the usual code 14) would be most of the time that a transfer takes. Once a path has been seen
//! to lose packets and to recover, the requester therefore repeats its oldest packet alone after a few round trips
//! without progress, then after twice as long, and so on up to the ACK timeout. A responder that has it already
//! acknowledges it again. A probe is no retry: `retry_cnt` and the ACK timeout know nothing of it, so that a peer that
//! is gone is found out when IBTA says, and on a path that loses nothing there never is one.
//!
//! But for those whose last packet asked for no acknowledge, because another one that does was expected to follow
//! ([`super::asking`]), and did not.

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
    /// The packet that was sent last asks for no acknowledge, nor will one that belongs to its message.
    unasked: bool,
    /// Where the last one ended that does.
    asked: u64,
    /// The oldest packet is repeated alone: nothing else leaves before something comes back.
    pub(super) alone: bool,
    /// Time to the next probe, if that is not too short.
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

    /// Time to the next probe.
    fn wait(&self) -> u64 {
        self.wait_ns.max(SHORTEST_NS)
    }

    /// A packet leaves that ends before `end`, and asks for an answer.
    #[inline]
    pub(super) fn asked(&mut self, end: u64) {
        self.unasked = false;
        self.asked = end;
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
        probe.wait_ns = probe.round_trip_ns.saturating_mul(4);
    }

    /// Starts the wait for a probe, unless it runs or the ACK timeout comes first anyway.
    #[inline]
    pub(super) fn arm_probe(&mut self, now: Time, sh: &Shared) {
        let is_worth_it = self.probe.lossy || self.probe.unasked;
        if !is_worth_it || self.timers.is_set(Timer::Probe) {
            return;
        }
        let wait = self.probe.wait();
        // Without an ACK timeout nothing is repeated because it is lost.
        if ack_timeout_ns(sh.attr.timeout).map_or(self.probe.unasked, |timeout| wait < timeout) {
            self.timers.set(Timer::Probe, now.after(wait));
        }
    }

    /// The packet that leaves next need not ask for an acknowledge: if none follows that does, a probe will, ahead of the ACK
    /// timeout.
    #[inline]
    pub(super) fn may_ask_later(&self, sh: &Shared) -> bool {
        let most = 2 * self.probe.wait();
        !self.probe.lossy && ack_timeout_ns(sh.attr.timeout).is_none_or(|timeout| most < timeout)
    }

    /// Such a packet has left.
    #[inline]
    pub(super) fn ask_later(&mut self, now: Time) {
        self.probe.unasked = true;
        let wait = self.probe.wait();
        self.timers.set(Timer::Probe, now.after(wait));
    }

    /// No progress for a while.
    pub(super) fn probe_now(&mut self, sh: &Shared) {
        // As long as one that asked is under way, its answer is what everything waits for.
        let unasked = self.probe.unasked && self.una.pos >= self.probe.asked;
        if self.awaits_answer() && (self.probe.lossy || unasked) {
            self.probe.wait_ns = self.probe.wait().saturating_mul(2);
            self.probe.alone = true;
            self.go_back(self.una.pos, sh.mtu);
        }
    }
}
