//! The program takes what is certainly for a queue pair of this process, and nothing else: each
//! frame here differs in one thing from one that is taken. The kernel runs the program on frames
//! that never were on a wire (BPF_PROG_TEST_RUN).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use rnic_wire::Flow;
use rnic_wire::ip::IpUdp;

use super::*;
use rnic_host::registry::RANGE_LEN;
use rnic_sys as sys;
use rnic_sys::segment::Segment;

const TAKEN: u32 = 4; // XDP_REDIRECT
const PASSED: u32 = 2; // XDP_PASS

const OWN4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const OWN6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));
/// The first QPN of the range that is ours.
const OWN_RANGE: u32 = 0x5a5 << RANGE_BITS;
const OWN_QPN: u32 = OWN_RANGE + 0x123;

/// Longer than a machine takes to do anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of the interface.
const MTU: u32 = 1500;

/// A program whose tables have one range, an address of each family and a socket, and what it looks
/// things up in.
struct Rig {
    tables: Tables,
    program: Fd,
    /// Closed, it is out of the table.
    socket: Option<Fd>,
}

impl Rig {
    /// `None`, said in words: this takes privileges.
    fn new(what: &str) -> Option<Rig> {
        Rig::without_socket(what)?.with_socket(what)
    }

    fn with_socket(mut self, what: &str) -> Option<Rig> {
        let socket = match redirectable() {
            Ok(socket) => socket,
            Err(error) => return skipped(what, &error),
        };
        self.tables.set_socket(0, &socket).expect("room for it");
        self.socket = Some(socket);
        Some(self)
    }

    fn without_socket(what: &str) -> Option<Rig> {
        Rig::of(what, false)
    }

    fn of(what: &str, batches: bool) -> Option<Rig> {
        let tables = match Tables::new(1, MTU, batches) {
            Ok(tables) => tables,
            Err(error) => return skipped(what, &error),
        };
        tables.take_range(OWN_QPN).expect("room for it");
        for address in [OWN4, OWN6] {
            let set = tables.set_address(address, Use::Outside);
            set.expect("room for it");
        }
        match tables.load() {
            Ok(program) => Some(Rig {
                tables,
                program,
                socket: None,
            }),
            Err(error) => skipped(what, &error),
        }
    }

    #[track_caller]
    fn expect(&self, answer: u32, frame: &[u8], what: &str) {
        let said = sys::try_program(&self.program, frame).expect("the program runs");
        let word = if answer == TAKEN {
            "taken"
        } else {
            "passed on"
        };
        assert_eq!(said, answer, "{what} is to be {word}: {frame:02x?}");
    }
}

/// An AF_XDP socket as far as a map wants it: with a ring and memory, at no interface.
fn redirectable() -> io::Result<Fd> {
    const FRAME: usize = 4096;
    let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW)?;
    Segment::create(FRAME, FRAME)?
        .0
        .lend_to(&socket, FRAME as u32)?;
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
    ] {
        sys::set_option(&socket, libc::SOL_XDP, ring, 1)?;
    }
    Ok(socket)
}

/// Says that a test could not be made, past the harness's capture; what is no lack of privilege or
/// of the kernel's is a failure.
fn skipped<T>(what: &str, why: &io::Error) -> Option<T> {
    // Not EACCES: so the verifier says that the program is bad.
    let lacks = [libc::EPERM, libc::ENOSYS, libc::EAFNOSUPPORT];
    let code = why.raw_os_error().unwrap_or(0);
    assert!(lacks.contains(&code), "{what}: {why}");
    rnic_skip::skipped(what, &format!("eBPF and AF_XDP need root: {why}"));
    None
}

/// A packet from a neighbour to a QP, with `payload` bytes behind the BTH, the ICRC among them.
fn frame(to: IpAddr, port: u16, qpn: u32, payload: usize) -> Vec<u8> {
    let src = match to {
        IpAddr::V4(_) => IpAddr::from([10, 77, 0, 2]),
        IpAddr::V6(_) => "fd77::2".parse().expect("an address"),
    };
    frame_from(src, to, port, qpn, payload)
}

