//! Packets between links of one host go through memory: whole, in order, none lost, whoever else is
//! there.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::common::{Agent, PATIENCE, isolated, now_ns, read_packet, spec, write_packet};
use rnic_link::{Detached, LinkConfig, Look, PathId, RoceLink};
use rnic_wire::PathMtu;

const LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn open() -> RoceLink {
    let config = LinkConfig {
        host_path: true,
        ..LinkConfig::default()
    };
    RoceLink::open(&config).expect("open the link")
}

fn qpn_of(link: &RoceLink) -> u32 {
    link.qpn_ranges()[0].first
}

/// Sends what there is room for; gives the first number that had none.
fn send(
    link: &mut RoceLink,
    path: PathId,
    qpn: u32,
    first: u32,
    last: u32,
    len: usize,
    now: u64,
) -> u32 {
    let mut next = first;
    while next < last {
        // Refused while others wait to be flushed, and if the ring is new or full.
        let mut whole = vec![0; len];
        write_packet(&mut whole, qpn, next);
        if first / 100 % 2 == 1 && link.send_short(path, &whole) {
            next += 1;
            continue;
        }
        // As a QP does that has a path MTU.
        let room = if len > 4116 {
            assert!(len <= 28 + link.most_by_value(path));
            link.multi_psn_packet(path, 28, len - 28, PathMtu::M4096)
        } else {
            link.packet(path, len)
        };
        let Some(packet) = room else {
            link.flush(now);
            if link.take_blocked() {
                return next;
            }
            continue;
        };
        write_packet(packet, qpn, next);
        next += 1;
    }
    link.flush(now);
    next
}

/// Takes what is there; the numbers must go on from `next`.
fn take(link: &mut RoceLink, qpn: u32, next: &mut u32, now: u64) -> usize {
    link.receive(now, 64, true, &mut |packet| {
        let ends = (packet.src.ip(), packet.dst.ip());
        assert_eq!((ends, packet.dest_qpn), ((Some(LO), Some(LO)), qpn));
        let mut bytes = packet.bytes.to_vec();
        if let Some((Detached::ByValue(payload), mtu)) = &packet.detached {
            assert_eq!(*mtu, PathMtu::M4096, "the sender's");
            assert_eq!(bytes.len(), 28, "the headers");
            bytes.resize(28 + payload.len(), 0);
            // SAFETY: it is as long.
            let copied = unsafe { payload.copy_to(0, bytes[28..].as_mut_ptr(), payload.len()) };
            assert!(copied.is_ok());
        }
        assert_eq!(read_packet(&bytes, qpn), Some(*next));
        *next += 1;
    })
}

#[test]
fn everything_arrives_in_order_without_the_network() {
    if !isolated("host::everything_arrives_in_order_without_the_network") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let qpn = qpn_of(&b);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    assert!(!a.is_local(path), "no socket has to be paced");
    let (mut sent, mut got) = (0, 0);
    const ALL: u32 = 20_000;
    while got < ALL {
        // Lengths around the cache line, and a ring that is full again and again.
        let len = [28, 56, 60, 1040, 4116, 4120, 16_412][(sent % 7) as usize];
        sent = send(
            &mut a,
            path,
            qpn,
            sent,
            (sent + 300).min(ALL),
            len,
            now_ns(start),
        );
        take(&mut b, qpn, &mut got, now_ns(start));
        assert!(start.elapsed() < PATIENCE);
    }
    let (tx, rx) = (a.counters(), b.counters());
    assert_eq!(
        (tx.tx_host_packets, rx.rx_host_packets),
        (ALL.into(), ALL.into())
    );
    assert_eq!(
        (tx.tx_packets, rx.rx_packets, tx.tx_errors),
        (ALL.into(), ALL.into(), 0)
    );
}

#[test]
fn queue_pairs_of_one_process_meet_in_memory() {
    if !isolated("host::queue_pairs_of_one_process_meet_in_memory") {
        return;
    }
    let start = Instant::now();
    let mut link = open();
    let qpn = qpn_of(&link) + 7;
    let path = link.path(&spec(LO, LO, qpn)).expect("a path");
    let mut got = 0;
    for round in 0..100 {
        let (first, last) = (round * 20, round * 20 + 20);
        assert_eq!(
            send(&mut link, path, qpn, first, last, 100, now_ns(start)),
            last
        );
        assert!(link.has_left(), "nobody else will look");
        while got < last {
            take(&mut link, qpn, &mut got, now_ns(start));
        }
    }
    assert!(!link.has_left());
    assert_eq!(link.counters().rx_host_packets, 2000);
}

