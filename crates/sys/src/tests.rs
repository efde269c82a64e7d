use proptest::prelude::*;

use super::datagram::parse_control;
use super::*;

#[test]
fn addresses_come_back_as_they_were() {
    for text in ["1.2.3.4:5", "[fd00::1]:65535", "0.0.0.0:0"] {
        let addr: SocketAddr = text.parse().unwrap();
        assert_eq!(Addr::inet(&addr).to_inet(), Some(addr));
    }
    let scoped = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 7));
    assert_eq!(Addr::inet(&scoped).to_inet(), Some(scoped));
    let mapped: SocketAddr = "[::ffff:1.2.3.4]:5".parse().unwrap();
    assert_eq!(
        Addr::inet(&mapped).to_inet(),
        Some("1.2.3.4:5".parse().unwrap())
    );
    assert_eq!(Addr::empty().to_inet(), None);
    assert!(Addr::unix(&[b'x'; 107]).is_some());
    assert!(Addr::unix(&[b'x'; 108]).is_none());
    assert!(Addr::unix(b"a\0b").is_none());
}

proptest! {
    #[test]
    fn any_control_message_is_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        len in 0usize..120,
        kind in 0usize..7,
    ) {
        let mut bytes = bytes;
        if bytes.len() >= size_of::<libc::cmsghdr>() {
            let (level, kind) = [
                (libc::SOL_UDP, libc::UDP_GRO),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO),
                (libc::IPPROTO_IP, libc::IP_PKTINFO),
                (libc::IPPROTO_IP, libc::IP_TTL),
                (libc::IPPROTO_IP, libc::IP_TOS),
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            ][kind];
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            bytes[8..12].copy_from_slice(&level.to_ne_bytes());
            bytes[12..16].copy_from_slice(&kind.to_ne_bytes());
        }
        let mut out = Datagram {
            len: 0,
            from: None,
            to: None,
            segment: 0,
            truncated: false,
            hop_limit: None,
            traffic_class: None,
        };
        parse_control(&bytes, &mut out);
    }
}

