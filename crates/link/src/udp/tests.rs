use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::staging::path::tests::route;
use crate::staging::socket::TxSocket;

/// A receiver on an ephemeral port is enough to see what leaves: the port is under the ICRC, so
/// bytes are compared.
fn receiver() -> (Arc<Fd>, std::net::SocketAddr) {
    let fd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM).unwrap();
    sys::set_option(&fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).unwrap();
    sys::set_option(&fd, libc::SOL_UDP, libc::UDP_GRO, 1).unwrap();
    sys::bind(&fd, &sys::Addr::inet(&"127.0.0.1:0".parse().unwrap())).unwrap();
    let addr = sys::local_addr(&fd).unwrap();
    (Arc::new(fd), addr)
}

fn receive_all(link: &mut UdpLink, packets: usize) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    let mut out = Vec::new();
    while out.len() < packets {
        assert!(
            sys::wait_readable(&link.receiver, 10_000),
            "{} of {packets}",
            out.len()
        );
        if let Arrival::Train(train) = link.receive(&mut buffer, true).unwrap() {
            out.extend(
                buffer[..train.len]
                    .chunks(train.segment)
                    .map(<[u8]>::to_vec),
            );
        }
    }
    out
}

/// Sends `count` packets as one run that the kernel refuses to cut; all must arrive with the ICRCs
/// of single packets.
fn refused_run(count: usize, spoil: impl FnOnce(&Route)) -> (UdpLink, Arc<Route>) {
    let (fd, addr) = receiver();
    let mut link = UdpLink::new(fd);
    let route = Arc::new(crate::staging::path::tests::redirected(
        &route("127.0.0.1", "127.0.0.1", 0x5000),
        addr,
    ));
    spoil(&route);
    let mut batch = TxBatch::default();
    for i in 0..count {
        let packet = batch.packet(Some(&route), 96, usize::MAX).expect("room");
        packet.fill(i as u8);
    }
    assert_eq!(batch.runs().len(), 1);
    batch.finish();
    let mut counters = LinkCounters::default();
    link.send(&mut batch, 0, &mut counters);
    assert_eq!((counters.tx_packets, counters.tx_errors), (count as u64, 0));
    for (i, packet) in receive_all(&mut link, count).iter().enumerate() {
        assert_eq!(packet[..96], [i as u8; 96]);
        let ok = route.icrc.check(packet, 0).expect("the ICRC holds");
        assert_eq!(ok.ip_id, 0, "packet {i}");
    }
    (link, route)
}

#[test]
fn more_segments_than_the_kernel_takes_lower_the_limit() {
    let (link, route) = refused_run(200, |_| {});
    assert_eq!(link.max_segments(&route), SEGMENTS_OLD);
    assert!(route.gso());
}

