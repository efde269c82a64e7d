//! "No" and "wait": REJ and MRA.

use super::active::fit;
use super::{Endpoint, State, peer_timeout_ns};
use crate::{Address, CmError, ConnId, Ended, Event, Rejection, Time};
use alloc::boxed::Box;
use rnic_wire::cm::{Answered, Message, Mra, Rej, RejectReason, Rep, timeout_ns};

/// Of the DREQ to a peer that may never have been ready: it was told by a REJ before.
const ABANDONED_RETRIES: u8 = 3;

impl Endpoint {
    /// After [`Event::Request`](crate::Event::Request) or
    /// [`Event::Response`](crate::Event::Response): refuses. Sends a REJ with at most 72 bytes of
    /// additional information and 148 of private data. The connection is destroyed: no event names
    /// it any more.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn reject(
        &mut self,
        now: Time,
        conn: ConnId,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let connection = self.own(conn)?;
        let message = match connection.state() {
            State::ReqReceived => Answered::Req,
            State::RepReceived => Answered::Rep,
            state => return Err(CmError::State(state)),
        };
        let tid = connection.tid;
        let rej = Rej {
            local_id: conn.0,
            remote_id: connection.remote_id,
            message,
            info_len: info.len() as u8,
            reason,
            additional_info: fit(info)?,
            private_data: fit(private_data)?,
        };
        self.say(conn.0, tid, Message::Rej(rej));
        self.disown(conn.0);
        self.keep_in_mind(now, conn.0);
        Ok(())
    }

    /// Refuses a message without a connection that would remember it. `ids`: ours (0 if there is
    /// none) and the peer's.
    pub(super) fn refuse(
        &mut self,
        to: &Address,
        tid: u64,
        ids: (u32, u32),
        message: Answered,
        reason: RejectReason,
        info: &[u8],
    ) {
        let rej = Rej {
            local_id: ids.0,
            remote_id: ids.1,
            message,
            info_len: info.len() as u8,
            reason,
            additional_info: fit(info).unwrap_or([0; 72]),
            private_data: [0; 148],
        };
        self.reply(to, tid, Message::Rej(rej));
    }

    /// Refuses a REP without asking the application, which hears of it as if the peer had refused
    /// the connection for the same reason: Linux's hears the same, from the peer, once the REQ was
    /// repeated.
    pub(super) fn refuse_reply(&mut self, now: Time, id: u32, rep: &Rep, reason: RejectReason) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        connection.remote_id = rep.local_id;
        let tid = connection.tid;
        let rej = Rej {
            local_id: id,
            remote_id: rep.local_id,
            message: Answered::Rep,
            info_len: 0,
            reason,
            additional_info: [0; 72],
            private_data: [0; 148],
        };
        self.say(id, tid, Message::Rej(rej));
        self.tell_rejected(id, &rej);
        self.disown_quietly(id);
        self.keep_in_mind(now, id);
    }

    /// Nobody wants the connection any more, but its REQ or REP may come again.
    pub(super) fn keep_in_mind(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let ns = self.refusal_ns(connection.asked_to_wait);
        self.connections.set_state(id, State::Refused);
        self.arm(id, now.after(ns));
        self.make_room();
    }

    /// The peer has missed our REJ.
    pub(super) fn repeat_refusal(&mut self, now: Time, id: u32) {
        self.say_again(id);
        self.keep_in_mind(now, id);
    }

    /// Our REQ was never answered, or nobody is interested in the answer any more. The peer may
    /// have got it.
    pub(super) fn give_up_request(&mut self, id: u32) {
        if let Some(connection) = self.connections.remove(id)
            && !connection.held
        {
            let reason = RejectReason::TIMEOUT;
            let guid = self.config.guid.to_be_bytes();
            let (to, tid) = (connection.address, connection.tid);
            self.refuse(&to, tid, (id, 0), Answered::Req, reason, &guid);
        }
    }

    /// Closes what was accepted and may or may not be established for the peer: a REJ for who waits
    /// for a REP, followed, if it does not end it, by a DREQ for who has sent an RTU.
    pub(super) fn abandon(&mut self, now: Time, id: u32, reason: RejectReason) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        connection.half_open = true;
        let may_be_nobodys = connection.claimed_retries.is_some();
        let (to, tid, remote_id) = (connection.address, connection.tid, connection.remote_id);
        // Who has given up says who it is (IBTA 12.6.7.2): by that, and our id, Linux finds its
        // connection then.
        let guid = self.config.guid.to_be_bytes();
        let info: &[u8] = match reason {
            RejectReason::TIMEOUT => &guid,
            _ => &[],
        };
        self.refuse(&to, tid, (id, remote_id), Answered::Other, reason, info);
        self.disown_quietly(id);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.max_retries = connection.max_retries.min(ABANDONED_RETRIES);
        }
        if may_be_nobodys {
            return self.enter_time_wait(now, id);
        }
        self.send_dreq_later(now, id);
    }

    pub(super) fn handle_mra(&mut self, now: Time, from: &Address, tid: u64, mra: &Mra) {
        let id = mra.remote_id;
        let Some(connection) = self.connections.get_mut(id) else {
            self.counters.unexpected += 1;
            return;
        };
        let fits = match (mra.message, connection.state()) {
            (Answered::Req, State::ReqSent) => true,
            (Answered::Rep, State::RepSent) => connection.remote_id == mra.local_id,
            _ => false,
        };
        if !fits || !connection.is_of(tid) || !connection.is_between_ends_of(from) {
            self.counters.unexpected += 1;
            return;
        }
        if connection.patience_ns.is_some() {
            self.counters.duplicates += 1;
            return;
        }
        let ns = peer_timeout_ns(mra.service_timeout) + timeout_ns(self.config.packet_life);
        connection.is_heard_of();
        connection.patience_ns = Some(ns);
        let at = now.after(ns);
        self.arm(id, at);
    }

    pub(super) fn handle_rej(&mut self, now: Time, from: &Address, tid: u64, rej: &Rej) {
        let rejected = self.rejected(from, rej).filter(|id| {
            let connection = self.connections.get(*id);
            connection.is_some_and(|c| {
                // Who does not know our id withdraws its REQ, in whose transaction it does that;
                // else its id alone were enough.
                let knows = rej.remote_id != 0 || c.tid == tid;
                let fits = c.is_of(tid) || !c.may_be_answered();
                c.is_between_ends_of(from) && fits && knows
            })
        });
        let Some(id) = rejected else {
            self.counters.unexpected += 1;
            return;
        };
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        match connection.state() {
            State::ReqSent => {
                self.tell_rejected(id, rej);
                self.connections.remove(id);
            }
            State::RepReceived => {
                self.tell_rejected(id, rej);
                self.enter_time_wait(now, id);
            }
            // The peer has given up; what it has sent before may still arrive.
            State::ReqReceived | State::RepSent => {
                self.tell_rejected(id, rej);
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.mad = None;
                }
                self.disown_quietly(id);
                self.keep_in_mind(now, id);
            }
            State::Established | State::DreqSent => {
                self.tell_ended(id, Ended::Rejected(rej.reason));
                self.enter_time_wait(now, id);
            }
            State::DreqReceived | State::TimeWait | State::Refused => {
                self.counters.duplicates += 1;
            }
        }
    }

    /// The connection that a REJ is about.
    fn rejected(&self, from: &Address, rej: &Rej) -> Option<u32> {
        // From a requester that never learned our id: its GUID and its own id tell.
        if rej.remote_id == 0 {
            let guid = rej.info().first_chunk().map(|b| u64::from_be_bytes(*b))?;
            return self
                .connections
                .of_request((guid, from.remote_gid), rej.local_id);
        }
        let connection = self.connections.get(rej.remote_id)?;
        let fits = match connection.state() {
            State::ReqSent => rej.message != Answered::Rep,
            _ => connection.remote_id == rej.local_id,
        };
        fits.then_some(rej.remote_id)
    }

    pub(super) fn tell_rejected(&mut self, id: u32, rej: &Rej) {
        let rejection = Box::new(Rejection {
            reason: rej.reason,
            message: rej.message,
            info_len: rej.info().len() as u8,
            info: rej.additional_info,
            private_data: rej.private_data,
        });
        let conn = ConnId(id);
        self.tell(id, Event::Rejected { conn, rejection });
    }

    /// From now on the host hears nothing of the connection, not even what was not drained yet.
    pub(super) fn disown(&mut self, id: u32) {
        self.disown_quietly(id);
        self.events.retain(|event| event.conn() != Some(ConnId(id)));
    }

    /// From now on the host hears nothing new of the connection.
    pub(super) fn disown_quietly(&mut self, id: u32) {
        let retries = self.config.max_retries.min(15);
        let interval_ns = self.request_interval_ns();
        if let Some(connection) = self.connections.get_mut(id) {
            // What a peer wants to be waited for is the application's affair; without that nobody
            // waits for 18 minutes.
            connection.max_retries = connection.max_retries.min(retries);
            connection.retries_left = connection.retries_left.min(retries);
            connection.interval_ns = connection.interval_ns.min(interval_ns);
        }
        self.connections.disown(id);
    }
}
