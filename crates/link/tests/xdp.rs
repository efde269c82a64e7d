//! Packets past the kernel's network stack: over cables whose other ends the test holds, so that it
//! decides what comes, and in which order.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::ops::ControlFlow;
use std::process::Command;
use std::time::Instant;

use crate::common::{
    CableEnd, PATIENCE, isolated, now_ns, read_packet, spec, wait_readable, write_packet,
};
use rnic_host::MULTICAST_QPN;
use rnic_link::{LinkConfig, Look, PathId, RoceLink};
use rnic_wire::ip::IpUdp;
use rnic_wire::{Flow, ICRC_LEN, IcrcContext, ROCE_PORT};

/// Addresses of cable `n`: the link's own, the peer's, and one of this host whose packets the
/// kernel has.
fn own(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, n, 1)
}

fn peer(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, n, 2)
}

fn kernels(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, n, 9)
}

const NEAR: i32 = 100;
const FAR: i32 = 200;
const FENCE: u16 = 9999;

/// A link with all its cables by AF_XDP, and a path to the peer of each.
struct Rig {
    link: RoceLink,
    start: Instant,
    qpn: u32,
    cables: Vec<(CableEnd, UdpSocket)>,
}

impl Rig {
    /// For the test of this name, in a network namespace of its own. `None`: it was run there, or
    /// cannot be, which is said; it takes root, and `ip`.
    fn new(name: &str, cables: u8) -> Option<Rig> {
        Rig::by(name, cables, "")
    }

    /// `way`: behind the interfaces' names in `RNIC_XDP`.
    fn by(name: &str, cables: u8, way: &str) -> Option<Rig> {
        Rig::with(name, cables, way, LinkConfig::default())
    }

    /// `config`: all but the interfaces.
    fn with(name: &str, cables: u8, way: &str, config: LinkConfig) -> Option<Rig> {
        if !isolated(&format!("xdp::{name}")) {
            return None;
        }
        let rig = Rig::try_new(cables, way, config);
        if rig.is_none() {
            skipped(name);
        }
        rig
    }

    fn try_new(cables: u8, way: &str, config: LinkConfig) -> Option<Rig> {
        let numbers = 0..cables;
        let mut interfaces = Vec::new();
        let mut ends = Vec::new();
        for n in numbers.clone() {
            let (near, far) = (NEAR + i32::from(n), FAR + i32::from(n));
            let cable = format!(
                "link add rn{n} index {near} address 02:00:00:00:0{n}:01 type veth \
                 peer name far{n} index {far} address 02:00:00:00:0{n}:02"
            );
            if !ip(&cable) {
                return None;
            }
            for words in [
                format!("addr add {}/24 dev rn{n}", own(n)),
                format!("addr add {}/24 dev rn{n}", kernels(n)),
                format!("link set rn{n} up"),
                format!("link set far{n} up"),
            ] {
                assert!(ip(&words), "{words}");
            }
            let fence = UdpSocket::bind((kernels(n), FENCE)).expect("an address of ours");
            fence.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            ends.push((CableEnd::of(far), fence));
            interfaces.push(format!("rn{n}{way}"));
        }
        let config = LinkConfig {
            xdp: Some(interfaces.join(",").parse().expect("interfaces")),
            ..config
        };
        let link = RoceLink::open(&config).expect("open a link");
        let qpn = link.qpn_ranges()[0].first + 5;
        let mut rig = Rig {
            link,
            start: Instant::now(),
            qpn,
            cables: ends,
        };
        let past = numbers.fold(true, |past, n| {
            past & rig.open_path(own(n).into(), peer(n).into())
        });
        past.then_some(rig)
    }

    /// Whether its packets go past the network stack.
    fn open_path(&mut self, from: IpAddr, to: IpAddr) -> bool {
        let path = self.link.path(&spec(from, to, 0x5000)).expect("a path");
        self.link.is_past_network_stack(path)
    }

    /// Tells the kernel the peer's Ethernet address.
    fn set_neighbour(&self, n: u8) {
        let words = format!(
            "neigh replace {} lladdr 02:00:00:00:0{n}:02 dev rn{n}",
            peer(n)
        );
        assert!(ip(&words), "{words}");
    }

