//! One round of the engine: packets come in, timers fire, packets leave.
//!
//! Queue pairs that have something to send are scheduled as in deficit round robin (DRR, Shreedhar
//! and Varghese): each has its *turn*, one after the other, and builds a *quantum* of bytes in it.
//! There is no deficit counter. The packet that crosses the quantum still leaves, and nothing is
//! carried over.

use rnic_link::{Look, Port, QuickPoll};
use rnic_settings::ablation::{self, Policy};
use rnic_transport::{QpEvent, QueuePair, Time};
use rnic_wire::Bth;

use super::packet_sink::PathSink;
use super::receive_horizon::POSTS;
use super::{Engine, fast_reply, incast_group, lend, schedule, settle};
use crate::engine::QpEntry;
use crate::observe;

/// The quantum, bytes of packets. Where packets leave in batches [`Engine::quantum`] gives a whole
/// batch, which is a little less.
const QUANTUM: usize = 64 * 1024;
/// Bytes that are sent before the next turn, whoever has it.
const FULL: usize = 48 * 1024;
/// Bytes of packets that leave by themselves, past the network stack, while the next ones are
/// built: the peer is at work meanwhile.
const PIPELINED: usize = 4 * 1024;
/// Turns given out per call, so that a call ends although a peer reads without end.
const TURNS: usize = 16;
/// Bytes per call of those for whom others wait ([`super::fairness`]), or a little more.
const SHARED: usize = 64 * 1024;
/// Quick polls, which look at the rings alone, between two polls that look at clock and socket,
/// too.
const QUICK_POLLS: u8 = 32;
/// As many of them is one that takes a system call.
const SYSTEM_CALL: u8 = 4;
/// [`Engine::held`], when it is not known.
pub(super) const PUT_OFF: usize = usize::MAX;

/// What becomes of an ACK that is all a queue pair has to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acks {
    /// It leaves.
    Leave,
    /// It may be held ([`super::ack_coalescing`]): whoever drives is back at once.
    MayWait,
    /// It may be held until the thread that waited for a message answers it, or waits again.
    UntilWait,
    /// It may be held if the application is known to answer soon ([`super::ack_piggyback`]): the
    /// background thread wakes in time.
    MayWaitForAnswer,
}

/// What became of a turn.
#[derive(Default)]
struct Turn {
    /// An ACK is all that the queue pair still has to send, and may wait.
    held: bool,
    /// Bytes, if others wait behind them.
    shared: usize,
    /// What it built leaves at once.
    leaves: bool,
}

impl Engine {
    /// One round: receive, fire timers, transmit. Gives the number of packets received.
    /// `handover`: look at the hand-over socket, too.
    pub(crate) fn round(&mut self, handover: bool) -> usize {
        let look = if handover { Look::Handover } else { Look::Poll };
        self.round_with(look, Acks::Leave)
    }

    /// A round after which the background thread sleeps until the next deadline at most.
    pub(crate) fn round_with(&mut self, look: Look, acks: Acks) -> usize {
        let now = self.now();
        let received = self.take_in(now, look);
        self.send_out(now, acks);
        self.publish_counters();
        received
    }

    /// A round for a thread that waits until `over`. If that is now, ACKs do as said, and leave
    /// otherwise.
    pub(crate) fn round_until(&mut self, acks: Acks, over: impl Fn() -> bool) -> usize {
        let now = self.now();
        let received = self.take_in(now, Look::Poll);
        let acks = match acks {
            Acks::UntilWait if received > 0 && over() => Acks::UntilWait,
            _ => Acks::Leave,
        };
        self.send_out(now, acks);
        self.answer_takes_acks = acks == Acks::UntilWait && self.held > 0;
        self.publish_counters();
        received
    }

