//! The side that asks.

use super::connection::Connection;
use super::{Endpoint, State, peer_timeout_ns};
use crate::{Address, CmError, ConnId, Connect, Event, Reply, Time};
use alloc::boxed::Box;
use rnic_wire::cm::{
    Answered, IpCmHeader, Message, Mra, RejectReason, Rep, Req, ReqPath, Rtu, ServiceId,
    private_data,
};

impl Endpoint {
    /// Sends a REQ. Leads to [`Event::Response`](crate::Event::Response), `Rejected` or
    /// `Unreachable`.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`CmError::IpCmHeader`], [`CmError::NoIds`].
    pub fn connect(&mut self, now: Time, connect: &Connect<'_>) -> Result<ConnId, CmError> {
        let private_data = request_data(connect.service, &connect.ip, connect.private_data)?;
        let id = self.new_id()?;
        let tid = self.transaction(id);
        let address = Address::of_requester(&connect.path, connect.pkey);
        let req = Req {
            local_id: id,
            vendor_id: 0,
            service_id: connect.service,
            ca_guid: self.config.guid,
            qkey: connect.qkey,
            qpn: connect.qpn,
            responder_resources: connect.responder_resources,
            local_eecn: 0,
            initiator_depth: connect.initiator_depth,
            remote_eecn: 0,
            remote_response_timeout: self.config.response_timeout,
            transport: connect.transport,
            flow_control: connect.flow_control,
            starting_psn: connect.starting_psn,
            local_response_timeout: self.config.response_timeout,
            retry_count: connect.retry_count.min(7),
            pkey: connect.pkey,
            path_mtu: connect.path_mtu.to_ibv() as u8,
            rdc_exists: false,
            rnr_retry_count: connect.rnr_retry_count.min(7),
            max_cm_retries: self.config.max_retries.min(15),
            srq: connect.srq,
            primary: connect.path,
            alternate: ReqPath::default(),
            private_data,
        };
        let mut connection = Connection::new(true, tid, address);
        // As the peer reads it, which names it in a DREQ.
        connection.local_qpn = connect.qpn & 0xff_ffff;
        connection.transport = connect.transport;
        connection.interval_ns = self.request_interval_ns();
        connection.max_retries = self.config.max_retries.min(15);
        let hold = self.must_hold();
        self.connections.insert(id, connection);
        self.ask(now, id, tid, Message::Req(req), hold);
        Ok(ConnId(id))
    }

    /// After [`Event::Response`](crate::Event::Response): our queue pair is ready to send. Sends an
    /// RTU, with at most 224 bytes of private data.
    ///
    /// # Errors
    /// [`CmError::Unknown`], [`CmError::State`], [`CmError::PrivateData`].
    pub fn ready(&mut self, _now: Time, conn: ConnId, private_data: &[u8]) -> Result<(), CmError> {
        let connection = self.own(conn)?;
        if connection.state() != State::RepReceived {
            return Err(CmError::State(connection.state()));
        }
        let tid = connection.tid;
        let rtu = Rtu {
            local_id: conn.0,
            remote_id: connection.remote_id,
            private_data: fit(private_data)?,
        };
        self.connections.set_state(conn.0, State::Established);
        self.say(conn.0, tid, Message::Rtu(rtu));
        Ok(())
    }

    pub(super) fn handle_rep(&mut self, now: Time, from: &Address, tid: u64, rep: &Rep) {
        let id = rep.remote_id;
        let known = self.connections.get_mut(id);
        let Some(connection) = known.filter(|c| {
            let fits = c.is_of(tid) || !c.may_be_answered();
            c.active && fits && c.is_between_ends_of(from)
        }) else {
            // Whoever accepts what nobody asks for any more (or what an earlier process asked for
            // under this id) need not wait for an RTU.
            self.counters.unexpected += 1;
            let reason = RejectReason::INVALID_COMM_ID;
            self.refuse(from, tid, (id, rep.local_id), Answered::Rep, reason, &[]);
            return;
        };
        if connection.state() == State::ReqSent {
            self.handle_first_rep(now, id, rep);
            return;
        }
        if connection.remote_id != rep.local_id {
            self.counters.unexpected += 1;
            return;
        }
        self.counters.duplicates += 1;
        match connection.state() {
            State::RepReceived => {
                let mra = Mra {
                    local_id: id,
                    remote_id: rep.local_id,
                    message: Answered::Rep,
                    service_timeout: self.config.service_timeout,
                    private_data: [0; 222],
                };
                connection.asked_to_wait = true;
                self.reply(from, tid, Message::Mra(mra));
            }
            State::Established => self.say_again(id),
            State::Refused => self.repeat_refusal(now, id),
            _ => {}
        }
    }

    fn handle_first_rep(&mut self, now: Time, id: u32, rep: &Rep) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let peer = (rep.ca_guid, connection.address.remote_gid);
        let qpn = rep.qpn_of(connection.transport);
        if let Some(old) = self.connections.of_queue_pair(peer, qpn)
            && !self.is_superseded(now, old)
        {
            self.refuse_reply(now, id, rep, RejectReason::STALE_CONNECTION);
            self.is_stale(now, old);
            return;
        }
        let time_wait = sum_of_codes((self.config.packet_life & 31) + 1, rep.target_ack_delay);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.remote_id = rep.local_id;
            connection.remote_qpn = qpn;
            connection.remote_psn = rep.starting_psn;
            connection.time_wait_ns = peer_timeout_ns(time_wait);
            // From now on it is the peer that repeats.
            connection.mad = None;
            connection.deadline = None;
            connection.patience_ns = None;
        }
        self.connections.learn_peer(id, peer);
        self.connections.set_state(id, State::RepReceived);
        let reply = Box::new(Reply { rep: *rep, qpn });
        let conn = ConnId(id);
        self.tell(id, Event::Response { conn, reply });
    }
}

/// Private data of a request, with the header that its service demands.
pub(super) fn request_data<const N: usize>(
    service: ServiceId,
    ip: &Option<IpCmHeader>,
    bytes: &[u8],
) -> Result<[u8; N], CmError> {
    if service.port().is_some() != ip.is_some() {
        return Err(CmError::IpCmHeader);
    }
    let mut all = [0; N];
    let mut room = &mut all[..];
    if let Some(header) = ip {
        header.emit(room);
        room = &mut room[IpCmHeader::LEN..];
    }
    let max = room.len();
    room.get_mut(..bytes.len())
        .ok_or(CmError::PrivateData { max })?
        .copy_from_slice(bytes);
    Ok(all)
}

/// Private data of another message.
pub(super) fn fit<const N: usize>(bytes: &[u8]) -> Result<[u8; N], CmError> {
    private_data(bytes).ok_or(CmError::PrivateData { max: N })
}

/// The code of about the sum of two times: the greater one, or one more if the other is as long or
/// half as long.
fn sum_of_codes(a: u8, b: u8) -> u8 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    (high + u8::from(low + 1 >= high)).min(31)
}
