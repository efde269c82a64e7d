//! Packet sequence numbers: integers modulo 2^24 (IBTA 9.2.1).

/// A 24-bit packet sequence number.
///
/// There is no order on a circle, so there is no `Ord`; [`Psn::distance_from`] says how far apart
/// two numbers are as long as they are less than 2^23 apart. Nothing here can overflow or panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0x00ff_ffff;

    /// The low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & Self::MASK)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// `n` packets later.
    #[inline]
    #[must_use]
    #[allow(
        clippy::should_implement_trait,
        reason = "named, so that it reads as arithmetic on a circle"
    )]
    pub const fn add(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }

    /// `n` packets earlier.
    #[inline]
    #[must_use]
    #[allow(
        clippy::should_implement_trait,
        reason = "named, so that it reads as arithmetic on a circle"
    )]
    pub const fn sub(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(n))
    }

    /// The number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// The number before this one.
    #[inline]
    #[must_use]
    pub const fn prev(self) -> Psn {
        self.sub(1)
    }

    /// `self - earlier` the short way round, in -2^23..2^23; negative when `self` lies before
    /// `earlier`.
    #[inline]
    pub const fn distance_from(self, earlier: Psn) -> i32 {
        // Moves bit 23 to the sign bit and back, which extends the sign.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// Whether `self` lies before `other` (by at most 2^23).
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance_from(other) < 0
    }
}

#[cfg(test)]
mod tests;
