//! Posting: a short message of a connection by memory leaves as it is posted.
//!
//! By the network stack a packet has company, or waits for it, and takes the way of the engine's rounds. A ring takes packets
//! one by one, so there is nothing to wait for: the transport builds the packet, if nothing of the queue pair waits before
//! it, and the ring has it. Other queue pairs that want to send have their turns as ever.

use std::collections::VecDeque;

use rnic_link::RoceLink;
use rnic_transport::{QueuePair, SendWqe, Time};

use super::drive::PUT_OFF;
use super::sink::PathSink;
use super::{AhTable, Engine, SrqTable, Timers, lend, settle};
use crate::memory::MemoryTable;
use crate::qp::{QpEntry, QpState};
use crate::report::lint;
use crate::sys::StreamClock;

/// A queue pair to which work requests are posted, and what they need to leave at once.
pub(crate) struct Posting<'a> {
    entry: &'a mut QpEntry,
    pub(crate) ahs: &'a mut AhTable,
    link: &'a mut RoceLink,
    memory: &'a MemoryTable,
    srqs: &'a SrqTable,
    ready: &'a mut VecDeque<u32>,
    timers: &'a mut Timers,
    clock: &'a mut StreamClock,
    staged: &'a mut usize,
    /// All that was posted has left.
    straight: bool,
    any: bool,
}

impl Engine {
    /// Work requests are about to be posted to a queue pair.
    #[inline]
    pub(crate) fn posting(&mut self, qpn: u32, state: QpState) -> Option<Posting<'_>> {
        let Engine {
            qps,
            ahs,
            link,
            memory,
            srqs,
            ready,
            timers,
            clock,
            staged,
            closed,
            ..
        } = self;
        let entry = qps.get_mut(qpn)?;
        let by_memory = || {
            let peer = entry.peer.filter(|_| state == QpState::Rts && !*closed);
            peer.is_some_and(|peer| link.is_by_memory(peer.path))
        };
        let straight = matches!(entry.transport, QueuePair::Rc(_)) && !lint::is_on() && by_memory();
        Some(Posting {
            entry,
            ahs,
            link,
            memory,
            srqs,
            ready,
            timers,
            clock,
            staged,
            straight,
            any: false,
        })
    }

    /// What waits for a turn, beside ACKs that may wait: a post that left by itself did not see to it.
    #[inline]
    pub(crate) fn has_turns_to_give(&self) -> bool {
        self.held != PUT_OFF && self.ready.len() != self.held
    }

    /// A message left outside a round.
    #[inline]
    pub(crate) fn sent_straight(&mut self) {
        self.pace.sent();
    }
}

impl Posting<'_> {
    /// Queues a work request that was checked, and lets it leave if it can.
    #[inline(always)]
    pub(crate) fn post(&mut self, signaled: bool, wqe: SendWqe) {
        self.entry.signals.posted(signaled);
        if !self.straight {
            self.entry.transport.post_send(wqe);
            return;
        }
        // What a running timer and a ring in use need to know of the time the last round knew.
        let now = match self.entry.transport.next_timeout() {
            Some(_) => self.clock.last_ns(),
            None => self.clock.now_ns(),
        };
        self.any = true;
        self.link.set_time(now);
        let mut sink = PathSink {
            link: self.link,
            ahs: self.ahs,
            path: self.entry.peer.map(|peer| peer.path),
            staged: self.staged,
            gate: None,
        };
        let (transport, mut host) = lend(self.entry, self.memory, self.srqs);
        if let QueuePair::Rc(rc) = transport {
            self.straight = rc.post_straight(Time(now), wqe, &mut host, &mut sink);
        }
    }

    /// All is posted. False: something of it is left to a round of the engine.
    #[inline]
    pub(crate) fn end(self) -> bool {
        if !self.any {
            return false;
        }
        if !self.straight {
            // It may have failed.
            settle(self.entry, self.ready, self.timers);
            return false;
        }
        self.timers.note(self.entry);
        let published = self.link.publish();
        if published {
            *self.staged = 0;
        }
        published
    }
}