    /// Sends a packet: whether it went past the network stack.
    fn send(&mut self, path: PathId, number: u32) -> bool {
        let before = self.link.counters().tx_xdp_packets;
        let room = self.link.packet(path, 32).expect("room");
        write_packet(room, self.qpn, number);
        self.link.flush(now_ns(self.start));
        let past = self.link.counters().tx_xdp_packets - before;
        assert!(past <= 1);
        past == 1
    }

    /// Has a datagram arrive by a cable.
    fn datagram(&self, cable: u8, flow: Flow, payload: &[u8]) {
        self.datagram_with(cable, flow, 0, payload, |_| {});
    }

    /// The same with this identification, and with what `change` makes of its IP header.
    fn datagram_with(
        &self,
        cable: u8,
        flow: Flow,
        ip_id: u16,
        payload: &[u8],
        change: impl Fn(&mut [u8]),
    ) {
        let ip = IpUdp {
            flow,
            ip_id,
            dont_fragment: true,
            traffic_class: 0,
            hop_limit: 64,
        };
        let mut headers = [0; IpUdp::MAX_LEN];
        let len = ip.emit(payload, &mut headers);
        change(&mut headers);
        let to = match flow.dst {
            IpAddr::V4(group) if group.is_multicast() => {
                let [_, b, c, d] = group.octets();
                [1, 0, 0x5e, b & 0x7f, c, d]
            }
            _ => [2, 0, 0, 0, cable, 1],
        };
        let mut frame = [to, [2, 0, 0, 0, cable, 2]].concat();
        frame.extend_from_slice(&[8, 0]);
        frame.extend_from_slice(&headers[..len]);
        frame.extend_from_slice(payload);
        self.cables[usize::from(cable)].0.send(&frame);
    }

    /// Has a packet arrive, from a port by its number.
    fn packet(&self, cable: u8, src: Ipv4Addr, dst: Ipv4Addr, qpn: u32, number: u32) {
        self.packet_of(32, cable, (src, dst), qpn, number);
    }

    /// The same, with so many bytes before its ICRC.
    fn packet_of(
        &self,
        len: usize,
        cable: u8,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        qpn: u32,
        number: u32,
    ) {
        let flow = Flow {
            src: src.into(),
            dst: dst.into(),
            src_port: 50_000 + number as u16,
            dst_port: ROCE_PORT,
        };
        let mut packet = vec![0; len + ICRC_LEN];
        write_packet(&mut packet[..len], qpn, number);
        IcrcContext::new(&flow).append(0, true, &mut packet);
        self.datagram(cable, flow, &packet);
    }

    /// All that was sent by a cable is where it belongs. A queue of a card is worked off in order,
    /// and what is taken from it is there when a later one is.
    fn arrive(&self, cable: u8) {
        let fence = &self.cables[usize::from(cable)].1;
        for round in 0..2 {
            let flow = Flow {
                src: peer(cable).into(),
                dst: kernels(cable).into(),
                src_port: FENCE,
                dst_port: FENCE,
            };
            self.datagram(cable, flow, &[round]);
            let mut byte = [9];
            fence.recv(&mut byte).expect("the fence");
            assert_eq!(byte, [round]);
        }
    }

    /// One call, which looks once: what it delivers.
    fn look(&mut self, look: Look) -> Option<(IpAddr, IpAddr, Option<u32>)> {
        let mut out = None;
        let now = now_ns(self.start);
        self.link.receive_while(now, 1, look, &mut |packet| {
            assert!(out.is_none(), "a train of one");
            let number = read_packet(packet.bytes, packet.dest_qpn);
            let [src, dst] = [packet.src, packet.dst].map(|a| a.ip().expect("by IP"));
            out = Some((src, dst, number));
            ControlFlow::Continue(())
        });
        out
    }

    /// The next packet.
    fn next(&mut self) -> (IpAddr, IpAddr, Option<u32>) {
        let start = Instant::now();
        loop {
            if let Some(packet) = self.look(Look::Poll) {
                return packet;
            }
            assert!(start.elapsed() < PATIENCE, "nothing comes");
        }
    }
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split_whitespace()).status();
    status.is_ok_and(|status| status.success())
}

