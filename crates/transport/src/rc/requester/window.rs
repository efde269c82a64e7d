//! How much may be under way: no more than the peer's receive buffer is trusted to hold, and less on a path that loses.
//!
//! Go-back-N throws away whatever is under way behind a lost packet, so a large window on a path that loses one packet
//! in a hundred sends most packets more than once. The window therefore halves with every loss and grows again by an
//! eighth per window acknowledged; without losses it stays at its limit.

use crate::rc::Shared;

/// What a packet costs of the window beside its payload: the headers from IP to ICRC, and a share of what the peer's
/// kernel needs to queue it.
pub(super) const PACKET_OVERHEAD: u64 = 64;

/// Packets that are always worth being under way.
const FEWEST_PACKETS: u64 = 8;

/// Bytes that may be under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    bytes: u64,
    limit: u64,
    packet: u64,
}

impl Window {
    pub(super) fn open(sh: &Shared) -> Window {
        let limit = u64::from(sh.attr.window_bytes);
        Window {
            bytes: limit,
            limit,
            packet: u64::from(sh.mtu) + PACKET_OVERHEAD,
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Full packets that fit, at least one.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        let packets = (self.bytes / self.packet.max(1)).max(1);
        u32::try_from(packets).unwrap_or(u32::MAX)
    }

    /// This much was acknowledged.
    #[inline]
    pub(super) fn grow(&mut self, acknowledged: u64) {
        if self.bytes < self.limit {
            self.bytes = self.limit.min(self.bytes + acknowledged / 8);
        }
    }

    /// Something was lost.
    pub(super) fn shrink(&mut self) {
        self.bytes = (self.bytes / 2).max(self.floor());
    }

    /// Nothing came back.
    pub(super) fn collapse(&mut self) {
        self.bytes = self.floor();
    }

    fn floor(&self) -> u64 {
        self.limit.min(FEWEST_PACKETS * self.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_grows_back_and_stays_within_its_bounds() {
        let mut window = Window {
            bytes: 32_000,
            limit: 32_000,
            packet: 1000,
        };
        assert_eq!(window.packets(), 32);
        window.shrink();
        assert_eq!(window.bytes(), 16_000);
        window.grow(16_000);
        assert_eq!(window.bytes(), 18_000);
        window.collapse();
        window.shrink();
        assert_eq!(window.packets(), 8);
        for _ in 0..1000 {
            window.grow(1000);
        }
        assert_eq!(window.bytes(), 32_000);
    }

    #[test]
    fn a_limit_below_the_floor_holds() {
        let mut window = Window {
            bytes: 10,
            limit: 10,
            packet: 1000,
        };
        window.collapse();
        assert_eq!((window.bytes(), window.packets()), (10, 1));
    }
}
