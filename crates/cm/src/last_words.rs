//! What has to be said in the name of a process that died.

use crate::Address;
use rnic_wire::Gid;

/// A connection as somebody else needs to know it to end it: kept outside of the process, and after
/// its death given to [`Endpoint::send_last_words`](crate::Endpoint::send_last_words) of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LastWords {
    /// Communication id of the process that left it.
    pub local_id: u32,
    /// Communication id of the peer.
    pub remote_id: u32,
    /// Queue pair of the peer.
    pub remote_qpn: u32,
    /// The path.
    pub address: Address,
}

impl LastWords {
    /// Length in bytes of a record.
    pub const LEN: usize = 56;

    /// As a record in a file.
    pub fn to_bytes(&self) -> [u8; LastWords::LEN] {
        let mut out = [0; LastWords::LEN];
        out[..4].copy_from_slice(&self.local_id.to_be_bytes());
        out[4..8].copy_from_slice(&self.remote_id.to_be_bytes());
        out[8..12].copy_from_slice(&self.remote_qpn.to_be_bytes());
        out[12..28].copy_from_slice(&self.address.local_gid.0);
        out[28..44].copy_from_slice(&self.address.remote_gid.0);
        out[44..48].copy_from_slice(&self.address.flow_label.to_be_bytes());
        out[48] = self.address.traffic_class;
        out[49] = self.address.hop_limit;
        out[50..52].copy_from_slice(&self.address.pkey.to_be_bytes());
        let sum = checksum(&out[..52]);
        out[52..].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// From a record in a file that others can write; `None` if it is none.
    pub fn from_bytes(bytes: &[u8; LastWords::LEN]) -> Option<LastWords> {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let gid = |at: usize| {
            let mut gid = Gid::default();
            gid.0.copy_from_slice(&bytes[at..at + 16]);
            gid
        };
        if word(52) != checksum(&bytes[..52]) || word(0) == 0 || word(4) == 0 {
            return None;
        }
        Some(LastWords {
            local_id: word(0),
            remote_id: word(4),
            remote_qpn: word(8) & 0xff_ffff,
            address: Address {
                local_gid: gid(12),
                remote_gid: gid(28),
                flow_label: word(44) & 0xf_ffff,
                traffic_class: bytes[48],
                hop_limit: bytes[49],
                pkey: u16::from_be_bytes([bytes[50], bytes[51]]),
            },
        })
    }
}

/// Tells a record from one that was half written when the process died (FNV-1a).
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests;
