use super::gf2::{DF_AT_ID, ONE, P, back, back_power, back_to_id, forward, multiply};
use super::*;
use std::vec;
use std::vec::Vec;

const RC_SEND_V4: &str = "45000038f9bb400040112cf70a0000010a000002dd3812b7002400000420ffff0000022b8010000041424344\
                          45464748494a000033b4a210";
const RC_ACK_V6: &str = "60000000001c1140fd000000000000000000000000000002fd000000000000000000000000000001dc9b12b7001c\
                         00001100ffff00000045001000001f0000010e572bb1";

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect()
}

/// The definition, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { P } else { 0 };
        }
    }
    !crc
}

/// The ICRC as annex A17 describes it: mask the whole IP packet (without ICRC), prepend 8 bytes of
/// ones, sum up.
fn by_definition(ip_packet: &[u8]) -> u32 {
    let mut bytes = ip_packet.to_vec();
    let udp = if bytes[0] >> 4 == 4 {
        bytes[1] = 0xff;
        bytes[8] = 0xff;
        bytes[10..12].fill(0xff);
        20
    } else {
        bytes[0] |= 0x0f;
        bytes[1..4].fill(0xff);
        bytes[7] = 0xff;
        40
    };
    bytes[udp + 6..udp + 8].fill(0xff);
    bytes[udp + 8 + 4] = 0xff;
    crc32(&[&[0xff; 8], &bytes[..]].concat())
}

fn flow(v4: bool) -> Flow {
    let (src, dst) = if v4 {
        ("192.168.7.9", "10.250.3.77")
    } else {
        ("fd00::17", "2001:db8::8:800:200c:417a")
    };
    Flow {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        src_port: 0xc123,
        dst_port: ROCE_PORT,
    }
}

