//! Sending again: ACK timeout, go-back-N, RNR wait, and how often.

use super::Requester;
use crate::completion::vendor_err;
use crate::rc::timer::Timer;
use crate::rc::{Failure, RcAttr, Shared};
use crate::time::ack_timeout_ns;
use crate::{Status, Time};
use rnic_wire::rnr_timer_ns;

/// The RNR retry count that means for ever.
const RNR_FOREVER: u8 = 7;

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
    /// Restarts the ACK timeout after progress, or stops it when no answer is awaited. Progress also ends an RNR wait:
    /// the packet it was about has been taken.
    pub(super) fn restart_timers(&mut self, now: Time, sh: &Shared) {
        self.timers.clear(Timer::RnrWait);
        self.timers.clear(Timer::AckTimeout);
        self.timers.clear(Timer::Probe);
        if self.awaits_answer() {
            self.arm_timers(now, sh);
        } else {
            self.timers.clear(Timer::Ask);
        }
    }

    /// An answer is awaited: starts the ACK timeout and the wait for a probe, unless they run.
    #[inline]
    pub(super) fn arm_timers(&mut self, now: Time, sh: &Shared) {
        self.arm_probe(now, sh);
        if self.timers.is_set(Timer::AckTimeout) {
            return;
        }
        if let Some(ns) = ack_timeout_ns(sh.attr.timeout) {
            self.timers.set(Timer::AckTimeout, now.after(ns));
        }
    }

    /// The peer stays silent: everything from the oldest unacknowledged packet is sent again.
    fn ack_timeout(&mut self, now: Time, sh: &mut Shared) -> Result<(), Failure> {
        if !self.awaits_answer() {
            return Ok(());
        }
        sh.counters.timeouts += 1;
        self.note_retry(Some(now), ack_timeout_ns(sh.attr.timeout).unwrap_or(0), sh);
        self.retries.take(vendor_err::TIMEOUT)?;
        self.window.collapse();
        self.gap = None;
        self.resend_from_oldest(sh);
        Ok(())
    }

    /// The peer has no receive for the packet at `una`: waits as long as it asks, then sends from there.
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
        self.probe.end();
        self.timers.clear(Timer::AckTimeout);
        self.timers.clear(Timer::Probe);
    }

    /// Fires the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time, sh: &mut Shared) -> Result<(), Failure> {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::AckTimeout => self.ack_timeout(now, sh)?,
                // What was held back may leave now: `waits_for_receiver` has become false.
                Timer::RnrWait => {}
                Timer::Probe => self.probe_now(sh),
                Timer::Ask => self.ask_now(now, sh),
            }
        }
        Ok(())
    }
}
