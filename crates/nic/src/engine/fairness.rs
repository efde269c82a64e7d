//! Short messages beside a bulk transfer.
//!
//! Queue pairs have their turns one after the other, but what a program that has both waits for is more than a turn: all that
//! is under way ahead of the short message, in the peer's receive buffer or ring, and all that this call of the engine and the
//! peer's do before they return to their programs. A card's queue pairs share its wire by a few kilobytes; here it would be
//! megabytes. So while queue pairs have short messages, the engine does less for the others in one call, and they have less
//! under way. Where nobody waits they go on undivided, which is faster.

use super::Posted;
use rnic_wire::{Operation, Packet};

/// Bytes of a short message, at most.
const SHORT: usize = 4096;
/// Whoever had one has the next one within this: longer than a round trip anywhere, and on a machine that is slow or crowded.
const SOON_NS: u64 = 100_000_000;

/// Who had short messages lately.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// The last one,
    qpn: u32,
    at: u64,
    /// and when another than that last had one.
    other_at: u64,
    /// When a part of a long one came last.
    long_at: u64,
}

impl Fairness {
    /// That queue pair had a message.
    #[inline]
    fn message(&mut self, qpn: u32, bytes: usize, now: u64) {
        if bytes <= SHORT {
            self.short(qpn, now);
        }
    }

    /// A packet came.
    #[inline]
    pub(super) fn came(&mut self, qpn: u32, packet: &Packet<'_>, now: u64) {
        match message_of(packet) {
            Some(bytes) => self.message(qpn, bytes, now),
            None if packet.payload.len() > SHORT / 4 => self.long_at = now,
            None => {}
        }
    }

    /// That queue pair had a short message.
    #[inline]
    pub(super) fn short(&mut self, qpn: u32, now: u64) {
        if self.qpn != qpn {
            self.qpn = qpn;
            self.other_at = self.at;
        }
        self.at = now;
    }

    /// Others than that queue pair have short messages.
    #[inline]
    pub(super) fn others_wait(&self, qpn: u32, now: u64) -> bool {
        let at = if self.qpn == qpn {
            self.other_at
        } else {
            self.at
        };
        is_recent(at, now)
    }

    /// Packets of short messages come among those of long ones.
    #[inline]
    pub(super) fn is_mixed(&self, now: u64) -> bool {
        is_recent(self.at, now) && is_recent(self.long_at, now)
    }
}

/// Messages of that length, all in all, do not make others wait.
#[inline]
pub(super) fn is_short(posted: Posted) -> bool {
    posted.bytes <= SHORT as u64
}

/// Bytes of a message that is one packet, or of what it asks for; `None`: it is a part of one, or an ACK.
#[inline]
fn message_of(packet: &Packet<'_>) -> Option<usize> {
    use Operation as O;
    match packet.bth.opcode.operation()? {
        O::SendOnly
        | O::SendOnlyImm
        | O::SendOnlyInvalidate
        | O::WriteOnly
        | O::WriteOnlyImm
        | O::ReadResponseOnly => Some(packet.payload.len()),
        O::ReadRequest => packet.ext.reth.map(|reth| reth.dma_len as usize),
        O::CompareSwap | O::FetchAdd | O::AtomicWrite | O::AtomicAcknowledge => Some(0),
        _ => None,
    }
}

/// 0 is never.
#[inline]
fn is_recent(at: u64, now: u64) -> bool {
    at != 0 && now.saturating_sub(at) < SOON_NS
}

#[cfg(test)]
mod tests {
    //! Who waits for whom, and for how long.

    use super::*;

    const BULK: u32 = 1;
    const PING: u32 = 2;
    const NOW: u64 = 1_000_000_000;

    #[test]
    fn nobody_waits_for_itself() {
        let mut fairness = Fairness::default();
        assert!(!fairness.others_wait(BULK, NOW) && !fairness.others_wait(0, 0));
        fairness.message(BULK, 8, NOW);
        assert!(!fairness.others_wait(BULK, NOW));
        fairness.message(PING, 8, NOW);
        assert!(fairness.others_wait(BULK, NOW) && fairness.others_wait(PING, NOW));
        // Its own short ones do not hide the other's.
        fairness.message(BULK, 8, NOW + 1);
        assert!(fairness.others_wait(BULK, NOW + 1));
    }

    #[test]
    fn long_messages_wait_for_nobody() {
        let mut fairness = Fairness::default();
        fairness.message(PING, SHORT + 1, NOW);
        assert!(!fairness.others_wait(BULK, NOW));
        fairness.message(PING, SHORT, NOW);
        assert!(fairness.others_wait(BULK, NOW));
    }

    #[test]
    fn who_had_none_for_long_does_not_wait() {
        let mut fairness = Fairness::default();
        fairness.short(PING, NOW);
        assert!(fairness.others_wait(BULK, NOW + SOON_NS - 1));
        let later = NOW + SOON_NS;
        assert!(!fairness.others_wait(BULK, later));
        fairness.short(BULK, later);
        assert!(!fairness.others_wait(BULK, later));
    }
}
