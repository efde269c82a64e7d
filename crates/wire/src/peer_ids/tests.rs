use super::PeerIds;
use crate::IcrcOk;

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
