use super::*;

#[test]
fn every_syndrome_byte_survives() {
    for byte in 0..=255 {
        assert_eq!(Syndrome::from_u8(byte).to_u8(), byte);
    }
}

#[test]
fn syndromes_of_the_captures() {
    assert_eq!(
        Syndrome::from_u8(0x1f),
        Syndrome::Ack {
            credits: CREDITS_INVALID
        }
    );
    assert_eq!(Syndrome::from_u8(0x34), Syndrome::RnrNak { timer: 20 });
    assert_eq!(
        Syndrome::from_u8(0x60),
        Syndrome::Nak(NakCode::PsnSequenceError)
    );
    assert_eq!(
        Syndrome::from_u8(0x62),
        Syndrome::Nak(NakCode::RemoteAccessError)
    );
    assert_eq!(Syndrome::from_u8(0x7f), Syndrome::Nak(NakCode::Other(31)));
    assert_eq!(Syndrome::from_u8(0x40), Syndrome::Reserved(0x40));
    assert_eq!(Syndrome::from_u8(0xe0), Syndrome::Reserved(0xe0));
}

#[test]
fn rnr_timers_grow_from_one_to_thirty_one() {
    assert_eq!(rnr_timer_ns(0), 655_360_000);
    assert_eq!(rnr_timer_ns(1), 10_000);
    assert_eq!(rnr_timer_ns(12), 640_000);
    assert_eq!(rnr_timer_ns(20), 10_240_000);
    assert_eq!(rnr_timer_ns(31), 491_520_000);
    for code in 2..32 {
        assert!(rnr_timer_ns(code) > rnr_timer_ns(code - 1));
    }
    // From two steps to the next two the time doubles.
    for code in 4..32 {
        assert_eq!(rnr_timer_ns(code), 2 * rnr_timer_ns(code - 2), "{code}");
    }
    assert_eq!(rnr_timer_ns(32), rnr_timer_ns(0));
}

#[test]
fn credits() {
    for (code, count) in [
        (0, 0),
        (4, 4),
        (5, 6),
        (6, 8),
        (7, 12),
        (14, 128),
        (15, 192),
        (29, 24_576),
        (30, 32_768),
    ] {
        assert_eq!(credit_count(code), Some(count));
        assert_eq!(credit_code(count), code);
    }
    assert_eq!(credit_count(CREDITS_INVALID), None);
    assert_eq!(credit_code(5), 4);
    assert_eq!(credit_code(127), 13);
    assert_eq!(credit_code(u32::MAX), 30);
}

#[test]
fn msn_is_cut_to_24_bits() {
    let aeth = Aeth {
        syndrome: Syndrome::Nak(NakCode::InvalidRequest),
        msn: 0xff12_3456,
    };
    let mut bytes = [0; 4];
    aeth.emit(&mut bytes);
    assert_eq!(bytes, [0x61, 0x12, 0x34, 0x56]);
    assert_eq!(
        Aeth::parse(&bytes),
        Aeth {
            msn: 0x12_3456,
            ..aeth
        }
    );
}
