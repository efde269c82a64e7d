//! Connections and service ID resolutions: what the application asks of its peer.

use rnic_cm::{Accept, Address, CmError, Connect, SidrAnswer, SidrConnect, Time};
use rnic_wire::cm::{IpCmHeader, RejectReason, ReqPath, ServiceId, SidrStatus, Transport};

use super::attr::ack_timeout;
use super::entry::Terms;
use super::entry::{Connection, Entry, Number, Phase, State};
use super::event_translation::note_request_of;
use super::slab::Key;
use super::state::Cm;
use crate::addressing::address::AhAttr;
use crate::device::LOCAL_CA_ACK_DELAY;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::observe;
use crate::observe::cm::Asked;
use crate::queues::QpType;
use rnic_types::cm::{ConnParam, Ece};

/// There are no LIDs on RoCE.
const NO_LID: u16 = 0xffff;
/// Most that the fields of the messages hold.
const MOST_RETRIES: u8 = 7;

impl Cm {
    pub(crate) fn connect(&mut self, key: Key, param: &ConnParam<'_>, now: u64) -> Result<()> {
        const VERB: &str = "rdma_connect";
        let rq_psn = random_psn(&self.host);
        let entry = self.entry(VERB, key)?;
        entry.expect(VERB, &[State::RouteResolved])?;
        no_ece(VERB, param)?;
        let (Some(local), Some(peer), Some(path)) = (entry.local, entry.peer, entry.path) else {
            return Err(Error::invalid(VERB, "the route is not resolved"));
        };
        let service = ServiceId::new(entry.port_space, peer.port());
        let ip = Some(IpCmHeader {
            src_port: local.port(),
            src: local.ip(),
            dst: peer.ip(),
        });
        let ah = entry.ah(&path);
        let terms = Terms {
            ah,
            path_mtu: path.mtu,
            remote_qpn: 0,
            rq_psn,
            sq_psn: 0,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            retry_count: param.retry_count.min(MOST_RETRIES),
            rnr_retry_count: param.rnr_retry_count.min(MOST_RETRIES),
            timeout: ack_timeout(LOCAL_CA_ACK_DELAY, path.packet_life_time),
        };
        let qp_type = entry.qp_type;
        let transport = match qp_type {
            QpType::Ud => None,
            QpType::Rc => Some(Transport::Rc),
            QpType::Uc => Some(Transport::Uc),
            QpType::XrcSend => Some(Transport::Xrc),
            QpType::XrcRecv => {
                return Err(Error::invalid(
                    VERB,
                    "the sending side of XRC connects, not the receiving one",
                ));
            }
        };
        let number = match transport {
            None => self
                .endpoint
                .sidr_connect(
                    Time(now),
                    &SidrConnect {
                        service,
                        ip,
                        address: Address {
                            flow_label: path.flow_label,
                            traffic_class: path.traffic_class,
                            hop_limit: path.hop_limit,
                            pkey: path.pkey,
                            ..Address::new(path.sgid, path.dgid)
                        },
                        pkey: path.pkey,
                        private_data: param.private_data,
                    },
                )
                .map(Number::Sidr),
            Some(transport) => self
                .endpoint
                .connect(
                    Time(now),
                    &Connect {
                        service,
                        ip,
                        path: ReqPath {
                            local_lid: NO_LID,
                            remote_lid: NO_LID,
                            local_gid: path.sgid,
                            remote_gid: path.dgid,
                            flow_label: path.flow_label,
                            packet_rate: path.rate,
                            traffic_class: path.traffic_class,
                            hop_limit: path.hop_limit,
                            sl: path.sl,
                            subnet_local: false,
                            ack_timeout: terms.timeout,
                        },
                        path_mtu: path.mtu,
                        pkey: path.pkey,
                        transport,
                        qpn: param.qp_num,
                        starting_psn: terms.rq_psn,
                        responder_resources: param.responder_resources,
                        initiator_depth: param.initiator_depth,
                        flow_control: param.flow_control,
                        retry_count: terms.retry_count,
                        rnr_retry_count: terms.rnr_retry_count,
                        srq: param.srq,
                        qkey: 0,
                        private_data: param.private_data,
                    },
                )
                .map(Number::Conn),
        }
        .map_err(|e| refused(VERB, e))?;
        self.by_number.insert(number.value(), key);
        let entry = self.entry(VERB, key)?;
        entry.connection = Some(Connection {
            number,
            phase: Phase::Requested,
            terms,
            peer_range: None,
            last_words: None,
            asked_at: now,
            noted: false,
            leaves: false,
        });
        entry.state = State::Connect;
        entry.qpn = param.qp_num;
        self.has_asked(key, now);
        Ok(())
    }

