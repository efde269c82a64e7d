//! How strict to be with the IPv4 header fields that [`IcrcContext::check_any_df`] inferred for a peer.
//!
//! Allowing any of 65536 IDs costs the ICRC 16 of its 32 bits. Senders of this project use 0..=127: 0 for a datagram of
//! its own, 0, 1, 2, ... inside a GSO batch, then 0 again. Once a peer has been seen to do so, an ID outside that range is
//! far more likely a corrupted packet than a change of habit. That wins back 9 bits.
//!
//! Other senders count on from packet to packet, and their counter passes through the same range once in 65536 packets.
//! What tells the two apart is starting over: only packets whose ID is not above the one before are evidence.
//!
//! DF is a habit, too: set until the peer has shown otherwise several times in a row.

use crate::{IcrcContext, IcrcError, IcrcOk};

/// What is known about the IP headers of one peer (one source address).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerIds {
    last: u16,
    /// Whether the last ID repeated the one before; then the next is expected to, too.
    repeats: bool,
    restarts: u8,
    without_df: bool,
    refused_in_a_row: u8,
}

impl PeerIds {
    /// IDs below this are low.
    pub const LOW: u16 = 128;
    /// So many packets whose ID is not above that of the packet before, and none but low IDs in between, make the check
    /// strict.
    pub const STRICT_AFTER: u8 = 16;
    /// So many refused packets in a row end the habit they contradict. Fewer than a QP retries, so that a connection
    /// survives it; and no chance corruption strikes as often without a good packet in between.
    pub const LENIENT_AFTER: u8 = 4;

    /// Checks a received packet, BTH up to and including the ICRC, of this peer.
    ///
    /// # Errors
    /// See [`IcrcError`].
    #[inline]
    pub fn check(
        &mut self,
        context: &IcrcContext,
        bytes_with_icrc: &[u8],
    ) -> Result<IcrcOk, IcrcError> {
        let ok = context.check_any_df(bytes_with_icrc, self.expected())?;
        if !context.is_ipv4() || self.accept_ok(ok) {
            Ok(ok)
        } else {
            Err(IcrcError::Unlikely)
        }
    }

    /// The ID that the next packet probably has: a right guess makes the check faster.
    #[inline]
    pub fn expected(&self) -> u16 {
        if self.repeats {
            self.last
        } else {
            self.last.wrapping_add(1)
        }
    }

    /// Whether a packet whose ICRC held with this ID (and DF set) is to be believed; learns from it.
    #[inline]
    pub fn accept(&mut self, id: u16) -> bool {
        self.accept_ok(IcrcOk {
            ip_id: id,
            df: true,
        })
    }

    /// Whether a packet whose ICRC held with this ID and DF is to be believed; learns from it.
    #[inline]
    pub fn accept_ok(&mut self, ok: IcrcOk) -> bool {
        let low = ok.ip_id < Self::LOW;
        if ok.df == self.without_df || self.is_strict() && !low {
            self.refused_in_a_row += 1;
            if self.refused_in_a_row == Self::LENIENT_AFTER {
                *self = PeerIds {
                    without_df: !ok.df,
                    ..PeerIds::default()
                };
            }
            return false;
        }
        self.refused_in_a_row = 0;
        if !low {
            self.restarts = 0;
        } else if ok.ip_id <= self.last && !self.is_strict() {
            self.restarts += 1;
        }
        self.repeats = ok.ip_id == self.last;
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
