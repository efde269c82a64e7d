use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

use super::*;

fn meta(src: &str, dst: &str) -> IpUdp {
    IpUdp {
        flow: Flow {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            src_port: 56_338,
            dst_port: 4791,
        },
        ip_id: 0xf9bb,
        dont_fragment: true,
        traffic_class: 0x6a,
        hop_limit: 64,
    }
}

fn packet(meta: &IpUdp, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; IpUdp::MAX_LEN];
    let len = meta.emit(payload, &mut out);
    assert_eq!(len, meta.header_len());
    [&out[..len], payload].concat()
}

#[test]
fn what_is_written_is_read() {
    for (meta, len) in [
        (meta("10.0.0.1", "10.0.0.2"), 28),
        (
            IpUdp {
                ip_id: 0,
                ..meta("fd00::1", "fd00::2")
            },
            48,
        ),
    ] {
        for payload in [&b""[..], b"x", b"0123456789"] {
            let mut bytes = packet(&meta, payload);
            assert_eq!(bytes.len(), len + payload.len());
            assert_eq!(IpUdp::parse(&bytes), Ok((meta, payload)));
            // Ethernet padding.
            bytes.extend([0; 7]);
            assert_eq!(IpUdp::parse(&bytes), Ok((meta, payload)));
            for cut in 0..len + payload.len() {
                assert!(IpUdp::parse(&bytes[..cut]).is_err());
            }
        }
    }
}

/// Or what lies in the headers would be taken for payload.
#[test]
fn mapped_addresses_in_an_ipv6_header_leave_it_as_long_as_it_is() {
    let plain = IpUdp {
        ip_id: 0,
        ..meta("fd00::1", "fd00::2")
    };
    let mut bytes = packet(&plain, b"abc");
    for (at, ip) in [(8, "::ffff:10.0.0.1"), (24, "::ffff:10.0.0.2")] {
        let ip: Ipv6Addr = ip.parse().unwrap();
        bytes[at..at + 16].copy_from_slice(&ip.octets());
    }
    let (found, payload) = IpUdp::parse(&bytes).unwrap();
    assert!(found.flow.src.is_ipv6());
    assert_eq!(payload, b"abc");
}

#[test]
fn checksums_hold() {
    let bytes = packet(&meta("10.0.0.1", "10.0.0.2"), b"abc");
    assert_eq!(fold(sum(&bytes[..20])), 0xffff);
    assert_eq!(bytes[26..28], [0, 0]);
    let bytes = packet(&meta("fd00::1", "fd00::2"), b"abc");
    let pseudo = sum(&bytes[8..40]) + u64::from(UDP) + 11;
    assert_eq!(fold(pseudo + sum(&bytes[40..])), 0xffff);
}

#[test]
fn a_header_of_linux() {
    let captured = [
        0x45, 0, 0, 0x38, 0xf9, 0xbb, 0x40, 0, 0x40, 0x11, 0x2c, 0xf7, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let header = Ipv4Header::parse(&captured).unwrap();
    assert_eq!(
        (
            header.total_len,
            header.id,
            header.dont_fragment,
            header.ttl
        ),
        (56, 0xf9bb, true, 64)
    );
    let mut out = [0xff; 20];
    header.emit(&mut out);
    assert_eq!(out, captured);
}

#[test]
fn other_packets_are_refused() {
    let good = packet(&meta("10.0.0.1", "10.0.0.2"), b"abcd");
    let refused = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        IpUdp::parse(&bytes).unwrap_err()
    };
    assert_eq!(refused(0, 0x55), IpError::Version);
    assert_eq!(refused(0, 0x46), IpError::Options);
    assert_eq!(refused(0, 0x44), IpError::Options);
    assert_eq!(refused(3, 19), IpError::Truncated);
    assert_eq!(refused(3, 27), IpError::Truncated);
    assert_eq!(refused(3, 200), IpError::Truncated);
    assert_eq!(refused(6, 0x60), IpError::Fragment);
    assert_eq!(refused(7, 1), IpError::Fragment);
    assert_eq!(refused(9, 6), IpError::Protocol);
    assert_eq!(refused(25, 11), IpError::UdpLength);
    assert_eq!(refused(25, 13), IpError::UdpLength);
    assert_eq!(IpUdp::parse(&[]), Err(IpError::Truncated));
}

#[test]
fn mapped_addresses_are_ipv4() {
    let (mapped, plain) = (
        meta("::ffff:10.0.0.1", "::ffff:10.0.0.2"),
        meta("10.0.0.1", "10.0.0.2"),
    );
    assert_eq!(packet(&mapped, b"abc"), packet(&plain, b"abc"));
}

/// Byte pair by byte pair, as RFC 1071 begins.
fn naive(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks(2);
    pairs
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

#[test]
fn wide_words_sum_up_to_the_same_for_each_length() {
    for filling in [0, 1, 0x80, 0xff] {
        for len in 0..300 {
            let bytes: Vec<u8> = (0..len).map(|i| (i * i * 31) as u8 | filling).collect();
            assert_eq!(fold(sum(&bytes)), fold(naive(&bytes)), "{len}");
            let bytes = vec![filling; len];
            assert_eq!(fold(sum(&bytes)), fold(naive(&bytes)), "{len}");
        }
    }
    let longest = vec![0xff; 65_535];
    assert_eq!(fold(sum(&longest)), fold(naive(&longest)));
}

proptest! {
    #[test]
    fn wide_words_sum_up_to_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert_eq!(fold(sum(&bytes)), fold(naive(&bytes)));
    }
}