/// It takes root, outside of a container.
fn skipped(name: &str) {
    rnic_skip::skipped(name, "AF_XDP or a cable is not to be had");
}

/// A host of the LAN sends what the kernel throws away as martian: nothing of it may come in by
/// another way.
#[test]
fn nobody_reaches_connections_within_the_host_from_outside() {
    const NAME: &str = "nobody_reaches_connections_within_the_host_from_outside";
    let Some(mut rig) = Rig::new(NAME, 1) else {
        return;
    };
    let lo = Ipv4Addr::LOCALHOST;
    for (from, to) in [(lo, lo), (own(0), kernels(0)), (kernels(0), own(0))] {
        let past = rig.open_path(from.into(), to.into());
        assert!(!past, "a path within the host");
    }
    let claims = [
        (lo, lo),
        (lo, own(0)),
        (own(0), own(0)),
        (kernels(0), own(0)),
        (own(0), kernels(0)),
        (peer(0), lo),
        (peer(0), own(0)),
    ];
    for ((src, dst), number) in claims.into_iter().zip(0..) {
        rig.packet(0, src, dst, rig.qpn, number);
    }
    rig.arrive(0);
    // The only one that another host may send.
    let right = (peer(0).into(), own(0).into(), Some(claims.len() as u32 - 1));
    assert_eq!(rig.next(), right);
    assert_eq!(rig.look(Look::Drain), None);
    let counters = rig.link.counters();
    assert_eq!((counters.rx_xdp_packets, counters.rx_packets), (1, 1));
}

/// Past the network stack the IP header is seen, so nothing of it is inferred: an ICRC that would
/// hold with another identification does not hold. Nor is a header believed whose checksum is
/// wrong, which the kernel throws away.
#[test]
fn the_identification_is_the_one_in_the_header() {
    const NAME: &str = "the_identification_is_the_one_in_the_header";
    let Some(mut rig) = Rig::new(NAME, 1) else {
        return;
    };
    let flow = Flow {
        src: peer(0).into(),
        dst: own(0).into(),
        src_port: 50_000,
        dst_port: ROCE_PORT,
    };
    // The identification of the ICRC, that of the header, and what is wrong with that.
    let right = |_: &mut [u8]| {};
    let checksum = |header: &mut [u8]| header[10] ^= 1;
    let time_to_live = |header: &mut [u8]| header[8] ^= 1;
    let without_df = |header: &mut [u8]| {
        header[6] ^= 0x40;
        // That bit of the checksum is 1 beforehand or not: the sum stays.
        let sum = u16::from_be_bytes([header[10], header[11]]);
        let (sum, carry) = sum.overflowing_add(0x4000);
        header[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    };
    type Row<'a> = (u16, u16, &'a dyn Fn(&mut [u8]), bool);
    let rows: [Row<'_>; 9] = [
        (0, 0, &right, true),
        (7, 7, &right, true),
        (40_000, 40_000, &right, true),
        (0, 1, &right, false),
        (1, 0, &right, false),
        (0x1234, 0, &right, false),
        (3, 3, &without_df, false),
        (0, 0, &checksum, false),
        (0, 0, &time_to_live, false),
    ];
    let mut expected = Vec::new();
    for (number, (covered, told, change, is_good)) in (0..).zip(rows) {
        let mut packet = vec![0; 100 + 4 * number as usize + ICRC_LEN];
        let len = packet.len() - ICRC_LEN;
        write_packet(&mut packet[..len], rig.qpn, number);
        IcrcContext::new(&flow).append(covered, true, &mut packet);
        rig.datagram_with(0, flow, told, &packet, change);
        expected.extend(is_good.then_some(number));
    }
    rig.arrive(0);
    let mut found = Vec::new();
    // All is there, and each look is at one of them.
    for _ in 0..2 * rows.len() {
        if let Some((_, _, number)) = rig.look(Look::Drain) {
            found.push(number.expect("as it was sent"));
        }
    }
    assert_eq!(found, expected);
    // Two of them were no IP packets for the kernel either.
    let counters = rig.link.counters();
    assert_eq!((counters.rx_xdp_packets, counters.rx_bad_icrc), (7, 4));
}

