use super::*;
use crate::staging::path::tests::spec;

#[test]
fn queue_pairs_of_one_range_share_a_path() {
    let mut paths = Paths::default();
    let a = paths
        .open(&spec("127.0.0.1", "127.0.0.1", 0x5001), |_| true, |_| None)
        .unwrap();
    let b = paths
        .open(
            &spec("::ffff:127.0.0.1", "127.0.0.1", 0x5fff),
            |_| true,
            |_| None,
        )
        .unwrap();
    let c = paths
        .open(&spec("127.0.0.1", "127.0.0.1", 0x6001), |_| true, |_| None)
        .unwrap();
    assert_eq!(a, b);
    assert_ne!(a, c);
    // One 4-tuple for each range.
    let port = |id| paths.route(id).unwrap().flow.src_port;
    assert_ne!(port(a), port(c));
    assert_ne!(port(a), 0);
}

/// Else nothing would leave in rows, or past the network stack, to a peer whose queue pairs have
/// small numbers, as Soft-RoCE's have.
#[test]
fn small_numbers_are_queue_pairs_and_one_is_not() {
    let mut paths = Paths::default();
    let mut open = |qpn| {
        let id = paths.open(&spec("127.0.0.1", "127.0.0.2", qpn), |_| true, |_| None);
        let route = paths.route(id.unwrap()).unwrap();
        (route.for_queue_pairs, route.gso())
    };
    assert_eq!(open(17), (true, true));
    assert_eq!(open(QP1), (false, false));
}

#[test]
fn another_host_may_share_the_port() {
    let mut paths = Paths::default();
    let a = paths
        .open(&spec("127.0.0.1", "127.0.0.1", 0x5001), |_| true, |_| None)
        .unwrap();
    let b = paths
        .open(&spec("127.0.0.1", "127.0.0.2", 0x6001), |_| true, |_| None)
        .unwrap();
    let port = |id| paths.route(id).unwrap().flow.src_port;
    assert_eq!(port(a), port(b));
}

#[test]
fn ports_are_limited() {
    let mut paths = Paths::default();
    // The last cannot be connected to: an interface is missing.
    for (local, remote) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::1", "fe80::1"),
    ] {
        let mut ports = std::collections::BTreeSet::new();
        let ids: Vec<_> = (1..100)
            .map(|range| paths.open(&spec(local, remote, range << 12), |_| true, |_| None))
            .collect();
        if local == "::1" && ids[0].is_err() {
            rnic_skip::skipped("source ports over IPv6", "this host has no ::1");
            continue;
        }
        for id in ids {
            ports.insert(paths.route(id.unwrap()).unwrap().flow.src_port);
        }
        let expected = if remote == "::1" { 32 } else { 16 };
        assert_eq!(ports.len(), expected);
    }
}

#[test]
fn paths_are_counted_and_stale_ids_find_nothing() {
    let mut paths = Paths::default();
    let s = spec("127.0.0.1", "127.0.0.1", 0x5001);
    let first = paths.open(&s, |_| true, |_| None).unwrap();
    assert!(paths.is_new(first));
    assert_eq!(paths.open(&s, |_| true, |_| None).unwrap(), first);
    assert!(!paths.is_new(first));
    paths.release(first);
    assert!(paths.get(first).is_some());
    paths.release(first);
    assert!(paths.get(first).is_none());
    paths.release(first);
    let second = paths.open(&s, |_| true, |_| None).unwrap();
    assert_ne!(first, second);
    assert!(paths.get(first).is_none());
    assert!(!paths.is_new(first) && paths.is_new(second));
    paths.release(first);
    assert!(paths.get(second).is_some());
    for id in [u32::MAX, 12345, 5 << 20] {
        assert!(paths.get(PathId(id)).is_none() && !paths.is_new(PathId(id)));
        paths.release(PathId(id));
    }
}

#[test]
fn impossible_paths_are_refused() {
    let mut paths = Paths::default();
    let mixed = paths.open(&spec("127.0.0.1", "::1", 0x5001), |_| true, |_| None);
    assert!(matches!(mixed, Err(LinkError::Io { .. })), "{mixed:?}");
    // Nobody's address (TEST-NET-1).
    let foreign = paths.open(&spec("192.0.2.77", "127.0.0.1", 0x5001), |_| true, |_| None);
    let text = foreign.unwrap_err().to_string();
    assert!(text.contains("source address"), "{text}");
}
