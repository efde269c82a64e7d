//! Service ID resolution: which QP and Q_Key a datagram service has (IBTA 12.11).

use super::field::{array, be16, be24, be32, be64, put, put24};
use super::{ServiceId, SidrStatus};

/// Service ID resolution request (IBTA 12.11.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// The sender's name of the exchange.
    pub request_id: u32,
    /// P_Key of the service.
    pub pkey: u16,
    /// Which service.
    pub service_id: ServiceId,
    /// Private data, behind an [`IpCmHeader`](super::IpCmHeader) if the service is a port of
    /// rdma_cm.
    pub private_data: [u8; 216],
}

impl SidrReq {
    pub(super) fn parse(b: &[u8]) -> SidrReq {
        SidrReq {
            request_id: be32(b, 0),
            pkey: be16(b, 4),
            service_id: ServiceId(be64(b, 8)),
            private_data: array(b, 16),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.request_id.to_be_bytes());
        put(out, 4, self.pkey.to_be_bytes());
        put(out, 8, self.service_id.0.to_be_bytes());
        put(out, 16, self.private_data);
    }
}

/// Service ID resolution response (IBTA 12.11.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// That of the request.
    pub request_id: u32,
    /// Whether the rest means anything.
    pub status: SidrStatus,
    /// Bytes of `additional_info` that are used.
    pub info_len: u8,
    /// QP of the service, 24 bits.
    pub qpn: u32,
    /// That of the request.
    pub service_id: ServiceId,
    /// Q_Key of the service.
    pub qkey: u32,
    /// What `status` needs in addition.
    pub additional_info: [u8; 72],
    /// Private data.
    pub private_data: [u8; 136],
}

impl SidrRep {
    pub(super) fn parse(b: &[u8]) -> SidrRep {
        SidrRep {
            request_id: be32(b, 0),
            status: SidrStatus(b[4]),
            info_len: b[5],
            qpn: be24(b, 8),
            service_id: ServiceId(be64(b, 12)),
            qkey: be32(b, 20),
            additional_info: array(b, 24),
            private_data: array(b, 96),
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.request_id.to_be_bytes());
        out[4] = self.status.0;
        out[5] = self.info_len;
        put24(out, 8, self.qpn);
        put(out, 12, self.service_id.0.to_be_bytes());
        put(out, 20, self.qkey.to_be_bytes());
        put(out, 24, self.additional_info);
        put(out, 96, self.private_data);
    }
}
