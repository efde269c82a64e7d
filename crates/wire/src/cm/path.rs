//! A path as a REQ describes it.

use super::field::{be16, gid, put};
use crate::Gid;

/// The primary or alternate path in a REQ (IBTA 12.6.5). Over RoCE the GIDs are what counts: the
/// receiver of the REQ answers to `local_gid`, not to the source of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct ReqPath {
    /// Means nothing over RoCE; 0xffff.
    pub local_lid: u16,
    /// Means nothing over RoCE; 0xffff.
    pub remote_lid: u16,
    /// GID of the sender of the REQ.
    pub local_gid: Gid,
    /// GID of its receiver.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate, 6 bits, as in `ibv_ah_attr`; 0 is the rate of the port.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Both ends are in one subnet.
    pub subnet_local: bool,
    /// Local ACK timeout of the sender's QP, 5 bits: 4.096 us x 2^code.
    pub ack_timeout: u8,
}

impl ReqPath {
    /// Length in bytes.
    pub const LEN: usize = 44;

    pub(super) fn parse(b: &[u8]) -> ReqPath {
        ReqPath {
            local_lid: be16(b, 0),
            remote_lid: be16(b, 2),
            local_gid: gid(b, 4),
            remote_gid: gid(b, 20),
            flow_label: u32::from(be16(b, 36)) << 4 | u32::from(b[38] >> 4),
            packet_rate: b[39] & 0x3f,
            traffic_class: b[40],
            hop_limit: b[41],
            sl: b[42] >> 4,
            subnet_local: b[42] & 0x08 != 0,
            ack_timeout: b[43] >> 3,
        }
    }

    pub(super) fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.local_lid.to_be_bytes());
        put(out, 2, self.remote_lid.to_be_bytes());
        put(out, 4, self.local_gid.0);
        put(out, 20, self.remote_gid.0);
        put(out, 36, ((self.flow_label >> 4) as u16).to_be_bytes());
        out[38] = (self.flow_label as u8 & 15) << 4;
        out[39] = self.packet_rate & 0x3f;
        out[40] = self.traffic_class;
        out[41] = self.hop_limit;
        out[42] = self.sl << 4 | u8::from(self.subnet_local) << 3;
        out[43] = self.ack_timeout << 3;
    }
}
