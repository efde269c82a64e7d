use std::net::SocketAddr;

use super::*;
use rnic_skip::Folder;

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

fn asks(senders: &SourcePorts, range: u32, from: &str) -> Option<bool> {
    let from = at(from);
    senders.is_from(range, from.ip(), from.port())
}

/// What one process notes the other one finds, and only that: the very address, the very port.
#[test]
fn a_port_is_its_processs_as_long_as_it_sends_from_it() {
    let folder = Folder::new();
    let registry = Registry::open(folder.path()).unwrap();
    let [a, b] = [(); 2].map(|()| SourcePorts::open(&registry).unwrap());
    assert_eq!(asks(&a, 5, "10.0.0.1:40000"), None, "nobody has the range");
    a.add_range(5).unwrap();
    a.add_range(6).unwrap();
    b.add_range(7).unwrap();
    for from in ["10.0.0.1:40000", "[fd77::1]:40000", "[::1]:4791"] {
        assert_eq!(asks(&b, 5, from), Some(false), "not noted yet");
        a.note(&at(from)).unwrap();
        for senders in [&a, &b] {
            assert_eq!(asks(senders, 5, from), Some(true));
            assert_eq!(asks(senders, 6, from), Some(true));
        }
    }
    assert_eq!(asks(&b, 5, "[::ffff:10.0.0.1]:40000"), Some(true));
    for other in [
        "10.0.0.1:40001",
        "10.0.0.2:40000",
        "[fd77::2]:40000",
        "[::1]:40000",
        "10.0.0.1:0",
    ] {
        assert_eq!(asks(&b, 5, other), Some(false), "{other}");
        assert_eq!(asks(&b, 8, other), None, "{other}");
    }
    a.forget(&at("10.0.0.1:40000"));
    assert_eq!(asks(&b, 5, "10.0.0.1:40000"), Some(false));
    assert_eq!(asks(&b, 5, "[fd77::1]:40000"), Some(true));
}

/// Of a process that has left, or was killed, nothing can be said any more: what it sent last may
/// lie in a socket.
#[test]
fn of_who_is_gone_nothing_is_said() {
    let folder = Folder::new();
    let registry = Registry::open(folder.path()).unwrap();
    let asking = SourcePorts::open(&registry).unwrap();
    for killed in [false, true] {
        let gone = SourcePorts::open(&registry).unwrap();
        gone.add_range(5).unwrap();
        gone.note(&at("10.0.0.1:40000")).unwrap();
        assert_eq!(asks(&asking, 5, "10.0.0.1:40000"), Some(true));
        if !killed {
            gone.leave([5].into_iter());
            assert_eq!(asks(&asking, 5, "10.0.0.1:40000"), None);
        }
        drop(gone);
        assert_eq!(asks(&asking, 5, "10.0.0.1:40000"), None);
        // Nor is anything left for the process that has the range next.
        let next = SourcePorts::open(&registry).unwrap();
        next.add_range(5).unwrap();
        assert_eq!(asks(&asking, 5, "10.0.0.1:40000"), Some(false));
    }
}
