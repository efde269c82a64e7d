//! Requests that wait for others to be answered: to connect, and to disconnect.
//!
//! Nothing but the receive buffer of the peer's port paces datagrams, and a REQ or DREQ that is
//! lost there comes again only after 6 s. So of those that a process sends at once only so many may
//! be without an answer; each answer lets the next one go, and without answers they leave one by
//! one. Linux sends what it is given.

use super::Endpoint;
use crate::Time;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use rnic_wire::cm::{Mad, Message};

/// Between held requests that leave although nothing was answered.
pub(super) const STEP_NS: u64 = 1_000_000;

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

    /// Says it until it is answered: now, or when its turn comes.
    pub(super) fn ask(&mut self, now: Time, id: u32, tid: u64, message: Message, hold: bool) {
        if !hold {
            return self.say_until_answered(now, id, tid, message);
        }
        if let Some(connection) = self.connections.get_mut(id) {
            let mad = Mad {
                tid,
                attr_modifier: 0,
                message,
            };
            connection.mad = Some(Box::new(mad.emit()));
            connection.retries_left = connection.max_retries;
            connection.deadline = None;
            connection.patience_ns = None;
            self.connections.set_held(id);
            self.hold(now, id);
        }
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
    pub(super) fn release(&mut self, now: Time, id: u32) -> bool {
        let released = self.connections.release(id);
        if let Some(connection) = self.connections.get(id).filter(|_| released) {
            let (address, at) = (connection.address, now.after(connection.interval_ns));
            // Whatever else waits to leave: it was never sent, and its repetition is seconds away.
            if let Some(mad) = connection.mad.as_deref().copied() {
                self.send(address, mad);
            }
            self.arm(id, at);
            self.make_room();
        }
        released
    }
}