#[test]
fn who_sleeps_is_woken() {
    if !isolated("host::who_sleeps_is_woken") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let qpn = qpn_of(&b);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    let mut got = 0;
    // The first one comes with the ring, which wakes by the other descriptor.
    send(&mut a, path, qpn, 0, 1, 100, now_ns(start));
    while got < 1 {
        take(&mut b, qpn, &mut got, now_ns(start));
    }
    for round in 1..200 {
        // One instant a round: a ring that is not used for 10 ms wakes who polls, too, and this
        // test may be kept from its core.
        let now = now_ns(start);
        assert!(!b.fall_asleep(), "nothing is there");
        assert!(!readable(b.wake_fd()));
        send(&mut a, path, qpn, round, round + 1, 100, now);
        assert!(readable(b.wake_fd()), "round {round}");
        while got < round + 1 {
            take(&mut b, qpn, &mut got, now);
        }
        // While it polls nobody spends a system call on it.
        b.leave_to_polling(true);
        b.receive(now, 1, false, &mut |_| {});
        let before = a.counters().tx_syscalls;
        send(&mut a, path, qpn, round + 1, round + 2, 100, now);
        assert_eq!(a.counters().tx_syscalls, before);
        b.leave_to_polling(false);
        assert!(b.fall_asleep(), "something is there");
        while got < round + 2 {
            take(&mut b, qpn, &mut got, now);
        }
        got = round + 1;
    }
}

fn readable(fd: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one local pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[test]
fn who_takes_nothing_holds_up_nobody_and_loses_after_a_second() {
    if !isolated("host::who_takes_nothing_holds_up_nobody_and_loses_after_a_second") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut stopped, mut lively) = (open(), open(), open());
    let (to, other) = (qpn_of(&stopped), qpn_of(&lively));
    let path = a.path(&spec(LO, LO, to)).expect("a path");
    let fine = a.path(&spec(LO, LO, other)).expect("a path");
    let now = now_ns(start);
    let held = send(&mut a, path, to, 0, 10_000, 1000, now);
    assert!((100..10_000).contains(&held), "{held}");
    let mut got = 0;
    for round in 0..1000 {
        assert_eq!(send(&mut a, path, to, held, held + 1, 1000, now), held);
        assert_eq!(
            send(&mut a, fine, other, round, round + 1, 1000, now),
            round + 1
        );
        while got < round + 1 {
            take(&mut lively, other, &mut got, now);
        }
    }
    // It is there again: nothing was lost.
    let mut got = 0;
    while got < held {
        take(&mut stopped, to, &mut got, now);
    }
    let sent = send(&mut a, path, to, held, 10_000, 1000, now);
    // Or it is not: then as on a socket.
    let late = now + 3_000_000_000;
    a.flush(late);
    assert_eq!(send(&mut a, path, to, sent, 10_000, 1000, late), 10_000);
    assert_eq!(a.counters().tx_errors, u64::from(10_000 - sent));
    while got < sent {
        take(&mut stopped, to, &mut got, late);
    }
}

/// A card goes on taking packets for a stopped program. What cannot be taken waits, where whoever
/// sends may wait; what can be lost is lost as ever, or one stopped process would hold up what its
/// sender has for others.
#[test]
fn what_is_for_a_stopped_process_waits_or_is_lost_after_a_second() {
    if !isolated("host::what_is_for_a_stopped_process_waits_or_is_lost_after_a_second") {
        return;
    }
    let start = Instant::now();
    let mut a = open();
    let mut peer = Agent::start(&["host_path"]);
    let qpn = peer.qpn;
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    assert!(!a.peer_is_stopped(path, qpn, None, now_ns(start)));
    peer.stop();
    let mut now = now_ns(start) + 10_000_000;
    while !a.peer_is_stopped(path, qpn, None, now) {
        assert!(start.elapsed() < PATIENCE);
        now += 10_000_000;
    }
    let held = send(&mut a, path, qpn, 0, 10_000, 1000, now);
    for _ in 0..1000 {
        now += 10_000_000;
        assert_eq!(send(&mut a, path, qpn, held, 10_000, 1000, now), held);
    }
    a.lose_what_stopped_peers_leave(true);
    assert_eq!(
        send(&mut a, path, qpn, held, held + 10, 1000, now),
        held + 10
    );
    assert_eq!(a.counters().tx_errors, 10);
    a.lose_what_stopped_peers_leave(false);
    assert_eq!(send(&mut a, path, qpn, held, 10_000, 1000, now), held);
    // It goes on, and all that waited comes.
    peer.go_on();
    peer.expect(LO, qpn, 0, held);
    assert!(!a.peer_is_stopped(path, qpn, None, now + 10_000_000));
    assert_eq!(
        send(&mut a, path, qpn, held, held + 10, 1000, now),
        held + 10
    );
    peer.expect(LO, qpn, held, 10);
}

