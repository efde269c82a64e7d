//! The ICRC of staged packets: which IP identification each will leave with, and the CRC over the
//! staged copy.

use rnic_wire::{ICRC_LEN, IcrcContext};

/// How the kernel will number the packets of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// Every packet is a datagram of its own: ID 0.
    Single,
    /// One GSO batch: ID 0, 1, 2, ...
    Batch,
}

/// Writes the ICRCs of a run: `bytes` is a row of packets of `segment` bytes each (the last may be
/// shorter), every one with [`ICRC_LEN`] bytes of room at its end. Pieces shorter than that are
/// left alone.
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

#[cfg(test)]
pub(crate) mod tests;
