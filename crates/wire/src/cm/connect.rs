//! The messages that establish a connection, or refuse it (IBTA 12.6.5 to 12.6.9).

use super::field::{array, be16, be24, be32, be64, put, put24};
use super::{RejectReason, ReqPath, ServiceId};

/// Which transport a REQ asks for: two fields of the message, of which the second one counts if the
/// first one is 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection.
    Xrc,
    /// Reliable datagram (2), or an extended type that is not defined: type, extended type.
    Other(u8, u8),
}

impl Transport {
    fn from_fields(service: u8, extended: u8) -> Transport {
        match (service, extended) {
            (0, 0) => Transport::Rc,
            (1, 0) => Transport::Uc,
            (3, 1) => Transport::Xrc,
            (service, extended) => Transport::Other(service, extended),
        }
    }

    fn fields(self) -> (u8, u8) {
        match self {
            Transport::Rc => (0, 0),
            Transport::Uc => (1, 0),
            Transport::Xrc => (3, 1),
            Transport::Other(service, extended) => (service & 3, extended & 7),
        }
    }
}

/// Request for communication (IBTA 12.6.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's communication id.
    pub local_id: u32,
    /// Vendor of the options in the attribute modifier, 24 bits; 0 without options.
    pub vendor_id: u32,
    /// Which service.
    pub service_id: ServiceId,
    /// GUID of the sender's channel adapter.
    pub ca_guid: u64,
    /// Q_Key, for datagrams.
    pub qkey: u32,
    /// The sender's QP, 24 bits.
    pub qpn: u32,
    /// How many RDMA READs and atomics at a time the sender is ready to answer.
    pub responder_resources: u8,
    /// End-to-end context, 24 bits; for reliable datagrams.
    pub local_eecn: u32,
    /// How many RDMA READs and atomics at a time the sender wants to have under way.
    pub initiator_depth: u8,
    /// End-to-end context, 24 bits; for reliable datagrams.
    pub remote_eecn: u32,
    /// How long the sender waits for an answer of its peer's connection manager, 5 bits: 4.096 us x
    /// 2^code.
    pub remote_response_timeout: u8,
    /// Which transport.
    pub transport: Transport,
    /// The sender uses end-to-end credits.
    pub flow_control: bool,
    /// PSN with which the receiver's send queue is to start, 24 bits.
    pub starting_psn: u32,
    /// How long the peer shall wait for an answer of the sender's connection manager, 5 bits: 4.096
    /// us x 2^code.
    pub local_response_timeout: u8,
    /// Transport retries, 3 bits.
    pub retry_count: u8,
    /// P_Key.
    pub pkey: u16,
    /// Path MTU, 4 bits: code of a [`PathMtu`](crate::PathMtu), or nonsense.
    pub path_mtu: u8,
    /// For reliable datagrams.
    pub rdc_exists: bool,
    /// RNR retries, 3 bits.
    pub rnr_retry_count: u8,
    /// How often either connection manager repeats a message, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's QP has a shared receive queue.
    pub srq: bool,
    /// The path.
    pub primary: ReqPath,
    /// The alternate path; zeros if there is none.
    pub alternate: ReqPath,
    /// Private data, behind an [`IpCmHeader`](super::IpCmHeader) if the service is a port of
    /// rdma_cm.
    pub private_data: [u8; 92],
}

impl Req {
    pub(super) fn parse(b: &[u8]) -> Req {
        Req {
            local_id: be32(b, 0),
            vendor_id: be24(b, 5),
            service_id: ServiceId(be64(b, 8)),
            ca_guid: be64(b, 16),
            qkey: be32(b, 28),
            qpn: be24(b, 32),
            responder_resources: b[35],
            local_eecn: be24(b, 36),
            initiator_depth: b[39],
            remote_eecn: be24(b, 40),
            remote_response_timeout: b[43] >> 3,
            transport: Transport::from_fields(b[43] >> 1 & 3, b[51] & 7),
            flow_control: b[43] & 1 != 0,
            starting_psn: be24(b, 44),
            local_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: be16(b, 48),
            path_mtu: b[50] >> 4,
            rdc_exists: b[50] & 0x08 != 0,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 0x08 != 0,
            primary: ReqPath::parse(&b[52..96]),
            alternate: ReqPath::parse(&b[96..140]),
            private_data: array(b, 140),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        let (transport, extended) = self.transport.fields();
        put(out, 0, self.local_id.to_be_bytes());
        put24(out, 5, self.vendor_id);
        put(out, 8, self.service_id.0.to_be_bytes());
        put(out, 16, self.ca_guid.to_be_bytes());
        put(out, 28, self.qkey.to_be_bytes());
        put24(out, 32, self.qpn);
        out[35] = self.responder_resources;
        put24(out, 36, self.local_eecn);
        out[39] = self.initiator_depth;
        put24(out, 40, self.remote_eecn);
        out[43] = self.remote_response_timeout << 3 | transport << 1 | u8::from(self.flow_control);
        put24(out, 44, self.starting_psn);
        out[47] = self.local_response_timeout << 3 | self.retry_count & 7;
        put(out, 48, self.pkey.to_be_bytes());
        out[50] = self.path_mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry_count & 7;
        out[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | extended;
        self.primary.emit(&mut out[52..96]);
        self.alternate.emit(&mut out[96..140]);
        put(out, 140, self.private_data);
    }
}

/// Reply to request for communication (IBTA 12.6.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The sender's communication id.
    pub local_id: u32,
    /// The receiver's communication id.
    pub remote_id: u32,
    /// Q_Key, for datagrams.
    pub qkey: u32,
    /// The sender's QP, 24 bits; see [`Rep::qpn_of`].
    pub qpn: u32,
    /// End-to-end context, 24 bits; for reliable datagrams. The QP of an XRC target.
    pub local_eecn: u32,
    /// Vendor of the options in the attribute modifier, 24 bits; 0 without options.
    pub vendor_id: u32,
    /// PSN with which the receiver's send queue is to start, 24 bits.
    pub starting_psn: u32,
    /// How many RDMA READs and atomics at a time the sender is ready to answer.
    pub responder_resources: u8,
    /// How many RDMA READs and atomics at a time the sender wants to have under way.
    pub initiator_depth: u8,
    /// How long the sender's QP may take until it acknowledges, 5 bits: 4.096 us x 2^code.
    pub target_ack_delay: u8,
    /// What became of the alternate path, 2 bits.
    pub failover: u8,
    /// The sender uses end-to-end credits.
    pub flow_control: bool,
    /// RNR retries, 3 bits.
    pub rnr_retry_count: u8,
    /// The sender's QP has a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's channel adapter.
    pub ca_guid: u64,
    /// Private data.
    pub private_data: [u8; 196],
}

impl Rep {
    /// The sender's QP. That of an XRC target is in the field of the end-to-end context, as Linux
    /// has it.
    pub fn qpn_of(&self, transport: Transport) -> u32 {
        match transport {
            Transport::Xrc => self.local_eecn,
            _ => self.qpn,
        }
    }

