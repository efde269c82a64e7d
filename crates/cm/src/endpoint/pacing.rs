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

/// The held ones, and others that were held: the first one is held, and the only one with a timer.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    held: VecDeque<u32>,
    /// When the last of them left, or should have.
    last: Time,
}

impl Endpoint {
    /// No more requests may be sent now.
    pub(super) fn must_hold(&self) -> bool {
        self.connections.asking() >= self.config.request_window
    }

    /// Keeps the request of a connection, which was not sent yet.
    pub(super) fn hold(&mut self, now: Time, id: u32) {
        self.wake_for_held();
        if self.pacing.held.is_empty() {
            self.pacing.last = now;
        }
        self.pacing.held.push_back(id);
        self.wake_for_held();
    }

    /// Sends what may be sent by now.
    pub(super) fn release_requests(&mut self, now: Time) {
        while !self.must_hold()
            && let Some(id) = self.pacing.held.pop_front()
        {
            if self.release(now, id) {
                self.pacing.last = now;
            }
        }
        self.wake_for_held();
    }

    /// The time of a held request has come.
    pub(super) fn release_in_time(&mut self, now: Time, id: u32) {
        self.release(now, id);
        // Not `now`, which may be late: how many leave does not depend on how often somebody looks.
        self.pacing.last = self.pacing.last.after(STEP_NS);
        self.wake_for_held();
    }

    /// The first that is still held waits for its turn; those behind it for theirs to be the first.
    fn wake_for_held(&mut self) {
        while let Some(id) = self.pacing.held.front().copied() {
            match self.connections.get(id).filter(|c| c.held) {
                Some(first) if first.deadline.is_some() => return,
                Some(_) => return self.arm(id, self.pacing.last.after(STEP_NS)),
                None => self.pacing.held.pop_front(),
            };
        }
    }

    /// Sends the request of a connection if it is held.
    fn release(&mut self, now: Time, id: u32) -> bool {
        let released = self.connections.release(id);
        if let Some(connection) = self.connections.get(id).filter(|_| released) {
            let (address, at) = (connection.address, now.after(connection.interval_ns));
            // Whatever else waits to leave: it was never sent, and its repetition is seconds away.
            if let Some(mad) = connection.mad.as_deref().copied() {
                self.send(address, mad);
            }
            self.arm(id, at);
        }
        released
    }
}