fn frame_from(src: IpAddr, to: IpAddr, port: u16, qpn: u32, payload: usize) -> Vec<u8> {
    let flow = Flow {
        src,
        dst: to,
        // Were it looked at instead of the destination's, it would show.
        src_port: 0xc0de,
        dst_port: port,
    };
    let ip = IpUdp {
        flow,
        ip_id: 7,
        dont_fragment: true,
        traffic_class: 0,
        hop_limit: 64,
    };
    // SEND only, P_Key 0xffff, PSN 9.
    let mut packet = vec![4, 0, 0xff, 0xff];
    packet.extend_from_slice(&qpn.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 9]);
    packet.resize(Bth::LEN + payload, 0xab);
    let mut headers = [0; IpUdp::MAX_LEN];
    let len = ip.emit(&packet, &mut headers);
    let kind = if to.is_ipv4() { IPV4 } else { IPV6 };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&headers[..len]);
    frame.extend_from_slice(&packet);
    frame
}

fn good(to: IpAddr) -> Vec<u8> {
    frame(to, ROCE_PORT, OWN_QPN, 4)
}

/// Where UDP's header begins.
fn udp_of(to: IpAddr) -> usize {
    ETHERNET_LEN
        + if to.is_ipv4() {
            Ipv4Header::LEN
        } else {
            Ipv6Header::LEN
        }
}

#[test]
fn packets_to_an_own_queue_pair_are_taken() {
    let Some(rig) = Rig::new("packets_to_an_own_queue_pair_are_taken") else {
        return;
    };
    for to in [OWN4, OWN6] {
        for qpn in [OWN_RANGE, OWN_QPN, OWN_RANGE + RANGE_LEN - 1] {
            for payload in [0, 4, 256, 1028, 1400] {
                rig.expect(TAKEN, &frame(to, ROCE_PORT, qpn, payload), "a packet");
            }
        }
    }
}

#[test]
fn other_queue_pairs_ports_and_addresses_are_passed_on() {
    let Some(rig) = Rig::new("other_queue_pairs_ports_and_addresses_are_passed_on") else {
        return;
    };
    for to in [OWN4, OWN6] {
        rig.expect(TAKEN, &good(to), "what the others differ from");
        for (qpn, what) in [
            (0, "QP 0"),
            (1, "QP 1"),
            (OWN_RANGE - 1, "the range below"),
            (OWN_RANGE + RANGE_LEN, "the range above"),
            (0xff_ffff, "a multicast group"),
        ] {
            rig.expect(PASSED, &frame(to, ROCE_PORT, qpn, 4), what);
        }
        for port in [0, ROCE_PORT - 1, ROCE_PORT + 1, ROCE_PORT.swap_bytes(), 53] {
            rig.expect(PASSED, &frame(to, port, OWN_QPN, 4), "another port");
        }
        let mut turned = frame(to, 53, OWN_QPN, 4);
        let udp = udp_of(to);
        turned[udp..udp + 2].copy_from_slice(&ROCE_PORT.to_be_bytes());
        rig.expect(PASSED, &turned, "what comes from RoCE's port");
    }
    for other in [
        "10.77.0.2",
        "10.77.0.255",
        "224.0.0.1",
        "127.0.0.1",
        "fd77::2",
        "ff02::1",
        "::1",
    ] {
        let to = other.parse().expect("an address");
        rig.expect(PASSED, &frame(to, ROCE_PORT, OWN_QPN, 4), other);
    }
}

/// How long the IP header says that the packet is, itself included.
fn ip_len(to: IpAddr, frame: &[u8]) -> usize {
    let (at, more) = if to.is_ipv4() {
        (2, 0)
    } else {
        (4, Ipv6Header::LEN)
    };
    let at = ETHERNET_LEN + at;
    more + usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]))
}