    /// Before the queue pair is changed for it.
    pub(crate) fn may_accept(&mut self, key: Key) -> Result<()> {
        const VERB: &str = "rdma_accept";
        let entry = self.entry(VERB, key)?;
        match entry.connection.map(|connection| connection.phase) {
            Some(Phase::Request | Phase::Answered) => Ok(()),
            Some(Phase::Accepted | Phase::Established) => {
                Err(Error::invalid(VERB, "the id has been accepted before"))
            }
            _ => Err(Error::invalid(
                VERB,
                "there is nothing to accept: only the id of a RDMA_CM_EVENT_CONNECT_REQUEST has a request",
            )),
        }
    }

    pub(crate) fn accept(
        &mut self,
        key: Key,
        param: Option<&ConnParam<'_>>,
        now: u64,
    ) -> Result<()> {
        const VERB: &str = "rdma_accept";
        self.entry(VERB, key)?.expect(VERB, &[State::Connect])?;
        let takes_request = param.is_some();
        let Cm { ids, endpoint, .. } = self;
        let nothing = || Error::invalid(VERB, "there is nothing to accept, or not any more");
        let entry = ids.get_mut(key).ok_or_else(nothing)?;
        let qkey = match param {
            Some(param) if param.qkey != 0 => param.qkey,
            _ => entry.qkey(),
        };
        let connection = entry.connection.as_mut().ok_or_else(nothing)?;
        let accepted = match (connection.phase, connection.number, param) {
            (Phase::Answered, Number::Conn(conn), None) => {
                let ready = endpoint.ready(Time(now), conn, &[]);
                connection.phase = Phase::Established;
                ready
            }
            (Phase::Request, Number::Conn(conn), Some(param)) => {
                no_ece(VERB, param)?;
                let rnr_retry_count = param.rnr_retry_count.min(MOST_RETRIES);
                let answer = Accept {
                    qpn: param.qp_num,
                    starting_psn: connection.terms.rq_psn,
                    responder_resources: param.responder_resources,
                    initiator_depth: param.initiator_depth,
                    flow_control: param.flow_control,
                    rnr_retry_count,
                    srq: param.srq,
                    qkey: 0,
                    private_data: param.private_data,
                };
                connection.terms.responder_resources = param.responder_resources;
                connection.terms.initiator_depth = param.initiator_depth;
                connection.phase = Phase::Accepted;
                endpoint.accept(Time(now), conn, &answer)
            }
            (Phase::Request, Number::Sidr(sidr), Some(param)) => {
                let answer = SidrAnswer {
                    status: SidrStatus::VALID,
                    qpn: param.qp_num,
                    qkey,
                    info: &[],
                    private_data: param.private_data,
                };
                connection.phase = Phase::Established;
                endpoint.sidr_answer(Time(now), sidr, &answer)
            }
            _ => return Err(nothing()),
        };
        let number = connection.number;
        if let Some(param) = param {
            entry.qpn = param.qp_num;
        }
        if let Err(e) = accepted {
            // As Linux: what cannot be accepted is refused.
            self.note_request(key, Asked::Unacceptable);
            self.refuse(key, RejectReason::CONSUMER_DEFINED, &[], now);
            return Err(refused(VERB, e));
        }
        if takes_request {
            self.note_request(key, Asked::Accepted);
        }
        match number {
            Number::Conn(conn) => self.needs_last_words(key, conn),
            Number::Sidr(_) => self.forget_connection(key),
        }
        Ok(())
    }

    pub(crate) fn reject(
        &mut self,
        key: Key,
        private_data: &[u8],
        reason: u16,
        now: u64,
    ) -> Result<()> {
        const VERB: &str = "rdma_reject";
        let reason = match reason {
            0 => RejectReason::CONSUMER_DEFINED,
            reason => RejectReason(reason),
        };
        let allowed = [
            RejectReason::CONSUMER_DEFINED,
            RejectReason::VENDOR_OPTION_NOT_SUPPORTED,
        ];
        if !allowed.contains(&reason) {
            return Err(Error::invalid(
                VERB,
                format!(
                    "reason {} is not the application's: 28 and 35 are",
                    reason.0
                ),
            ));
        }
        let entry = self.entry(VERB, key)?;
        let phase = entry.connection.as_ref().map(|connection| connection.phase);
        if !matches!(phase, Some(Phase::Request | Phase::Answered)) {
            return Err(Error::invalid(
                VERB,
                "there is nothing to refuse, or not any more",
            ));
        }
        let room = match entry.qp_type {
            QpType::Ud => super::ACCEPT_UD_PRIVATE_DATA,
            _ => super::REJECT_PRIVATE_DATA,
        };
        if private_data.len() > room {
            return Err(refused(VERB, CmError::PrivateData { max: room }));
        }
        if phase == Some(Phase::Request) {
            self.note_request(key, Asked::Rejected);
        }
        self.refuse(key, reason, private_data, now);
        Ok(())
    }