    /// Nothing is there that was not there at the last round, a few quick polls ago: whoever polls
    /// for a message need not go through the whole of a round each time. What has its time is
    /// attended to by the next one. After `Something` a round is to follow.
    #[inline]
    pub(crate) fn quick_poll(&mut self) -> QuickPoll {
        let left = self.ready.len() != self.held
            || !self.flow.tx_blocked.is_empty()
            || ablation::is_out(Policy::QuickPoll);
        let found = if self.quick_polls_left == 0 || left {
            QuickPoll::Something
        } else {
            // Who holds an ACK back counts rounds ([`super::ack_coalescing`]).
            self.link.quick_poll(self.ready.is_empty())
        };
        self.quick_polls_left = match found {
            QuickPoll::NothingInMemory => self.quick_polls_left - 1,
            QuickPoll::NothingAtSocket => self.quick_polls_left.saturating_sub(SYSTEM_CALL),
            QuickPoll::Something => QUICK_POLLS,
        };
        found
    }

    /// The first half of a round: receive and fire timers.
    pub(crate) fn take_in(&mut self, now: u64, look: Look) -> usize {
        if self.closed {
            return 0;
        }
        // What may stop a timer that ends is looked for thoroughly.
        let look = match self.timers.next() {
            Some(at) if at.0 <= now && look == Look::Poll => Look::Drain,
            _ => look,
        };
        let (received, all) = self.receive(now, look);
        let as_of = match ablation::is_out(Policy::ReceiveHorizon) {
            true => now,
            false => self.flow.receive_horizon.taken_in(now, received, all),
        };
        let received = received + self.hear_neighbours(now, look == Look::Handover);
        if self.cm.is_due(now) {
            rnic_sys::uncancelled(|| self.attend_to_cm(now));
        }
        self.fire_timers(Time(as_of), Time(now));
        if self.cq_tasks.next().is_some_and(|at| at <= now) {
            self.attend_to_cqs(now);
        }
        if self.timers.incast.is_active() {
            self.dissolve_incast_groups(as_of);
            self.admit_from_incast_groups();
        }
        if self.is_due_before_tick(now) {
            self.quick_polls_left = 0;
        }
        received
    }

    /// So many work requests were posted. A program that posts over and over takes in what comes,
    /// too: true, if it just did.
    #[inline]
    pub(crate) fn count_posts(&mut self, count: usize) -> bool {
        let many = self.flow.receive_horizon.posted(count);
        if many {
            self.catch_up();
        }
        many
    }

    #[inline(never)]
    fn catch_up(&mut self) {
        let now = self.now();
        // As many as it posted, if they are there.
        let mut taken = 0;
        while taken < POSTS {
            match self.take_in(now, Look::Drain) {
                0 => break,
                packets => taken += packets,
            }
        }
    }

    /// Does what completion queues have asked for.
    #[cold]
    fn attend_to_cqs(&mut self, now: u64) {
        let due = self.cq_tasks.take(now);
        for cq in due.reminders {
            cq.remind(now, &self.cq_tasks);
            self.cq_tasks.leave(cq);
        }
        for qpn in due.failed {
            self.fail_for_lost_completion(qpn);
        }
    }