/// What no wire of this MTU carries is a batch that somebody else would have to cut.
#[test]
fn what_is_longer_than_the_mtu_is_passed_on() {
    let Some(rig) = Rig::new("what_is_longer_than_the_mtu_is_passed_on") else {
        return;
    };
    for to in [OWN4, OWN6] {
        let headers = udp_of(to) - ETHERNET_LEN + UDP_LEN + Bth::LEN;
        let longest = MTU as usize - headers;
        for (payload, answer) in [
            (longest - 1, TAKEN),
            (longest, TAKEN),
            (longest + 1, PASSED),
            (2 * longest, PASSED),
        ] {
            let frame = frame(to, ROCE_PORT, OWN_QPN, payload);
            assert_eq!(ip_len(to, &frame), headers + payload, "what is meant");
            rig.expect(answer, &frame, &format!("{payload} bytes of payload"));
        }
    }
}

/// In the tables an IPv4 address is a mapped one; that on the wire over IPv6 is nobody's, as to the
/// kernel.
#[test]
fn a_mapped_address_on_the_wire_is_passed_on() {
    let Some(rig) = Rig::new("a_mapped_address_on_the_wire_is_passed_on") else {
        return;
    };
    let mapped = Ipv4Addr::new(10, 77, 0, 1).to_ipv6_mapped().into();
    rig.expect(PASSED, &frame(mapped, ROCE_PORT, OWN_QPN, 4), "IPv6 to it");
}

/// What is between the wire's bits and the program's decision, bit by bit.
#[test]
fn each_bit_of_the_headers_that_matters_does_and_no_other() {
    let Some(rig) = Rig::new("each_bit_of_the_headers_that_matters_does_and_no_other") else {
        return;
    };
    for to in [OWN4, OWN6] {
        let (good, udp) = (good(to), udp_of(to));
        let ip = ETHERNET_LEN;
        let address = if to.is_ipv4() {
            ip + 16..udp
        } else {
            ip + 24..udp
        };
        let qpn = udp + UDP_LEN + 5;
        for at in 0..good.len() {
            for bit in 0..8 {
                let matters = match at {
                    // EtherType.
                    12 | 13 => true,
                    // Version and length of the header; fragments; protocol.
                    _ if to.is_ipv4() && at == ip => true,
                    _ if to.is_ipv4() && at == ip + 6 && bit < 6 => true,
                    _ if to.is_ipv4() && at == ip + 7 => true,
                    _ if to.is_ipv4() && at == ip + 9 => true,
                    // A length above the MTU, 1500.
                    _ if to.is_ipv4() && at == ip + 2 && bit >= 3 => true,
                    _ if to.is_ipv6() && at == ip + 4 && bit >= 3 => true,
                    // Next header.
                    _ if to.is_ipv6() && at == ip + 6 => true,
                    _ if address.contains(&at) => true,
                    // From multicast: fd77::2 with another bit.
                    _ if to.is_ipv6() && at == ip + 8 && bit == 1 => true,
                    // Destination port.
                    _ if at == udp + 2 || at == udp + 3 => true,
                    // All but the QPN's last 12 bits, its number in the range.
                    _ if at == qpn || at == qpn + 1 && bit >= 4 => true,
                    // Neither is anybody's promise: the bit of IPv4 that is reserved, and a version
                    // of IPv6 that EtherType contradicts.
                    _ if to.is_ipv4() && at == ip + 6 && bit == 7 => continue,
                    _ if to.is_ipv6() && at == ip && bit >= 4 => continue,
                    _ => false,
                };
                let mut other = good.clone();
                other[at] ^= 1 << bit;
                let matters = matters || ip_len(to, &other) > MTU as usize;
                let answer = if matters { PASSED } else { TAKEN };
                rig.expect(answer, &other, &format!("{to}, bit {bit} of byte {at}"));
            }
        }
    }
}

/// What a virtual cable brings of a sender that leaves cutting to the kernel, where the program
/// sits behind the driver: only the kernel can take it apart.
#[test]
fn what_is_longer_than_the_mtu_is_a_batch_and_passed_on() {
    let Some(rig) = Rig::new("what_is_longer_than_the_mtu_is_a_batch_and_passed_on") else {
        return;
    };
    for to in [OWN4, OWN6] {
        let room = 1500 - (udp_of(to) - ETHERNET_LEN) - UDP_LEN - Bth::LEN;
        rig.expect(TAKEN, &frame(to, ROCE_PORT, OWN_QPN, room), "just fits");
        rig.expect(PASSED, &frame(to, ROCE_PORT, OWN_QPN, room + 1), "a batch");
    }
}