/// Whoever sends without a pause by one interface starves neither another nor what comes by the
/// socket.
#[test]
fn all_have_their_turn() {
    const NAME: &str = "all_have_their_turn";
    let Some(mut rig) = Rig::new(NAME, 2) else {
        return;
    };
    const EACH: u32 = 40;
    for cable in [0, 1] {
        for number in 0..EACH {
            rig.packet(cable, peer(cable), own(cable), rig.qpn, number);
        }
    }
    for number in 0..3 {
        rig.packet(1, peer(1), kernels(1), rig.qpn, number);
    }
    for cable in [0, 1] {
        rig.arrive(cable);
    }
    let order: Vec<IpAddr> = (0..2 * EACH + 3).map(|_| rig.next().1).collect();
    let of = |dst: Ipv4Addr, order: &[IpAddr]| order.iter().filter(|&&d| d == dst).count();
    for until in 0..=order.len() {
        let so_far = &order[..until];
        let by_memory = [own(0), own(1)].map(|dst| of(dst, so_far));
        assert!(by_memory[0].abs_diff(by_memory[1]) <= 1, "{order:?}");
        let by_socket = of(kernels(1), so_far);
        let due = (until / 10).min(3);
        assert!(by_socket >= due, "{order:?}");
    }
}

/// What came for a group before this process left it is its own as long as it lies in the socket,
/// wherever else packets come by: it is not given to all others, who had it already.
#[test]
fn a_group_that_was_left_is_heard_until_the_socket_was_looked_at() {
    const NAME: &str = "a_group_that_was_left_is_heard_until_the_socket_was_looked_at";
    let Some(mut rig) = Rig::new(NAME, 1) else {
        return;
    };
    let group = Ipv4Addr::new(239, 7, 7, 1);
    rig.link.join(group.into(), NEAR as u32).expect("a member");
    rig.packet(0, peer(0), group, MULTICAST_QPN, 1);
    rig.packet(0, peer(0), own(0), rig.qpn, 2);
    rig.arrive(0);
    rig.link.leave(group.into(), NEAR as u32);
    assert_eq!(rig.next().1, own(0));
    // Packets come by AF_XDP, so this look is there alone.
    assert_eq!(rig.look(Look::Poll), None);
    let heard = (peer(0).into(), group.into(), Some(1));
    assert_eq!(rig.look(Look::Drain), Some(heard));
    assert_eq!(rig.link.counters().rx_handed_over, 0);
}

/// An administrator's entry for a neighbour is not touched: he may answer no ARP.
#[test]
fn a_neighbour_who_was_set_by_hand_stays_so() {
    const NAME: &str = "a_neighbour_who_was_set_by_hand_stays_so";
    let Some(mut rig) = Rig::new(NAME, 1) else {
        return;
    };
    rig.set_neighbour(0);
    let spec = spec(own(0).into(), peer(0).into(), rig.qpn);
    let path = rig.link.path(&spec).expect("a path");
    let start = Instant::now();
    while !rig.send(path, 0) {
        assert!(start.elapsed() < PATIENCE, "nothing goes past the stack");
    }
    let table = Command::new("ip").arg("neigh").output().expect("ip");
    let table = String::from_utf8_lossy(&table.stdout);
    assert!(
        table.contains("lladdr 02:00:00:00:00:02 PERMANENT"),
        "{table}"
    );
}

