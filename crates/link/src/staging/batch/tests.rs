use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::staging::path::tests::route;

fn lens(batch: &TxBatch) -> Vec<(usize, usize, usize)> {
    batch
        .runs()
        .iter()
        .map(|r| (r.segment, r.count, r.len))
        .collect()
}

fn put(batch: &mut TxBatch, route: &Arc<Route>, lens: &[usize], max: usize) {
    for &len in lens {
        batch
            .packet(Some(route), len, max)
            .expect("room")
            .fill(len as u8);
    }
}

#[test]
fn equal_packets_make_one_run_and_a_shorter_one_ends_it() {
    let route = route("127.0.0.1", "127.0.0.1", 0x1000);
    let mut batch = TxBatch::default();
    put(&mut batch, &route, &[1040, 1040, 1040, 500, 500, 600], 64);
    assert_eq!(
        lens(&batch),
        [(1044, 4, 3 * 1044 + 504), (504, 1, 504), (604, 1, 604)]
    );
    let run = batch.runs()[0].clone();
    assert_eq!(batch.bytes(&run)[3 * 1044..][..500], [500usize as u8; 500]);
}

#[test]
fn a_packet_has_the_icrc_of_its_place_in_the_run() {
    let route = route("127.0.0.1", "127.0.0.1", 0x1000);
    let mut batch = TxBatch::default();
    put(&mut batch, &route, &[100, 100], 64);
    batch.packet(Some(&route), 100, 64).expect("room").fill(1);
    batch.retract();
    put(&mut batch, &route, &[100, 60, 100], 64);
    batch.finish();
    let ids: Vec<Vec<u16>> = batch
        .runs()
        .iter()
        .map(|run| {
            let packets = batch.bytes(run).chunks(run.segment);
            packets
                .enumerate()
                .map(|(k, packet)| route.icrc.check(packet, k as u16).expect("an ICRC").ip_id)
                .collect()
        })
        .collect();
    assert_eq!(ids, [vec![0, 1, 2, 3], vec![0]]);
}

#[test]
fn other_routes_and_limits_split_runs() {
    let (a, b) = (
        route("127.0.0.1", "127.0.0.1", 0x1000),
        route("127.0.0.1", "127.0.0.1", 0x2000),
    );
    let mut batch = TxBatch::default();
    put(&mut batch, &a, &[100, 100], 64);
    put(&mut batch, &b, &[100], 64);
    put(&mut batch, &a, &[100], 64);
    assert_eq!(lens(&batch), [(104, 2, 208), (104, 1, 104), (104, 1, 104)]);
    batch.clear();
    assert!(batch.is_empty());
    put(&mut batch, &a, &[100; 7], 3);
    assert_eq!(lens(&batch), [(104, 3, 312), (104, 3, 312), (104, 1, 104)]);
    batch.clear();
    put(&mut batch, &a, &[100; 3], 1);
    assert_eq!(batch.runs().len(), 3);
}

#[test]
fn a_run_is_never_longer_than_a_datagram() {
    let route = route("127.0.0.1", "127.0.0.1", 0x1000);
    let mut batch = TxBatch::default();
    put(&mut batch, &route, &[4096; 40], 128);
    assert!(
        batch.runs().iter().all(|run| run.len <= 65_507),
        "{:?}",
        lens(&batch)
    );
    assert_eq!(batch.runs()[0].count, 15);
}

#[test]
fn without_a_route_packets_stay_apart() {
    let mut batch = TxBatch::default();
    assert!(batch.packet(None, 10, 64).is_some());
    assert!(batch.packet(None, 10, 64).is_some());
    assert_eq!(batch.runs().len(), 2);
}

