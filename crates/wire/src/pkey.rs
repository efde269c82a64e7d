//! P_Keys: who belongs to which partition (IBTA vol. 1, 10.9).

/// The P_Key of a full member of the default partition.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// The bit of a full member. The others name the partition.
const FULL_MEMBER: u16 = 0x8000;

/// It names a partition: there is none with the number 0 (10.9.1.1).
pub const fn is_valid_pkey(pkey: u16) -> bool {
    pkey & !FULL_MEMBER != 0
}

/// It is the P_Key of a full member.
pub const fn is_full_member(pkey: u16) -> bool {
    pkey & FULL_MEMBER != 0
}

/// The owners of two P_Keys may talk to each other: both belong to the partition, and one at least
/// is a full member of it (10.9.3). One of the two has to be [valid](is_valid_pkey).
#[inline]
pub const fn pkeys_match(one: u16, other: u16) -> bool {
    (one ^ other) & !FULL_MEMBER == 0 && (one | other) & FULL_MEMBER != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_one_partition_talk_unless_both_are_limited() {
        for (one, other, may) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0xffff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0x0001, true),
            (0x0001, 0x0001, false),
            (0x8001, 0x8002, false),
            (0x8001, 0x0002, false),
            (0xffff, 0x8000, false),
            (0xffff, 0x0000, false),
        ] {
            assert_eq!(pkeys_match(one, other), may, "{one:#06x} {other:#06x}");
        }
    }

    #[test]
    fn there_is_no_partition_0() {
        assert!(!is_valid_pkey(0) && !is_valid_pkey(0x8000));
        assert!(is_valid_pkey(1) && is_valid_pkey(0x8001) && is_valid_pkey(DEFAULT_PKEY));
    }
}
