//! How connections end.

use super::active::fit;
use super::connection::Connection;
use super::{Endpoint, State};
use crate::{Address, CmError, ConnId, Ended, Event, LastWords, Time};
use alloc::boxed::Box;
use rnic_wire::cm::{Answered, Drep, Dreq, Mad, Message, Rej, RejectReason};

/// A DREQ in the name of a dead process: repetitions, and the time between them.
const LAST_WORDS_RETRIES: u8 = 3;
const LAST_WORDS_INTERVAL_NS: u64 = 250_000_000;

impl Endpoint {
    /// Ends a connection that is established, or accepted: sends a DREQ with at most 220 bytes of
    /// private data, which leads to [`Event::Disconnected`](crate::Event::Disconnected). If the
    /// peer ended it, confirms that instead (DREP, at most 224 bytes). No error if this was done
    /// before.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn disconnect(
        &mut self,
        now: Time,
        conn: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let state = self.own(conn)?.state();
        match state {
            State::Established | State::RepSent => {
                let private_data = fit(private_data)?;
                if let Some(connection) = self.connections.get_mut(conn.0) {
                    connection.half_open = state == State::RepSent;
                }
                self.send_dreq(now, conn.0, private_data);
                Ok(())
            }
            State::DreqReceived => {
                let private_data = fit(private_data)?;
                self.confirm(now, conn.0, private_data);
                Ok(())
            }
            State::DreqSent | State::TimeWait => Ok(()),
            State::ReqSent | State::RepReceived | State::ReqReceived | State::Refused => {
                Err(CmError::State(state))
            }
        }
    }

    /// The application has no more interest in the connection, whatever its state: no event names
    /// it from now on, and the peer is told (REJ, DREQ or DREP). What has to be repeated is
    /// repeated.
    pub fn destroy(&mut self, now: Time, conn: ConnId) {
        let id = conn.0;
        let state = self.state(conn);
        if matches!(state, Some(State::RepReceived | State::ReqReceived)) {
            let reason = RejectReason::CONSUMER_DEFINED;
            let rejected = self.reject(now, conn, reason, &[], &[]);
            debug_assert_eq!(rejected, Ok(()));
            return;
        }
        self.disown(id);
        match state {
            Some(State::ReqSent) => {
                self.give_up_request(id);
                self.release_requests(now);
            }
            Some(State::RepSent) => self.abandon(now, id, RejectReason::CONSUMER_DEFINED),
            Some(State::Established) => self.send_dreq(now, id, [0; 220]),
            Some(State::DreqReceived) => self.confirm(now, id, [0; 224]),
            _ => {}
        }
        self.make_room();
    }

    /// The process at the other end is known to be dead: as if a DREQ had come, or, before the
    /// connection was established, as if all retries were used up. Nothing is sent.
    pub fn peer_died(&mut self, now: Time, conn: ConnId) {
        let id = conn.0;
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        match connection.state() {
            State::ReqSent | State::ReqReceived | State::RepSent | State::RepReceived => {
                self.tell(id, Event::Unreachable { conn });
                self.connections.remove(id);
                self.release_requests(now);
            }
            State::Established | State::DreqSent | State::DreqReceived => {
                self.tell_ended(id, Ended::PeerDied);
                self.enter_time_wait(now, id);
                self.release_requests(now);
            }
            State::TimeWait | State::Refused => {}
        }
    }

    /// The process at the other end is known to be stopped (SIGSTOP, a debugger). Linux confirms a
    /// DREQ for a stopped program: the application that has sent one need not wait. The DREQ is
    /// repeated all the same until it is confirmed.
    pub fn peer_stopped(&mut self, conn: ConnId) {
        if self.state(conn) == Some(State::DreqSent) {
            self.tell_ended(conn.0, Ended::PeerStopped);
        }
    }

    /// Disconnects in the name of a process that died. The DREQ is repeated three times, 250 ms
    /// apart, because its answer may go elsewhere. No event names this connection. If it is one of
    /// our own that is being disconnected, its DREQ is repeated at once, for a caller that has no
    /// time to wait.
    pub fn send_last_words(&mut self, now: Time, last_words: &LastWords) {
        let id = last_words.local_id;
        if let Some(state) = self.connections.get(id).map(Connection::state) {
            if state == State::DreqSent {
                self.repeat_now(now, id);
            }
            return;
        }
        if self.resolutions.contains(id) {
            return;
        }
        let mut connection = Connection::new(true, 0, last_words.address);
        connection.orphan = true;
        connection.remote_id = last_words.remote_id;
        connection.remote_qpn = last_words.remote_qpn;
        connection.interval_ns = LAST_WORDS_INTERVAL_NS;
        connection.max_retries = LAST_WORDS_RETRIES;
        self.connections.insert(id, connection);
        // At once: the caller has a second for all last words, and the repetitions are near.
        if let Some(dreq) = self.dreq(id, [0; 220]) {
            self.connections.set_state(id, State::DreqSent);
            let tid = self.transaction(id);
            self.say_until_answered(now, id, tid, Message::Dreq(dreq));
            self.make_room();
        }
    }

    fn send_dreq(&mut self, now: Time, id: u32, private_data: [u8; 220]) {
        if let Some(dreq) = self.dreq(id, private_data) {
            let hold = self.must_hold();
            self.connections.set_state(id, State::DreqSent);
            let tid = self.transaction(id);
            self.ask(now, id, tid, Message::Dreq(dreq), hold);
        }
    }

    /// Like `send_dreq`, but another message has just been sent that may make it unnecessary.
    pub(super) fn send_dreq_later(&mut self, now: Time, id: u32) {
        let Some(dreq) = self.dreq(id, [0; 220]) else {
            return;
        };
        self.connections.set_state(id, State::DreqSent);
        let mad = Mad {
            tid: self.transaction(id),
            attr_modifier: 0,
            message: Message::Dreq(dreq),
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.mad = Some(Box::new(mad.emit()));
            connection.retries_left = connection.max_retries.saturating_add(1);
            connection.patience_ns = None;
            let at = now.after(connection.interval_ns);
            self.arm(id, at);
            self.make_room();
        }
    }

    fn dreq(&self, id: u32, private_data: [u8; 220]) -> Option<Dreq> {
        let connection = self.connections.get(id)?;
        Some(Dreq {
            local_id: id,
            remote_id: connection.remote_id,
            remote_qpn: connection.remote_qpn,
            private_data,
        })
    }

    /// Answers a DREQ.
    fn confirm(&mut self, now: Time, id: u32, private_data: [u8; 224]) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let tid = connection.tid;
        let drep = Drep {
            local_id: id,
            remote_id: connection.remote_id,
            private_data,
        };
        self.say(id, tid, Message::Drep(drep));
        self.begin_time_wait(now, id);
    }

    /// The connection is over, and nothing more is to be said about it.
    pub(super) fn enter_time_wait(&mut self, now: Time, id: u32) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.mad = None;
        }
        self.begin_time_wait(now, id);
    }

    fn begin_time_wait(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        // Nobody has the queue pair of a dead process.
        if connection.time_wait_ns == 0 {
            self.connections.remove(id);
            return;
        }
        // A peer that never got our REP asks again.
        let ns = if connection.half_open {
            connection
                .time_wait_ns
                .max(self.refusal_ns(connection.asked_to_wait))
        } else {
            connection.time_wait_ns
        };
        self.connections.set_state(id, State::TimeWait);
        self.arm(id, now.after(ns));
        self.make_room();
    }

    /// Keeps the numbers of those that are over, and of those that were left, within their bound.
    pub(super) fn make_room(&mut self) {
        while let Some(oldest) = self.connections.excess(self.config.max_time_wait) {
            self.counters.time_wait_overflow += 1;
            self.forget(oldest);
        }
    }

    /// The end of a connection that is over.
    pub(super) fn forget(&mut self, id: u32) {
        let Some(connection) = self.connections.remove(id) else {
            return;
        };
        if connection.state() == State::TimeWait && !connection.orphan {
            let conn = ConnId(id);
            self.events.push_back(Event::TimeWaitExit { conn });
        }
    }

    /// Tells the host, once, that the connection has ended.
    pub(super) fn tell_ended(&mut self, id: u32, how: Ended) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if !connection.notified {
            connection.notified = true;
            let conn = ConnId(id);
            self.tell(id, Event::Disconnected { conn, how });
        }
    }

    /// The peer's queue pair has another connection by now. If this one is being left anyway, its
    /// DREP was lost, or will never come: it is over, and no reason to refuse the other one.
    /// `false` if it is not being left.
    pub(super) fn is_superseded(&mut self, now: Time, id: u32) -> bool {
        let state = self.connections.get(id).map(Connection::state);
        if !matches!(state, Some(State::DreqSent | State::DreqReceived)) {
            return false;
        }
        self.tell_ended(id, Ended::Stale);
        self.enter_time_wait(now, id);
        true
    }

    /// The peer asks for something else than another host did in its name: its own word counts, and
    /// it hears nothing of the other one's. `false` if it has said something of this connection.
    pub(super) fn is_disowned(&mut self, now: Time, id: u32) -> bool {
        let hearsay = |c: &Connection| c.claimed_retries.is_some();
        if !self.connections.get(id).is_some_and(hearsay) {
            return false;
        }
        self.tell(id, Event::Unreachable { conn: ConnId(id) });
        self.disown_quietly(id);
        if let Some(connection) = self.connections.get_mut(id) {
            // Nor is it said again to whom asks again.
            connection.mad = None;
        }
        self.keep_in_mind(now, id);
        self.counters.stale += 1;
        true
    }

    /// The peer's queue pair has another connection by now, so this one is dead, whatever the peer
    /// remembers of it.
    pub(super) fn is_stale(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let state = connection.state();
        let conn = ConnId(id);
        match state {
            State::Established => {
                self.tell_ended(id, Ended::Stale);
                self.send_dreq(now, id, [0; 220]);
            }
            State::RepSent => {
                self.tell(id, Event::Unreachable { conn });
                self.abandon(now, id, RejectReason::STALE_CONNECTION);
            }
            State::ReqReceived => {
                self.tell(id, Event::Unreachable { conn });
                self.disown_quietly(id);
                self.keep_in_mind(now, id);
            }
            _ => return,
        }
        self.counters.stale += 1;
    }

    pub(super) fn handle_dreq(&mut self, now: Time, from: &Address, tid: u64, dreq: &Dreq) {
        let id = dreq.remote_id;
        let known = self.connections.get_mut(id);
        let Some(connection) =
            known.filter(|c| c.remote_id == dreq.local_id && c.is_between_ends_of(from))
        else {
            self.counters.unexpected += 1;
            self.confirm_anyway(from, tid, dreq);
            return;
        };
        let state = connection.state();
        let refused = state == State::Refused;
        if connection.local_qpn != dreq.remote_qpn && !refused {
            self.counters.unexpected += 1;
            return;
        }
        match state {
            State::RepSent | State::Established => {
                connection.tid = tid;
                if state == State::RepSent {
                    self.peer_is_ready(id, None);
                }
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.mad = None;
                    connection.deadline = None;
                }
                self.connections.set_state(id, State::DreqReceived);
                self.tell_ended(id, Ended::Requested(Box::new(dreq.private_data)));
            }
            // Both at once. Ours need not be answered any more.
            State::DreqSent => {
                connection.tid = tid;
                connection.half_open = false;
                self.tell_ended(id, Ended::Requested(Box::new(dreq.private_data)));
                self.confirm(now, id, [0; 224]);
            }
            State::TimeWait | State::Refused => {
                self.counters.duplicates += 1;
                self.confirm_again(from, tid, dreq);
            }
            State::DreqReceived => self.counters.duplicates += 1,
            // The peer has accepted, and left before it heard from us. It may not say so again once
            // our RTU is there: a dead process does not get that, and its last words are sent but
            // once.
            State::RepReceived => {
                connection.tid = tid;
                self.tell_rejected(id, &rejection(dreq));
                self.confirm(now, id, [0; 224]);
            }
            State::ReqSent | State::ReqReceived => self.counters.unexpected += 1,
        }
    }

    /// The peer has missed our DREP.
    fn confirm_again(&mut self, from: &Address, tid: u64, dreq: &Dreq) {
        let said = self.connections.get(dreq.remote_id);
        let said = said.and_then(|c| c.mad.as_deref());
        match said.map(|mad| Mad::parse(mad)) {
            Some(Ok(Mad {
                message: Message::Drep(drep),
                ..
            })) => self.reply(from, tid, Message::Drep(drep)),
            _ => self.confirm_anyway(from, tid, dreq),
        }
    }

    /// There is no such connection, which is just what the peer wants.
    fn confirm_anyway(&mut self, from: &Address, tid: u64, dreq: &Dreq) {
        let drep = Drep {
            local_id: dreq.remote_id,
            remote_id: dreq.local_id,
            private_data: [0; 224],
        };
        self.reply(from, tid, Message::Drep(drep));
    }

    pub(super) fn handle_drep(&mut self, now: Time, from: &Address, drep: &Drep) {
        let id = drep.remote_id;
        let fits = self.connections.get(id).is_some_and(|connection| {
            let asked = connection.state() == State::DreqSent && !connection.held;
            let fits = connection.remote_id == drep.local_id;
            asked && fits && connection.is_between_ends_of(from)
        });
        if !fits {
            self.counters.unexpected += 1;
            return;
        }
        self.tell_ended(id, Ended::Confirmed(Box::new(drep.private_data)));
        self.enter_time_wait(now, id);
    }

    /// Says what is under way without waiting for the timer.
    pub(super) fn repeat_now(&mut self, now: Time, id: u32) {
        if self.release(now, id) {
            return;
        }
        self.say_again(id);
        if let Some(connection) = self.connections.get(id) {
            let at = now.after(connection.wait_ns());
            self.arm(id, at);
        }
    }
}

/// What the application hears of a DREQ that ends what was never established.
fn rejection(dreq: &Dreq) -> Rej {
    Rej {
        local_id: dreq.local_id,
        remote_id: dreq.remote_id,
        message: Answered::Other,
        info_len: 0,
        reason: RejectReason::CONSUMER_DEFINED,
        additional_info: [0; 72],
        private_data: [0; 148],
    }
}
