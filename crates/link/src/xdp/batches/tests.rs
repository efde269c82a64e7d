//! Batches are taken apart, and what is none costs little.

use std::time::{Duration, Instant};

use super::*;

fn headers(v4: bool, ip_id: u16) -> IpUdp {
    let [src, dst] = if v4 {
        ["10.0.0.1", "10.0.0.2"]
    } else {
        ["fd00::1", "fd00::2"]
    };
    IpUdp {
        flow: Flow {
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
            src_port: 50_000,
            dst_port: ROCE_PORT,
        },
        ip_id,
        dont_fragment: true,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// A packet of so many bytes, ICRC included.
fn packet(headers: &IpUdp, len: usize, id: u16) -> Vec<u8> {
    let byte = |k: usize| (k * 7 + (k >> 8) + usize::from(id)) as u8;
    let mut bytes: Vec<u8> = (0..len).map(byte).collect();
    IcrcContext::new(&headers.flow).append(id, true, &mut bytes);
    bytes
}

#[test]
fn a_batch_is_taken_apart_by_its_icrcs() {
    for v4 in [true, false] {
        let headers = headers(v4, 0);
        for lengths in [
            &[64][..],
            &[64, 24],
            &[32, 32, 24],
            &[304, 304, 304, 304],
            &[20, 20],
            &[16, 16],
        ] {
            let numbered = lengths.iter().zip(0..);
            let numbered = numbered.map(|(&len, id)| packet(&headers, len, id));
            let batch: Vec<u8> = numbered.flatten().collect();
            let (segment, ids) = segment_of(&headers, &batch);
            assert_eq!(segment, lengths[0], "{lengths:?}");
            assert_eq!(ids, seen(0, 1), "{lengths:?}");
            // The kernel also puts together packets of one identification.
            if v4 && lengths.len() > 1 {
                let same: Vec<u8> = lengths
                    .iter()
                    .flat_map(|&len| packet(&headers, len, 0))
                    .collect();
                assert_eq!(segment_of(&headers, &same), (lengths[0], seen(0, 0)));
            }
        }
        // What is neither is left as it is, to be counted.
        let mut broken = packet(&headers, 300, 0);
        broken[100] ^= 1;
        assert_eq!(segment_of(&headers, &broken).0, broken.len());
        assert_eq!(segment_of(&headers, &[]).0, 0);
    }
}

fn seen(ip_id: u16, step: u16) -> IpIds {
    let first = IcrcOk { ip_id, df: true };
    IpIds::Seen { first, step }
}

/// A corrupted packet has a thousand lengths. That its front would be a packet is not enough: else
/// one in 2^22 would pass.
#[test]
fn a_right_front_alone_is_no_packet() {
    for v4 in [true, false] {
        let headers = headers(v4, 0);
        let mut corrupted = packet(&headers, 100, 0);
        corrupted.extend([0xee; 300]);
        assert_eq!(segment_of(&headers, &corrupted).0, corrupted.len());
        // Nor if what is behind would be one with any other header.
        let mut other = packet(&headers, 100, 0);
        other.extend(packet(&headers, 100, 2));
        let expected = if v4 { 200 } else { 100 };
        assert_eq!(segment_of(&headers, &other).0, expected);
    }
}

/// Whatever length a frame has room for, and whatever the IP header's identification is.
#[test]
fn a_batch_of_any_length_is_taken_apart() {
    let least = Bth::LEN + ICRC_LEN;
    for v4 in [true, false] {
        for ip_id in [0, 1, 0xffff] {
            let headers = headers(v4, ip_id);
            for len in (least..=FRAME - least).step_by(WORD) {
                let mut batch = packet(&headers, len, ip_id);
                batch.extend(packet(&headers, least, ip_id.wrapping_add(1)));
                let segment = |batch: &[u8]| segment_of(&headers, batch).0;
                assert_eq!(segment(&batch), len);
                // The byte that routers may change counts no more here than elsewhere.
                for at in [4, len + 4] {
                    batch[at] ^= 0xc0;
                    assert_eq!(segment(&batch), len, "another byte 4");
                }
                for at in [5, len + 5] {
                    batch[at] ^= 1;
                    assert_eq!(segment(&batch), batch.len(), "a broken one");
                    batch[at] ^= 1;
                }
            }
        }
    }
}

/// A sender of what is no packet does not have all others wait: it costs a pass, not one for each
/// length that a packet may have, which are a thousand.
#[test]
fn what_is_no_packet_costs_one_pass() {
    let headers = headers(true, 0);
    let context = IcrcContext::new(&headers.flow);
    let mut broken = packet(&headers, FRAME, 0);
    broken[100] ^= 1;
    let least = |work: &dyn Fn() -> usize| {
        let time = || {
            let start = Instant::now();
            std::hint::black_box(work());
            start.elapsed()
        };
        (0..200).map(|_| time()).min().unwrap_or_default()
    };
    assert_eq!(segment_of(&headers, &broken).0, broken.len());
    let search = least(&|| segment_of(&headers, &broken).0);
    let pass = least(&|| context.icrc(0, true, &broken) as usize);
    // 30, as a pass by vectors is fast; to try each length took 690.
    println!("{search:?} beside {pass:?} for a pass");
    assert!(search < pass.max(Duration::from_nanos(100)) * 200);
}
