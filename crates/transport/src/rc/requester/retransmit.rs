//! Sending again: ACK timeout, go-back-N, RNR wait, and how often.
//!
//! The first silence lasts as long as the ACK timeout says, those that follow it without any
//! progress twice and four times as long, which is the most that is allowed (IBTA vol. 1,
//! 9.7.6.1.3: T to 4 T). What is lost for want of room at a peer whom thousands of queue pairs
//! write to would be lost in the same crowd again, and so would what they all send again at one
//! time; so they do not.

use super::Requester;
use crate::completion::vendor_err;
use crate::rc::timer::Timer;
use crate::rc::{Failure, RcAttr, Shared};
use crate::time::ack_timeout_ns;
use crate::{Device, Status, Time};
use rnic_wire::rnr_timer_ns;

/// The RNR retry count that means for ever.
const RNR_FOREVER: u8 = 7;

/// Powers of two by which the ACK timeout grows.
const MOST_DOUBLINGS: u32 = 2;

/// Parts of an ACK timeout by which queue pairs differ.
const PARTS: u64 = 64;

/// Retries left before the oldest WQE fails. Any progress fills them up again (IBTA 9.9.2.1.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries {
    transport: u8,
    rnr: u8,
}

impl Retries {
    pub(super) fn full(attr: &RcAttr) -> Retries {
        Retries {
            transport: attr.retry_cnt,
            rnr: attr.rnr_retry,
        }
    }

    /// Uses up one transport retry; `vendor_err` says what for.
    pub(super) fn take(&mut self, vendor_err: u32) -> Result<(), Failure> {
        let left = self.transport.checked_sub(1);
        self.transport = left.ok_or(Failure {
            status: Status::RetryExceeded,
            vendor_err,
        })?;
        Ok(())
    }

    /// Some transport retry was used up.
    pub(super) fn used(&self, attr: &RcAttr) -> bool {
        self.transport < attr.retry_cnt
    }

    fn take_rnr(&mut self) -> Result<(), Failure> {
        if self.rnr < RNR_FOREVER {
            let left = self.rnr.checked_sub(1);
            let failure = Failure {
                status: Status::RnrRetryExceeded,
                vendor_err: vendor_err::RNR,
            };
            self.rnr = left.ok_or(failure)?;
        }
        Ok(())
    }
}

impl Requester {
    /// Restarts the ACK timeout after progress, or stops it when no answer is awaited. Progress
    /// also ends an RNR wait: the packet it was about has been taken.
    pub(super) fn restart_timers(&mut self, now: Time, sh: &Shared) {
        self.timers.clear(Timer::RnrWait);
        self.timers.clear(Timer::AckTimeout);
        self.timers.clear(Timer::TailLossProbe);
        if self.awaits_answer() {
            self.arm_timers(now, sh);
        } else {
            self.timers.clear(Timer::AckRequest);
        }
    }

    /// An answer is awaited: starts the ACK timeout and the wait for a tail loss probe, unless they
    /// run.
    #[inline]
    pub(super) fn arm_timers(&mut self, now: Time, sh: &Shared) {
        self.arm_tail_loss_probe(now, sh);
        if self.timers.is_set(Timer::AckTimeout) {
            return;
        }
        if let Some(ns) = self.patience_ns(sh) {
            self.timers.set(Timer::AckTimeout, now.after(ns));
        }
    }

    /// How long to wait for an answer now.
    pub(super) fn patience_ns(&self, sh: &Shared) -> Option<u64> {
        let once = ack_timeout_ns(sh.attr.timeout)?;
        if self.consecutive_ack_timeouts == 0 {
            return Some(once);
        }
        // QPNs are dense: their lowest bits differ most.
        let part = u64::from(sh.attr.qpn.reverse_bits() >> (u32::BITS - PARTS.ilog2()));
        Some((once << self.consecutive_ack_timeouts.min(MOST_DOUBLINGS)) - once / PARTS * part)
    }

    /// The peer stays silent: everything from the oldest unacknowledged packet is sent again.
    fn ack_timeout<H: Device>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Failure> {
        // Also if a packet is about to ask, and did not leave yet: the device had no room for it
        // for all that time.
        if self.max.pos == self.una.pos {
            return Ok(());
        }
        if self.request_overdue_ack(sh) {
            self.arm_timers(now, sh);
            return Ok(());
        }
        if self.is_excused(now, sh, device) {
            return Ok(());
        }
        sh.counters.timeouts += 1;
        self.note_retry(Some(now), self.patience_ns(sh).unwrap_or(0), sh);
        self.retries.take(vendor_err::TIMEOUT)?;
        self.window.collapse(self.consecutive_ack_timeouts);
        self.consecutive_ack_timeouts += 1;
        self.gap = None;
        self.resend_from_oldest(sh);
        Ok(())
    }

    /// The peer has no receive for the packet at `una`: waits as long as it asks, then sends from
    /// there.
    pub(super) fn rnr_wait(&mut self, code: u8, now: Time, sh: &Shared) -> Result<(), Failure> {
        self.retries.take_rnr()?;
        self.resend_from_oldest(sh);
        self.timers
            .set(Timer::RnrWait, now.after(rnr_timer_ns(code)));
        Ok(())
    }

    pub(super) fn waits_for_receiver(&self) -> bool {
        self.timers.is_set(Timer::RnrWait)
    }

    /// Go-back-N. The ACK timeout starts again with the first packet that leaves.
    pub(super) fn resend_from_oldest(&mut self, sh: &Shared) {
        self.go_back(self.una.pos, sh.mtu);
        self.tail_loss_probe.end();
        self.timers.clear(Timer::AckTimeout);
        self.timers.clear(Timer::TailLossProbe);
    }

    /// Fires the timers that are due.
    pub(crate) fn handle_timeout<H: Device>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Failure> {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::AckTimeout => self.ack_timeout(now, sh, device)?,
                // What was held back may leave now: `waits_for_receiver` has become false.
                Timer::RnrWait => {}
                Timer::TailLossProbe => self.send_tail_loss_probe(sh),
                Timer::AckRequest => self.on_ack_request_timer(now, sh),
            }
        }
        Ok(())
    }
}