#[test]
fn the_ring_of_a_killed_process_is_given_up() {
    if !isolated("host::the_ring_of_a_killed_process_is_given_up") {
        return;
    }
    let start = Instant::now();
    let mut a = open();
    let peer = Agent::start(&["host_path"]);
    let qpn = peer.qpn;
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    send(&mut a, path, qpn, 0, 10, 100, now_ns(start));
    assert_eq!(a.counters().tx_host_packets, 10);
    peer.kill();
    a.maintain(now_ns(start));
    // By UDP, and lost there.
    assert_eq!(send(&mut a, path, qpn, 0, 5000, 1000, now_ns(start)), 5000);
    assert_eq!(a.counters().tx_host_packets, 10);
    // A path that is opened now does not find it either.
    a.release_path(path);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    send(&mut a, path, qpn, 0, 10, 100, now_ns(start));
    assert_eq!(a.counters().tx_host_packets, 10);
}

#[test]
fn what_a_process_sent_before_it_ended_arrives() {
    if !isolated("host::what_a_process_sent_before_it_ended_arrives") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let qpn = qpn_of(&b);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    assert_eq!(send(&mut a, path, qpn, 0, 300, 1000, now_ns(start)), 300);
    drop(a);
    let mut got = 0;
    while got < 300 {
        take(&mut b, qpn, &mut got, now_ns(start));
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(!b.has_arrivals());
}

#[test]
fn one_without_the_host_path_is_reached_by_sockets() {
    if !isolated("host::one_without_the_host_path_is_reached_by_sockets") {
        return;
    }
    let start = Instant::now();
    let mut a = open();
    let mut peer = Agent::start(&[]);
    let qpn = peer.qpn;
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    assert!(a.is_local(path));
    send(&mut a, path, qpn, 0, 10, 100, now_ns(start));
    peer.expect(LO, qpn, 0, 10);
    assert_eq!(peer.counter("rx_host_packets"), 0);
}

#[test]
fn many_peers_each_get_their_own() {
    if !isolated("host::many_peers_each_get_their_own") {
        return;
    }
    let mut agents: Vec<Agent> = (0..12).map(|_| Agent::start(&["host_path"])).collect();
    let count = 20;
    for to in 0..agents.len() {
        let qpn = agents[to].qpn + to as u32;
        for (i, agent) in agents.iter_mut().enumerate() {
            agent.send(LO, LO, qpn, i as u32 * count, count, 1000);
        }
        let all = agents.len() as u32 * count;
        agents[to].expect(LO, qpn, 0, all);
        assert_eq!(agents[to].counter("rx_host_packets"), all.into());
    }
}

/// Where a link waits for rings.
fn meeting_point(qpn: u32) -> std::path::PathBuf {
    let runtime = std::env::var_os("RNIC_RUNTIME_DIR").expect("set by `isolated`");
    let folder = std::fs::read_dir(runtime)
        .expect("the runtime folder")
        .next()
        .expect("of this namespace")
        .expect("read");
    folder.path().join(format!("host.{}", qpn >> 12))
}

/// Bytes with a descriptor to a connection.
fn hand_out(connection: &UnixStream, bytes: &[u8], fd: &OwnedFd) {
    let mut control = [0u64; 3];
    let mut iov = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a C struct of integers and pointers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = 24;
    // SAFETY: the control data has room for one message with one descriptor.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(message)
            .cast::<i32>()
            .write_unaligned(fd.as_raw_fd());
        libc::sendmsg(connection.as_raw_fd(), &raw const header, 0);
    }
}

