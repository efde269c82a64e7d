//! Event translation: what the endpoint has to say becomes events of ids.

use rnic_cm::{
    Admission, ConnId, Ended, Event, Incoming, Rejection, Reply, Request, SidrReply, SidrRequest,
    Time,
};
use rnic_wire::PathMtu;
use rnic_wire::cm::{IpCmHeader, RejectReason, ServiceId, SidrStatus, Transport};
use std::net::{IpAddr, SocketAddr};

use super::attr::ack_timeout;
use super::connect::random_psn;
use super::entry::Terms;
use super::entry::{Connection, Entry, Number, Phase, Source, State, Waiting};
use super::listeners::Listeners;
use super::slab::{Key, Slab};
use super::state::Cm;
use crate::addressing::gid_table::GidEntry;
use crate::observe;
use crate::observe::cm::Asked;
use crate::queues::QpType;
use crate::reserve;
use rnic_types::cm::{ConnEvent, EventKind, EventParam, PathRecord, UdEvent};

/// The address that a request is for.
pub(crate) fn wanted(incoming: &Incoming) -> IpAddr {
    match &incoming.ip {
        Some(Ok(header)) => header.dst,
        _ => incoming.local_gid.ip(),
    }
}

/// Evidence of what becomes of a request that this id is of.
pub(crate) fn note_request_of(entry: &Entry, asked: Asked) {
    let port = entry.local.map_or(0, |local| local.port());
    let attempt = observe::cm::Attempt {
        service: ServiceId::new(entry.port_space, port),
        local: entry.local,
        peer: entry.peer,
    };
    observe::cm::request(&attempt, asked);
}

/// Says what becomes of a request.
pub(crate) fn admit(
    incoming: &Incoming,
    ids: &Slab<Entry>,
    listeners: &Listeners,
    table: &[GidEntry],
) -> Admission {
    let wanted = wanted(incoming);
    let Some(key) = listeners.find(ids, incoming.service, wanted) else {
        return Admission::NobodyListens;
    };
    if matches!(incoming.ip, Some(Ok(_))) && !table.iter().any(|row| row.addr == wanted) {
        return Admission::Refuse(RejectReason::CONSUMER_DEFINED);
    }
    let Some(entry) = ids.get(key) else {
        return Admission::NobodyListens;
    };
    let fits = matches!(
        (incoming.transport, entry.qp_type),
        (None, QpType::Ud)
            | (Some(Transport::Rc), QpType::Rc)
            | (Some(Transport::Uc), QpType::Uc)
            | (Some(Transport::Xrc), QpType::XrcRecv)
    );
    if !fits {
        observe::cm::other_service(incoming, wanted, entry.qp_type);
        return Admission::Refuse(RejectReason::CONSUMER_DEFINED);
    }
    if entry.backlog == 0 {
        // As Linux: the peer asks again, and may have better luck.
        observe::cm::backlog_full(incoming, wanted);
        return Admission::Drop;
    }
    if reserve::is_short() {
        // The same, when there may be memory for another id.
        return Admission::Drop;
    }
    Admission::Admit(key.to_bits())
}