/// Where a neighbour moves to another card, or a route to another interface, packets follow as soon
/// as the kernel has told it, without a question of their own.
#[test]
fn packets_follow_neighbours_and_routes() {
    const NAME: &str = "packets_follow_neighbours_and_routes";
    let Some(mut rig) = Rig::new(NAME, 2) else {
        return;
    };
    let far = Ipv4Addr::new(10, 99, 0, 1);
    let by = |n: u8| {
        format!(
            "route replace {far} via {} dev rn{n} src {}",
            peer(n),
            own(0)
        )
    };
    for n in [0, 1] {
        rig.set_neighbour(n);
        rig.cables[usize::from(n)].0.listen();
    }
    assert!(ip(&by(0)));
    let ways = rig.link.ways().expect("ways past the stack");
    let spec = spec(own(0).into(), far.into(), rig.qpn);
    let path = rig.link.path(&spec).expect("a path");
    let mut number = 0;
    // The Ethernet address that the next packet goes to, out of this cable.
    let mut next = |rig: &mut Rig, cable: usize| {
        assert!(rig.send(path, number));
        loop {
            let frame = rig.cables[cable].0.receive();
            // Others are the kernel's own.
            if read_packet(&frame[42..74], rig.qpn) == Some(number) {
                number += 1;
                return [frame[4], frame[5]];
            }
        }
    };
    let tend = |rig: &Rig| {
        wait_readable(ways.raw_fd());
        ways.tend(now_ns(rig.start), true);
    };
    ways.tend(now_ns(rig.start), true);
    assert_eq!(next(&mut rig, 0), [0, 2]);
    // The neighbour has another card.
    let words = format!("neigh replace {} lladdr 02:00:00:00:00:77 dev rn0", peer(0));
    assert!(ip(&words));
    tend(&rig);
    assert_eq!(next(&mut rig, 0), [0, 0x77]);
    // The way leads over another interface.
    assert!(ip(&by(1)));
    tend(&rig);
    assert_eq!(next(&mut rig, 1), [1, 2]);
    // Nobody has him any more: the kernel has to find out.
    assert!(ip(&format!("neigh del {} dev rn1", peer(1))));
    tend(&rig);
    assert!(!rig.send(path, 0));
}

/// What the ring has no room for is lost, and counted: the kernel says nothing of it else.
#[test]
fn what_finds_no_room_in_the_ring_is_counted() {
    const NAME: &str = "what_finds_no_room_in_the_ring_is_counted";
    let Some(mut rig) = Rig::new(NAME, 1) else {
        return;
    };
    let (start, mut sent) = (Instant::now(), 0);
    while rig.link.all_counters().rx_overrun == 0 {
        assert!(start.elapsed() < PATIENCE, "{sent} found room");
        for _ in 0..64 {
            rig.packet(0, peer(0), own(0), rig.qpn, sent);
            sent += 1;
        }
    }
    rig.arrive(0);
    // The others are there, in order, as far as the cable took them.
    let mut last = None;
    while let Some((_, _, number)) = rig.look(Look::Drain) {
        assert!(number > last, "{number:?} after {last:?}");
        last = number;
    }
    let counters = rig.link.all_counters();
    assert!(counters.rx_xdp_packets > 0, "{counters:?}");
    assert!(
        counters.rx_packets + counters.rx_overrun <= u64::from(sent),
        "{counters:?}"
    );
}

/// A long row of packets takes the socket, in one piece, and short ones go past the stack, before
/// it and after it: on the cable all are in the order in which they were built.
#[test]
fn long_rows_take_the_socket_and_nothing_is_overtaken() {
    const NAME: &str = "long_rows_take_the_socket_and_nothing_is_overtaken";
    if let Some(rig) = Rig::new(NAME, 1) {
        assert_eq!(rows_and_singles(rig), 0);
    }
}

/// The same where the card has no checksum offload, as the kernel before Linux 6.11 would have it.
#[test]
fn rows_take_the_way_round_and_nothing_is_overtaken() {
    const NAME: &str = "rows_take_the_way_round_and_nothing_is_overtaken";
    let config = LinkConfig {
        always_tap_offload: true,
        ..LinkConfig::default()
    };
    if let Some(rig) = Rig::with(NAME, 1, "", config) {
        assert!(ip("link show dev rnic0"), "an interface of its own");
        // Of each long row at least once, and all of them in one piece.
        assert!(rows_and_singles(rig) >= 4 + 8 + 60 + 64);
        assert!(!ip("link show dev rnic0"), "which goes with the link");
    }
}

