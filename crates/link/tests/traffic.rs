//! Packets between links: in one process, between processes, over both IP versions, with and
//! without GSO.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::common::{
    Agent, PATIENCE, assert_complete, isolated_if_possible, read_packet, receive, receive_beside,
    send, spec,
};
use rnic_link::{LinkConfig, LinkError, Look, PathSpec, QuickPoll, RoceLink};

fn addresses() -> Vec<IpAddr> {
    let mut out = vec!["127.0.0.1".parse().unwrap()];
    let v6: IpAddr = "::1".parse().unwrap();
    if std::net::UdpSocket::bind((v6, 0)).is_ok() {
        out.push(v6);
    } else {
        rnic_skip::skipped("traffic over IPv6", "this host has no ::1");
    }
    out
}

fn open(config: &LinkConfig) -> RoceLink {
    RoceLink::open(config).expect("open a link")
}

/// Sends packets from 0 on, each longer than the one before, so that no two arrive as one.
fn send_singly(link: &mut RoceLink, path: &PathSpec, count: u32) {
    for number in 0..count {
        send(link, path, number, 1, 100 + 40 * number as usize, 1);
    }
}

#[test]
fn two_links_in_one_process() {
    if !isolated_if_possible("traffic::two_links_in_one_process") {
        return;
    }
    for no_gso in [false, true] {
        let config = LinkConfig {
            no_gso,
            ..LinkConfig::default()
        };
        let start = Instant::now();
        let (mut a, mut b) = (open(&config), open(&config));
        let (to_a, to_b) = (a.qpn_ranges()[0].first + 5, b.qpn_ranges()[0].first + 7);
        assert_ne!(to_a >> 12, to_b >> 12);
        for ip in addresses() {
            send(&mut a, &spec(ip, ip, to_b), 0, 300, 1040, 1);
            let arrived = receive_beside(&mut [&mut b, &mut a], start, 300, PATIENCE);
            assert_complete(&arrived, ip, to_b, 0, 300);
            send(&mut b, &spec(ip, ip, to_a), 500, 1, 12, 1);
            let arrived = receive_beside(&mut [&mut a, &mut b], start, 1, PATIENCE);
            assert_complete(&arrived, ip, to_a, 500, 1);
        }
        for link in [&a, &b] {
            let c = link.counters();
            assert_eq!(
                (c.rx_bad_icrc, c.rx_truncated, c.tx_errors),
                (0, 0, 0),
                "{c:?}"
            );
        }
        let c = a.counters();
        assert_eq!(c.tx_packets, 300 * addresses().len() as u64);
    }
}

/// Whoever leaves takes in all there is, whatever it is: a budget without end is one, at the port
/// and at the hand-over socket.
#[test]
fn a_budget_may_be_without_end() {
    if !isolated_if_possible("traffic::a_budget_may_be_without_end") {
        return;
    }
    let mut link = open(&LinkConfig::default());
    assert_eq!(link.receive(1, usize::MAX, true, &mut |_| {}), 0);
}

/// Who polls is back as soon as it has found something; who sleeps otherwise looks until nothing is
/// there, or a stream of lone packets would wake it for each.
#[test]
fn who_sleeps_drains_the_socket_first() {
    if !isolated_if_possible("traffic::who_sleeps_drains_the_socket_first") {
        return;
    }
    let (mut a, mut b) = (open(&LinkConfig::default()), open(&LinkConfig::default()));
    let ip = addresses()[0];
    let to = b.qpn_ranges()[0].first + 7;
    const PACKETS: u32 = 12;
    send_singly(&mut a, &spec(ip, ip, to), PACKETS);
    let (start, mut taken) = (Instant::now(), 0);
    let mut call = |look| {
        loop {
            assert!(start.elapsed() < PATIENCE, "{taken} arrived");
            let before = b.counters().rx_syscalls;
            let delivered = b.receive_while(1, 64, look, &mut |_| ControlFlow::Continue(()));
            let looks = b.counters().rx_syscalls - before;
            taken += delivered;
            if delivered > 0 {
                return (delivered, looks, taken);
            }
        }
    };
    let (delivered, looks, _) = call(Look::Poll);
    assert_eq!((delivered, looks), (1, 1));
    loop {
        let (delivered, looks, taken) = call(Look::Drain);
        assert_eq!(looks, delivered as u64 + 1, "the last look finds nothing");
        if taken == PACKETS as usize {
            break;
        }
    }
}

