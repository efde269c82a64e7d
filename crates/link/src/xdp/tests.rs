//! Which interfaces are asked for, and what is kept count of. What takes privileges and a network is in `crates/programs/tests/xdp.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;

fn spec(text: &str) -> XdpSpec {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What is written is what was read, and what is meant.
#[test]
fn a_spec_is_written_as_it_is_read() {
    for (text, interfaces) in [
        ("eth0", &[("eth0", XdpMode::Driver)][..]),
        ("rn0:generic", &[("rn0", XdpMode::Generic)]),
        (
            "eth0,rn0:generic,wlp0s20f3",
            &[
                ("eth0", XdpMode::Driver),
                ("rn0", XdpMode::Generic),
                ("wlp0s20f3", XdpMode::Driver),
            ],
        ),
        // The longest name that Linux has room for.
        ("abcdefghijklmno", &[("abcdefghijklmno", XdpMode::Driver)]),
        (
            "abcdefghijklmno:generic",
            &[("abcdefghijklmno", XdpMode::Generic)],
        ),
        // A VLAN's interface.
        ("eth0.5", &[("eth0.5", XdpMode::Driver)]),
    ] {
        let read = spec(text);
        let meant: Vec<_> = interfaces
            .iter()
            .map(|(name, mode)| ((*name).to_owned(), *mode))
            .collect();
        assert_eq!(read.0, meant, "{text}");
        assert_eq!(read.to_string(), text);
        assert_eq!(spec(&read.to_string()), read);
    }
}

/// Each is refused, and the message says which item and how it is written.
#[test]
fn what_is_no_interface_is_refused() {
    for (text, item) in [
        ("", ""),
        (",", ""),
        ("eth0,", ""),
        (",eth0", ""),
        ("eth0,,eth1", ""),
        (":", ":"),
        ("::", "::"),
        (":generic", ":generic"),
        ("eth0:", "eth0:"),
        ("eth0:native", "eth0:native"),
        ("eth0:Generic", "eth0:Generic"),
        ("eth0: generic", "eth0: generic"),
        ("eth0:generic:generic", "eth0:generic:generic"),
        ("eth0,eth1:fast", "eth1:fast"),
        ("abcdefghijklmnop", "abcdefghijklmnop"),
        ("abcdefghijklmnop:generic", "abcdefghijklmnop:generic"),
        // Fifteen letters, but more bytes.
        ("abcdefghijklmn\u{e9}", "abcdefghijklmn\u{e9}"),
        ("../eth0", "../eth0"),
        ("eth0/..", "eth0/.."),
        ("/", "/"),
        ("eth0 eth1", "eth0 eth1"),
        ("eth0, eth1", " eth1"),
    ] {
        let refused = text.parse::<XdpSpec>();
        assert_eq!(refused, Err(XdpSpecError(item.to_owned())), "{text:?}");
        let words = refused.expect_err("refused").to_string();
        assert!(
            words.contains(&format!("`{item}`")) && words.contains("`eth0`"),
            "{words}"
        );
    }
}

fn filter() -> Filter {
    Filter::new(Vec::new(), FdSet::new().expect("a set of descriptors"))
}

/// Packets to an address are taken as long as any path starts there.
#[test]
fn an_address_is_ours_until_its_last_path_goes() {
    let (v4, v6) = (
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    );
    let mut filter = filter();
    for from in [v4, v4, v6, v4] {
        filter.add_path(from, None);
    }
    for left in [Some(2), Some(1), None] {
        filter.remove_path(v4);
        assert_eq!(filter.addresses.get(&v4).copied(), left);
        assert_eq!(filter.addresses.get(&v6), Some(&1), "another address");
    }
    // One less than none is none, and the next path counts as the first.
    filter.remove_path(v4);
    assert_eq!(filter.addresses.get(&v4), None);
    filter.add_path(v4, None);
    assert_eq!(filter.addresses.get(&v4), Some(&1));
    filter.remove_path(v6);
    filter.remove_path(v4);
    assert!(filter.addresses.is_empty());
}

/// Peers of this host, peers whom no route leads to, and whatever is not over one of the interfaces are left to the kernel, at any
/// time and however many they are.
#[test]
fn who_is_not_over_an_interface_is_the_kernels() {
    let mut hops = Hops::new(Vec::new());
    let v4 = |n: u32| IpAddr::from((0x0a4d_0000 + n).to_be_bytes());
    let v6 = |n: u128| IpAddr::from((0xfd77_u128 << 112 | n).to_be_bytes());
    for now in [0, 1, u64::MAX] {
        for n in 0..500 {
            assert_eq!(hops.of(v4(n), v4(n.reverse_bits() >> 8), now), None);
            assert_eq!(
                hops.of(v6(n.into()), v6(u128::MAX >> (16 + n % 100)), now),
                None
            );
        }
        for (src, dst) in [
            (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()),
            (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
            (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            (Ipv6Addr::UNSPECIFIED.into(), v6(u128::MAX >> 16)),
            // Which no path has.
            (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
        ] {
            assert_eq!(hops.of(src, dst, now), None, "{src} to {dst}");
        }
    }
}

/// What a sender left to others to cut comes in one piece where the program sits behind the driver.
#[test]
fn a_batch_is_taken_apart_by_its_icrcs() {
    for dst in ["10.0.0.2", "fd00::2"] {
        let src = if dst.contains(':') {
            "fd00::1"
        } else {
            "10.0.0.1"
        };
        let flow = rnic_wire::Flow {
            src: src.parse().expect("an address"),
            dst: dst.parse().expect("an address"),
            src_port: 50_000,
            dst_port: ROCE_PORT,
        };
        let headers = IpUdp {
            flow,
            ip_id: 0,
            dont_fragment: true,
            traffic_class: 0,
            hop_limit: 64,
        };
        let packet = |len: usize, id: u16| {
            let mut bytes: Vec<u8> = (0..len).map(|k| (k * 7 + usize::from(id)) as u8).collect();
            IcrcContext::new(&flow).append(id, true, &mut bytes);
            bytes
        };
        for lengths in [
            &[60][..],
            &[60, 20],
            &[28, 28, 20],
            &[300, 300, 300, 300],
            &[16, 16],
        ] {
            let numbered = lengths.iter().zip(0..);
            let batch: Vec<u8> = numbered.flat_map(|(&len, id)| packet(len, id)).collect();
            assert_eq!(segment_of(&headers, &batch), lengths[0], "{lengths:?}");
        }
        // What is neither is left as it is, to be counted.
        let mut broken = packet(300, 0);
        broken[100] ^= 1;
        assert_eq!(segment_of(&headers, &broken), broken.len());
        assert_eq!(segment_of(&headers, &[]), 0);
    }
}
