//! A peer whose process is stopped (SIGSTOP, a debugger's breakpoint), where the device can find
//! that out.
//!
//! A card goes on answering for a stopped program. A device inside the program is stopped with it,
//! and its silence is no sign that it is gone (IBTA vol. 1, 9.7.6.1.3 counts retries to find out
//! just that). So while the peer is stopped the ACK timeout costs no retry, and nothing is sent
//! again: what was sent waits at the peer. Once it goes on, everything is sent again, since some of
//! it may have found no room there; that costs no retry either. A debugger stops a process over and
//! over (strace does at each system call), so the retries that were used up before stay so: only
//! progress gives them back.

use super::Requester;
use crate::rc::timer::Timer;
use crate::rc::{Role, Shared};
use crate::time::ack_timeout_ns;
use crate::{Device, Time};

/// A device that comes to its timers so much later, ns, and by longer than the ACK timeout itself,
/// was stopped meanwhile.
const OVERSLEPT_NS: u64 = 100_000_000;

/// The device need not look more often than this whether the peer still is stopped, ns.
const LOOK_NS: u64 = 10_000_000;

/// What is known of the peer's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Peer {
    /// Nothing that would excuse its silence.
    #[default]
    Runs,
    /// It is stopped.
    Stopped,
    /// It was at the last ACK timeout, and is not any more; or whether it was is not known, since
    /// this side itself was.
    GoesOn,
}

impl Requester {
    /// The peer's process is stopped, or is not.
    pub(crate) fn peer_stopped(&mut self, stopped: bool) {
        self.peer = match (stopped, self.peer) {
            (true, _) => Peer::Stopped,
            (false, Peer::Runs) => Peer::Runs,
            (false, _) => Peer::GoesOn,
        };
    }

    /// The ACK timeout ended at `due`. If the device did not run for long after that, the peer may
    /// have been stopped with it (a group of processes, a debugger of both) and go on only now:
    /// once for each silence that counts for nothing.
    pub(crate) fn overslept(&mut self, now: Time, sh: &Shared) {
        let Some(due) = self.timers.deadline(Timer::AckTimeout) else {
            return;
        };
        let timeout_ns = ack_timeout_ns(sh.attr.timeout).unwrap_or(0);
        let late = now.0.saturating_sub(due.0) > timeout_ns.max(OVERSLEPT_NS);
        if late && self.peer == Peer::Runs && self.overslept_at != Some(self.una.pos) {
            self.overslept_at = Some(self.una.pos);
            self.peer = Peer::GoesOn;
        }
    }

    /// The silence is over.
    #[inline]
    pub(super) fn peer_answers(&mut self) {
        self.peer = Peer::Runs;
    }

    /// Over XRC, the shared receive queue that the oldest WQE names.
    pub(crate) fn awaited_srq(&self, sh: &Shared) -> Option<u32> {
        let front = self.queue.front()?;
        (sh.attr.role == Role::XrcInitiator).then_some(front.wqe.srqn)
    }

    pub(super) fn peer_is_stopped(&self) -> bool {
        self.peer == Peer::Stopped
    }

    /// The ACK timeout is over. True: it counts for nothing, as the peer is stopped, or was.
    pub(super) fn is_excused<H: Device>(
        &mut self,
        now: Time,
        sh: &mut Shared,
        device: &mut H,
    ) -> bool {
        match self.peer {
            Peer::Runs => false,
            Peer::Stopped => {
                let ago_ns = self.patience_ns(sh).unwrap_or(0);
                if let Some(evidence) = self.note_stopped(now, ago_ns, sh) {
                    device.evidence(&evidence);
                }
                let look_ns = ack_timeout_ns(sh.attr.timeout).unwrap_or(0).max(LOOK_NS);
                self.timers.set(Timer::AckTimeout, now.after(look_ns));
                true
            }
            Peer::GoesOn => {
                self.peer = Peer::Runs;
                sh.counters.timeouts += 1;
                self.gap = None;
                self.resend_from_oldest(sh);
                true
            }
        }
    }
}