/// A quick poll looks at the socket. What that finds stays until it is taken in, in order and once,
/// and nobody sleeps meanwhile.
#[test]
fn what_a_quick_poll_finds_is_taken_in_once() {
    if !isolated_if_possible("traffic::what_a_quick_poll_finds_is_taken_in_once") {
        return;
    }
    let (mut a, mut b) = (open(&LinkConfig::default()), open(&LinkConfig::default()));
    let ip = addresses()[0];
    let to = b.qpn_ranges()[0].first + 7;
    assert_eq!(b.quick_poll(true), QuickPoll::NothingAtSocket);
    assert_eq!(b.quick_poll(false), QuickPoll::Something, "it cannot tell");
    assert!(!b.has_left());
    send_singly(&mut a, &spec(ip, ip, to), 2);
    let start = Instant::now();
    while b.quick_poll(true) == QuickPoll::NothingAtSocket {
        assert!(start.elapsed() < PATIENCE, "nothing came");
    }
    let looks = b.counters().rx_syscalls;
    for socket in [true, false] {
        assert_eq!(b.quick_poll(socket), QuickPoll::Something);
        assert!(b.has_left());
    }
    // Not yet.
    assert_eq!(
        b.receive_while(1, 64, Look::Poll, &mut |_| ControlFlow::Break(())),
        0
    );
    assert_eq!(b.quick_poll(true), QuickPoll::Something);
    assert_eq!(b.counters().rx_syscalls, looks, "it was found already");
    let mut got = Vec::new();
    while got.len() < 2 {
        b.receive_while(1, 64, Look::Drain, &mut |packet| {
            got.extend(read_packet(packet.bytes, to));
            ControlFlow::Continue(())
        });
        assert!(start.elapsed() < PATIENCE, "{:?}", b.counters());
    }
    assert_eq!(got, [0, 1]);
    assert_eq!(b.quick_poll(true), QuickPoll::NothingAtSocket);
}

/// Whoever cannot take a packet yet gets it again, and all behind it, in order and once: as they
/// came, singly or many at once, and through the hand-over socket of a process that they were not
/// steered to.
#[test]
fn what_is_not_taken_stays() {
    if !isolated_if_possible("traffic::what_is_not_taken_stays") {
        return;
    }
    for no_gso in [false, true] {
        let config = LinkConfig {
            no_gso,
            ..LinkConfig::default()
        };
        let (mut a, mut b) = (open(&config), open(&config));
        let ip = addresses()[0];
        let to = b.qpn_ranges()[0].first + 7;
        send(&mut a, &spec(ip, ip, to), 0, 300, 1040, 1);
        let (start, mut offers, mut taken) = (Instant::now(), 0, Vec::new());
        while taken.len() < 300 {
            assert!(start.elapsed() < PATIENCE, "{} arrived", taken.len());
            // What came here by mistake is handed over.
            assert_eq!(a.receive(1, 1, true, &mut |_| {}), 0);
            let before = taken.len();
            let mut refused = false;
            let n = b.receive_while(1, 64, Look::Handover, &mut |packet| {
                assert!(!refused, "offered although the one before was not taken");
                offers += 1;
                let number = read_packet(packet.bytes, packet.dest_qpn);
                assert_eq!(number, Some(taken.len() as u32));
                refused = offers % 3 == 0;
                if refused {
                    return ControlFlow::Break(());
                }
                taken.extend(number);
                ControlFlow::Continue(())
            });
            assert_eq!(n, taken.len() - before);
        }
        let counters = b.counters();
        assert_eq!((counters.rx_packets, counters.rx_bad_icrc), (300, 0));
    }
}

#[test]
fn a_link_talks_to_itself() {
    if !isolated_if_possible("traffic::a_link_talks_to_itself") {
        return;
    }
    let start = Instant::now();
    let mut link = open(&LinkConfig::default());
    let qpn = link.qpn_ranges()[0].first + 1;
    for ip in addresses() {
        send(&mut link, &spec(ip, ip, qpn), 0, 100, 256, 1);
        assert_complete(&receive(&mut link, start, 100, PATIENCE), ip, qpn, 0, 100);
    }
}

#[test]
fn between_processes() {
    if !isolated_if_possible("traffic::between_processes") {
        return;
    }
    for options in [&[][..], &["no_gso"]] {
        let (mut a, mut b) = (Agent::start(options), Agent::start(options));
        for ip in addresses() {
            let (qpn_a, qpn_b) = (a.qpn, b.qpn + 100);
            for (count, len) in [
                (1, 12),
                (1, 1040),
                (100, 1040),
                (20, 4108),
                (200, 76),
                (3, 13),
            ] {
                a.send(ip, ip, qpn_b, 7, count, len);
                b.expect(ip, qpn_b, 7, count);
                b.send(ip, ip, qpn_a, 9, count, len);
                a.expect(ip, qpn_a, 9, count);
            }
        }
        for agent in [&mut a, &mut b] {
            assert_eq!(agent.counter("rx_bad_icrc"), 0);
            assert_eq!(agent.counter("rx_truncated"), 0);
            assert_eq!(agent.counter("tx_errors"), 0);
        }
    }
}

#[test]
fn nothing_comes_from_nowhere() {
    if !isolated_if_possible("traffic::nothing_comes_from_nowhere") {
        return;
    }
    let start = Instant::now();
    let mut link = open(&LinkConfig::default());
    let arrived = receive(&mut link, start, 1, Duration::from_millis(20));
    assert!(arrived.is_empty(), "{arrived:?}");
}

