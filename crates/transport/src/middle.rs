//! The packets of a long message that are neither its first nor its last: a path MTU each, no
//! headers but the BTH, nothing asked for. They differ in PSN and payload alone, so a row of them
//! is planned once.

use crate::PacketSink;
use crate::output::Output;
use rnic_wire::Bth;

/// A row that is worth its plan.
pub(crate) const WORTH: u32 = 2;

/// Emits at most `most` packets that begin as `bth` says, the first with its PSN, and have a
/// payload of `mtu` bytes, which `fill` writes; how many, and what ended the row, if it was `fill`.
#[inline]
pub(crate) fn emit_row<S: PacketSink, E>(
    out: &mut Output<'_, S>,
    most: u32,
    bth: &Bth,
    mtu: u32,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> (u32, Result<(), E>) {
    let mut header = [0; Bth::LEN];
    bth.emit(&mut header);
    let mut psn = bth.psn;
    let mut filled = Ok(());
    let count = out.row(Bth::LEN + mtu as usize, most as usize, |packet| {
        let Some((front, payload)) = packet.split_first_chunk_mut() else {
            return false;
        };
        *front = header;
        Bth::set_psn(front, psn);
        psn = psn.next();
        filled = fill(payload);
        filled.is_ok()
    });
    // At most `most`.
    (count as u32, filled)
}
