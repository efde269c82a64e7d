//! The side that is asked.

use super::active::fit;
use super::connection::Connection;
use super::{Admission, Endpoint, Incoming, MIN_INTERVAL, State, peer_timeout_ns};
use crate::{Accept, Address, CmError, ConnId, Event, Request, Time};
use alloc::boxed::Box;
use rnic_wire::cm::{Answered, IpCmHeader, Message, Mra, RejectReason, Rep, Req, Rtu, Transport};

impl Endpoint {
    /// After [`Event::Request`](crate::Event::Request): our queue pair is ready to receive (and, as
    /// in Linux, to send). Sends a REP. Leads to `Established`, `Rejected` or `Unreachable`.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn accept(&mut self, now: Time, conn: ConnId, accept: &Accept<'_>) -> Result<(), CmError> {
        let connection = self.own(conn)?;
        if connection.state() != State::ReqReceived {
            return Err(CmError::State(connection.state()));
        }
        let tid = connection.tid;
        // The target's queue pair is where an end-to-end context would be, and requests nothing
        // itself.
        let target = connection.transport == Transport::Xrc;
        let (qpn, local_eecn) = match target {
            true => (0, accept.qpn),
            false => (accept.qpn, 0),
        };
        let rep = Rep {
            local_id: conn.0,
            remote_id: connection.remote_id,
            qkey: accept.qkey,
            qpn,
            local_eecn,
            vendor_id: 0,
            starting_psn: accept.starting_psn,
            responder_resources: accept.responder_resources,
            initiator_depth: if target { 0 } else { accept.initiator_depth },
            target_ack_delay: self.config.target_ack_delay,
            failover: 0,
            flow_control: accept.flow_control && !target,
            rnr_retry_count: accept.rnr_retry_count.min(7),
            srq: accept.srq || target,
            ca_guid: self.config.guid,
            private_data: fit(accept.private_data)?,
        };
        self.connections.set_state(conn.0, State::RepSent);
        if let Some(connection) = self.connections.get_mut(conn.0) {
            connection.local_qpn = accept.qpn & 0xff_ffff;
        }
        self.say_until_answered(now, conn.0, tid, Message::Rep(rep));
        Ok(())
    }

    /// After `accept`: data have come on the connection, so the peer is ready, although its RTU may
    /// be late or lost (`rdma_notify(3)` with `IBV_EVENT_COMM_EST`). Leads to
    /// [`Event::Established`](crate::Event::Established). No error if the connection is established
    /// already.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`].
    pub fn established(&mut self, _now: Time, conn: ConnId) -> Result<(), CmError> {
        match self.own(conn)?.state() {
            State::RepSent => {
                self.peer_is_ready(conn.0, None);
                Ok(())
            }
            State::Established => Ok(()),
            state => Err(CmError::State(state)),
        }
    }

    /// The peer has our REP, however we know.
    pub(super) fn peer_is_ready(&mut self, id: u32, private_data: Option<Box<[u8; 224]>>) {
        self.connections.set_state(id, State::Established);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.is_heard_of();
            connection.mad = None;
            connection.deadline = None;
            connection.patience_ns = None;
        }
        let conn = ConnId(id);
        self.tell(id, Event::Established { conn, private_data });
    }

    pub(super) fn handle_rtu(&mut self, now: Time, from: &Address, rtu: &Rtu) {
        let id = rtu.remote_id;
        let known = self.connections.get(id);
        let Some(connection) = known
            .filter(|c| !c.active && c.remote_id == rtu.local_id && c.is_between_ends_of(from))
        else {
            self.counters.unexpected += 1;
            return;
        };
        match connection.state() {
            State::RepSent => self.peer_is_ready(id, Some(Box::new(rtu.private_data))),
            // It would have ignored a DREQ until now.
            State::DreqSent if connection.half_open => {
                self.counters.duplicates += 1;
                self.connections.is_open(id);
                self.repeat_now(now, id);
            }
            _ => self.counters.duplicates += 1,
        }
    }

    /// `own`: the request comes from who it says that it comes from.
    pub(super) fn handle_req(
        &mut self,
        now: Time,
        from: &Address,
        own: bool,
        tid: u64,
        req: &Req,
        admit: &mut dyn FnMut(&Incoming) -> Admission,
    ) {
        let peer = (req.ca_guid, req.primary.local_gid);
        if let Some(id) = self.connections.of_request(peer, req.local_id)
            && self.is_repetition(now, from, own, tid, req, id)
        {
            return;
        }
        let refuse = |endpoint: &mut Endpoint, reason, info: &[u8]| {
            endpoint.counters.refused += 1;
            endpoint.refuse(from, tid, (0, req.local_id), Answered::Req, reason, info);
        };
        if let Some(old) = self.connections.of_queue_pair(peer, req.qpn)
            && !(own && (self.is_superseded(now, old) || self.is_disowned(now, old)))
        {
            refuse(self, RejectReason::STALE_CONNECTION, &[]);
            if own {
                self.is_stale(now, old);
            }
            return;
        }
        if !self.has_room_for_a_request() {
            self.counters.dropped += 1;
            return;
        }
        let has_header = req.service_id.port().is_some();
        let ip = has_header.then(|| IpCmHeader::parse(&req.private_data));
        let incoming = Incoming {
            service: req.service_id,
            transport: Some(req.transport),
            ip,
            local_gid: req.primary.remote_gid,
            remote_gid: req.primary.local_gid,
        };
        let listener = match admit(&incoming) {
            Admission::Admit(listener) => listener,
            Admission::NobodyListens => {
                return refuse(self, RejectReason::INVALID_SERVICE_ID, &[]);
            }
            Admission::Refuse(reason) => return refuse(self, reason, &[]),
            Admission::Drop => {
                self.counters.dropped += 1;
                return;
            }
        };
        if matches!(req.transport, Transport::Other(..)) {
            return refuse(self, RejectReason::INVALID_TRANSPORT, &[]);
        }
        if !self.is_ours(&req.primary.remote_gid) {
            return refuse(self, RejectReason::INVALID_GID, &from.local_gid.0);
        }
        // Nobody's: what is said there, and said again, would reach a whole network.
        let asker = req.primary.local_gid.ip();
        if asker.is_multicast() || asker.is_unspecified() {
            return refuse(self, RejectReason::INVALID_GID, &[]);
        }
        if !self.has_good_header(&ip) {
            return refuse(self, RejectReason::CONSUMER_DEFINED, &[]);
        }
        let Ok(id) = self.new_id() else {
            return refuse(self, RejectReason::NO_RESOURCES, &[]);
        };
        let address = Address::of_responder(&req.primary, from.pkey);
        let mut connection = Connection::new(false, tid, address);
        connection.transport = req.transport;
        connection.remote_id = req.local_id;
        connection.peer = Some(peer);
        connection.remote_qpn = req.qpn;
        connection.remote_psn = req.starting_psn;
        connection.interval_ns = peer_timeout_ns(req.local_response_timeout.max(MIN_INTERVAL));
        match own {
            true => connection.max_retries = req.max_cm_retries,
            false => connection.claimed_retries = Some(req.max_cm_retries),
        }
        connection.time_wait_ns = peer_timeout_ns(req.primary.ack_timeout);
        self.connections.insert(id, connection);
        let request = Box::new(Request {
            req: *req,
            ip: ip.and_then(Result::ok),
            address,
        });
        let conn = ConnId(id);
        self.tell(
            id,
            Event::Request {
                conn,
                listener,
                request,
            },
        );
    }

    /// Answers a REQ that has come before. `false` if it is another one after all: its sender was
    /// restarted and counts from the same number.
    fn is_repetition(
        &mut self,
        now: Time,
        from: &Address,
        own: bool,
        tid: u64,
        req: &Req,
        id: u32,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(id) else {
            return false;
        };
        let state = connection.state();
        if (connection.remote_qpn, connection.remote_psn) != (req.qpn, req.starting_psn) {
            let over = matches!(state, State::TimeWait | State::Refused);
            if own && (over || self.is_superseded(now, id) || self.is_disowned(now, id)) {
                self.forget(id);
                return false;
            }
            self.counters.refused += 1;
            let reason = RejectReason::STALE_CONNECTION;
            self.refuse(from, tid, (0, req.local_id), Answered::Req, reason, &[]);
            if own {
                self.is_stale(now, id);
            }
            return true;
        }
        self.counters.duplicates += 1;
        if own {
            connection.is_heard_of();
        }
        let half_open = connection.half_open;
        let answers_once = connection.claimed_retries.is_some();
        match state {
            State::ReqReceived => {
                let mra = Mra {
                    local_id: id,
                    remote_id: req.local_id,
                    message: Answered::Req,
                    service_timeout: self.config.service_timeout,
                    private_data: [0; 222],
                };
                connection.asked_to_wait = true;
                self.reply(from, tid, Message::Mra(mra));
            }
            State::Refused if connection.mad.is_some() => self.repeat_refusal(now, id),
            // It was withdrawn, or is of a peer that was restarted meanwhile.
            State::Refused => {
                let reason = RejectReason::STALE_CONNECTION;
                self.refuse(from, tid, (id, req.local_id), Answered::Req, reason, &[]);
            }
            // It never got the REP: what it asked for is over before it began.
            State::DreqSent | State::TimeWait if half_open => {
                let reason = RejectReason::CONSUMER_DEFINED;
                self.refuse(from, tid, (id, req.local_id), Answered::Req, reason, &[]);
            }
            State::TimeWait => {
                let reason = RejectReason::STALE_CONNECTION;
                self.refuse(from, tid, (0, req.local_id), Answered::Req, reason, &[]);
            }
            State::RepSent if answers_once => self.say_again(id),
            // Our REP answers it, and the timer repeats that.
            _ => {}
        }
        true
    }
}

/// The request comes from where its sender claims to be. Who speaks for another host, or for
/// another process, may ask, but ends nothing of theirs, and nothing is sent there again and again.
pub(super) fn speaks_for_itself(from: &Address, req: &Req) -> bool {
    from.remote_gid == req.primary.local_gid
}
