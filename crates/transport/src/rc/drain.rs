//! SQD: the send queue comes to rest, attributes change, and it goes on (IBTA vol. 1, 10.3.1 "Send
//! Queue Drain").

use super::{Rc, RcAttr, State};
use crate::{Device, QpEvent};

/// How far the send queue is on its way to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drain {
    /// It works.
    #[default]
    No,
    /// What was begun ends; nothing new begins.
    Draining {
        /// Its end is an event.
        notify: bool,
    },
    /// It rests.
    Drained,
}

impl Rc {
    /// Enters SQD: WQEs whose first packet left are finished, no other starts. `notify`: the end of
    /// that is [`QpEvent::SendQueueDrained`], at once if nothing is under way.
    pub fn drain<H: Device>(&mut self, notify: bool, device: &mut H) {
        if self.state == State::Rts {
            self.requester.halted = true;
            self.drain = Drain::Draining { notify };
            self.note_drained(device);
        }
    }

    /// In SQD, and WQEs are still under way (`sq_draining` of `ibv_query_qp(3)`).
    pub fn is_draining(&self) -> bool {
        matches!(self.drain, Drain::Draining { .. })
    }

    /// Leaves SQD for RTS.
    pub fn resume(&mut self) {
        self.requester.halted = false;
        self.drain = Drain::No;
    }

    /// Changes what may change once the send queue is drained: P_Key, timeout, retries, rights, READs and
    /// atomics in both directions, and how much may be under way on the new path.
    pub fn retune(&mut self, attr: RcAttr) {
        self.update(attr);
        let own = &mut self.shared.attr;
        own.pkey = attr.pkey;
        own.timeout = attr.timeout;
        own.retry_cnt = attr.retry_cnt;
        own.rnr_retry = attr.rnr_retry;
        own.max_rd_atomic = attr.max_rd_atomic;
        if own.max_dest_rd_atomic != attr.max_dest_rd_atomic {
            own.max_dest_rd_atomic = attr.max_dest_rd_atomic;
            self.responder.resize_resources(attr.max_dest_rd_atomic);
        }
        if own.window_bytes != attr.window_bytes {
            own.window_bytes = attr.window_bytes;
            self.requester.reopen_window(&self.shared);
        }
        self.requester.refill_retries(&self.shared);
    }

    /// It is in SQD, and its packets go another way, or come from another address, from now on.
    pub fn readdress(&mut self) {
        self.requester.address_changed();
    }

    #[inline]
    pub(super) fn note_drained<H: Device>(&mut self, device: &mut H) {
        if let Drain::Draining { notify } = self.drain
            && self.requester.is_at_rest()
        {
            self.drain = Drain::Drained;
            if notify {
                device.event(QpEvent::SendQueueDrained);
            }
        }
    }
}
