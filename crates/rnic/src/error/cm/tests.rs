use super::*;

fn peer() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

/// Each failing event becomes the error that says it in words, with the peer's address.
#[test]
fn events_become_words() {
    let mut data = b"wrong version".to_vec();
    data.resize(148, 0);
    for (kind, status, data, words) in [
        (EventKind::Rejected, 8, vec![], "nobody listens"),
        (EventKind::Rejected, 28, data, "It says \"wrong version\""),
        (EventKind::Rejected, 999, vec![], "REJ reason 999"),
        (
            EventKind::Unreachable,
            -libc::ETIMEDOUT,
            vec![],
            "does not answer",
        ),
        (EventKind::Unreachable, 1, vec![], "RDMA_PS_UDP"),
        (
            EventKind::AddrError,
            -libc::ENODEV,
            vec![],
            "ip route get 10.0.0.2",
        ),
        (
            EventKind::RouteError,
            -libc::EHOSTUNREACH,
            vec![],
            "no address of the device",
        ),
        (
            EventKind::ConnectError,
            -libc::EINVAL,
            vec![],
            "at this end",
        ),
        (
            EventKind::MulticastError,
            -libc::ENODEV,
            vec![],
            "multicast group 10.0.0.2",
        ),
        (
            EventKind::Disconnected,
            0,
            vec![],
            "before it was established",
        ),
    ] {
        let text = CmError::of(kind, status, peer(), data).to_string();
        assert!(text.contains(words), "{kind:?} {status}: {text}");
        assert!(text.contains("10.0.0.2"), "{text}");
        assert!(!text.contains('\0') && !text.contains("\\x00"), "{text}");
    }
}

#[test]
fn the_errno_is_the_source() {
    use std::error::Error;
    let error = CmError::of(EventKind::AddrError, -libc::ENODEV, peer(), vec![]);
    let source = error
        .source()
        .expect("a source")
        .downcast_ref::<io::Error>();
    assert_eq!(source.expect("errno").raw_os_error(), Some(libc::ENODEV));
}