/// Sends long rows between single packets; all come in order. Gives how many took the tap.
fn rows_and_singles(mut rig: Rig) -> u64 {
    rig.set_neighbour(0);
    rig.cables[0].0.listen();
    let spec = spec(own(0).into(), peer(0).into(), rig.qpn);
    let path = rig.link.path(&spec).expect("a path");
    let mut built = 0;
    // So many packets in one batch: how many of them went past the stack.
    let mut send = |link: &mut RoceLink, count: u32| {
        let before = link.counters();
        for _ in 0..count {
            let room = link.packet(path, 32).expect("room");
            write_packet(room, rig.qpn, built);
            built += 1;
        }
        link.flush(now_ns(rig.start));
        let after = link.counters();
        assert_eq!(after.tx_packets - before.tx_packets, u64::from(count));
        after.tx_xdp_packets - before.tx_xdp_packets
    };
    let link = &mut rig.link;
    // The socket may have them until the kernel knows the neighbour.
    let start = Instant::now();
    while send(link, 1) == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing goes past the stack");
    }
    for long in [4, 8, 60, 64] {
        assert_eq!(send(link, 3), 3);
        // The driver may still have the last ones, in which case the row stays with them.
        let start = Instant::now();
        while send(link, long) != 0 {
            assert!(start.elapsed() < PATIENCE, "no row takes the socket");
        }
        while send(link, 3) == 0 {
            assert!(start.elapsed() < PATIENCE, "none returns");
        }
    }
    const HEADERS: usize = 14 + 20 + 8;
    let mut came = 0;
    while came < built {
        let frame = rig.cables[0].0.receive();
        // What a socket sent in one piece nobody has cut here.
        for packet in frame[HEADERS..].chunks(32 + ICRC_LEN) {
            let number = read_packet(&packet[..32], rig.qpn);
            assert_eq!(number, Some(came));
            came += 1;
        }
    }
    rig.link.counters().tx_detour_packets
}

/// Behind the driver what is longer than the MTU, as batches are, takes the socket, and single
/// packets come by the ring. Whatever way each takes, they come in the order in which they were
/// sent.
#[test]
fn batches_and_single_packets_come_in_order() {
    const NAME: &str = "batches_and_single_packets_come_in_order";
    let Some(mut rig) = Rig::by(NAME, 1, ":generic") else {
        return;
    };
    // The program has the MTU of before, so that the cable takes what is a batch to it.
    for end in ["rn0", "far0"] {
        assert!(ip(&format!("link set {end} mtu 9000")), "{end}");
    }
    const SHORT: usize = 32;
    const LONG: usize = 3000;
    let ours = (peer(0), own(0));
    let kernels = (peer(0), kernels(0));
    let (mut sent, mut came) = (0, 0);
    // Sends rows of packets, of so many bytes each; gives how many of them came by the ring.
    let mut in_order = |rig: &mut Rig, rows: &[(u32, usize, (Ipv4Addr, Ipv4Addr))]| {
        for &(count, len, between) in rows {
            for _ in 0..count {
                rig.packet_of(len, 0, between, rig.qpn, sent);
                sent += 1;
            }
        }
        rig.arrive(0);
        let before = rig.link.counters().rx_xdp_packets;
        while came < sent {
            assert_eq!(rig.next().2, Some(came), "{rows:?}");
            came += 1;
        }
        rig.link.counters().rx_xdp_packets - before
    };
    for batches in 1..4 {
        // More than are taken from the ring between two looks at the socket.
        let rows = [
            (20, SHORT, ours),
            (1, LONG, ours),
            (2, SHORT, ours),
            (2, LONG, ours),
            (1, SHORT, ours),
        ];
        assert_eq!(in_order(&mut rig, &rows), 20);
        // As long as the socket was not found empty.
        assert_eq!(in_order(&mut rig, &[(1, SHORT, ours)]), 0);
        let start = Instant::now();
        loop {
            assert_eq!(rig.look(Look::Drain), None);
            if in_order(&mut rig, &[(1, SHORT, ours)]) == 1 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "none comes by the ring");
        }
        // One takes the socket whatever was before: as if it had been on its way there when that
        // was found empty.
        assert_eq!(in_order(&mut rig, &[(batches, LONG, ours)]), 0);
        let start = Instant::now();
        loop {
            assert_eq!(rig.look(Look::Drain), None);
            if in_order(&mut rig, &[(1, SHORT, kernels), (1, SHORT, ours)]) == 1 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "none comes by the ring");
        }
    }
    assert_eq!(rig.look(Look::Drain), None);
}
