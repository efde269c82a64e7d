//! An ACK, the answer to an atomic or a short READ, or a message that was just posted, which is all
//! that a queue pair has to say.
//!
//! It is a short packet, and the peer may wait for it: it leaves without most of what a turn is
//! otherwise about, and if nothing else is to be sent at all, without the rest of the round. Or the
//! ACK waits for what the application posts next ([`super::ack_piggyback`]).

use rnic_link::Port;
use rnic_transport::{QueuePair, Rc};

use super::ack_piggyback::{DelayedAcks, Wait};
use super::device_view::DeviceView;
use super::packet_sink::PathSink;
use super::{AhTable, Engine, SrqTable, lend};
use crate::engine::QpEntry;
use crate::memory::MemoryTable;

/// What became of an ACK that the peer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// There is none.
    None,
    /// It is still to be sent.
    Owed,
    /// It has left, and nothing else is to be sent.
    Left,
}

impl Engine {
    /// Sends the ACK that the queue pair owes that was last to want to send, if its peer goes on
    /// once it has it, and the way there is short: by the network stack it would hold the
    /// application up for longer than the peer. Past the stack the round sends it before the
    /// application has its completion, if that will not answer.
    #[inline]
    pub(crate) fn acknowledge_awaited(&mut self, now: u64) -> Awaited {
        let only = self.has_one_turn_to_give();
        let last = self.ready.back().and_then(|qpn| self.qps.get_mut(*qpn));
        let Some(entry) = last.filter(|entry| entry.held_ack.is_awaited()) else {
            return Awaited::None;
        };
        let by_memory = is_by_memory(entry, &self.link);
        if !by_memory {
            let peer = entry.peer;
            let hurries = entry.held_ack.is_all_that_is_awaited()
                && peer.is_some_and(|peer| self.link.is_past_network_stack(peer.path));
            if !hurries {
                return Awaited::None;
            }
        }
        if !only || entry.held_ack.may_wait(now) {
            return Awaited::Owed;
        }
        let (link, memory) = (&mut self.link, &self.memory);
        let waits =
            !by_memory && waits_for_answer(entry, link, &mut self.batching.delayed_acks, now);
        let left = waits
            || acknowledge(
                entry,
                link,
                memory,
                &self.srqs,
                &mut self.ahs,
                &mut self.staged,
            );
        if !left {
            return Awaited::Owed;
        }
        if !by_memory && !waits {
            entry.piggyback.left_alone(now);
        }
        entry.ready = false;
        self.turn_given(now);
        Awaited::Left
    }

    /// Sends the packet that was just posted to this queue pair, if it is all that is to be sent.
    /// False: there is more, and nothing was done.
    #[inline]
    pub(crate) fn send_posted(&mut self, qpn: u32) -> bool {
        if !self.has_one_turn_to_give()
            || self.ready.front() != Some(&qpn)
            || self.timers.incast.is_active()
        {
            return false;
        }
        let (now, soon) = (self.now(), self.batching.delayed_acks.soon());
        let Some(entry) = self.qps.get_mut(qpn) else {
            return false;
        };
        let alone = entry.staged && entry.remote_srq.is_none() && !entry.transport.wants_transmit();
        if !alone {
            return false;
        }
        (entry.staged, entry.ready) = (false, false);
        entry.held_ack.requested();
        // None waits for it, or there were a time by which it does.
        entry.piggyback.answered(now, soon);
        self.turn_given(now);
        true
    }

    /// Sends the answer to an atomic or a READ of one packet, if nothing else at all is to be sent.
    /// False: there is more.
    #[inline]
    pub(super) fn answer_alone(&mut self, now: u64) -> bool {
        if !self.has_one_turn_to_give() || self.link.has_pending() {
            return false;
        }
        let only = self.ready.front();
        let Some(entry) = only.and_then(|qpn| self.qps.get_mut(*qpn)) else {
            return false;
        };
        self.link.set_time(now);
        let (link, memory) = (&mut self.link, &self.memory);
        let left = say(
            entry,
            link,
            memory,
            &self.srqs,
            &mut self.ahs,
            &mut self.staged,
            |rc, device, sink| rc.answer_fast(device, sink),
        );
        if left {
            entry.ready = false;
            self.turn_given(now);
        }
        left
    }