/// It lies in the socket, so a packet behind it that went past the stack would overtake it. One
/// that comes once the socket was found empty does not.
#[test]
fn what_comes_after_a_batch_is_passed_on_until_the_socket_was_empty() {
    const NAME: &str = "what_comes_after_a_batch_is_passed_on_until_the_socket_was_empty";
    let rig = Rig::of(NAME, true).and_then(|rig| rig.with_socket(NAME));
    let Some(rig) = rig else {
        return;
    };
    let mut gate = rig.tables.gate().expect("a mapping").expect("a gate");
    let batch = |to, qpn| frame(to, ROCE_PORT, qpn, MTU as usize);
    for to in [OWN4, OWN6] {
        // It is seen at once that the socket is empty, but not at once believed.
        let later = |gate: &mut Gate| {
            let start = Instant::now();
            while sys::try_program(&rig.program, &good(to)).expect("it runs") != TAKEN {
                assert!(start.elapsed() < PATIENCE, "nothing is taken any more");
                gate.is_looked_behind(false);
                gate.nothing_was_there();
            }
        };
        later(&mut gate);
        assert!(!gate.is_shut());
        // A machine that stood still meanwhile is later already.
        let start = Instant::now();
        loop {
            let before = Instant::now();
            rig.expect(PASSED, &batch(to, OWN_QPN), "a batch");
            gate.is_looked_behind(false);
            gate.nothing_was_there();
            assert!(!gate.is_shut());
            let soon = sys::try_program(&rig.program, &good(to)).expect("it runs");
            if before.elapsed() < Duration::from_millis(2) {
                assert_eq!(soon, PASSED, "soon after a batch");
                break;
            }
            assert!(start.elapsed() < PATIENCE, "the machine stands still");
        }
        later(&mut gate);
        rig.expect(PASSED, &batch(to, OWN_QPN), "a batch");
        assert!(gate.is_shut());
        rig.expect(PASSED, &good(to), "behind a batch");
        // One that comes while the socket is looked at may not have been there yet.
        gate.is_looked_behind(false);
        rig.expect(PASSED, &good(to), "meanwhile");
        gate.nothing_was_there();
        assert!(gate.is_shut());
        rig.expect(PASSED, &batch(to, OWN_QPN), "another batch");
        gate.is_looked_behind(false);
        gate.nothing_was_there();
        assert!(!gate.is_shut());
        later(&mut gate);
        // Time alone opens nothing.
        rig.expect(PASSED, &batch(to, OWN_QPN), "a batch");
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(6) {
            rig.expect(PASSED, &good(to), "before the socket was looked at");
        }
        later(&mut gate);
        // One that is not for us takes the socket anyway, and nothing of ours is behind it.
        for other in [1, OWN_RANGE - 1] {
            rig.expect(PASSED, &batch(to, other), "somebody else's batch");
            rig.expect(TAKEN, &good(to), "a packet behind somebody else's batch");
        }
    }
}

/// Where the program sits in the driver no batches are expected, and there is no gate.
#[test]
fn without_batches_there_is_no_gate() {
    const NAME: &str = "without_batches_there_is_no_gate";
    let Some(rig) = Rig::new(NAME) else {
        return;
    };
    assert!(rig.tables.gate().expect("nothing to map").is_none());
    for to in [OWN4, OWN6] {
        rig.expect(
            PASSED,
            &frame(to, ROCE_PORT, OWN_QPN, MTU as usize),
            "a batch",
        );
        rig.expect(TAKEN, &good(to), "behind it");
    }
}