    /// A queue pair that cannot report a completion is of no use any more: "local work queue
    /// catastrophic error" (IBTA vol. 1, 11.6.3.2). It is told once; what the flush adds is lost
    /// too.
    fn fail_for_lost_completion(&mut self, qpn: u32) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        if std::mem::replace(&mut entry.completion_lost, true) {
            return;
        }
        let shared = entry.shared.clone();
        entry.revoke_failed(&mut self.link);
        self.flush_qp(qpn);
        shared.post_event(QpEvent::Fatal);
    }

    /// The second half of a round is left to the next one, which will not put it off again.
    pub(crate) fn put_off(&mut self) {
        debug_assert!(!self.strict, "nothing is put off");
        self.held = if self.has_to_send() { PUT_OFF } else { 0 };
    }

    /// The second half: what is ready to be sent leaves.
    pub(crate) fn send_out(&mut self, now: u64, acks: Acks) {
        if self.closed || !self.has_to_send() {
            self.held = 0;
        } else if !self.answer_alone(now) {
            self.transmit_at(now, acks);
        }
    }

    /// Messages wait for receives: what carries them stays readable.
    pub(crate) fn waits_for_receives(&self) -> bool {
        self.flow.receive_hold.is_waiting()
    }

    /// Those that were due when `as_of` was: what came until then has been taken in.
    fn fire_timers(&mut self, as_of: Time, now: Time) {
        while let Some((at, qpn)) = self.timers.pop_due(as_of) {
            let Some(entry) = self.qps.get_mut(qpn) else {
                continue;
            };
            if entry.armed != Some(at) {
                continue;
            }
            entry.armed = None;
            if entry
                .transport
                .next_timeout()
                .is_some_and(|due| due <= as_of)
            {
                look_for_peer(entry, &mut self.link, now);
                let before = entry.requests();
                let (transport, mut device) = lend(entry, &self.memory, &self.srqs);
                transport.handle_timeout(now, &mut device);
                let lost = entry.requests().consecutive_ack_timeouts
                    > before.consecutive_ack_timeouts
                    && !before.is_silent();
                let overrun =
                    incast_group::lost(entry, &self.link, &mut self.timers.incast, now, lost);
                settle(entry, &mut self.ready, &mut self.timers);
                if let Some(host) = overrun {
                    self.look_for_incast(now.0, host);
                }
            } else {
                self.timers.note(entry);
            }
        }
        if self.timers.is_cluttered(self.qps.len()) {
            let noted = |entry: &QpEntry| Some((entry.armed?, entry.shared.qpn));
            self.timers.rebuild(self.qps.iter().filter_map(noted));
        }
    }

    /// Lets the queue pairs that want to transmit do so, in turn.
    pub(crate) fn transmit(&mut self, acks: Acks) {
        let now = self.now();
        self.transmit_at(now, acks);
    }

    fn transmit_at(&mut self, now: u64, acks: Acks) {
        let acks = if self.strict { Acks::Leave } else { acks };
        self.batching.doorbell.left(now);
        self.batching.one_sided.left(now);
        if self.flow.local_pause.is_closed() {
            self.ready
                .extend(self.flow.local_pause.try_open(&mut self.link, now));
        }
        self.link.set_time(now);
        // What waits for a socket goes before those who wait for it to go.
        if !self.flow.tx_blocked.is_empty() && self.link.next_timeout().is_some_and(|at| at <= now)
        {
            self.flush(now);
        }
        // More of them than turns would never leave the list empty, and the engine without rest.
        if !self.flow.tx_blocked.is_empty()
            && (self.ready.is_empty()
                || self.ready.len() + self.flow.tx_blocked.len() <= TURNS
                || self.flow.tx_blocked.deadline().is_some_and(|at| at <= now))
        {
            self.ready.extend(self.flow.tx_blocked.take());
        }
        while let Some((at, qpn)) = self.batching.delayed_acks.pop_due(now) {
            let Some(entry) = self.qps.get_mut(qpn) else {
                continue;
            };
            if entry.piggyback.in_vain(at) {
                schedule(entry, &mut self.ready);
            }
        }
        if self.timers.incast.is_active() {
            self.admit_from_incast_groups();
        }
        let mut turns = TURNS;
        // Of those for whom others wait.
        let mut bytes = SHARED;
        // Those with a held ACK stay in the list, behind all others.
        let mut held = 0;
        while turns > 0 && bytes > 0 && self.ready.len() > held {
            let Some(qpn) = self.ready.pop_front() else {
                break;
            };
            turns -= 1;
            self.counted.turns += 1;
            let turn = self.give_turn(qpn, now, acks);
            held += usize::from(turn.held);
            bytes = bytes.saturating_sub(turn.shared);
            // A full staging buffer must leave before anybody can go on. What is not cut by the
            // kernel gains nothing by waiting.
            if self.staged >= FULL || turn.leaves {
                self.flush(now);
            }
        }
        self.held = held;
        self.flush(now);
        if self.neighbours.has_questions() {
            rnic_sys::uncancelled(|| self.ask_neighbours(now));
        }
        if self.ahs.has_retired() {
            self.sweep_ahs();
        }
    }

    /// The quantum of a queue pair, bytes: of full packets, as many as one system call takes. One
    /// more would cost another.
    #[inline]
    fn quantum(link: &Port, entry: &QpEntry) -> usize {
        let (QueuePair::Rc(_), Some(peer), Some(mtu)) =
            (&entry.transport, entry.peer, entry.attr.path_mtu)
        else {
            return QUANTUM;
        };
        let full = Bth::LEN + mtu.bytes();
        link.batch_bytes(peer.path, full).unwrap_or(QUANTUM)
    }

    /// Lets one queue pair build packets.
    fn give_turn(&mut self, qpn: u32, now: u64, acks: Acks) -> Turn {
        let mut turn = Turn::default();
        let Some(entry) = self.qps.get_mut(qpn) else {
            return turn;
        };
        if entry.transport.is_error() {
            entry.revoke_failed(&mut self.link);
        }
        let unreliable = !matches!(entry.transport, QueuePair::Rc(_));
        if unreliable && self.flow.local_pause.is_closed() {
            self.flow.local_pause.hold(qpn);
            return turn;
        }
        entry.ready = false;
        if self.timers.incast.is_active() && entry.transport.may_request() {
            incast_group::give_way(entry, &self.link, &mut self.timers.incast, now);
        }
        let requests = std::mem::take(&mut entry.staged) || entry.transport.may_request();
        let owes_only_ack = entry.transport.owes_only_ack();
        let lone = !requests && owes_only_ack;
        // Who polls holds ACKs by itself, but not those that the peer was seen to wait for.
        let for_answer = lone
            && match acks {
                Acks::Leave | Acks::UntilWait => false,
                Acks::MayWait => entry.held_ack.is_awaited(),
                Acks::MayWaitForAnswer => true,
            };
        if for_answer
            && fast_reply::waits_for_answer(entry, &self.link, &mut self.batching.delayed_acks, now)
        {
            return turn;
        }
        // Behind what was posted: the peer is woken once for both.
        let with_answer = requests && self.answer_takes_acks && entry.held_ack.is_held();
        let hold = owes_only_ack
            && !with_answer
            && match acks {
                Acks::MayWait => entry.held_ack.may_wait(now),
                Acks::UntilWait => entry.held_ack.waits_for_answer(),
                Acks::Leave | Acks::MayWaitForAnswer => false,
            };
        if lone && entry.may_reply_fast() {
            if hold {
                // Nothing but the ACK is there to be sent.
                schedule(entry, &mut self.ready);
                turn.held = true;
                return turn;
            }
            let (link, memory) = (&mut self.link, &self.memory);
            if fast_reply::acknowledge(
                entry,
                link,
                memory,
                &self.srqs,
                &mut self.ahs,
                &mut self.staged,
            ) {
                if for_answer {
                    entry.piggyback.left_alone(now);
                }
                self.link.take_blocked();
                self.flow.tx_blocked.moved();
                return turn;
            }
        }
        let quantum = Engine::quantum(&self.link, entry);
        let others_wait = self.flow.fairness.others_wait(qpn, now);
        if let QueuePair::Rc(rc) = &mut entry.transport {
            rc.limit_head_of_line(others_wait);
            let peer = entry.peer.filter(|_| !self.strict);
            rc.send_in_trains(peer.is_some_and(|peer| !self.link.is_by_memory(peer.path)));
        }
        let may_execute = entry.cma.is_some()
            && entry
                .uc_writes
                .begins(&entry.transport, || self.common.host.ticks_or_ns());
        if requests {
            entry.held_ack.requested();
        }
        let by_reference = entry.by_reference;
        let executed = entry.transport.without_packets();
        let mut sink = PathSink {
            qpn,
            link: &mut self.link,
            memory: &self.memory,
            ahs: &mut self.ahs,
            path: entry.peer.map(|peer| peer.path),
            staged: &mut self.staged,
            local_pause: unreliable.then_some(&mut self.flow.local_pause),
        };
        if unreliable {
            sink.link.lose_what_stopped_peers_leave(true);
        }
        let (transport, mut device) = lend(entry, &self.memory, &self.srqs);
        if unreliable && !may_execute {
            device.cma = None;
        }
        let spent = if hold {
            transport.poll_requests(Time(now), &mut device, &mut sink, quantum)
        } else {
            let spent = transport.poll_transmit(Time(now), &mut device, &mut sink, quantum);
            entry.held_ack.left();
            if requests {
                if entry
                    .piggyback
                    .answered(now, self.batching.delayed_acks.soon())
                {
                    self.batching.delayed_acks.forget(qpn);
                }
            } else if for_answer {
                entry.piggyback.left_alone(now);
            }
            spent
        };
        if unreliable {
            self.link.lose_what_stopped_peers_leave(false);
        }
        let executed = entry.transport.without_packets() != executed;
        if unreliable && entry.cma.is_some() {
            entry
                .uc_writes
                .ended(executed, || self.common.host.ticks_or_ns());
        } else if executed {
            entry.succession.done(self.common.host.ticks_or_ns());
        }
        if others_wait {
            turn.shared = spent;
        }
        turn.leaves = spent >= PIPELINED
            && entry
                .peer
                .is_some_and(|peer| self.link.is_past_network_stack(peer.path));
        if entry.remote_srq.is_some() {
            self.neighbours.note(entry, None);
        }
        settle(entry, &mut self.ready, &mut self.timers);
        if entry.by_reference && !by_reference && !self.by_reference.contains(&qpn) {
            self.by_reference.push(qpn);
        }
        if self.link.take_blocked() {
            if entry.ready && self.ready.back() == Some(&qpn) {
                self.ready.pop_back();
                self.flow.tx_blocked.hold(qpn, now);
                return turn;
            }
        } else {
            self.flow.tx_blocked.moved();
        }
        turn.held = hold && !entry.transport.may_request();
        if unreliable && self.flow.local_pause.is_due(&self.link) {
            self.flush(now);
            self.flow.local_pause.look(&mut self.link, now);
        }
        turn
    }

    pub(crate) fn flush(&mut self, now: u64) {
        self.link.flush(now);
        self.staged = 0;
    }
}

