//! The short way says what the long one does, whatever came before.

use proptest::prelude::*;
use std::net::IpAddr;
use std::vec::Vec;

use super::*;
use crate::Flow;

fn address() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (src.into(), dst.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| (src.into(), dst.into())),
    ]
}

fn headers() -> impl Strategy<Value = IpUdp> {
    let rest = any::<(u16, u16, u16, bool, u8, u8)>();
    (address(), rest).prop_map(|((src, dst), rest)| IpUdp {
        flow: Flow {
            src,
            dst,
            src_port: rest.0,
            dst_port: rest.1,
        },
        ip_id: rest.2,
        dont_fragment: rest.3,
        traffic_class: rest.4,
        hop_limit: rest.5,
    })
}

/// The front of a packet, and how long it is as a whole.
fn packet(headers: &IpUdp, payload: usize) -> (Vec<u8>, usize) {
    let mut bytes = [0; IpUdp::MAX_LEN + 64];
    let len = headers.emit(&[7; 64][..payload], &mut bytes);
    (bytes[..IpUdp::MAX_LEN].to_vec(), len + payload)
}

/// The checksum of an IPv4 header is right (RFC 791).
fn by_the_book(header: &[u8; 20]) -> bool {
    let words = header
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

proptest! {
    #[test]
    fn prepared_headers_are_as_emitted(
        headers in headers(),
        packets in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..70)), 1..4),
    ) {
        let prepared = PreparedHeaders::new(&headers);
        for (ip_id, payload) in packets {
            let (mut expected, mut found) = ([0; IpUdp::MAX_LEN], [0; IpUdp::MAX_LEN]);
            let headers = IpUdp { ip_id, ..headers };
            let len = headers.emit(&payload, &mut expected);
            prop_assert_eq!(prepared.emit(ip_id, &payload, &mut found), len);
            prop_assert_eq!(found, expected);
        }
    }

    /// Of two flows in any order, some with a byte that is wrong, some cut.
    #[test]
    fn the_last_headers_change_nothing_in_what_is_found(
        flows in [headers(), headers()],
        packets in prop::collection::vec(
            (any::<bool>(), any::<u16>(), 0..64_usize, prop::option::of((0..28_usize, any::<u8>())), 0..64_usize),
            1..12,
        ),
    ) {
        let mut last = LastHeaders::default();
        for (which, ip_id, payload, wrong, cut) in packets {
            let headers = IpUdp { ip_id, ..flows[usize::from(which)] };
            let (mut front, mut len) = packet(&headers, payload);
            if let Some((at, byte)) = wrong {
                front[at] = byte;
            } else if cut > 50 {
                len = cut;
                front.truncate(cut);
            }
            let expected = IpUdp::parse_front(&front, len).and_then(|found| {
                let v4 = front.first_chunk().filter(|_| front[0] >> 4 == 4);
                match v4.is_none_or(|v4: &[u8; 20]| by_the_book(v4)) {
                    true => Ok(found),
                    false => Err(IpError::Checksum),
                }
            });
            prop_assert_eq!(last.parse_front(&front, len), expected);
        }
    }
}

#[test]
fn packets_of_one_flow_are_found_by_what_is_alike() {
    let headers = IpUdp {
        flow: Flow {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            src_port: 50_000,
            dst_port: 4791,
        },
        ip_id: 0,
        dont_fragment: true,
        traffic_class: 2,
        hop_limit: 64,
    };
    let mut last = LastHeaders::default();
    let mut keys = Vec::new();
    for ip_id in 0..3 {
        let headers = IpUdp { ip_id, ..headers };
        let (front, len) = packet(&headers, 8 * usize::from(ip_id));
        assert_eq!(
            last.parse_front(&front, len),
            Ok((headers, 8 * usize::from(ip_id)))
        );
        keys.push(last.last.map(|(key, _)| key));
    }
    assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]));
}