impl Cm {
    /// Takes what the endpoint has to say.
    pub(crate) fn take_events(&mut self, now: u64) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Request {
                    conn,
                    listener,
                    request,
                } => {
                    let number = Number::Conn(conn);
                    let listener = Key::from_bits(listener);
                    if self.host.pkeys().index_matching(request.req.pkey).is_none() {
                        self.refuse_pkey(conn, &request, now);
                    } else if self.is_too_wide(&request) {
                        self.refuse_mtu(conn, &request, now);
                    } else if self.requested(listener, number, &request, now).is_none() {
                        self.endpoint.destroy(Time(now), conn);
                    }
                }
                Event::SidrRequest {
                    sidr,
                    listener,
                    request,
                } => {
                    let number = Number::Sidr(sidr);
                    let listener = Key::from_bits(listener);
                    if self.asked(listener, number, &request).is_none() {
                        self.endpoint.sidr_destroy(Time(now), sidr);
                    }
                }
                Event::Response { conn, reply } => self.answered(conn.0, &reply, now),
                Event::Established { conn, .. } => {
                    self.enter_phase(conn.0, EventKind::Established, 0, Phase::Established);
                }
                Event::Rejected { conn, rejection } => self.rejected(conn.0, &rejection),
                Event::Unreachable { conn } => {
                    let status = -libc::ETIMEDOUT;
                    let phase = self.phase_of(conn.0);
                    let key =
                        self.enter_phase(conn.0, EventKind::Unreachable, status, Phase::Ended);
                    if let Some(key) = key {
                        match phase {
                            // Who had asked is gone: this side has asked nobody.
                            Some(Phase::Request) => self.note(Some(key), |attempt| {
                                observe::cm::asker_left(attempt, false);
                            }),
                            Some(Phase::Accepted) => self.note(Some(key), |attempt| {
                                observe::cm::asker_left(attempt, true);
                            }),
                            _ => self.note_silence(key, now),
                        }
                        self.forget_connection(key);
                    }
                }
                Event::Disconnected { conn, how } => {
                    let status = match how {
                        Ended::Unanswered => -libc::ETIMEDOUT,
                        _ => 0,
                    };
                    let key =
                        self.enter_phase(conn.0, EventKind::Disconnected, status, Phase::Ended);
                    if let Some(entry) = key.and_then(|key| self.ids.get_mut(key)) {
                        entry.state = State::Disconnect;
                    }
                }
                Event::TimeWaitExit { conn } => {
                    let Some(key) = self.by_number.get(&conn.0).copied() else {
                        continue;
                    };
                    self.forget_connection(key);
                    let state = self.ids.get(key).map(|entry| entry.state);
                    if state == Some(State::Disconnect) {
                        self.post(Waiting::new(key, EventKind::TimewaitExit));
                    }
                }
                Event::SidrResponse { sidr, reply } => self.resolved(sidr.0, &reply),
                Event::SidrUnreachable { sidr } => {
                    let status = -libc::ETIMEDOUT;
                    let key =
                        self.enter_phase(sidr.0, EventKind::Unreachable, status, Phase::Ended);
                    if let Some(key) = key {
                        self.note_silence(key, now);
                        self.forget_connection(key);
                    }
                }
            }
        }
    }

    /// Evidence of a failure, if somebody wants it.
    pub(crate) fn note(&self, key: Option<Key>, record: impl FnOnce(&observe::cm::Attempt)) {
        if !observe::is_on() {
            return;
        }
        let Some(entry) = key.and_then(|key| self.ids.get(key)) else {
            return;
        };
        record(&observe::cm::Attempt {
            service: ServiceId::new(entry.port_space, entry.peer.map_or(0, |peer| peer.port())),
            local: entry.local,
            peer: entry.peer,
        });
    }

    /// The same of what this side was asked.
    pub(crate) fn note_request(&self, key: Key, asked: Asked) {
        if let Some(entry) = self.ids.get(key).filter(|_| observe::is_on()) {
            note_request_of(entry, asked);
        }
    }

    fn note_silence(&self, key: Key, now: u64) {
        let silence = self.silence(key, now);
        self.note(Some(key), |attempt| {
            observe::cm::unreachable(attempt, silence, self.ports.as_ref())
        });
    }

    fn phase_of(&self, number: u32) -> Option<Phase> {
        let entry = self.ids.get(*self.by_number.get(&number)?)?;
        entry.connection.as_ref().map(|connection| connection.phase)
    }

    /// An event without more to it, after which the connection is in another phase.
    fn enter_phase(
        &mut self,
        number: u32,
        kind: EventKind,
        status: i32,
        phase: Phase,
    ) -> Option<Key> {
        let key = *self.by_number.get(&number)?;
        let entry = self.ids.get_mut(key)?;
        let param = match entry.qp_type {
            QpType::Ud => EventParam::Ud(UdEvent::default()),
            _ => EventParam::Conn(ConnEvent::default()),
        };
        let connection = entry.connection.as_mut()?;
        connection.phase = phase;
        if phase == Phase::Ended {
            let last_words = connection.last_words.take();
            let connection = *connection;
            self.remove_last_words(last_words);
            self.unwatch(key, &connection);
        }
        self.post(Waiting {
            status,
            param,
            ..Waiting::new(key, kind)
        });
        Some(key)
    }

    /// The queue pair of a peer is in none of the port's partitions. No reason of a REJ is about
    /// that (IBTA vol. 1, 12.6.7.2). Linux, which finds no address vector then, gives this one.
    #[cold]
    fn refuse_pkey(&mut self, conn: ConnId, request: &Request, now: u64) {
        let (address, req) = (&request.address, &request.req);
        let between = (address.local_gid.ip(), address.remote_gid.ip());
        observe::cm::other_partition(req.service_id, between, req.pkey, self.host.pkeys());
        let (reason, info) = (RejectReason::INVALID_GID, &request.address.local_gid.0);
        let refused = self.endpoint.reject(Time(now), conn, reason, info, &[]);
        debug_assert_eq!(refused, Ok(()));
    }

    /// The path MTU that a peer has chosen is more than the own interface carries. Linux takes it
    /// all the same, and then nothing longer arrives.
    fn is_too_wide(&self, request: &Request) -> bool {
        let row = self.row_of_gid(request.address.local_gid);
        row.zip(request.path_mtu())
            .is_some_and(|(row, mtu)| mtu > PathMtu::largest_for_netdev(row.netdev_mtu))
    }

    /// Refuses it, with the one that would do (IBTA vol. 1, 12.6.7.2, reason 26).
    #[cold]
    fn refuse_mtu(&mut self, conn: ConnId, request: &Request, now: u64) {
        let Some(row) = self.row_of_gid(request.address.local_gid) else {
            return self.endpoint.destroy(Time(now), conn);
        };
        let fits = PathMtu::largest_for_netdev(row.netdev_mtu);
        observe::cm::too_wide(request, row.addr, fits);
        // The field of a REQ: the upper four bits.
        let info = [(fits.to_ibv() as u8) << 4];
        let reason = RejectReason::INVALID_MTU;
        let refused = self.endpoint.reject(Time(now), conn, reason, &info, &[]);
        debug_assert_eq!(refused, Ok(()));
    }

    /// A peer wants a connection.
    fn requested(
        &mut self,
        listener: Key,
        number: Number,
        request: &Request,
        now: u64,
    ) -> Option<()> {
        let req = &request.req;
        let qp_type = match req.transport {
            Transport::Rc => QpType::Rc,
            Transport::Uc => QpType::Uc,
            Transport::Xrc => QpType::XrcRecv,
            Transport::Other(..) => return None,
        };
        let address = &request.address;
        let (pkey_index, pkey) = self.partition_of(req.pkey)?;
        let path = PathRecord {
            dgid: address.remote_gid,
            sgid: address.local_gid,
            flow_label: address.flow_label,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
            pkey,
            sl: req.primary.sl,
            // What makes no sense is taken for the least.
            mtu: request.path_mtu().unwrap_or(PathMtu::M256),
            rate: req.primary.packet_rate,
            packet_life_time: req.primary.ack_timeout.saturating_sub(1),
        };
        let mut entry = self.entry_of_request(listener, qp_type, request.ip, req.service_id)?;
        let rq_psn = random_psn(&self.host);
        entry.place(self.row_of_gid(address.local_gid)?);
        entry.mtu = Some(path.mtu);
        entry.path = Some(path);
        entry.pkey_index = pkey_index;
        entry.connection = Some(Connection {
            number,
            phase: Phase::Request,
            terms: Terms {
                ah: entry.ah(&path),
                path_mtu: path.mtu,
                remote_qpn: req.qpn,
                rq_psn,
                sq_psn: req.starting_psn,
                responder_resources: request.responder_resources(),
                initiator_depth: request.initiator_depth(),
                retry_count: req.retry_count,
                rnr_retry_count: req.rnr_retry_count,
                timeout: req.primary.ack_timeout.max(1),
            },
            peer_range: None,
            last_words: None,
            asked_at: 0,
            noted: false,
            leaves: false,
        });
        let param = EventParam::Conn(ConnEvent {
            private_data: request.private_data().to_vec(),
            responder_resources: request.responder_resources(),
            initiator_depth: request.initiator_depth(),
            flow_control: req.flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            qp_num: req.qpn,
            ..ConnEvent::default()
        });
        let key = self.offer(listener, entry, param)?;
        self.by_number.insert(number.value(), key);
        self.watch(key, req.local_id, now);
        Some(())
    }

    /// A peer asks for a datagram service.
    fn asked(&mut self, listener: Key, number: Number, request: &SidrRequest) -> Option<()> {
        let service = request.req.service_id;
        let mut entry = self.entry_of_request(listener, QpType::Ud, request.ip, service)?;
        let address = &request.address;
        let (pkey_index, pkey) = self.partition_of(request.req.pkey)?;
        entry.pkey_index = pkey_index;
        let source = entry.place(self.row_of_gid(address.local_gid)?);
        let mtu = PathMtu::largest_for_netdev(source.netdev_mtu);
        let path = PathRecord {
            dgid: address.remote_gid,
            sgid: address.local_gid,
            flow_label: address.flow_label,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
            pkey,
            sl: 0,
            mtu,
            rate: 0,
            packet_life_time: 0,
        };
        entry.mtu = Some(mtu);
        entry.connection = Some(Connection {
            number,
            phase: Phase::Request,
            terms: Terms::of_datagrams(entry.ah(&path), mtu),
            peer_range: None,
            last_words: None,
            asked_at: 0,
            noted: false,
            leaves: false,
        });
        let param = EventParam::Ud(UdEvent {
            private_data: request.private_data().to_vec(),
            ..UdEvent::default()
        });
        let key = self.offer(listener, entry, param)?;
        self.by_number.insert(number.value(), key);
        Some(())
    }

    /// The entry of the P_Key table by which the owner of a P_Key is talked to.
    fn partition_of(&self, pkey: u16) -> Option<(u16, u16)> {
        let pkeys = self.host.pkeys();
        let index = pkeys.index_matching(pkey)?;
        Some((index, pkeys.get(index)?))
    }

    /// The id of a request, with the addresses that its header names.
    fn entry_of_request(
        &self,
        listener: Key,
        qp_type: QpType,
        ip: Option<IpCmHeader>,
        service: ServiceId,
    ) -> Option<Entry> {
        let listening = self.ids.get(listener)?;
        let ip = ip?;
        let (_, port) = service.port()?;
        let mut entry = Entry::new(listening.port_space, qp_type, listening.channel);
        entry.state = State::Connect;
        entry.local = Some(SocketAddr::new(ip.dst, port));
        entry.peer = Some(SocketAddr::new(ip.src, ip.src_port));
        entry.options.tos = listening.options.tos;
        Some(entry)
    }

    /// Tells a listener of the new id.
    fn offer(&mut self, listener: Key, entry: Entry, param: EventParam) -> Option<Key> {
        let listening = self.ids.get_mut(listener)?;
        listening.backlog = listening.backlog.checked_sub(1)?;
        let key = self.add_id(entry)?;
        self.post(Waiting {
            param,
            subject: Some(key),
            ..Waiting::new(listener, EventKind::ConnectRequest)
        });
        self.note_request(key, Asked::Came);
        Some(key)
    }

    /// The peer accepts.
    fn answered(&mut self, number: u32, reply: &Reply, now: u64) {
        let Some(key) = self.by_number.get(&number).copied() else {
            return;
        };
        let Some(connection) = self.ids.get_mut(key).and_then(|e| e.connection.as_mut()) else {
            return;
        };
        let rep = &reply.rep;
        connection.phase = Phase::Answered;
        let terms = &mut connection.terms;
        terms.remote_qpn = reply.qpn;
        terms.sq_psn = rep.starting_psn;
        terms.responder_resources = reply.responder_resources();
        terms.initiator_depth = reply.initiator_depth();
        terms.rnr_retry_count = rep.rnr_retry_count;
        terms.timeout = ack_timeout(rep.target_ack_delay, terms.timeout.saturating_sub(1));
        self.note_answer(key);
        self.watch(key, rep.local_id, now);
        self.post(Waiting {
            param: EventParam::Conn(ConnEvent {
                private_data: rep.private_data.to_vec(),
                responder_resources: reply.responder_resources(),
                initiator_depth: reply.initiator_depth(),
                flow_control: rep.flow_control,
                retry_count: 0,
                rnr_retry_count: rep.rnr_retry_count,
                srq: rep.srq,
                qp_num: reply.qpn,
                ..ConnEvent::default()
            }),
            ..Waiting::new(key, EventKind::ConnectResponse)
        });
    }

    fn rejected(&mut self, number: u32, rejection: &Rejection) {
        let Some(key) = self.by_number.get(&number).copied() else {
            return;
        };
        if let Some(connection) = self.ids.get_mut(key).and_then(|e| e.connection.as_mut()) {
            connection.phase = Phase::Ended;
            let last_words = connection.last_words.take();
            self.remove_last_words(last_words);
        }
        self.forget_connection(key);
        let reason = rejection.reason.0;
        self.note(Some(key), |attempt| {
            observe::cm::rejected(
                attempt,
                reason,
                &rejection.private_data,
                self.ports.as_ref(),
            );
        });
        self.post(Waiting {
            status: rejection.reason.0.into(),
            param: EventParam::Conn(ConnEvent {
                private_data: rejection.private_data.to_vec(),
                ..ConnEvent::default()
            }),
            ..Waiting::new(key, EventKind::Rejected)
        });
    }

    /// A datagram service answers.
    fn resolved(&mut self, number: u32, reply: &SidrReply) {
        let Some(key) = self.by_number.get(&number).copied() else {
            return;
        };
        let rep = &reply.rep;
        let Some(connection) = self.ids.get_mut(key).and_then(|e| e.connection.as_mut()) else {
            return;
        };
        let found = rep.status == SidrStatus::VALID;
        connection.phase = if found {
            Phase::Established
        } else {
            Phase::Ended
        };
        let mut ud = UdEvent {
            private_data: rep.private_data.to_vec(),
            ..UdEvent::default()
        };
        let (kind, status) = if found {
            ud.ah = connection.terms.ah;
            ud.qp_num = rep.qpn;
            ud.qkey = rep.qkey;
            (EventKind::Established, 0)
        } else {
            (EventKind::Unreachable, i32::from(rep.status.0))
        };
        self.forget_connection(key);
        if found {
            self.note_answer(key);
        } else {
            let status = rep.status.0;
            let private = rep.private_data;
            self.note(Some(key), |attempt| {
                observe::cm::datagrams_refused(attempt, status, &private, self.ports.as_ref());
            });
        }
        self.post(Waiting {
            status,
            param: EventParam::Ud(ud),
            ..Waiting::new(key, kind)
        });
    }
}

impl Entry {
    /// Puts the id of a request on the row of the table that was asked for.
    fn place(&mut self, row: &GidEntry) -> Source {
        let source = Source::of(row);
        self.source = Some(source);
        for addr in [&mut self.local, &mut self.peer] {
            if let Some(SocketAddr::V6(v6)) = addr
                && v6.ip().is_unicast_link_local()
            {
                v6.set_scope_id(source.scope_id);
            }
        }
        source
    }
}