#[test]
fn a_route_that_cannot_be_cut_for_goes_on_without() {
    let (link, route) = refused_run(10, |route| {
        // The kernel refuses UDP_SEGMENT on a socket without checksums (EINVAL).
        sys::set_option(route.socket.fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    });
    assert_eq!(link.max_segments(&route), 1);
}

/// What a run to one peer leaves in UDP_SEGMENT costs no other peer's packets, where the kernel
/// looks at it though it has nothing to cut: here as it does for a socket without checksums, as
/// older ones do for a path whose MTU is less than the segment.
#[test]
fn a_run_to_one_peer_costs_no_lone_packet_to_another() {
    let (fd, addr) = receiver();
    let mut link = UdpLink::new(fd);
    let route = route("127.0.0.1", "127.0.0.1", 0x5000);
    let [many, one] =
        [0; 2].map(|_| Arc::new(crate::staging::path::tests::redirected(&route, addr)));
    let mut send = |route: &Arc<Route>, count: usize| {
        let mut batch = TxBatch::default();
        for _ in 0..count {
            batch.packet(Some(route), 96, 64).expect("room").fill(7);
        }
        batch.finish();
        let mut counters = LinkCounters::default();
        link.send(&mut batch, 0, &mut counters);
        assert_eq!((counters.tx_packets, counters.tx_errors), (count as u64, 0));
        assert_eq!(receive_all(&mut link, count).len(), count);
        counters.tx_syscalls
    };
    let checksums = |on: bool| {
        let (fd, level, name) = (one.socket.fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK);
        sys::set_option(fd, level, name, i32::from(!on)).unwrap();
    };
    // The first costs a trial more, later ones do not.
    for calls in [2, 1, 1] {
        checksums(true);
        assert_eq!(send(&many, 10), 1);
        checksums(false);
        assert_eq!(send(&one, 1), calls);
    }
    // Runs to that peer still leave as such: its path's MTU may grow.
    checksums(true);
    assert!(one.gso() && many.gso());
    assert_eq!(send(&one, 10), 1);
}

#[test]
fn too_long_for_the_path_is_counted_and_the_rest_goes() {
    let (fd, addr) = receiver();
    let mut link = UdpLink::new(fd);
    let route = Arc::new(crate::staging::path::tests::redirected(
        &route("127.0.0.1", "127.0.0.1", 0x5000),
        addr,
    ));
    let mut batch = TxBatch::default();
    for len in [20, 65_520, 30] {
        batch
            .packet(Some(&route), len, 1)
            .expect("room")
            .fill(len as u8);
    }
    batch.packet(None, 20, 1).expect("room");
    let mut counters = LinkCounters::default();
    link.send(&mut batch, 0, &mut counters);
    assert_eq!((counters.tx_packets, counters.tx_errors), (2, 2));
    let lens: Vec<usize> = receive_all(&mut link, 2).iter().map(Vec::len).collect();
    assert_eq!(lens, [24, 34]);
}

#[test]
fn nothing_there_is_empty() {
    let (fd, _) = receiver();
    let mut link = UdpLink::new(fd);
    assert_eq!(
        link.receive(&mut vec![0; 70_000], true).unwrap(),
        Arrival::Empty
    );
}

/// A link whose only route leads into one end of a unix socket pair, which is full after some
/// packets, and the other end. It stands for a network that is slower than its sender: on lo a send
/// buffer never fills.
fn slow() -> (UdpLink, Arc<Route>, Fd) {
    let (near, far) = UnixDatagram::pair().unwrap();
    let (link, route) = into(near);
    (link, route, std::os::fd::OwnedFd::from(far).into())
}

fn into(near: UnixDatagram) -> (UdpLink, Arc<Route>) {
    near.set_nonblocking(true).unwrap();
    let near = Fd::from(std::os::fd::OwnedFd::from(near));
    sys::set_option(&near, libc::SOL_SOCKET, libc::SO_SNDBUF, 0).unwrap();
    let route = crate::staging::path::tests::over(
        &route("127.0.0.1", "127.0.0.1", 0x5000),
        TxSocket::of(near, 0, true),
    );
    (UdpLink::new(receiver().0), Arc::new(route))
}

/// Stages packets of one byte each with these numbers, and sends them.
fn send_numbers(
    link: &mut UdpLink,
    route: &Arc<Route>,
    numbers: std::ops::Range<u8>,
    now: u64,
) -> LinkCounters {
    let mut batch = TxBatch::default();
    for number in numbers {
        batch.packet(Some(route), 1, 1).expect("room").fill(number);
    }
    batch.finish();
    let mut counters = LinkCounters::default();
    link.send(&mut batch, now, &mut counters);
    counters
}

/// The numbers that have come.
fn take_numbers(far: &Fd) -> Vec<u8> {
    let mut buffer = [0; 64];
    std::iter::from_fn(|| sys::receive(far, &mut buffer).ok().map(|_| buffer[0])).collect()
}

#[test]
fn what_a_full_socket_does_not_take_goes_later_in_order() {
    let (mut link, route, far) = slow();
    let first = send_numbers(&mut link, &route, 0..100, 0);
    assert!(first.tx_waited > 0, "100 packets fit");
    assert_eq!(
        (first.tx_packets + first.tx_waited, first.tx_errors),
        (100, 0)
    );
    assert!(route.socket.is_full());
    // Fault injection may still have something.
    assert_eq!(send_numbers(&mut link, &route, 100..101, 1).tx_waited, 1);
    let mut come = Vec::new();
    let mut now = 1;
    let mut counters = LinkCounters::default();
    while let Some(at) = link.next_timeout() {
        assert!(at > now, "there is a pause");
        now = at;
        come.extend(take_numbers(&far));
        link.send(&mut TxBatch::default(), now, &mut counters);
    }
    come.extend(take_numbers(&far));
    assert!(!route.socket.is_full());
    assert_eq!((counters.tx_errors, counters.tx_waited), (0, 0));
    assert_eq!(come, (0..101).collect::<Vec<u8>>());
}

#[test]
fn what_a_socket_does_not_take_for_long_is_lost() {
    let (mut link, route, far) = slow();
    let waiting = send_numbers(&mut link, &route, 0..100, 0).tx_waited;
    assert!(waiting > 0, "100 packets fit");
    let mut counters = LinkCounters::default();
    let mut trials = 0;
    while let Some(at) = link.next_timeout() {
        link.send(&mut TxBatch::default(), at, &mut counters);
        trials += 1;
        assert!(at <= waiting::PATIENCE_NS + 1_000_000, "it waits for ever");
    }
    assert_eq!((counters.tx_packets, counters.tx_errors), (0, waiting));
    assert!(trials < 2000, "pauses grow");
    assert!(!route.socket.is_full(), "the next packet may try");
    drop(far);
}

/// A program that has sent its last datagram closes the device: what waits is not forgotten.
#[test]
fn what_waits_leaves_before_the_link_closes() {
    // Given up after a second: a reader that gets no processor for so long is not what is tested.
    let leaves = (0..5).any(|_| what_waits_leaves());
    assert!(leaves);
}

fn what_waits_leaves() -> bool {
    let (mut link, route, far) = slow();
    assert!(send_numbers(&mut link, &route, 0..100, 0).tx_waited > 0);
    let over = AtomicBool::new(false);
    let mut counters = LinkCounters::default();
    // What a socket pair lacks room for it takes when it is read.
    let come = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut come = Vec::new();
            loop {
                let last = over.load(Ordering::Acquire);
                come.extend(take_numbers(&far));
                if last {
                    return come;
                }
                std::thread::yield_now();
            }
        });
        while let Some(now) = link.next_timeout() {
            crate::roce::send_what_waits(&mut link, now, &mut counters);
        }
        over.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    let whole = counters.tx_errors == 0;
    assert!(!whole || come == (0..100).collect::<Vec<u8>>());
    whole
}

