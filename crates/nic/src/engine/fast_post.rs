//! Posting: a short message of a connection becomes a packet as it is posted.
//!
//! An RDMA WRITE or READ that needs no packets is done as it is posted, if its program waits for it
//! before it posts the next.
//!
//! A ring takes packets one by one, so there is nothing to wait for: the transport builds the
//! packet, if nothing of the queue pair waits before it, and the ring has it. Other queue pairs
//! that want to send have their turns as ever. Over UDP a packet is one of a batch, or waits
//! for one ([`super::doorbell`]), and takes the way of the engine's rounds; but one of few bytes is
//! built at once, and so is any signaled request of one packet that is posted while nothing is
//! under way: it is dealt with once in place of twice.

use std::collections::VecDeque;

use rnic_link::Port;
use rnic_transport::{AckRequest, QueuePair, SendWqe, ShortSend, Time};

use super::packet_sink::PathSink;
use super::round::PUT_OFF;
use super::{AhTable, Engine, Posted, SrqTable, Timers, fast_reply, incast_group, lend, settle};
use super::{doorbell, fairness};
use crate::engine::QpEntry;
use crate::host::Clock;
use crate::memory::MemoryTable;
use crate::queues::QpState;

/// A queue pair to which work requests are posted, and what they need to leave at once.
pub(crate) struct Posting<'a> {
    entry: &'a mut QpEntry,
    pub(crate) ahs: &'a mut AhTable,
    link: &'a mut Port,
    memory: &'a MemoryTable,
    srqs: &'a SrqTable,
    ready: &'a mut VecDeque<u32>,
    timers: &'a mut Timers,
    clock: &'a mut Clock,
    staged: &'a mut usize,
    /// All that was posted has left, or is built.
    fast: bool,
    /// They go by a socket, and nothing of the queue pair is under way for which the first could
    /// wait.
    alone: bool,
    /// So it was built, the first of it at least.
    built: bool,
    any: bool,
    takes_acks: bool,
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
            answer_takes_acks,
            ..
        } = self;
        let entry = qps.get_mut(qpn)?;
        let peer = entry.peer.filter(|_| state == QpState::Rts && !*closed);
        let way = peer.map(|peer| link.is_by_memory(peer.path));
        let may_leave = entry.may_post_fast();
        let alone = may_leave
            && way == Some(false)
            && entry.shared.slots.send.used() == 0
            && !timers.incast.is_active();
        let fast = alone || may_leave && way == Some(true);
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
            fast,
            alone,
            built: false,
            any: false,
            takes_acks: *answer_takes_acks && way == Some(true),
        })
    }

    /// Posts a short message to a queue pair in RTS.
    #[inline(always)]
    pub(crate) fn post_short(&mut self, qpn: u32, short: &ShortSend<'_>) -> ShortPost {
        if self.closed {
            return ShortPost::NotThisWay;
        }
        let Some(entry) = self.qps.get_mut(qpn) else {
            return ShortPost::NotThisWay;
        };
        let Some(peer) = entry.peer.filter(|_| entry.may_post_fast()) else {
            return ShortPost::NotThisWay;
        };
        let by_memory = self.link.is_by_memory(peer.path);
        let joins = !by_memory && !self.strict && may_join(entry);
        // One behind this one does, perhaps.
        let ack_request = if joins && entry.signals.left(1) > 1 {
            AckRequest::Later
        } else {
            AckRequest::Now
        };
        if self.timers.incast.is_active() && !by_memory {
            incast_group::join(entry, &self.link, &mut self.timers.incast);
            if !self.timers.incast.is_free(entry.incast_member) {
                return ShortPost::NotThisWay;
            }
        }
        let posted = entry.latencies.time_of_post(|| self.clock.exact_ns());
        let now = time_of_post(entry, &mut self.clock);
        self.link.set_time(now);
        let with_ack = self.answer_takes_acks && by_memory && entry.held_ack.is_held();
        if with_ack {
            let (link, memory, srqs) = (&mut self.link, &self.memory, &self.srqs);
            fast_reply::acknowledge_first(
                entry,
                link,
                memory,
                srqs,
                &mut self.ahs,
                &mut self.staged,
            );
        }
        let mut sink = PathSink {
            qpn,
            link: &mut self.link,
            memory: &self.memory,
            ahs: &mut self.ahs,
            path: Some(peer.path),
            staged: &mut self.staged,
            local_pause: None,
        };
        let (transport, device) = lend(entry, &self.memory, &self.srqs);
        let QueuePair::Rc(rc) = transport else {
            return ShortPost::NotThisWay;
        };
        let left = rc.post_short(Time(now), short, ack_request, &device, &mut sink);
        if with_ack {
            self.link.wake_unwoken();
        }
        if !left {
            return ShortPost::NotThisWay;
        }
        entry.signals.posted(short.signaled);
        if let Some(at) = posted {
            entry.latencies.posted(at);
        }
        self.timers.note(entry);
        self.flow.fairness.short(qpn, now);
        if by_memory {
            entry.held_ack.requested();
            return ShortPost::Left;
        }
        stage(entry, &mut self.ready);
        let posted = Posted {
            count: 1,
            bytes: short.len() as u64,
        };
        let left = entry.signals.left(doorbell::POSTS);
        if joins
            && self
                .batching
                .doorbell
                .may_wait(posted, left, || self.clock.exact_ns())
        {
            ShortPost::Waits
        } else {
            ShortPost::Due
        }
    }

    /// That was posted to a queue pair.
    #[inline]
    pub(crate) fn has_posted(&mut self, qpn: u32, posted: Posted) {
        if fairness::is_short(posted.bytes) {
            let now = self.clock.last_ns();
            self.flow.fairness.short(qpn, now);
        }
    }

    /// What waits for a turn, beside ACKs that may wait: a post that left by itself did not see to
    /// it.
    #[inline]
    pub(crate) fn has_turns_to_give(&self) -> bool {
        self.held != PUT_OFF && self.ready.len() != self.held
    }
}