#[test]
fn datagrams_tell_where_they_came_from_and_went_to() {
    let receiver = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    set_option(&receiver, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).unwrap();
    bind(&receiver, &Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let to = local_addr(&receiver).unwrap();
    let sender = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    bind(&sender, &Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let mut buffer = [0; 64];
    let nothing = receive(&receiver, &mut buffer).err().unwrap();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    assert!(!wait_readable(&receiver, 0));
    send_to(&sender, &[7; 100], Some(&Addr::inet(&to))).unwrap();
    assert!(wait_readable(&receiver, 10_000));
    let datagram = receive(&receiver, &mut buffer).unwrap();
    assert_eq!((datagram.len, datagram.truncated), (64, true));
    assert_eq!(datagram.from, Some(local_addr(&sender).unwrap()));
    assert_eq!(datagram.to, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(buffer, [7; 64]);
    assert_eq!(
        (datagram.hop_limit, datagram.traffic_class),
        (None, None),
        "not asked for"
    );
}

/// A dual-stack socket has both families, and each tells in its own way.
#[test]
fn datagrams_tell_their_hop_limit_and_traffic_class() {
    let receiver = socket(libc::AF_INET6, libc::SOCK_DGRAM).unwrap();
    for (level, option) in [
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (libc::IPPROTO_IP, libc::IP_RECVTOS),
    ] {
        set_option(&receiver, level, option, 1).unwrap();
    }
    bind(&receiver, &Addr::inet(&"[::]:0".parse().unwrap())).unwrap();
    let port = local_addr(&receiver).unwrap().port();
    for (family, ip, options) in [
        (
            libc::AF_INET,
            "127.0.0.1",
            [(libc::IP_TTL, 9), (libc::IP_TOS, 0x6a)],
        ),
        (
            libc::AF_INET6,
            "::1",
            [(libc::IPV6_UNICAST_HOPS, 9), (libc::IPV6_TCLASS, 0x6a)],
        ),
    ] {
        let sender = socket(family, libc::SOCK_DGRAM).unwrap();
        let level = match family {
            libc::AF_INET => libc::IPPROTO_IP,
            _ => libc::IPPROTO_IPV6,
        };
        for (option, value) in options {
            set_option(&sender, level, option, value).unwrap();
        }
        let to = SocketAddr::new(ip.parse().unwrap(), port);
        send_to(&sender, &[7; 10], Some(&Addr::inet(&to))).unwrap();
        assert!(wait_readable(&receiver, 10_000));
        let datagram = receive(&receiver, &mut [0; 64]).unwrap();
        assert_eq!(
            (datagram.hop_limit, datagram.traffic_class),
            (Some(9), Some(0x6a)),
            "{ip}"
        );
        assert_eq!(datagram.to, Some(to.ip()));
    }
}

#[test]
fn many_messages_go_in_one_call() {
    let receiver = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    bind(&receiver, &Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let to = Addr::inet(&local_addr(&receiver).unwrap());
    let sender = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    let bytes: Vec<Vec<u8>> = (0..20u8).map(|i| vec![i; 3 + usize::from(i)]).collect();
    for n in [1, 3, 20] {
        let messages: Vec<_> = bytes[..n]
            .iter()
            .map(|b| Message {
                bytes: b,
                segment: if b.len() == 5 { 2 } else { 0 },
                to: Some(&to),
                by: None,
            })
            .collect();
        assert_eq!(send_many(&sender, &messages).unwrap(), n);
        let mut buffer = [0; 64];
        for expected in &bytes[..n] {
            let pieces = if expected.len() == 5 {
                vec![2, 2, 1]
            } else {
                vec![expected.len()]
            };
            for len in pieces {
                assert!(wait_readable(&receiver, 10_000));
                assert_eq!(receive(&receiver, &mut buffer).unwrap().len, len);
                assert_eq!(buffer[0], expected[0]);
            }
        }
    }
}

#[test]
fn byte_locks_belong_to_the_open_file() {
    let folder = rnic_skip::Folder::new();
    let path = std::ffi::CString::new(folder.path().join("f").to_str().unwrap()).unwrap();
    let open = || open_at(None, &path, libc::O_RDWR | libc::O_CREAT, 0o600).unwrap();
    let (a, b) = (open(), open());
    assert!(try_lock_byte(&a, 1 << 32).unwrap());
    assert!(!try_lock_byte(&b, 1 << 32).unwrap());
    assert!(try_lock_byte(&b, (1 << 32) + 1).unwrap());
    assert!(byte_is_locked(&b, 1 << 32).unwrap());
    assert!(!byte_is_locked(&a, 1 << 32).unwrap());
    // Another descriptor of the file being closed changes nothing (with POSIX locks it would).
    drop(open());
    assert!(byte_is_locked(&b, 1 << 32).unwrap());
    drop(a);
    assert!(!byte_is_locked(&b, 1 << 32).unwrap());
}

/// Systems with `vm.memfd_noexec=2` give out no others.
#[test]
fn memory_files_are_never_to_be_executed_where_the_kernel_knows_that() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, memfd_create};
    let known = memfd_create(c"rnic", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
    let file = memory_file(4096).unwrap();
    let seals = fcntl_get_seals(&file).unwrap();
    assert_eq!(seals.contains(SealFlags::EXEC), known.is_ok());
    assert!(is_safe_memory_file(&file, 4096));
}

/// errno belongs to the program that the library is preloaded into.
#[test]
fn what_fails_says_why_and_leaves_errno_alone() {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    let nowhere = Addr::inet(&"192.0.2.1:1".parse().unwrap());
    // SAFETY: a word of this thread.
    let errno = unsafe { &mut *libc::__errno_location() };
    *errno = 77;
    let by_number = set_option(&socket, libc::SOL_SOCKET, -1, 0).unwrap_err();
    let by_rustix = bind(&socket, &nowhere).unwrap_err();
    assert_eq!(*errno, 77);
    assert_eq!(by_number.raw_os_error(), Some(libc::ENOPROTOOPT));
    assert_eq!(by_rustix.raw_os_error(), Some(libc::EADDRNOTAVAIL));
}

#[test]
fn numbers_of_all_kinds_are_passed_as_they_are() {
    use raw::{Arg, words};
    assert_eq!((-1i32).word(), usize::MAX);
    assert_eq!(u32::MAX.word(), 0xffff_ffff);
    assert_eq!(words([1, 2]), [1, 2, 0, 0, 0, 0]);
}