/// Bytes that look random.
fn noise(len: usize, mut seed: u32) -> Vec<u8> {
    let next = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn two_packets_of_soft_roce() {
    for (hex, icrc_bytes) in [
        (RC_SEND_V4, [0x33, 0xb4, 0xa2, 0x10]),
        (RC_ACK_V6, [0x0e, 0x57, 0x2b, 0xb1]),
    ] {
        let ip_packet = unhex(hex);
        let (meta, payload) = crate::ip::IpUdp::parse(&ip_packet).unwrap();
        let (bytes, trailer) = payload.split_last_chunk::<4>().unwrap();
        assert_eq!(*trailer, icrc_bytes);
        let expected = u32::from_le_bytes(icrc_bytes);
        assert_eq!(by_definition(&ip_packet[..ip_packet.len() - 4]), expected);
        assert_eq!(
            icrc(&meta.flow, meta.ip_id, meta.dont_fragment, bytes),
            expected
        );
        let ok = check(&meta.flow, payload, 0).unwrap();
        assert_eq!(
            ok,
            IcrcOk {
                ip_id: meta.ip_id,
                df: true
            }
        );
        let mut again = payload.to_vec();
        again[payload.len() - 4..].fill(0);
        append_icrc(&meta.flow, meta.ip_id, meta.dont_fragment, &mut again);
        assert_eq!(again, payload);
    }
}

#[test]
fn agrees_with_the_definition() {
    for v4 in [true, false] {
        let flow = flow(v4);
        let context = IcrcContext::new(&flow);
        for len in (12..300).chain([1036, 1044, 2077, 4136, 4200, 4201, 4204, 9000, 60_001]) {
            let bytes = noise(len, len as u32);
            for (ip_id, dont_fragment) in [(0, true), (0x1234, false), (0xffff, true)] {
                let meta = crate::ip::IpUdp {
                    flow,
                    ip_id,
                    dont_fragment,
                    traffic_class: 0x5a,
                    hop_limit: 3,
                };
                let mut headers = [0; crate::ip::IpUdp::MAX_LEN];
                // The trailer counts in the lengths, whatever it holds.
                let with_trailer = [&bytes[..], &[0; 4]].concat();
                let header_len = meta.emit(&with_trailer, &mut headers);
                let expected = by_definition(&[&headers[..header_len], &bytes[..]].concat());
                assert_eq!(
                    context.icrc(ip_id, dont_fragment, &bytes),
                    expected,
                    "{v4} {len}"
                );
                let parts = [&bytes[..12], &bytes[12..len / 2 + 6], &bytes[len / 2 + 6..]];
                assert_eq!(
                    context.icrc_parts(ip_id, dont_fragment, &parts),
                    expected,
                    "{v4} {len}"
                );

                let received = [&bytes[..], &expected.to_le_bytes()].concat();
                let (ip_id, df) = if v4 {
                    (ip_id, dont_fragment)
                } else {
                    (77, true)
                };
                assert_eq!(
                    context.check_any_df(&received, 77),
                    Ok(IcrcOk { ip_id, df }),
                    "{v4} {len}"
                );
            }
        }
    }
}

#[test]
fn every_id_is_recovered() {
    let context = IcrcContext::new(&flow(true));
    let mut packet = noise(64, 1);
    for id in 0..=u16::MAX {
        for df in [true, false] {
            context.append(id, df, &mut packet);
            let ok = IcrcOk { ip_id: id, df };
            assert_eq!(context.check_any_df(&packet, 0x0100), Ok(ok));
            assert_eq!(
                context.check(&packet, 0x0100),
                if df { Ok(ok) } else { Err(IcrcError::Mismatch) }
            );
        }
    }
}

#[test]
fn fields_that_routers_change_do_not_count() {
    for v4 in [true, false] {
        let context = IcrcContext::new(&flow(v4));
        let mut packet = noise(100, 2);
        context.append(5, true, &mut packet);
        for byte in 0..=255 {
            packet[4] = byte;
            assert!(context.check(&packet, 5).is_ok());
        }
    }
}

#[test]
fn mapped_addresses_are_ipv4() {
    let mapped = |ip: IpAddr| IpAddr::V6(as_v6(ip));
    let plain = flow(true);
    let flow = Flow {
        src: mapped(plain.src),
        dst: mapped(plain.dst),
        ..plain
    };
    assert_eq!(IcrcContext::new(&flow), IcrcContext::new(&plain));
}

#[test]
fn lengths_that_no_packet_has() {
    let flow = flow(true);
    for len in [0, 3, 4, 15, 65_508, 70_000] {
        assert_eq!(check(&flow, &vec![0; len], 0), Err(IcrcError::Length));
    }
    let mut packet = noise(65_507, 3);
    append_icrc(&flow, 9, true, &mut packet);
    assert_eq!(check(&flow, &packet, 0), Ok(IcrcOk { ip_id: 9, df: true }));
}

/// No single flipped bit passes for another ID at any length up to 9 KB, and exactly two for
/// another ID without DF. Bit `j` before the end of the packet (the ICRC's own bits included) is
/// x^j in the difference, so what is tested for zeros is x^(j - 8 * bytes behind the ID - 32): all
/// the powers from x^-1 down.
#[test]
fn no_flipped_bit_passes_for_another_id() {
    let mut power = ONE;
    let mut pass_for_df = Vec::new();
    for j in 1..8 * 9100u32 {
        power = if power & ONE != 0 {
            (power ^ P) << 1 | 1
        } else {
            power << 1
        };
        assert_ne!(power & 0xffff, 0, "{j}");
        if (power ^ DF_AT_ID) & 0xffff == 0 && power != DF_AT_ID {
            pass_for_df.push(j);
        }
    }
    assert_eq!(pass_for_df, [1564, 14_855]);
}

/// By the book, bit by bit: the sum of `b` times x^i for each x^i in `a`.
fn multiply_slow(a: u32, b: u32) -> u32 {
    (0..32).fold(0, |product, i| {
        let takes = a >> (31 - i) & 1 == 1;
        let power = (0..i).fold(b, |p, _| p >> 1 ^ if p & 1 == 1 { P } else { 0 });
        product ^ if takes { power } else { 0 }
    })
}

#[test]
fn a_product_is_what_it_is_bit_by_bit() {
    for bit in 0..32 {
        assert_eq!(multiply(1 << bit, P), multiply_slow(1 << bit, P));
        assert_eq!(multiply(P, 1 << bit), multiply_slow(P, 1 << bit));
    }
    for pair in noise(8000, 9).chunks(8) {
        let [a, b] = [&pair[..4], &pair[4..]].map(|c| u32::from_be_bytes(c.try_into().unwrap()));
        assert_eq!(multiply(a, b), multiply_slow(a, b));
    }
}

#[test]
fn arithmetic() {
    assert_eq!(multiply(ONE, 0x1234_5678), 0x1234_5678);
    assert_eq!(multiply(0x1234_5678, ONE), 0x1234_5678);
    for register in noise(40, 4)
        .chunks(4)
        .map(|c| u32::from_be_bytes(c.try_into().unwrap()))
    {
        assert_eq!(back(forward(register, 9), 9), register);
        assert_eq!(multiply(register, forward(ONE, 5)), forward(register, 5));
        assert_eq!(multiply(register, back_power(300)), back(register, 300));
    }
    // Beyond the table the same as within it.
    for len in [0, 1, 4, 4095, 4196, 4200, 4203, 4204, 4207, 9001] {
        assert_eq!(back_to_id(len), back(ONE, 22 + len as u32 + 4), "{len}");
    }
    let two = [&b"ab"[..], b"c"].concat();
    assert_eq!(crc32(&two), crc32fast::hash(&two));
}
