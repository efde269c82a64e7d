//! How much may be under way: no more than the peer's receive buffer is trusted to hold, and less
//! on a path that loses.
//!
//! Go-back-N throws away whatever is under way behind a lost packet, so a large window on a path
//! that loses one packet in a hundred sends most packets more than once. The window therefore
//! halves with every loss and grows again by an eighth per window acknowledged; without losses it
//! stays at its limit.

use crate::rc::Shared;

/// What a packet costs of the window beside its payload: the headers from IP to ICRC, and a share
/// of what the peer's kernel needs to queue it.
pub(super) const PACKET_OVERHEAD: u64 = 64;

/// The head-of-line limit: eighths of its own limit that a window has while others wait behind what
/// is under way. They must be more than a quarter. An ACK is asked for after a quarter, and with
/// less the sender would wait for an ACK that nobody sends.
const HEAD_OF_LINE_EIGHTHS: u64 = 3;

/// Packets that are worth being under way on a path that loses.
const FEWEST_PACKETS: u64 = 8;

/// Bytes that may be under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// After the losses that there were.
    trusted: u64,
    limit: u64,
    packet: u64,
    /// Others wait behind what is under way.
    others_wait: bool,
    /// What is open of it.
    bytes: u64,
}

impl Window {
    pub(super) fn open(sh: &Shared) -> Window {
        let limit = u64::from(sh.attr.window_bytes);
        Window {
            trusted: limit,
            limit,
            packet: u64::from(sh.mtu) + PACKET_OVERHEAD,
            others_wait: false,
            bytes: limit,
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether others have something to send by the same way.
    pub(super) fn limit_head_of_line(&mut self, others_wait: bool) {
        if self.others_wait != others_wait {
            self.others_wait = others_wait;
            self.fit();
        }
    }

    pub(super) fn is_head_of_line_limited(&self) -> bool {
        self.others_wait
    }

    fn fit(&mut self) {
        let head_of_line_limit = self.limit * HEAD_OF_LINE_EIGHTHS / 8;
        self.bytes = if self.others_wait {
            self.trusted.min(head_of_line_limit.max(self.floor()))
        } else {
            self.trusted
        };
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
        if self.trusted < self.limit {
            let floor = self.floor();
            self.trusted = if self.trusted < floor {
                floor.min(self.trusted + acknowledged)
            } else {
                self.limit.min(self.trusted + acknowledged / 8)
            };
            self.fit();
        }
    }

    /// Something was lost.
    pub(super) fn shrink(&mut self) {
        self.trusted = (self.trusted / 2).max(self.floor());
        self.fit();
    }

    /// Nothing came back, after so many times without an answer before.
    pub(super) fn collapse(&mut self, before: u32) {
        let part = self.floor() >> (2 * before).min(u64::BITS - 1);
        self.trusted = part.max(self.packet.min(self.limit));
        self.fit();
    }

    fn floor(&self) -> u64 {
        self.limit.min(FEWEST_PACKETS * self.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: u64) -> Window {
        Window {
            trusted: bytes,
            limit: bytes,
            packet: 1000,
            others_wait: false,
            bytes,
        }
    }

    #[test]
    fn halves_grows_back_and_stays_within_its_bounds() {
        let mut window = of(32_000);
        assert_eq!(window.packets(), 32);
        window.shrink();
        assert_eq!(window.bytes(), 16_000);
        window.grow(16_000);
        assert_eq!(window.bytes(), 18_000);
        window.collapse(0);
        window.shrink();
        assert_eq!(window.packets(), 8);
        for _ in 0..1000 {
            window.grow(1000);
        }
        assert_eq!(window.bytes(), 32_000);
    }

    #[test]
    fn a_peer_that_stays_silent_gets_less_and_less_and_one_that_answers_the_fewest_soon() {
        let mut window = of(32_000);
        let packets = |before| {
            let mut window = window;
            window.collapse(before);
            window.packets()
        };
        assert_eq!([0, 1, 2, 3, 100].map(packets), [8, 2, 1, 1, 1]);
        window.collapse(2);
        for packets in [2, 4, 8, 9] {
            window.grow(window.bytes());
            assert_eq!(window.packets(), packets);
        }
    }

    #[test]
    fn the_head_of_line_limit_takes_a_part_and_gives_it_back() {
        let mut window = of(32_000);
        window.limit_head_of_line(true);
        assert_eq!((window.bytes(), window.packets()), (12_000, 12));
        // One that is smaller for its losses stays as it is.
        window.shrink();
        window.shrink();
        assert_eq!(window.bytes(), 8_000);
        window.grow(64_000);
        assert_eq!(window.bytes(), 12_000);
        window.limit_head_of_line(false);
        assert_eq!(window.bytes(), 16_000);
    }

    #[test]
    fn a_limit_below_the_floor_holds() {
        let mut window = of(10);
        window.collapse(0);
        assert_eq!((window.bytes(), window.packets()), (10, 1));
    }
}