#[test]
fn full_is_full_and_huge_lengths_are_refused() {
    let route = route("127.0.0.1", "127.0.0.1", 0x1000);
    let mut batch = TxBatch::with_capacity(100);
    assert!(batch.packet(Some(&route), 97, 1).is_none());
    assert!(batch.packet(Some(&route), usize::MAX, 1).is_none());
    assert!(batch.packet(Some(&route), usize::MAX - 4, 1).is_none());
    assert!(batch.packet(Some(&route), 96, 1).is_some());
    assert!(batch.packet(Some(&route), 0, 1).is_none());
}

#[test]
fn retract_undoes_one_packet_once() {
    let route = route("127.0.0.1", "127.0.0.1", 0x1000);
    let mut batch = TxBatch::default();
    put(&mut batch, &route, &[100, 100, 40], 64);
    batch.retract();
    batch.retract();
    assert_eq!(lens(&batch), [(104, 2, 208)]);
    // The run is open again, where the short packet had ended it.
    put(&mut batch, &route, &[100], 64);
    assert_eq!(lens(&batch), [(104, 3, 312)]);
    batch.clear();
    batch.retract();
    put(&mut batch, &route, &[100], 64);
    batch.retract();
    assert!(batch.is_empty());
    put(&mut batch, &route, &[8], 64);
    assert_eq!(batch.runs()[0].start, 0);
}

proptest! {
    #[test]
    fn runs_cut_into_segments_give_the_packets_back(
        packets in proptest::collection::vec((0usize..3, 12usize..300, any::<bool>()), 0..200),
        max in 1usize..70,
    ) {
        let routes: Vec<_> = (1..4).map(|i| route("127.0.0.1", "127.0.0.1", i << 12)).collect();
        let mut batch = TxBatch::default();
        let mut kept = Vec::new();
        for (i, &(r, len, keep)) in packets.iter().enumerate() {
            batch.packet(Some(&routes[r]), len, max).expect("room").fill(i as u8);
            if keep {
                kept.push((r, len, i as u8));
            } else {
                batch.retract();
            }
        }
        let mut seen = Vec::new();
        for run in batch.runs() {
            prop_assert!(run.count <= max && run.count >= 1);
            let r = routes.iter().position(|r| Arc::ptr_eq(r, run.route.as_ref().unwrap())).unwrap();
            let chunks: Vec<_> = batch.bytes(run).chunks(run.segment).collect();
            prop_assert_eq!(chunks.len(), run.count);
            for chunk in chunks {
                prop_assert!(chunk[..chunk.len() - 4].iter().all(|b| *b == chunk[0]));
                seen.push((r, chunk.len() - 4, chunk[0]));
            }
        }
        prop_assert_eq!(seen, kept);
    }
}

#[test]
fn a_row_is_packets_one_at_a_time_and_ends_as_asked_or_where_room_ends() {
    let route = route("127.0.0.1", "127.0.0.1", 0x1000);
    let row = |batch: &mut TxBatch, most: usize, until: usize| {
        let mut built = 0;
        batch.row(Some(&route), 100, 3, most, |packet| {
            packet.fill(built as u8);
            built += 1;
            built <= until
        })
    };
    let mut one_by_one = TxBatch::default();
    for k in 0..7 {
        let room = one_by_one.packet(Some(&route), 100, 3);
        room.expect("room").fill(k);
    }
    one_by_one.finish();
    for most in [7, 8] {
        let mut batch = TxBatch::default();
        assert_eq!(row(&mut batch, most, 7), 7, "at most {most}");
        batch.finish();
        assert_eq!(lens(&batch), lens(&one_by_one));
        for (run, other) in batch.runs().iter().zip(one_by_one.runs()) {
            assert_eq!(batch.bytes(run), one_by_one.bytes(other));
        }
    }
    let mut batch = TxBatch::with_capacity(2 * 104 + 50);
    assert_eq!(row(&mut batch, 7, 7), 2, "no room for more");
    assert_eq!(row(&mut batch, 7, 7), 0);
    batch.clear();
    assert_eq!(row(&mut batch, 7, 0), 0, "the first is taken back");
    assert!(batch.is_empty());
}
