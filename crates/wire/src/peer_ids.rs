//! How strict to be with the IPv4 identification that [`check`](crate::check) inferred for a peer.
//!
//! Allowing any of 65536 IDs costs the ICRC 16 of its 32 bits. Senders of this project use 0..=127: 0 for a datagram of
//! its own, 0, 1, 2, ... inside a GSO batch, then 0 again. Once a peer has been seen to do so, an ID outside that range is
//! far more likely a corrupted packet than a change of habit. That wins back 9 bits.
//!
//! Other senders count on from packet to packet, and their counter passes through the same range once in 65536 packets.
//! What tells the two apart is starting over: only packets whose ID is not above the one before are evidence.

use crate::IcrcOk;

/// What is known about the IDs of one peer (one source address).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerIds {
    last: u16,
    restarts: u8,
    refused_in_a_row: u8,
}

impl PeerIds {
    /// IDs below this are low.
    pub const LOW: u16 = 128;
    /// So many packets whose ID is not above that of the packet before, and none but low IDs in between, make the check
    /// strict.
    pub const STRICT_AFTER: u8 = 16;
    /// So many refused packets in a row make it lenient again: it was a change of habit after all. Fewer than a QP
    /// retries, so that a connection survives it; and no chance corruption strikes as often without a good packet
    /// in between.
    pub const LENIENT_AFTER: u8 = 4;

    /// Whether a packet whose ICRC held with this ID (and DF set) is to be believed; learns from it.
    #[inline]
    pub fn accept(&mut self, id: u16) -> bool {
        self.accept_ok(IcrcOk {
            ip_id: id,
            df: true,
        })
    }

    /// As [`PeerIds::accept`]; a packet without DF counts as one with a high ID.
    #[inline]
    pub fn accept_ok(&mut self, ok: IcrcOk) -> bool {
        let low = ok.df && ok.ip_id < Self::LOW;
        if self.is_strict() {
            if low {
                self.refused_in_a_row = 0;
                return true;
            }
            self.refused_in_a_row += 1;
            if self.refused_in_a_row == Self::LENIENT_AFTER {
                *self = PeerIds::default();
            }
            return false;
        }
        if !low {
            self.restarts = 0;
        } else if ok.ip_id <= self.last {
            self.restarts += 1;
        }
        self.last = ok.ip_id;
        true
    }

    /// Whether only low IDs are accepted now.
    #[inline]
    pub fn is_strict(&self) -> bool {
        self.restarts >= Self::STRICT_AFTER
    }
}

#[cfg(test)]
mod tests;
