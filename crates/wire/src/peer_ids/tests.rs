use super::PeerIds;
use crate::{Flow, IcrcContext, IcrcError, IcrcOk, ROCE_PORT};
use core::net::IpAddr;

#[test]
fn any_id_passes_until_sixteen_low_ones_came() {
    let mut ids = PeerIds::default();
    for id in [0, 0, 60_000, 3, 128] {
        assert!(ids.accept(id));
    }
    for _ in 0..16 {
        assert!(!ids.is_strict());
        assert!(ids.accept(0));
    }
    assert!(ids.is_strict());
    assert!(!ids.accept(128));
    assert!(!ids.accept(0xffff));
    assert!(!ids.accept_ok(IcrcOk {
        ip_id: 0,
        df: false
    }));
    assert!(ids.accept(127));
    assert!(ids.is_strict());
}

#[test]
fn batches_are_recognised_too() {
    let mut ids = PeerIds::default();
    for _ in 0..16 {
        for id in 0..62 {
            assert!(ids.accept(id));
        }
    }
    assert!(ids.is_strict());
}

#[test]
fn a_change_of_habit_costs_four_packets() {
    let mut ids = PeerIds::default();
    for _ in 0..300 {
        assert!(ids.accept(0));
    }
    for _ in 0..3 {
        assert!(!ids.accept(1000));
    }
    // One low ID, and the count begins anew.
    assert!(ids.accept(1));
    for _ in 0..4 {
        assert!(!ids.accept(1000));
    }
    for id in 1000..1100 {
        assert!(ids.accept(id));
    }
}

#[test]
fn a_peer_that_counts_is_never_refused() {
    let mut ids = PeerIds::default();
    for id in 0..4 * 65_536u32 {
        assert!(ids.accept(id as u16), "{id}");
    }
}

#[test]
fn a_peer_without_df_is_believed_after_four_packets() {
    let mut ids = PeerIds::default();
    let without = |id| IcrcOk {
        ip_id: id,
        df: false,
    };
    for id in 0..3 {
        assert!(!ids.accept_ok(without(id)));
    }
    assert!(ids.accept(7));
    for id in 0..4 {
        assert!(!ids.accept_ok(without(id)));
    }
    for id in 4..300 {
        assert!(ids.accept_ok(without(id)));
    }
    for id in 0..4 {
        assert!(!ids.accept(id));
    }
    assert!(ids.accept(4));
}

#[test]
fn the_guess_follows_the_peer() {
    let mut ids = PeerIds::default();
    for id in [0, 0] {
        assert!(ids.accept(id));
    }
    assert_eq!(ids.expected(), 0);
    for id in [65_534, 65_535] {
        assert!(ids.accept(id));
    }
    assert_eq!(ids.expected(), 0);
    assert!(ids.accept(0));
    assert_eq!(ids.expected(), 1);
}

/// The one bit that passes for DF when flipped: see `no_flipped_bit_passes_for_another_id` of the ICRC.
#[test]
fn sees_through_the_bit_that_looks_like_df() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let flow = Flow {
        src: ip("10.0.0.1"),
        dst: ip("10.0.0.2"),
        src_port: 50_000,
        dst_port: ROCE_PORT,
    };
    let context = IcrcContext::new(&flow);
    let mut packet = [0x5a; 1044];
    context.append(0, true, &mut packet);
    let mut ids = PeerIds::default();
    assert_eq!(
        ids.check(&context, &packet),
        Ok(IcrcOk { ip_id: 0, df: true })
    );

    // 14 bytes of IPv4 header and the UDP header lie between the ID and the packet. Within a byte the lowest bit comes
    // first; x^-1 is the first bit behind the ID.
    let bit = 1564 - 1 - 8 * (14 + 8);
    packet[bit / 8] ^= 1 << (bit % 8);
    let fooled = context.check_any_df(&packet, 0).unwrap();
    assert!(!fooled.df);
    assert_eq!(context.check(&packet, 0), Err(IcrcError::Mismatch));
    assert_eq!(ids.check(&context, &packet), Err(IcrcError::Unlikely));
}
