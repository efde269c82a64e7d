use super::PathMtu;

#[test]
fn codes_and_bytes() {
    assert_eq!(
        PathMtu::ALL.map(PathMtu::bytes),
        [256, 512, 1024, 2048, 4096]
    );
    for mtu in PathMtu::ALL {
        assert_eq!(PathMtu::from_ibv(mtu.to_ibv()), Some(mtu));
    }
    for code in [0, 6, 7, u32::MAX] {
        assert_eq!(PathMtu::from_ibv(code), None);
    }
}

#[test]
fn eighty_bytes_are_set_aside() {
    for (netdev, mtu) in [
        (0, PathMtu::M256),
        (335, PathMtu::M256),
        (336, PathMtu::M256),
        (591, PathMtu::M256),
        (592, PathMtu::M512),
        (1500, PathMtu::M1024),
        (4175, PathMtu::M2048),
        (4176, PathMtu::M4096),
        (65_536, PathMtu::M4096),
        (u32::MAX, PathMtu::M4096),
    ] {
        assert_eq!(PathMtu::largest_for_netdev(netdev), mtu, "{netdev}");
    }
}
