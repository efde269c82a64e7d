use super::*;

const TABLE: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  123: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 34567 2 0000000000000000 0
  124: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1234 2 0000000000000000 0
  125: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0000000000000000 0
garbage
  126: nonsense
";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\n";

#[test]
fn sockets_are_found_in_the_table() {
    let found: Vec<_> = sockets_on_port(TABLE, 4791).collect();
    assert_eq!(found, [(1000, 34567), (0, 0)]);
    assert_eq!(sockets_on_port(TABLE, 53).count(), 1);
    assert_eq!(sockets_on_port("", 53).count(), 0);
}

#[test]
fn the_owner_is_said_in_words() {
    let say = |sockets: &[(u32, u64)], rxe, uid| {
        describe_owner(sockets.iter().copied(), rxe, uid, PASSWD)
    };
    assert!(say(&[(1000, 5)], false, 0).contains("user alice (uid 1000)"));
    assert!(say(&[(4000, 5)], false, 0).contains("uid 4000"));
    assert!(say(&[(1000, 5)], false, 1000).contains("which is you"));
    assert!(say(&[(0, 0)], true, 1000).contains("rdma_rxe"));
    assert!(say(&[], true, 1000).contains("rdma_rxe"));
    assert!(say(&[(0, 0)], false, 1000).contains("the kernel itself"));
    assert!(say(&[], false, 1000).contains("/proc/net/udp"));
    // The module is loaded but has no port; a program has it.
    assert!(say(&[(1000, 5)], true, 0).contains("alice"));
}

#[test]
fn who_has_the_port_is_asked_in_the_threads_own_network() {
    rnic_skip::in_another_namespace(|| {
        let _taken = std::net::UdpSocket::bind(("0.0.0.0", ROCE_PORT)).expect("nobody else's");
        let owner = port_owner();
        assert!(owner.contains("which is you"), "{owner}");
    });
}
