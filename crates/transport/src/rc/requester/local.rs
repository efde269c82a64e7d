//! WQEs that the device does by itself: binds and invalidates of memory windows (IBTA 10.6.7.2).
//!
//! They take no PSN. One is done when its turn to be sent comes: after the packets of all WQEs
//! before it have left, before any packet of one behind it (IBTA 10.8.3.3). So a peer that hears of
//! a window in a later SEND finds it bound. It is done once, however often the packets around it
//! are sent again, and completes in its place in the queue.

use super::{Entry, Kind, Requester};
use crate::rc::{Failure, Shared};
use crate::{Device, SendOp, Status};

impl Requester {
    /// May `entry`, the current one, be done now? A fenced bind waits as others do, for READs and
    /// atomics; a fenced invalidate for all WQEs before it.
    pub(super) fn local_may_start(&self, entry: &Entry) -> bool {
        match entry.wqe.op {
            _ if entry.started() || !entry.wqe.fence => true,
            SendOp::LocalInvalidate(_) => self.current == 0,
            _ => self.pieces.is_empty(),
        }
    }

    /// Does the current WQE, if it was not done before, and goes on behind it.
    #[cold]
    pub(super) fn do_local<H: Device>(
        &mut self,
        sh: &mut Shared,
        device: &mut H,
    ) -> Result<(), Failure> {
        let Some(entry) = self.queue.get_mut(self.current) else {
            return Ok(());
        };
        if !entry.started() {
            let (pd, qpn) = (sh.attr.pd, sh.attr.qpn);
            match entry.wqe.op {
                SendOp::BindWindow(bind) => device.bind_window(pd, qpn, &bind),
                SendOp::LocalInvalidate(rkey) => device.local_invalidate(pd, qpn, rkey),
                _ => Ok(()),
            }
            .map_err(Failure::bind)?;
            entry.start = self.nxt;
        }
        self.current += 1;
        self.retire_local(sh, device);
        Ok(())
    }

    /// Completes those at the front that are done.
    #[inline]
    pub(super) fn retire_local<H: Device>(&mut self, sh: &Shared, device: &mut H) {
        while let Some(front) = self.queue.front()
            && front.kind == Kind::Local
            && front.started()
        {
            if front.wqe.signaled {
                device.complete_send(front.completion(sh.attr.qpn, Status::Success, 0));
            }
            self.queue.pop_front();
            self.current = self.current.saturating_sub(1);
            self.tail_loss_probe.retired();
        }
    }
}
