//! Which interfaces are asked for, and what is kept count of. What takes privileges and a network
//! is in `crates/programs/tests/xdp.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::filter::Users;
use super::program::Use;
use super::spec::Way;
use super::*;
use crate::staging::path::tests::route;

fn spec(text: &str) -> XdpSpec {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What is written is what was read, and what is meant.
#[test]
fn a_spec_is_written_as_it_is_read() {
    for (text, interfaces) in [
        ("eth0", &[("eth0", Way::Copy)][..]),
        ("rn0:generic", &[("rn0", Way::Generic)]),
        ("rn0:zerocopy", &[("rn0", Way::ZeroCopy)]),
        (
            "eth0,rn0:generic,rn1:zerocopy,wlp0s20f3",
            &[
                ("eth0", Way::Copy),
                ("rn0", Way::Generic),
                ("rn1", Way::ZeroCopy),
                ("wlp0s20f3", Way::Copy),
            ],
        ),
        // The longest name that Linux has room for.
        ("abcdefghijklmno", &[("abcdefghijklmno", Way::Copy)]),
        (
            "abcdefghijklmno:generic",
            &[("abcdefghijklmno", Way::Generic)],
        ),
        // A VLAN's interface.
        ("eth0.5", &[("eth0.5", Way::Copy)]),
    ] {
        let read = spec(text);
        let meant: Vec<_> = interfaces
            .iter()
            .map(|(name, way)| ((*name).to_owned(), *way))
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
        (":zerocopy", ":zerocopy"),
        ("eth0:zerocopy:zerocopy", "eth0:zerocopy:zerocopy"),
        ("eth0:generic:zerocopy", "eth0:generic:zerocopy"),
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

fn ways() -> Arc<Ways> {
    Arc::new(Ways::open(Vec::new()).expect("rtnetlink"))
}

fn filter() -> Filter {
    let arrivals = FdSet::new().expect("a set of descriptors");
    Filter::new(Vec::new(), arrivals, ways(), true)
}

/// What the engine opens a path for; to QP 1 if it is not for queue pairs.
fn path(from: &str, to: &str, local: bool, for_queue_pairs: bool) -> Route {
    let socket = route("127.0.0.1", "127.0.0.1", 0x5000).socket.clone();
    let spec = crate::staging::path::tests::spec(from, to, 0x5000);
    Route::new(&spec, socket, true, local, for_queue_pairs)
}

fn users(outside: usize, within: usize) -> Users {
    Users { outside, within }
}

/// Packets to an address are taken as long as any path to another host starts there.
#[test]
fn an_address_is_ours_until_its_last_path_goes() {
    let (v4, v6) = ("10.77.0.1", "fd77::1");
    let out = |from, to| path(from, to, false, true);
    let (one, two, six) = (
        out(v4, "10.77.0.2"),
        out(v4, "10.77.0.3"),
        out(v6, "fd77::2"),
    );
    let of = |text: &str| text.parse::<IpAddr>().expect("an address");
    let mut filter = filter();
    for route in [&one, &two, &six, &one] {
        filter.add_path(route, false);
    }
    for (route, left) in [(&one, 2), (&two, 1), (&one, 0)] {
        filter.remove_path(route);
        let left = (left > 0).then(|| users(left, 0));
        assert_eq!(filter.addresses.get(&of(v4)).copied(), left);
        assert_eq!(filter.addresses.get(&of(v6)), Some(&users(1, 0)));
    }
    // One less than none is none, and the next path counts as the first.
    filter.remove_path(&one);
    assert_eq!(filter.addresses.get(&of(v4)), None);
    filter.add_path(&one, false);
    assert_eq!(filter.addresses.get(&of(v4)), Some(&users(1, 0)));
    filter.remove_path(&six);
    filter.remove_path(&one);
    assert!(filter.addresses.is_empty());
}

/// Connections that do not leave the host cannot be reached from outside: their addresses are known
/// as the host's, which nothing comes from, and nothing is taken to them.
#[test]
fn no_path_within_the_host_takes_anything() {
    let (a, b) = ("10.77.0.1", "10.77.0.2");
    let of = |text: &str| text.parse::<IpAddr>().expect("an address");
    let mut filter = filter();
    let lo = [("127.0.0.1", "127.0.0.1"), ("::1", "::1")];
    for (from, to) in lo {
        for local in [true, false] {
            filter.add_path(&path(from, to, local, true), false);
        }
    }
    // Whether somebody of this host hears a group or answers at QP 1 says nothing of addresses.
    filter.add_path(&path(a, "239.1.2.3", true, true), false);
    filter.add_path(&path(a, "10.77.0.9", false, false), false);
    assert!(filter.addresses.is_empty());
    let (within, out) = (path(a, b, true, true), path(a, "10.77.0.9", false, true));
    filter.add_path(&within, false);
    for end in [a, b] {
        assert_eq!(filter.addresses.get(&of(end)), Some(&users(0, 1)), "{end}");
        assert_eq!(filter.addresses[&of(end)].of(), Use::Within);
    }
    // A host that also talks to others is reached by them.
    filter.add_path(&out, false);
    assert_eq!(filter.addresses[&of(a)].of(), Use::Outside);
    assert_eq!(filter.addresses[&of(b)].of(), Use::Within);
    filter.remove_path(&out);
    assert_eq!(filter.addresses[&of(a)].of(), Use::Within);
    filter.remove_path(&within);
    assert!(filter.addresses.is_empty());
}

/// Peers of this host, peers that no route leads to, and whatever is not over one of the interfaces
/// are left to the kernel, at any time and however many they are.
#[test]
fn who_is_not_over_an_interface_is_the_kernels() {
    let mut hops = Hops::new(ways());
    let v4 = |n: u32| IpAddr::from((0x0a4d_0000 + n).to_be_bytes());
    let v6 = |n: u128| IpAddr::from((0xfd77_u128 << 112 | n).to_be_bytes());
    for now in [0, 1, u64::MAX] {
        for n in 0..500 {
            assert_eq!(hops.entry(v4(n), v4(n.reverse_bits() >> 8), now).hop, None);
            assert_eq!(
                hops.entry(v6(n.into()), v6(u128::MAX >> (16 + n % 100)), now)
                    .hop,
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
            assert_eq!(hops.entry(src, dst, now).hop, None, "{src} to {dst}");
        }
    }
}