/// Before an ACK timeout counts: its peer may be stopped, and unable to answer. Over XRC the peer's
/// answer may wait for the process whose shared receive queue the request names.
fn look_for_peer(entry: &mut QpEntry, link: &mut Port, now: Time) {
    let (QueuePair::Rc(rc), Some(peer)) = (&mut entry.transport, entry.peer) else {
        return;
    };
    if !rc.answer_is_overdue(now) {
        return;
    }
    let (qpn, srq) = (rc.attr().dest_qpn, rc.awaited_srq());
    let stopped = rnic_sys::uncancelled(|| link.peer_is_stopped(peer.path, qpn, srq, now.0));
    rc.peer_stopped(stopped);
    // Of what is on this host the registry tells more.
    if !stopped && !peer.here {
        observe::no_answer(peer.local, peer.remote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or ACKs lie in a ring while their timers end, and the peer's with what it cannot send.
    #[test]
    fn who_posts_without_a_poll_takes_in_what_comes() {
        let mut engine = Engine::open(&rnic_link::LinkConfig::default()).expect("a device");
        let mut posts = 1..=100_000;
        let took_in = posts.find(|_| {
            engine.count_posts(1);
            engine.flow.receive_horizon.as_of() > 0
        });
        assert!(took_in.is_some());
    }

    /// Or the ACK of the next message would leave by itself, ahead of the application's answer.
    #[test]
    fn a_round_that_has_nothing_to_send_leaves_nothing_to_the_next() {
        let mut engine = Engine::open(&rnic_link::LinkConfig::default()).expect("a device");
        engine.put_off();
        assert_eq!(engine.held, engine.ready.len());
        engine.ready.push_back(0);
        engine.put_off();
        assert_eq!(engine.held, PUT_OFF);
        let now = engine.now();
        engine.send_out(now, Acks::MayWait);
        assert_eq!(engine.held, 0);
    }
}