#[test]
fn fragments_are_passed_on() {
    let Some(rig) = Rig::new("fragments_are_passed_on") else {
        return;
    };
    let with = |word: u16| {
        let mut frame = good(OWN4);
        frame[ETHERNET_LEN + 6..ETHERNET_LEN + 8].copy_from_slice(&word.to_be_bytes());
        frame
    };
    const DONT: u16 = 0x4000;
    const MORE: u16 = 0x2000;
    rig.expect(TAKEN, &with(DONT), "what must not be fragmented");
    rig.expect(TAKEN, &with(0), "what may be");
    rig.expect(PASSED, &with(MORE), "the first fragment");
    for eights in [1, 185, 0x1fff] {
        rig.expect(PASSED, &with(MORE | eights), "a later fragment");
        rig.expect(PASSED, &with(eights), "the last fragment");
        rig.expect(PASSED, &with(DONT | eights), "a fragment that says no");
    }
    // A header of a fragment in front of UDP's.
    let mut fragment = good(OWN6);
    fragment[ETHERNET_LEN + 6] = 44;
    rig.expect(PASSED, &fragment, "IPv6, at UDP's place");
    let udp = udp_of(OWN6);
    fragment.splice(udp..udp, [17, 0, 0, 1, 0, 0, 0, 7]);
    rig.expect(PASSED, &fragment, "IPv6, the first fragment");
}

#[test]
fn options_and_extensions_are_passed_on() {
    let Some(rig) = Rig::new("options_and_extensions_are_passed_on") else {
        return;
    };
    let udp = udp_of(OWN4);
    let mut frame = good(OWN4);
    for words in 6..=15 {
        // What looks like UDP's header to one that does not look is an option.
        frame[ETHERNET_LEN] = 0x40 | words;
        rig.expect(PASSED, &frame, "options");
    }
    // IHL 6, and a word of NOPs in front of UDP's header.
    frame[ETHERNET_LEN] = 0x46;
    frame.splice(udp..udp, [1; 4]);
    rig.expect(PASSED, &frame, "options in front of UDP");
    for header in [0, 43, 44, 50, 51, 59, 60] {
        let mut frame = good(OWN6);
        frame[ETHERNET_LEN + 6] = header;
        rig.expect(PASSED, &frame, "an extension header");
    }
}

#[test]
fn other_protocols_are_passed_on() {
    let Some(rig) = Rig::new("other_protocols_are_passed_on") else {
        return;
    };
    for to in [OWN4, OWN6] {
        let protocol = ETHERNET_LEN + if to.is_ipv4() { 9 } else { 6 };
        // ICMP, TCP, DCCP, ICMPv6, UDP-Lite.
        for number in [1, 6, 33, 58, 136] {
            let mut frame = good(to);
            frame[protocol] = number;
            rig.expect(PASSED, &frame, &format!("protocol {number}"));
        }
        // ARP, VLAN, the service VLAN, MPLS, RoCEv1, and the family that it is not.
        let other = if to.is_ipv4() { IPV6 } else { IPV4 };
        for kind in [0x0806, 0x8100, 0x88a8, 0x8847, 0x8915, other] {
            let mut frame = good(to);
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            rig.expect(PASSED, &frame, &format!("EtherType {kind:#06x}"));
        }
        for tag in [[0x81, 0, 0, 5], [0x81, 0, 0, 0], [0x88, 0xa8, 0, 5]] {
            let mut frame = good(to);
            frame.splice(12..12, tag);
            rig.expect(PASSED, &frame, "a VLAN's frame");
        }
    }
}

/// The program looks at nothing behind a frame's end: what is cut within the headers that it reads
/// is passed on.
#[test]
fn frames_cut_short_are_passed_on() {
    let Some(rig) = Rig::new("frames_cut_short_are_passed_on") else {
        return;
    };
    for to in [OWN4, OWN6] {
        let good = frame(to, ROCE_PORT, OWN_QPN, 64);
        let least = udp_of(to) + UDP_LEN + Bth::LEN;
        // The kernel hands no program less than Ethernet's header.
        for len in ETHERNET_LEN..=good.len() {
            let answer = if len < least { PASSED } else { TAKEN };
            rig.expect(answer, &good[..len], &format!("{to}, {len} bytes"));
        }
    }
}

