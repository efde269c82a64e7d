//! The ICRC of staged packets: which IP identification each will leave with, and the CRC over the staged copy.

use rnic_wire::{ICRC_LEN, IcrcContext};

/// How the kernel will number the packets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// Every packet is a datagram of its own: ID 0.
    Single,
    /// One GSO batch: ID 0, 1, 2, ...
    Batch,
}

/// Writes the ICRCs of a run: `bytes` is a row of packets of `segment` bytes each (the last may be shorter), every one
/// with [`ICRC_LEN`] bytes of room at its end. Pieces shorter than that are left alone.
pub fn seal(bytes: &mut [u8], segment: usize, context: &IcrcContext, numbering: Numbering) {
    for (k, packet) in bytes.chunks_mut(segment.max(1)).enumerate() {
        let id = match numbering {
            Numbering::Single => 0,
            Numbering::Batch => k as u16,
        };
        if packet.len() >= ICRC_LEN {
            context.append(id, true, packet);
        }
    }
}

/// Destination QPN of a packet (BTH bytes 5..8); `None` if it is too short for a BTH and an ICRC.
#[inline]
pub fn dest_qpn(packet: &[u8]) -> Option<u32> {
    if packet.len() < rnic_wire::Bth::LEN + ICRC_LEN {
        return None;
    }
    Some(u32::from_be_bytes([0, packet[5], packet[6], packet[7]]))
}

/// Destination QPN of a packet without ICRC; `None` if it is too short for a BTH.
#[inline]
pub(crate) fn dest_qpn_of(packet: &[u8]) -> Option<u32> {
    (packet.len() >= rnic_wire::Bth::LEN)
        .then(|| u32::from_be_bytes([0, packet[5], packet[6], packet[7]]))
}

#[cfg(test)]
pub(crate) mod tests;