/// A memory file of `len` bytes full of `filling`, sealed or not.
fn memory(len: usize, filling: u8, sealed: bool) -> OwnedFd {
    // SAFETY: system calls with a terminated name and a new descriptor.
    let fd = unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    };
    std::fs::File::from(fd.try_clone().expect("a copy"))
        .write_all(&vec![filling; len])
        .expect("filled");
    if sealed {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
    }
    fd
}

#[test]
fn rubbish_is_counted_and_harms_nobody() {
    if !isolated("host::rubbish_is_counted_and_harms_nobody") {
        return;
    }
    const LEN: usize = 4096 + 512 * 1024;
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let qpn = qpn_of(&b);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    let mut greeting = *b"rnicHST3\0\0\0\0\0\0\0\0";
    greeting[8..].copy_from_slice(&(512u64 * 1024).to_ne_bytes());
    let mut kept = Vec::new();
    let mut got = 0;
    let mut wrong = 0;
    let meeting = meeting_point(qpn);
    let mut check = |b: &mut RoceLink, got: &mut u32, more: u64| {
        wrong += more;
        let begun = Instant::now();
        while b.counters().host_rings_wrong < wrong {
            take(b, qpn, got, now_ns(start));
            assert!(begun.elapsed() < PATIENCE, "{wrong}");
        }
        assert_eq!(b.counters().host_rings_wrong, wrong);
        let last = *got + 1;
        send(&mut a, path, qpn, *got, last, 100, now_ns(start));
        while *got < last {
            take(b, qpn, got, now_ns(start));
            assert!(begun.elapsed() < PATIENCE);
        }
    };
    // No greeting, a wrong one, one without a ring, one that says nothing at all.
    for said in [&b"GET / HTTP/1.1\r\n"[..], b"x", &greeting] {
        let mut connection = UnixStream::connect(&meeting).expect("connected");
        connection.write_all(said).expect("said");
        kept.push(connection);
        check(&mut b, &mut got, 1);
    }
    kept.push(UnixStream::connect(&meeting).expect("connected"));
    check(&mut b, &mut got, 0);
    // Files that are no ring: one that could shrink under the reader, one too short, none of
    // memory, a socket.
    let null = std::fs::File::open("/dev/zero").expect("there");
    for file in [
        memory(LEN, 0, false),
        memory(LEN - 1, 0, true),
        null.into(),
        UnixStream::pair().expect("a pair").0.into(),
    ] {
        let connection = UnixStream::connect(&meeting).expect("connected");
        hand_out(&connection, &greeting, &file);
        kept.push(connection);
        check(&mut b, &mut got, 1);
    }
    // Rings full of rubbish.
    for filling in [1, 0xa7, 0xff] {
        let connection = UnixStream::connect(&meeting).expect("connected");
        hand_out(&connection, &greeting, &memory(LEN, filling, true));
        kept.push(connection);
        check(&mut b, &mut got, 1);
    }
    // A ring with addresses that are not this host's, and one with packets of no flow.
    let mut words = [0u8; 64];
    words[..8].copy_from_slice(&(0xa7 << 56 | 2 << 48 | 36u64).to_ne_bytes());
    words[18..22].copy_from_slice(&[0xff, 0xff, 192, 0]);
    words[34..40].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    let mut packet = [0u8; 64];
    packet[..8].copy_from_slice(&(0xa7 << 56 | 1 << 48 | 20u64).to_ne_bytes());
    for line in [words, packet] {
        let file = memory(LEN, 0, true);
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::File::from(file.try_clone().expect("a copy")),
            &line,
            4096,
        )
        .expect("written");
        let connection = UnixStream::connect(&meeting).expect("connected");
        hand_out(&connection, &greeting, &file);
        kept.push(connection);
        check(&mut b, &mut got, 1);
    }
    drop(kept);
    check(&mut b, &mut got, 0);
}

#[test]
fn nobody_falls_asleep_with_packets_in_its_own_ring() {
    if !isolated("host::nobody_falls_asleep_with_packets_in_its_own_ring") {
        return;
    }
    let mut link = open();
    let qpn = qpn_of(&link);
    let path = link.path(&spec(LO, LO, qpn)).expect("a path");
    let mut got = 0;
    send(&mut link, path, qpn, 0, 1, 100, 1);
    take(&mut link, qpn, &mut got, 1);
    // Nothing came for long; then a timer lets a queue pair send, and nobody else will look.
    for now in [2, 1_000_000_000] {
        link.receive(now, 64, true, &mut |_| {});
    }
    send(&mut link, path, qpn, 1, 2, 100, 1_000_000_001);
    assert!(link.fall_asleep(), "something is there");
    take(&mut link, qpn, &mut got, 1_000_000_002);
    assert_eq!(got, 2);
    assert!(!link.fall_asleep());
}