/// In the namespace that the machine's other users of the port are in, and while processes come and
/// go: a packet may get lost, as on any wire, but none is wrong, none comes to a wrong process, and
/// sent again it arrives.
#[test]
fn while_others_come_and_go() {
    if let Err(LinkError::PortTaken { owner }) = RoceLink::open(&LinkConfig::default()) {
        let why = format!("the port is taken by {owner}");
        rnic_skip::skipped("while_others_come_and_go", &why);
        return;
    }
    let lo: IpAddr = "127.0.0.1".parse().unwrap();
    let (mut a, mut b) = (Agent::start(&[]), Agent::start(&["no_gso"]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..6 {
                drop(open(&LinkConfig::default()));
                let third = Agent::start(&[]);
                drop(open(&LinkConfig::default()));
                third.kill();
            }
        });
        for (round, len) in [(0, 12), (1, 1040), (2, 4108), (3, 300)] {
            let first = round * 1000;
            exchange(&mut a, &mut b, lo, first, 500, len);
            exchange(&mut b, &mut a, lo, first, 500, len);
        }
    });
}

fn exchange(from: &mut Agent, to: &mut Agent, ip: IpAddr, first: u32, count: u32, len: usize) {
    let start = Instant::now();
    let qpn = to.qpn + 3;
    from.send(ip, ip, qpn, first, count, len);
    loop {
        let answer = to.ask(&format!("missing {ip} {qpn} {first} {count}"));
        assert_eq!(answer[0], "missing", "{answer:?}");
        if answer.len() == 1 {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "still {answer:?}");
        for number in &answer[1..] {
            from.send(ip, ip, qpn, number.parse().unwrap(), 1, len);
        }
    }
}

/// Processes with faults and one capture file of all: what came through is right, and the file is
/// whole.
#[test]
fn with_faults_and_a_capture() {
    if !isolated_if_possible("traffic::with_faults_and_a_capture") {
        return;
    }
    let file = std::env::temp_dir().join(format!("rnic-link-{}.pcap", std::process::id()));
    let capture = format!("PCAP={}", file.display());
    let lo: IpAddr = "127.0.0.1".parse().unwrap();
    let (passed, bad) = {
        let faults = "FAULTS=drop=10%,reorder=10%,dup=10%,corrupt=10%,seed=7";
        let (mut a, mut b) = (Agent::start(&[faults, &capture]), Agent::start(&[&capture]));
        exchange(&mut a, &mut b, lo, 0, 300, 200);
        exchange(&mut b, &mut a, lo, 0, 50, 1040);
        assert_eq!(a.counter("rx_bad_icrc"), 0);
        for agent in [&mut a, &mut b] {
            assert_eq!(agent.ask("settle"), ["ok"]);
        }
        let passed: u64 = [&mut a, &mut b]
            .into_iter()
            .map(|agent| agent.counter("tx_packets") + agent.counter("rx_packets"))
            .sum();
        (passed, b.counter("rx_bad_icrc"))
    };
    assert!(bad > 0);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut rest = &bytes[24..];
    let (mut packets, mut wrong) = (0, 0);
    while !rest.is_empty() {
        let len = u32::from_ne_bytes(rest[8..12].try_into().unwrap()) as usize;
        // Behind the record's header and that of LINUX_SLL.
        let ip = &rest[16 + 16..16 + len];
        let (headers, payload) = rnic_wire::ip::IpUdp::parse(ip).expect("an IP packet");
        packets += 1;
        if headers.dont_fragment && rnic_wire::check(&headers.flow, payload, headers.ip_id).is_err()
        {
            wrong += 1;
        }
        rest = &rest[16 + len..];
    }
    // Each is in it twice, sent and received.
    assert_eq!(packets, passed);
    assert!(wrong >= 2 * bad, "{wrong} {bad}");
}

/// What the socket has no room for is lost, and counted, as a NIC counts what it has no buffers
/// for.
#[test]
fn what_finds_no_room_is_counted() {
    if !isolated_if_possible("traffic::what_finds_no_room_is_counted") {
        return;
    }
    let mut link = open(&LinkConfig::default());
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let datagram = vec![0; 60_000];
    let (start, mut sent) = (Instant::now(), 0);
    while link.all_counters().rx_overrun == 0 {
        assert!(start.elapsed() < PATIENCE, "{sent} found room");
        for _ in 0..64 {
            let to = ("127.0.0.1", rnic_wire::ROCE_PORT);
            sender.send_to(&datagram, to).expect("loopback takes all");
            sent += 1;
        }
    }
    // The others are there, for what they are worth.
    loop {
        let now = start.elapsed().as_nanos() as u64;
        link.receive(now, 64, false, &mut |_| panic!("none of these is a packet"));
        let counters = link.all_counters();
        if counters.rx_packets + counters.rx_overrun == sent {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{counters:?} of {sent}");
    }
}
