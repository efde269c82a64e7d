//! Requests that wait for others to be answered.
//!
//! Nothing but the receive buffer of the peer's port paces datagrams, and a REQ that is lost there comes again only after
//! 6 s. So of the REQs that a process sends at once only so many may be without an answer; each answer lets the next one
//! go, and without answers they leave one by one. Linux sends what it is given.

use super::Endpoint;
use crate::Time;
use alloc::collections::VecDeque;

/// Between held requests that leave although nothing was answered.
const STEP_NS: u64 = 1_000_000;

/// The held ones, and others that were held.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    held: VecDeque<u32>,
    /// When the last of them leaves at the latest.
    last: u64,
}

impl Endpoint {
    /// No more requests may be sent now.
    pub(super) fn must_hold(&self) -> bool {
        self.connections.asking() >= self.config.request_window
    }

    /// Keeps the request of a connection, which was not sent yet.
    pub(super) fn hold(&mut self, now: Time, id: u32) {
        self.pacing.last = self.pacing.last.max(now.0).saturating_add(STEP_NS);
        self.pacing.held.push_back(id);
        let at = Time(self.pacing.last);
        self.arm(id, at);
    }

    /// Sends what may be sent by now.
    pub(super) fn release_requests(&mut self, now: Time) {
        while !self.must_hold()
            && let Some(id) = self.pacing.held.pop_front()
        {
            self.release(now, id);
        }
        if self.pacing.held.is_empty() {
            self.pacing.last = 0;
        }
    }

    /// Sends the request of a connection if it is held.
    pub(super) fn release(&mut self, now: Time, id: u32) -> bool {
        let released = self.connections.release(id);
        if released {
            self.repeat_now(now, id);
        }
        released
    }
}
