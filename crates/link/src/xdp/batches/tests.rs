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
            let packet = |(&len, id)| packet(&headers, len, id);
            let batch: Vec<u8> = numbered.flat_map(packet).collect();
            assert_eq!(segment_of(&headers, &batch), lengths[0], "{lengths:?}");
        }
        // What is neither is left as it is, to be counted.
        let mut broken = packet(&headers, 300, 0);
        broken[100] ^= 1;
        assert_eq!(segment_of(&headers, &broken), broken.len());
        assert_eq!(segment_of(&headers, &[]), 0);
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
                batch.extend([0xee; Bth::LEN + ICRC_LEN]);
                assert_eq!(segment_of(&headers, &batch), len);
                // The byte that routers may change counts no more here than elsewhere.
                batch[4] ^= 0xc0;
                assert_eq!(segment_of(&headers, &batch), len, "another byte 4");
                batch[5] ^= 1;
                assert_eq!(segment_of(&headers, &batch), batch.len(), "a broken one");
            }
        }
    }
}

/// Who sends what is no packet does not have all others wait: it costs a pass, not one for each length that a packet may have, which
/// are a thousand.
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
    assert_eq!(segment_of(&headers, &broken), broken.len());
    let search = least(&|| segment_of(&headers, &broken));
    let pass = least(&|| context.icrc(0, true, &broken) as usize);
    // 30, as a pass by vectors is fast; to try each length took 690.
    println!("{search:?} beside {pass:?} for a pass");
    assert!(search < pass.max(Duration::from_nanos(100)) * 200);
}