    /// Refuses what a peer has asked or answered.
    fn refuse(&mut self, key: Key, reason: RejectReason, private_data: &[u8], now: u64) {
        let Some(connection) = self.ids.get_mut(key).and_then(|e| e.connection.as_mut()) else {
            return;
        };
        connection.phase = Phase::Ended;
        let number = connection.number;
        match number {
            Number::Conn(conn) => {
                let said = self
                    .endpoint
                    .reject(Time(now), conn, reason, &[], private_data);
                if said.is_err() {
                    self.endpoint.destroy(Time(now), conn);
                }
            }
            Number::Sidr(sidr) => {
                let answer = SidrAnswer {
                    status: SidrStatus::REJECTED,
                    qpn: 0,
                    qkey: 0,
                    info: &[],
                    private_data,
                };
                if self.endpoint.sidr_answer(Time(now), sidr, &answer).is_err() {
                    self.endpoint.sidr_destroy(Time(now), sidr);
                }
            }
        }
        self.forget_connection(key);
    }

    pub(crate) fn disconnect(&mut self, key: Key, now: u64) -> Result<()> {
        const VERB: &str = "rdma_disconnect";
        let entry = self.entry(VERB, key)?;
        let connection = entry.connection;
        let connection =
            connection.ok_or_else(|| Error::invalid(VERB, "there is no connection"))?;
        if let Number::Conn(conn) = connection.number
            && self.is_known(key, &connection)
        {
            // As Linux: where there is nothing to end or to confirm, nothing happens.
            let _ = self.endpoint.disconnect(Time(now), conn, &[]);
            if let Some(known) = self.ids.get_mut(key).and_then(|e| e.connection.as_mut()) {
                known.leaves = true;
            }
        }
        Ok(())
    }

    pub(crate) fn notify(&mut self, key: Key, now: u64) -> Result<()> {
        const VERB: &str = "rdma_notify";
        let entry = self.entry(VERB, key)?;
        let connection = entry.connection.as_ref();
        match connection.map(|connection| (connection.phase, connection.number)) {
            Some((Phase::Established, _)) => Err(Error::new(
                VERB,
                libc::EISCONN,
                "the connection is established",
            )),
            Some((Phase::Accepted, Number::Conn(conn))) => self
                .endpoint
                .established(Time(now), conn)
                .map_err(|e| refused(VERB, e)),
            _ => Err(Error::invalid(
                VERB,
                "there is no connection that was accepted",
            )),
        }
    }

    /// The id ends: so does what it has with a peer.
    pub(crate) fn end_connection(&mut self, key: Key, entry: &mut Entry, now: u64) {
        let Some(mut connection) = entry.connection.take() else {
            return;
        };
        if connection.phase == Phase::Request && observe::is_on() {
            let asked = match self.is_closing {
                true => Asked::Ended,
                false => Asked::Destroyed,
            };
            note_request_of(entry, asked);
        }
        if self.is_known(key, &connection) {
            match connection.number {
                Number::Conn(conn) => {
                    self.endpoint.destroy(Time(now), conn);
                    self.leave_connection(conn, connection.last_words.take());
                }
                Number::Sidr(sidr) => self.endpoint.sidr_destroy(Time(now), sidr),
            }
        }
        self.needs_no_last_words(&mut connection);
        self.forget_number(key, &connection);
    }

    /// No event is about it any more.
    pub(crate) fn forget_connection(&mut self, key: Key) {
        if let Some(connection) = self.ids.get(key).and_then(|e| e.connection) {
            self.forget_number(key, &connection);
        }
    }

    /// The endpoint still knows the connection; once it has forgotten it, the number may be
    /// another's.
    fn is_known(&self, key: Key, connection: &Connection) -> bool {
        self.by_number.get(&connection.number.value()) == Some(&key)
    }

    fn forget_number(&mut self, key: Key, connection: &Connection) {
        if self.is_known(key, connection) {
            self.by_number.remove(&connection.number.value());
        }
        self.unwatch(key, connection);
    }
}

impl Entry {
    /// The address vector of a path.
    pub(crate) fn ah(&self, path: &super::PathRecord) -> AhAttr {
        AhAttr {
            dgid: path.dgid,
            flow_label: path.flow_label,
            sgid_index: self.source.map_or(0, |source| source.gid_index) as u8,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            sl: path.sl,
            static_rate: path.rate,
            is_global: true,
            port_num: 1,
            ..AhAttr::default()
        }
    }
}

/// Where a connection begins to count its packets: hard to guess.
pub(crate) fn random_psn(host: &Host) -> u32 {
    (host.random_u64() & 0xff_ffff) as u32
}

fn no_ece(verb: &'static str, param: &ConnParam<'_>) -> Result<()> {
    if param.ece == Ece::default() {
        return Ok(());
    }
    Err(Error::new(
        verb,
        libc::EOPNOTSUPP,
        "the device has no vendor options (ECE)",
    ))
}

fn refused(verb: &'static str, e: CmError) -> Error {
    let errno = match e {
        CmError::NoIds => libc::ENOMEM,
        _ => libc::EINVAL,
    };
    Error::new(verb, errno, e.to_string())
}