/// What nobody behind a wire may send from, the kernel throws away; it does so whatever this
/// process has connections to.
#[test]
fn what_claims_to_come_from_this_host_or_from_many_is_passed_on() {
    let Some(rig) = Rig::new("what_claims_to_come_from_this_host_or_from_many_is_passed_on") else {
        return;
    };
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let expect = |answer: u32, sources: &[&str]| {
        for source in sources {
            let src = address(source);
            let to = if src.is_ipv4() { OWN4 } else { OWN6 };
            let frame = frame_from(src, to, ROCE_PORT, OWN_QPN, 4);
            rig.expect(answer, &frame, &format!("from {source}"));
        }
    };
    let others = [
        "1.0.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "223.255.255.255",
        "10.77.0.3",
        "0:0:0:1::1",
        "fe80::1",
        "feff::1",
        "64:ff9b::7f00:1",
        "fd77::3",
    ];
    expect(TAKEN, &others);
    expect(PASSED, &["0.0.0.0", "0.255.255.255", "127.0.0.0"]);
    expect(PASSED, &["127.0.0.1", "127.255.255.255", "224.0.0.0"]);
    expect(PASSED, &["239.1.2.3", "240.0.0.1", "255.255.255.255"]);
    expect(PASSED, &["::", "::1", "::ffff:10.77.0.2", "::7f00:1"]);
    expect(PASSED, &["ff02::1", "ff0e::1", "ffff::1"]);
    // This host's: where paths to others begin, and where paths within the host end.
    expect(PASSED, &["10.77.0.1", "fd77::1"]);
    let within = ["10.77.0.3", "fd77::3"];
    for (uses, answer) in [(Use::Within, PASSED), (Use::None, TAKEN)] {
        for own in within {
            rig.tables.set_address(address(own), uses).expect("room");
            let frame = frame(address(own), ROCE_PORT, OWN_QPN, 4);
            rig.expect(PASSED, &frame, "to an address within the host");
        }
        expect(answer, &within);
    }
}

/// With the last path from an address its packets are the kernel's again, and no other's.
#[test]
fn an_address_given_up_is_passed_on() {
    let Some(rig) = Rig::new("an_address_given_up_is_passed_on") else {
        return;
    };
    for (to, other) in [(OWN4, OWN6), (OWN6, OWN4)] {
        for given_up in [Use::None, Use::Within] {
            let set = |uses| rig.tables.set_address(to, uses).expect("room for it");
            set(given_up);
            rig.expect(PASSED, &good(to), "what is not ours any more");
            rig.expect(TAKEN, &good(other), "the other address");
            set(Use::Outside);
            rig.expect(TAKEN, &good(to), "what is ours again");
        }
    }
    let never = "10.77.0.9".parse().expect("an address");
    let error = rig.tables.set_address(never, Use::None);
    assert!(error.is_err(), "never known");
}

/// A process that needs more queue pairs gets another range while packets come.
#[test]
fn a_range_more_is_taken_at_once() {
    let Some(rig) = Rig::new("a_range_more_is_taken_at_once") else {
        return;
    };
    let more = 0xffe << RANGE_BITS;
    for to in [OWN4, OWN6] {
        rig.expect(PASSED, &frame(to, ROCE_PORT, more + 1, 4), "not yet");
    }
    rig.tables.take_range(more).expect("room for it");
    for to in [OWN4, OWN6] {
        rig.expect(TAKEN, &frame(to, ROCE_PORT, more + 1, 4), "the new range");
        rig.expect(TAKEN, &good(to), "the first one");
        rig.expect(PASSED, &frame(to, ROCE_PORT, 0xff_ffff, 4), "multicast");
    }
}

/// Until a queue has its socket, and when that is closed, its packets are the kernel's.
#[test]
fn without_a_socket_all_is_passed_on() {
    const NAME: &str = "without_a_socket_all_is_passed_on";
    let Some(rig) = Rig::without_socket(NAME) else {
        return;
    };
    for to in [OWN4, OWN6] {
        rig.expect(PASSED, &good(to), "a packet before there is a socket");
    }
    let Some(mut rig) = Rig::new(NAME) else {
        return;
    };
    for to in [OWN4, OWN6] {
        rig.expect(TAKEN, &good(to), "a packet");
    }
    rig.socket = None;
    for to in [OWN4, OWN6] {
        rig.expect(PASSED, &good(to), "a packet after the socket");
    }
}
