//! What an endpoint tells its host.

use crate::{Address, ConnId, SidrId};
use alloc::boxed::Box;
use rnic_wire::PathMtu;
use rnic_wire::cm::{Answered, IpCmHeader, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq};

/// Something happened to a connection or to a service ID resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Passive: a peer wants to connect. To be answered with `accept`, `reject` or `destroy`.
    Request {
        /// The new connection.
        conn: ConnId,
        /// What the host gave in [`Admission::Admit`](crate::Admission::Admit).
        listener: u64,
        /// The request.
        request: Box<Request>,
    },
    /// Active: the peer accepts. To be answered with `ready` once the queue pair is in RTS,
    /// `reject` or `destroy`.
    Response {
        /// The connection.
        conn: ConnId,
        /// What it accepts.
        reply: Box<Reply>,
    },
    /// Passive: the peer is ready, or the host said that its data have come. (The active side knows
    /// when it said `ready`.)
    Established {
        /// The connection.
        conn: ConnId,
        /// That of the RTU; `None` if something else proved that the peer is ready.
        private_data: Option<Box<[u8; 224]>>,
    },
    /// The peer, or its connection manager, refuses the connection. Or we do: the peer accepts with
    /// a queue pair that, as far as we know, is still connected ([`RejectReason::STALE_CONNECTION`]
    /// about [`Answered::Rep`]; Linux's application hears of that reason only after its REQ was
    /// repeated).
    Rejected {
        /// The connection.
        conn: ConnId,
        /// Why.
        rejection: Box<Rejection>,
    },
    /// All retries of REQ or REP are used up, or the peer's process is known to be dead.
    Unreachable {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended. If the peer ended it ([`Ended::Requested`]), `disconnect` or
    /// `destroy` lets it know that we know.
    Disconnected {
        /// The connection.
        conn: ConnId,
        /// How.
        how: Ended,
    },
    /// No packet of this connection can be on its way any more; the connection is forgotten.
    TimeWaitExit {
        /// The connection.
        conn: ConnId,
    },
    /// A peer asks for a datagram service. To be answered with `sidr_answer` or `sidr_destroy`.
    SidrRequest {
        /// The resolution.
        sidr: SidrId,
        /// What the host gave in [`Admission::Admit`](crate::Admission::Admit).
        listener: u64,
        /// The request.
        request: Box<SidrRequest>,
    },
    /// The answer, good or bad, to our question for a datagram service. The resolution is
    /// forgotten.
    SidrResponse {
        /// The resolution.
        sidr: SidrId,
        /// The answer.
        reply: Box<SidrReply>,
    },
    /// No answer. The resolution is forgotten.
    SidrUnreachable {
        /// The resolution.
        sidr: SidrId,
    },
}

impl Event {
    /// The connection it is about.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Event::Request { conn, .. }
            | Event::Response { conn, .. }
            | Event::Established { conn, .. }
            | Event::Rejected { conn, .. }
            | Event::Unreachable { conn }
            | Event::Disconnected { conn, .. }
            | Event::TimeWaitExit { conn } => Some(*conn),
            Event::SidrRequest { .. }
            | Event::SidrResponse { .. }
            | Event::SidrUnreachable { .. } => None,
        }
    }

    /// The service ID resolution it is about.
    pub fn sidr(&self) -> Option<SidrId> {
        match self {
            Event::SidrRequest { sidr, .. }
            | Event::SidrResponse { sidr, .. }
            | Event::SidrUnreachable { sidr } => Some(*sidr),
            _ => None,
        }
    }
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The peer asked for it (DREQ), with this private data.
    Requested(Box<[u8; 220]>),
    /// The peer confirmed what we asked for (DREP), with this private data.
    Confirmed(Box<[u8; 224]>),
    /// The peer never confirmed what we asked for.
    Unanswered,
    /// The peer's connection manager says that it was never established.
    Rejected(RejectReason),
    /// The peer's queue pair has another connection by now: it was restarted, or, if this side was
    /// disconnecting, has done so, and its DREP was lost.
    Stale,
    /// The peer's process is dead.
    PeerDied,
    /// The peer's process is stopped, and will confirm what we asked for once it goes on.
    PeerStopped,
}

/// A REQ that was admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The message.
    pub req: Req,
    /// The header in front of its private data, if the service is a port of rdma_cm.
    pub ip: Option<IpCmHeader>,
    /// Where packets of this connection go: the path that the REQ names.
    pub address: Address,
}

#[expect(
    clippy::misnamed_getters,
    reason = "one's depth is the other's resources"
)]
impl Request {
    /// How many RDMA READs and atomics at a time the peer wants us to answer: what it called its
    /// initiator depth.
    pub fn responder_resources(&self) -> u8 {
        self.req.initiator_depth
    }

    /// How many RDMA READs and atomics at a time the peer is ready to answer: what it called its
    /// responder resources.
    pub fn initiator_depth(&self) -> u8 {
        self.req.responder_resources
    }

    /// MTU of the path; `None` if the number in the message is not one.
    pub fn path_mtu(&self) -> Option<PathMtu> {
        PathMtu::from_ibv(self.req.path_mtu.into())
    }

    /// What the peer's application said: 92 bytes, or the 56 behind the IP-CM header.
    pub fn private_data(&self) -> &[u8] {
        consumer_data(&self.req.private_data, &self.ip)
    }
}

/// A REP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The message. Its private data are the application's, all 196 bytes.
    pub rep: Rep,
    /// The peer's queue pair: that of the target with XRC.
    pub qpn: u32,
}

#[expect(
    clippy::misnamed_getters,
    reason = "one's depth is the other's resources"
)]
impl Reply {
    /// How many RDMA READs and atomics at a time the peer wants us to answer: what it called its
    /// initiator depth.
    pub fn responder_resources(&self) -> u8 {
        self.rep.initiator_depth
    }

    /// How many RDMA READs and atomics at a time the peer is ready to answer: what it called its
    /// responder resources.
    pub fn initiator_depth(&self) -> u8 {
        self.rep.responder_resources
    }
}

/// A REJ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Why.
    pub reason: RejectReason,
    /// Which message.
    pub message: Answered,
    /// Bytes of `info` that are used.
    pub info_len: u8,
    /// Additional information of the reason.
    pub info: [u8; 72],
    /// What the peer's application said.
    pub private_data: [u8; 148],
}

/// A SIDR_REQ that was admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// The message.
    pub req: SidrReq,
    /// The header in front of its private data, if the service is a port of rdma_cm.
    pub ip: Option<IpCmHeader>,
    /// Where the answer goes: where the question came from.
    pub address: Address,
}

impl SidrRequest {
    /// What the peer's application said: 216 bytes, or the 180 behind the IP-CM header.
    pub fn private_data(&self) -> &[u8] {
        consumer_data(&self.req.private_data, &self.ip)
    }
}

/// A SIDR_REP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrReply {
    /// The message.
    pub rep: SidrRep,
    /// Which service was asked for.
    pub service: ServiceId,
}

fn consumer_data<'a>(private_data: &'a [u8], ip: &Option<IpCmHeader>) -> &'a [u8] {
    let header = if ip.is_some() { IpCmHeader::LEN } else { 0 };
    &private_data[header..]
}