#[test]
fn a_forked_child_does_not_keep_a_dead_peer_in_sight() {
    if !isolated("host::a_forked_child_does_not_keep_a_dead_peer_in_sight") {
        return;
    }
    let start = Instant::now();
    let mut b = open();
    let qpn = qpn_of(&b);
    let mut peer = Agent::start(&["host_path"]);
    peer.send(LO, LO, qpn, 0, 1, 100);
    let mut got = 0;
    while got < 1 {
        take(&mut b, qpn, &mut got, now_ns(start));
        assert!(start.elapsed() < PATIENCE);
    }
    let (parents, childs) = UnixStream::pair().expect("a pair");
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // It has a copy of everything, and lives until the parent closes its end.
        let mut byte = 0u8;
        // SAFETY: descriptors of its own, one local byte.
        unsafe {
            libc::close(parents.as_raw_fd());
            libc::read(childs.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0);
        }
    }
    peer.kill();
    while !readable(b.wake_fd()) {
        assert!(start.elapsed() < PATIENCE);
    }
    b.receive(now_ns(start), 64, true, &mut |_| {});
    assert!(
        !readable(b.wake_fd()),
        "who waits would be woken without end"
    );
    drop(parents);
    // SAFETY: the child's status is not asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

#[test]
fn who_is_refused_goes_by_udp_at_once() {
    if !isolated("host::who_is_refused_goes_by_udp_at_once") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let qpn = qpn_of(&b);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    send(&mut a, path, qpn, 0, 1, 100, now_ns(start));
    assert_eq!(a.counters().tx_host_packets, 1);
    // No descriptor is left for the ring.
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: local structs of the right type.
    let before = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let before = limit;
        limit.rlim_cur = 128;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        before
    };
    let mut all = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        all.push(file);
    }
    let listener = *b.handover_fds().last().expect("the listener");
    assert!(readable(listener));
    b.receive(now_ns(start), 64, true, &mut |_| {});
    let spins = readable(listener);
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) };
    drop(all);
    assert!(!spins, "who waits would be woken without end");
    let mut got = 1;
    send(&mut a, path, qpn, 1, 2, 100, now_ns(start));
    assert_eq!(a.counters().tx_host_packets, 1);
    while got < 2 {
        take(&mut b, qpn, &mut got, now_ns(start));
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_packet_that_stays_in_its_ring_does_not_keep_the_socket_from_its_look() {
    if !isolated("host::a_packet_that_stays_in_its_ring_does_not_keep_the_socket_from_its_look") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let mut c = RoceLink::open(&LinkConfig::default()).expect("open the link");
    let qpn = qpn_of(&b);
    let (near, far) = (qpn + 1, qpn + 2);
    let path = a.path(&spec(LO, LO, near)).expect("a path");
    send(&mut a, path, near, 0, 1, 100, now_ns(start));
    let path = c.path(&spec(LO, LO, far)).expect("a path");
    send(&mut c, path, far, 0, 1, 100, now_ns(start));
    let begun = Instant::now();
    let mut found = false;
    while !found {
        b.receive_while(now_ns(start), 64, Look::Handover, &mut |packet| {
            if packet.dest_qpn == near {
                return std::ops::ControlFlow::Break(());
            }
            found = true;
            std::ops::ControlFlow::Continue(())
        });
        assert!(begun.elapsed().as_secs() < 60, "never looked at");
    }
    let mut got = 0;
    while got < 1 {
        take(&mut b, near, &mut got, now_ns(start));
    }
}

#[test]
fn an_address_that_sockets_may_bind_to_need_not_be_the_hosts() {
    if !isolated("host::an_address_that_sockets_may_bind_to_need_not_be_the_hosts") {
        return;
    }
    let mut link = open();
    let qpn = qpn_of(&link);
    for option in ["ipv4", "ipv6"] {
        let option = format!("/proc/sys/net/{option}/ip_nonlocal_bind");
        if let Err(e) = std::fs::write(&option, "1") {
            rnic_skip::skipped("an address of no interface", &format!("{option}: {e}"));
            return;
        }
    }
    let v6: IpAddr = "::1".parse().expect("an address");
    for (local, remote, ours) in [
        (LO, "127.0.0.2", true),
        (LO, "192.0.2.1", false),
        (v6, "::1", true),
        (v6, "2001:db8::1", false),
    ] {
        let remote = remote.parse().expect("an address");
        let Ok(path) = link.path(&spec(local, remote, qpn)) else {
            assert!(v6 == local, "{remote}");
            continue;
        };
        // One that leads through memory needs no pacing.
        let before = link.counters().tx_host_packets;
        let packet = link.packet(path, 100).expect("room");
        write_packet(packet, qpn, 0);
        link.flush(1);
        assert_eq!(
            link.counters().tx_host_packets - before,
            u64::from(ours),
            "{remote}"
        );
    }
}

#[test]
fn rings_in_use_leave_the_socket_its_share() {
    if !isolated("host::rings_in_use_leave_the_socket_its_share") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let config = LinkConfig {
        no_gso: true,
        ..LinkConfig::default()
    };
    let mut c = RoceLink::open(&config).expect("open the link");
    let qpn = qpn_of(&b);
    let (near, far) = (qpn + 1, qpn + 2);
    let by_ring = a.path(&spec(LO, LO, near)).expect("a path");
    let by_socket = c.path(&spec(LO, LO, far)).expect("a path");
    b.receive(now_ns(start), 64, true, &mut |_| {});
    const ALL: u32 = 200;
    send(&mut c, by_socket, far, 0, ALL, 100, now_ns(start));
    let (mut sent, mut got, mut calls) = (0, 0, 0);
    while got < ALL {
        sent = send(&mut a, by_ring, near, sent, sent + 64, 100, now_ns(start));
        b.receive(now_ns(start), 64, false, &mut |packet| {
            got += u32::from(packet.dest_qpn == far);
        });
        calls += 1;
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(calls < ALL / 4, "one packet for {} of rings", sent / calls);
}

#[test]
fn a_path_that_fell_back_to_sockets_is_paced() {
    if !isolated("host::a_path_that_fell_back_to_sockets_is_paced") {
        return;
    }
    let start = Instant::now();
    let mut a = open();
    let peer = Agent::start(&["host_path"]);
    let qpn = peer.qpn;
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    send(&mut a, path, qpn, 0, 10, 100, now_ns(start));
    assert!(!a.is_local(path), "memory paces itself");
    peer.kill();
    a.maintain(now_ns(start));
    send(&mut a, path, qpn, 10, 20, 100, now_ns(start));
    assert!(a.is_local(path));
}

#[test]
fn a_consumer_that_closed_a_used_ring_is_noticed_while_packets_leave() {
    if !isolated("host::a_consumer_that_closed_a_used_ring_is_noticed_while_packets_leave") {
        return;
    }
    let mut a = open();
    let mut b = open();
    let qpn = qpn_of(&b);
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    send(&mut a, path, qpn, 0, 10, 100, 1);
    let mut got = 0;
    while got < 10 {
        take(&mut b, qpn, &mut got, 1);
    }
    // So that nobody has to be woken, which would tell.
    b.leave_to_polling(true);
    b.receive(1, 1, false, &mut |_| {});
    drop(b);
    // Neither is the ring full nor does anybody maintain the link.
    let later = 20_000_000;
    a.set_time(later);
    send(&mut a, path, qpn, 10, 20, 100, later);
    assert_eq!(a.counters().tx_host_packets, 10);
}

#[test]
fn who_connects_and_says_nothing_keeps_nobody_out() {
    if !isolated("host::who_connects_and_says_nothing_keeps_nobody_out") {
        return;
    }
    let start = Instant::now();
    let (mut a, mut b) = (open(), open());
    let qpn = qpn_of(&b);
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(UnixStream::connect(meeting_point(qpn)).expect("a connection"));
        b.receive(now_ns(start), 64, true, &mut |_| {});
    }
    let path = a.path(&spec(LO, LO, qpn)).expect("a path");
    let mut got = 0;
    for round in 0..100 {
        send(&mut a, path, qpn, round, round + 1, 100, now_ns(start));
        while got < round + 1 {
            take(&mut b, qpn, &mut got, now_ns(start));
            assert!(start.elapsed() < PATIENCE);
        }
    }
    assert_eq!(b.counters().rx_host_packets, 100);
}