/// What an earlier packet met on its way is told at the next call, and costs that one's packets
/// nothing. Here a peer that went to somebody else for a moment stands for a router that says by
/// ICMPv6 that a packet was too big, or is forbidden.
#[test]
fn what_became_of_an_earlier_packet_costs_no_later_one() {
    let name = |end: &str| {
        let name = format!("rnic-link-earlier-{end}-{}", std::process::id());
        SocketAddr::from_abstract_name(name).unwrap()
    };
    let end = |end| UnixDatagram::bind_addr(&name(end)).unwrap();
    let (near, far, _elsewhere) = (end("near"), end("far"), end("elsewhere"));
    near.connect_addr(&name("far")).unwrap();
    let (mut link, route) = into(near);
    // It throws away what it has, which its peer is told of.
    let leave = || {
        for end in ["near", "elsewhere", "near"] {
            far.connect_addr(&name(end)).unwrap();
        }
    };
    let mut come = Vec::new();
    // By sendto(2), and several by sendmmsg(2).
    for numbers in [0..1, 1..4] {
        assert_eq!(send_numbers(&mut link, &route, 9..10, 0).tx_packets, 1);
        leave();
        let packets = numbers.len() as u64;
        let counters = send_numbers(&mut link, &route, numbers, 0);
        assert_eq!((counters.tx_packets, counters.tx_errors), (packets, 0));
        assert_eq!(counters.tx_syscalls, 2, "one was told");
        let mut packet = [0; 64];
        for _ in 0..packets {
            far.recv(&mut packet).unwrap();
            come.push(packet[0]);
        }
    }
    assert_eq!(come, [0, 1, 2, 3]);
    // What is refused for itself is tried some times, as strangers may forge such news, and lost.
    drop(far);
    let counters = send_numbers(&mut link, &route, 4..5, 0);
    assert_eq!((counters.tx_packets, counters.tx_errors), (0, 1));
    assert_eq!(counters.tx_syscalls, u64::from(TRIES) + 1);
}

/// Under user-mode qemu the longest packet of a way is not known. Address handles were refused
/// there for want of a way.
#[test]
fn a_way_is_one_though_its_longest_packet_is_not_known() {
    let known = crate::staging::path::tests::spec("127.0.0.1", "127.0.0.1", 0x5000);
    let nowhere = crate::staging::path::tests::spec("192.0.2.1", "192.0.2.2", 0x5000);
    rnic_skip::without_options(|| {
        let asked = tx::path_mtu(&known).map_err(|e| e.raw_os_error());
        assert_eq!(asked, Err(Some(libc::ENOPROTOOPT)));
        assert!(tx::way(&known).is_ok());
        assert!(tx::way(&nowhere).is_err(), "no address of this host");
    });
}
