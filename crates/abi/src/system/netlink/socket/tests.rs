//! The sockets by system calls, as a program has them behind the interposed functions.

use rnic_sys::Fd;

use super::*;

fn receive_into(fd: RawFd, buffer: &mut [u8], flags: c_int) -> std::io::Result<usize> {
    receive(fd);
    // SAFETY: room for so many bytes.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    usize::try_from(n).map_err(|_| std::io::Error::last_os_error())
}

/// A request for all devices.
fn who_is_there() -> Vec<u8> {
    let mut request = vec![16, 0, 0, 0];
    request.extend((5u16 << 10 | 1).to_ne_bytes());
    request.extend(0x301u16.to_ne_bytes());
    request.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    request
}

fn close(fd: RawFd) {
    // SAFETY: a socket of the test's, which does not use it any more.
    drop(unsafe { Fd::take(fd) });
}

fn socket(fd: RawFd) -> NumberOfSocket<'static> {
    NumberOfSocket::new(fd).expect("a number of a descriptor")
}

fn duplicate(fd: RawFd) -> RawFd {
    // SAFETY: no pointers.
    unsafe { libc::dup(fd) }
}

#[test]
fn a_question_is_answered_whatever_descriptor_it_comes_by() {
    let fd = open(libc::SOCK_RAW | libc::SOCK_CLOEXEC);
    assert!(fd >= 0 && is_one(fd));
    let other = duplicate(fd);
    close(fd);
    assert!(is_one(other));
    ask(other, &who_is_there());
    let mut buffer = [0; 4096];
    let n = receive_into(other, &mut buffer, libc::MSG_DONTWAIT).unwrap();
    assert!(buffer[..n].windows(6).any(|part| part == b"rnic0\0"));
    let n = receive_into(other, &mut buffer, libc::MSG_DONTWAIT).unwrap();
    assert_eq!((n, buffer[4]), (20, 3), "the end");
    let nothing = receive_into(other, &mut buffer, libc::MSG_DONTWAIT).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    close(other);
    assert!(!is_one(other));
}

#[test]
fn another_socket_of_the_same_number_is_another() {
    let fd = open(libc::SOCK_RAW);
    close(fd);
    let mut others = Vec::new();
    for _ in 0..200 {
        let other = netlink_peer(libc::SOCK_RAW).unwrap();
        assert!(!is_one(other.raw()));
        others.push(other);
    }
    assert!(!is_one(-1) && !is_one(0));
}

#[test]
fn what_a_socket_does_not_hold_comes_when_there_is_room() {
    let fd = open(libc::SOCK_RAW);
    let inode = socket(fd).inode().unwrap();
    {
        let mut sockets = lock_soon().unwrap();
        let socket = sockets.all.iter_mut().find(|s| s.inode == inode).unwrap();
        let many = (0..1000u32).map(|n| [n.to_ne_bytes(); 700].concat());
        socket.waiting.push_back(Box::new(many));
        let asker = NumberOfSocket::new(fd).unwrap();
        socket.send(asker, port_of(asker).unwrap());
        assert!(socket.next.is_some(), "2.8 MB are more than a socket holds");
    }
    let mut buffer = [0; 4096];
    for expected in 0..1000u32 {
        let n = receive_into(fd, &mut buffer, libc::MSG_DONTWAIT).unwrap();
        let number = u32::from_ne_bytes(buffer[..4].try_into().unwrap());
        assert_eq!((n, number), (2800, expected));
    }
    assert!(receive_into(fd, &mut buffer, libc::MSG_DONTWAIT).is_err());
    close(fd);
}

#[test]
fn nobody_else_can_answer() {
    let fd = open(libc::SOCK_RAW);
    ask(fd, &who_is_there());
    let stranger = netlink_peer(libc::SOCK_RAW).unwrap();
    let to = port_of(socket(fd)).unwrap();
    let sent = NumberOfSocket::from(&stranger).send_to(b"lies", to);
    let errno = sent.unwrap_err().raw_os_error();
    assert_eq!(errno, Some(libc::ECONNREFUSED));
    // Nor does what is not interposed reach anybody: the program learns it.
    // SAFETY: bytes.
    let written = unsafe { libc::write(fd, b"lies".as_ptr().cast(), 4) };
    let errno = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((written, errno), (-1, Some(libc::ECONNREFUSED)));
    close(fd);
}

#[test]
fn closed_sockets_are_forgotten() {
    for _ in 0..3 * MANY {
        close(open(libc::SOCK_RAW));
    }
    assert!(lock_soon().unwrap().all.len() <= 2 * MANY);
}

#[test]
fn addresses_are_read_and_written_within_what_there_is() {
    let address = |port| {
        // SAFETY: a structure of integers.
        let mut address: sockaddr_nl = unsafe { std::mem::zeroed() };
        (address.nl_family, address.nl_pid) = (libc::AF_NETLINK as u16, port);
        address
    };
    let kernel = address(0);
    let mut peer = address(7);
    let at = |address: &sockaddr_nl| (&raw const *address).cast::<c_void>();
    // SAFETY: lengths up to that of the address.
    unsafe {
        assert_eq!(port_named(at(&kernel), ADDRESS_LEN), Some(0));
        assert_eq!(port_named(at(&peer), ADDRESS_LEN), Some(7));
        assert_eq!(port_named(at(&peer), ADDRESS_LEN - 1), None);
        from_kernel((&raw mut peer).cast(), ADDRESS_LEN - 1);
        from_kernel(std::ptr::null_mut(), ADDRESS_LEN);
        assert_eq!(peer.nl_pid, 7);
        from_kernel((&raw mut peer).cast(), ADDRESS_LEN);
        assert_eq!(peer.nl_pid, 0);
        peer.nl_family = libc::AF_UNIX as u16;
        assert_eq!(port_named(at(&peer), ADDRESS_LEN), None);
    }
}