/// What became of a short message that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortPost {
    /// Nothing was done, it is one for [`Engine::posting`].
    NotThisWay,
    /// It has left.
    Left,
    /// It is a packet that waits for a batch. Nobody need be told: the ACK of what is under way, or
    /// a timer, brings somebody.
    Waits,
    /// It is a packet, and all that wait are to leave.
    Due,
}

/// What became of what was posted, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has left as packets.
    Left,
    /// It is a packet, or begins with one, and all that wait are to leave.
    Staged,
    /// It is done, and took no packet.
    Executed,
    /// Something of it is left to a round of the engine.
    Waits,
}

/// Messages of a connection are under way, so that the next one may wait for a batch behind them.
#[inline]
fn may_join(entry: &QpEntry) -> bool {
    matches!(&entry.transport, QueuePair::Rc(rc) if rc.is_streaming())
}

/// A packet of it was built as it was posted, and waits for its turn: in front, as all that posts
/// short messages ([`Engine::schedule_posted`]).
#[inline]
fn stage(entry: &mut QpEntry, ready: &mut VecDeque<u32>) {
    if !entry.ready {
        entry.ready = true;
        ready.push_front(entry.shared.qpn);
    }
    entry.staged = true;
}

/// What a running timer and a ring in use need to know of the time the last round knew.
#[inline]
fn time_of_post(entry: &QpEntry, clock: &mut Clock) -> u64 {
    match entry.transport.next_timeout() {
        Some(_) => clock.last_ns(),
        None => clock.now_ns(),
    }
}

impl Posting<'_> {
    /// Queues a work request that was checked, and lets it leave if it can.
    #[inline(always)]
    pub(crate) fn post(&mut self, signaled: bool, wqe: SendWqe) {
        self.entry.signals.posted(signaled);
        let at = self.entry.latencies.time_of_post(|| self.clock.exact_ns());
        if let Some(at) = at {
            self.entry.latencies.posted(at);
        }
        // Whether one that is not signaled asks for an ACK depends on what is behind it.
        self.fast &= signaled || !self.alone;
        if !self.fast {
            self.entry.transport.post_send(wqe);
            return;
        }
        let now = time_of_post(self.entry, self.clock);
        self.any = true;
        self.link.set_time(now);
        let with_ack = self.takes_acks && self.entry.held_ack.is_held();
        if with_ack {
            let Posting {
                entry,
                link,
                memory,
                srqs,
                ahs,
                staged,
                ..
            } = self;
            fast_reply::acknowledge_first(entry, link, memory, srqs, ahs, staged);
        }
        let mut sink = PathSink {
            qpn: self.entry.shared.qpn,
            link: self.link,
            memory: self.memory,
            ahs: self.ahs,
            path: self.entry.peer.map(|peer| peer.path),
            staged: self.staged,
            local_pause: None,
        };
        let (transport, mut device) = lend(self.entry, self.memory, self.srqs);
        if let QueuePair::Rc(rc) = transport {
            if self.alone {
                rc.expect_more(false);
            }
            self.fast = rc.post_fast(Time(now), wqe, &mut device, &mut sink);
        }
        if with_ack {
            self.link.wake_unwoken();
        }
        if !self.fast {
            return;
        }
        if self.alone {
            // What is behind it leaves with it.
            self.fast = false;
            self.built = true;
        } else {
            self.entry.held_ack.requested();
        }
    }

    /// Does what was posted without packets, if whoever waits for it posts the next when it is
    /// done, and nothing else of the queue pair is to leave.
    #[inline]
    fn execute_alone(&mut self) -> bool {
        if self.entry.ready || self.entry.shared.slots.send.used() > 1 {
            return false;
        }
        let (transport, mut device) = lend(self.entry, self.memory, self.srqs);
        match transport {
            QueuePair::Rc(rc) => !rc.owes_only_ack() && rc.execute_fast(&mut device),
            _ => false,
        }
    }

    /// All is posted.
    #[inline]
    pub(crate) fn end(mut self) -> Ended {
        if !self.any {
            return Ended::Waits;
        }
        if self.built {
            self.timers.note(self.entry);
            stage(self.entry, self.ready);
            return Ended::Staged;
        }
        if !self.fast {
            if self.execute_alone() {
                // What may follow is close to the end of it.
                self.entry.succession.done(self.clock.ticks_or_ns());
                self.timers.note(self.entry);
                return Ended::Executed;
            }
            // It may have failed. What was posted behind it is flushed first: each completion frees
            // its own place.
            if self.entry.transport.is_error() {
                let (transport, mut device) = lend(self.entry, self.memory, self.srqs);
                transport.fail(&mut device);
            }
            settle(self.entry, self.ready, self.timers);
            return Ended::Waits;
        }
        self.timers.note(self.entry);
        let published = self.link.publish();
        if !published {
            return Ended::Waits;
        }
        *self.staged = 0;
        Ended::Left
    }
}
