//! What is said of flows.

use super::*;
use crate::registry::tests::Folder;

#[test]
fn a_flow_is_understood_as_it_was_said() {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for (src, dst) in [("127.0.0.1", "10.1.2.3"), ("fe80::1", "::1")] {
        let flow = Flow {
            src: ip(src),
            dst: ip(dst),
            scope_id: 3,
        };
        assert_eq!(Flow::decode(&flow.encode()), Some(flow));
    }
    assert_eq!(Flow::decode(&[0; FLOW_LEN - 1]), None);
}

#[test]
fn only_addresses_of_this_host_are_believed() {
    let flow = |src: &str, dst: &str| Flow {
        src: src.parse().expect("an address"),
        dst: dst.parse().expect("an address"),
        scope_id: 0,
    };
    assert!(flow("127.0.0.1", "127.0.0.2").is_of_this_host());
    for (src, dst) in [
        ("192.0.2.1", "127.0.0.1"),
        ("127.0.0.1", "192.0.2.1"),
        ("::1", "127.0.0.1"),
        ("224.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
    ] {
        assert!(!flow(src, dst).is_of_this_host(), "{src} {dst}");
    }
}

#[test]
fn whose_an_address_is_is_known_without_a_descriptor_left() {
    // The limit is the process's: the rest is done in a child that has nothing else to do.
    const CHILD: &str = "RNIC_TEST_NO_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let name = std::thread::current().name().expect("a test").to_owned();
        let status = std::process::Command::new(std::env::current_exe().expect("this"))
            .args([&name, "--exact", "--test-threads=1"])
            .env(CHILD, "1")
            .status();
        assert!(status.expect("a child").success());
        return;
    }
    sys::keep_spare();
    let open = || sys::socket(libc::AF_UNIX, libc::SOCK_STREAM).ok();
    let all: Vec<Fd> = std::iter::from_fn(open).collect();
    only_addresses_of_this_host_are_believed();
    drop(all);
}

#[test]
fn rings_that_come_all_at_once_are_all_taken() {
    let folder = Folder::new();
    let path = folder.path();
    let dir = sys::open_at(None, &folder.c_path(), libc::O_DIRECTORY, 0).expect("it is there");
    let listener = meeting::listen(&dir, path, 1).expect("a meeting point");
    // More than may wait for the ring of a connection that has brought none.
    let peers: Vec<_> = (0..100)
        .map(|_| {
            let (producer, file) = Producer::create().expect("a ring");
            let connection = meeting::hand_out(&dir, path, 1, &file).expect("a connection");
            (producer, connection)
        })
        .collect();
    let mut inbound = Inbounds::new(true).expect("a set");
    let mut counters = LinkCounters::default();
    inbound.accept(&listener, &mut counters);
    inbound.attend(&mut counters);
    assert_eq!((inbound.count(), counters.host_rings_wrong), (100, 0));
    drop(peers);
}