    pub(super) fn parse(b: &[u8]) -> Rep {
        Rep {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            qkey: be32(b, 8),
            qpn: be24(b, 12),
            local_eecn: be24(b, 16),
            // One byte each behind QPN, EECN and PSN.
            vendor_id: u32::from_be_bytes([0, b[15], b[19], b[23]]),
            starting_psn: be24(b, 20),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            ca_guid: be64(b, 28),
            private_data: array(b, 36),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_id.to_be_bytes());
        put(out, 4, self.remote_id.to_be_bytes());
        put(out, 8, self.qkey.to_be_bytes());
        let [_, high, middle, low] = self.vendor_id.to_be_bytes();
        put24(out, 12, self.qpn);
        out[15] = high;
        put24(out, 16, self.local_eecn);
        out[19] = middle;
        put24(out, 20, self.starting_psn);
        out[23] = low;
        out[24] = self.responder_resources;
        out[25] = self.initiator_depth;
        out[26] =
            self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        out[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(out, 28, self.ca_guid.to_be_bytes());
        put(out, 36, self.private_data);
    }
}

/// Ready to use (IBTA 12.6.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The sender's communication id.
    pub local_id: u32,
    /// The receiver's communication id.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; 224],
}

impl Rtu {
    pub(super) fn parse(b: &[u8]) -> Rtu {
        Rtu {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            private_data: array(b, 8),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_id.to_be_bytes());
        put(out, 4, self.remote_id.to_be_bytes());
        put(out, 8, self.private_data);
    }
}

/// Which message an MRA or a REJ is about; two bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Answered {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// MRA: a LAP. REJ: no message in particular.
    Other = 2,
    /// Reserved.
    Reserved = 3,
}

impl Answered {
    fn from_bits(bits: u8) -> Answered {
        match bits & 3 {
            0 => Answered::Req,
            1 => Answered::Rep,
            2 => Answered::Other,
            _ => Answered::Reserved,
        }
    }
}

/// Message receipt acknowledgment: "wait longer" (IBTA 12.6.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's communication id.
    pub local_id: u32,
    /// The receiver's communication id.
    pub remote_id: u32,
    /// Which message it acknowledges.
    pub message: Answered,
    /// How long the answer to it may take, 5 bits: 4.096 us x 2^code.
    pub service_timeout: u8,
    /// Private data.
    pub private_data: [u8; 222],
}

impl Mra {
    pub(super) fn parse(b: &[u8]) -> Mra {
        Mra {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            message: Answered::from_bits(b[8] >> 6),
            service_timeout: b[9] >> 3,
            private_data: array(b, 10),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_id.to_be_bytes());
        put(out, 4, self.remote_id.to_be_bytes());
        out[8] = (self.message as u8) << 6;
        out[9] = self.service_timeout << 3;
        put(out, 10, self.private_data);
    }
}

/// Reject (IBTA 12.6.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's communication id; 0 if it has none.
    pub local_id: u32,
    /// The receiver's communication id; 0 if the sender never learned it.
    pub remote_id: u32,
    /// Which message is rejected.
    pub message: Answered,
    /// Bytes of `additional_info` that are used, 7 bits. It may say more than there is room for.
    pub info_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// What the reason needs in addition, for example the GID that would be right.
    pub additional_info: [u8; 72],
    /// Private data.
    pub private_data: [u8; 148],
}

impl Rej {
    pub(super) fn parse(b: &[u8]) -> Rej {
        Rej {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            message: Answered::from_bits(b[8] >> 6),
            info_len: b[9] >> 1,
            reason: RejectReason(be16(b, 10)),
            additional_info: array(b, 12),
            private_data: array(b, 84),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_id.to_be_bytes());
        put(out, 4, self.remote_id.to_be_bytes());
        out[8] = (self.message as u8) << 6;
        out[9] = self.info_len << 1;
        put(out, 10, self.reason.0.to_be_bytes());
        put(out, 12, self.additional_info);
        put(out, 84, self.private_data);
    }

    /// The part of the additional information that is used.
    pub fn info(&self) -> &[u8] {
        let len = usize::from(self.info_len).min(self.additional_info.len());
        &self.additional_info[..len]
    }
}