    /// It has said it.
    #[inline]
    fn turn_given(&mut self, now: u64) {
        self.ready.clear();
        self.held = 0;
        if self.link.has_pending() {
            self.batching.doorbell.left(now);
            self.batching.one_sided.left(now);
            self.flush(now);
        }
    }
}

#[inline]
fn is_by_memory(entry: &QpEntry, link: &Port) -> bool {
    entry.peer.is_some_and(|peer| link.is_by_memory(peer.path))
}

/// Sends the ACK of a queue pair that has nothing else to send, by a socket with the next flush.
/// False: it has, or there is no room, and nothing was done.
#[inline]
pub(super) fn acknowledge(
    entry: &mut QpEntry,
    link: &mut Port,
    memory: &MemoryTable,
    srqs: &SrqTable,
    ahs: &mut AhTable,
    staged: &mut usize,
) -> bool {
    say(
        entry,
        link,
        memory,
        srqs,
        ahs,
        staged,
        |rc, device, sink| rc.acknowledge_fast(device, sink),
    )
}

/// The same, in front of a message that is being posted: the peer is woken once for both. The
/// caller owes [`Port::wake_unwoken`].
pub(super) fn acknowledge_first(
    entry: &mut QpEntry,
    link: &mut Port,
    memory: &MemoryTable,
    srqs: &SrqTable,
    ahs: &mut AhTable,
    staged: &mut usize,
) {
    link.expect_another(true);
    acknowledge(entry, link, memory, srqs, ahs, staged);
    link.expect_another(false);
}

/// Has a connection say what is all that it has to say. False: it has more, or there is no room,
/// and nothing was done, or it has failed.
#[inline]
fn say(
    entry: &mut QpEntry,
    link: &mut Port,
    memory: &MemoryTable,
    srqs: &SrqTable,
    ahs: &mut AhTable,
    staged: &mut usize,
    what: impl FnOnce(&mut Rc, &mut DeviceView<'_>, &mut PathSink<'_>) -> bool,
) -> bool {
    if entry.staged || !entry.may_reply_fast() {
        return false;
    }
    let mut sink = PathSink {
        qpn: entry.shared.qpn,
        link,
        memory,
        ahs,
        path: entry.peer.map(|peer| peer.path),
        staged,
        local_pause: None,
    };
    let left = match lend(entry, memory, srqs) {
        (QueuePair::Rc(rc), mut device) => what(rc, &mut device, &mut sink),
        _ => false,
    };
    if left {
        entry.held_ack.left();
    }
    left
}

/// The ACK that is all a queue pair has to say waits for what the application posts next, if that
/// is expected soon.
pub(super) fn waits_for_answer(
    entry: &mut QpEntry,
    link: &Port,
    delayed_acks: &mut DelayedAcks,
    now: u64,
) -> bool {
    if !answer_saves_ack(link, entry) {
        return false;
    }
    match entry.piggyback.wait(now, delayed_acks.soon()) {
        Wait::Until(until) => {
            delayed_acks.add(until, entry.shared.qpn);
            true
        }
        Wait::On => true,
        Wait::Over => {
            delayed_acks.forget(entry.shared.qpn);
            false
        }
        Wait::No => false,
    }
}

/// Whether the ACK that a queue pair owes may leave with what the application posts next. By memory
/// it costs little anyway. A program that sleeps until something completes takes one completion for
/// each event, perhaps: the peer's must not come with the answer.
fn answer_saves_ack(link: &Port, entry: &QpEntry) -> bool {
    let (QueuePair::Rc(_), Some(peer)) = (&entry.transport, entry.peer) else {
        return false;
    };
    entry.remote_srq.is_none()
        && !link.is_by_memory(peer.path)
        && !entry.shared.cqs().any(|cq| cq.has_channel())
}
