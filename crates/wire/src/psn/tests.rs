use super::Psn;
use proptest::prelude::*;

#[test]
fn wraps_at_24_bits() {
    assert_eq!(Psn::new(0x0100_0000), Psn::new(0));
    assert_eq!(Psn::new(0x00ff_ffff).next(), Psn::new(0));
    assert_eq!(Psn::new(0).prev().value(), 0x00ff_ffff);
    assert_eq!(Psn::new(2).distance_from(Psn::new(0x00ff_fffe)), 4);
    assert_eq!(Psn::new(0x00ff_fffe).distance_from(Psn::new(2)), -4);
}

#[test]
fn half_the_circle_is_negative() {
    assert_eq!(Psn::new(0x0080_0000).distance_from(Psn::new(0)), -(1 << 23));
    assert_eq!(
        Psn::new(0x007f_ffff).distance_from(Psn::new(0)),
        (1 << 23) - 1
    );
}

proptest! {
    #[test]
    fn add_and_sub_undo_each_other(a: u32, n: u32) {
        let psn = Psn::new(a);
        prop_assert_eq!(psn.add(n).sub(n), psn);
        prop_assert_eq!(psn.sub(n).add(n), psn);
        prop_assert!(psn.add(n).value() < 1 << 24);
    }

    #[test]
    fn distance_is_what_was_added(a: u32, n in -(1i32 << 23)..1 << 23) {
        let psn = Psn::new(a);
        let other = psn.add(n as u32);
        prop_assert_eq!(other.distance_from(psn), n);
        prop_assert_eq!(other.is_before(psn), n < 0);
    }
}
