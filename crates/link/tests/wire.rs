//! What is really on the wire, seen from a packet socket: IP IDs, DF and ICRCs in every way of
//! sending.

use crate::common;

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Instant;

use crate::common::{isolated, send, spec};
use rnic_link::{LinkConfig, RoceLink};

/// AF_PACKET socket that sees whole IP packets as they leave through lo; needs CAP_NET_RAW, which
/// there is in a namespace of one's own.
struct Tap(i32);

impl Tap {
    fn open() -> Tap {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
        assert!(
            fd >= 0,
            "packet socket: {}",
            std::io::Error::last_os_error()
        );
        // As much as there may be: where that is little, 20 packets of 1 KB fit all the same.
        let size = 64 << 20;
        // SAFETY: the option is a local int, its size is given.
        unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw const size).cast(),
                4,
            )
        };
        Tap(fd)
    }

    /// The packets sent to port 4791 so far.
    fn packets(&self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = vec![0u8; 70_000];
        loop {
            // SAFETY: sockaddr_ll is a C struct of integers; the kernel writes at most the given
            // lengths.
            let (n, from) = unsafe {
                let mut from: libc::sockaddr_ll = std::mem::zeroed();
                let mut len = size_of::<libc::sockaddr_ll>() as u32;
                let n = libc::recvfrom(
                    self.0,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut len,
                );
                (n, from)
            };
            let Ok(n) = usize::try_from(n) else {
                return out;
            };
            let packet = &buffer[..n];
            let udp = if packet[0] >> 4 == 4 { 20 } else { 40 };
            let outgoing = from.sll_pkttype == 4;
            if outgoing
                && packet.len() > udp + 8
                && packet[udp + 2..udp + 4] == 4791u16.to_be_bytes()
            {
                out.push(packet.to_vec());
            }
        }
    }
}

/// CRC-32 bit by bit over the masked packet (IBTA annex A17): shares no code with the crate's.
fn icrc(packet: &[u8]) -> [u8; 4] {
    let mut m = packet[..packet.len() - 4].to_vec();
    let udp = if m[0] >> 4 == 4 {
        m[1] = 0xff;
        m[8] = 0xff;
        m[10] = 0xff;
        m[11] = 0xff;
        20
    } else {
        m[0] |= 0x0f;
        m[1..4].fill(0xff);
        m[7] = 0xff;
        40
    };
    m[udp + 6] = 0xff;
    m[udp + 7] = 0xff;
    m[udp + 8 + 4] = 0xff;
    let mut crc = u32::MAX;
    for byte in [0xff; 8].iter().chain(&m) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    (!crc).to_le_bytes()
}

/// Checks ICRCs and lengths, leaves probes out, and gives (IP ID, DF, destination QPN, UDP payload
/// length).
fn checked(packets: Vec<Vec<u8>>) -> Vec<(u16, bool, u32, usize)> {
    let mut out = Vec::new();
    for p in packets {
        let v4 = p[0] >> 4 == 4;
        let udp = if v4 { 20 } else { 40 };
        let qpn = u32::from_be_bytes([0, p[udp + 13], p[udp + 14], p[udp + 15]]);
        if qpn >= 0xff_ff00 {
            continue;
        }
        assert_eq!(
            p[p.len() - 4..],
            icrc(&p),
            "the ICRC of {:02x?}",
            &p[..udp + 20]
        );
        let udp_len = usize::from(u16::from_be_bytes([p[udp + 4], p[udp + 5]]));
        assert_eq!(udp_len, p.len() - udp);
        let (id, df) = if v4 {
            (u16::from_be_bytes([p[4], p[5]]), p[6] & 0x40 != 0)
        } else {
            (0, true)
        };
        out.push((id, df, qpn, udp_len - 8));
    }
    out
}

#[test]
fn ids_and_icrcs_are_right_in_every_mode() {
    if !isolated("wire::ids_and_icrcs_are_right_in_every_mode") {
        return;
    }
    // Otherwise lo carries a GSO batch as one: cut it before the packet socket, as a plain network
    // card would have it.
    let cut = Command::new("ip")
        .args(["link", "set", "lo", "gso_max_segs", "1"])
        .status();
    let cuts = cut.is_ok_and(|s| s.success());
    if !cuts {
        rnic_skip::skipped(
            "GSO batches, cut",
            "no `ip` that can set gso_max_segs: they cannot be seen",
        );
    }
    let start = Instant::now();
    let lo4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let lo6: IpAddr = "::1".parse().unwrap();
    let tap = Tap::open();
    for no_gso in [false, true] {
        if !no_gso && !cuts {
            continue;
        }
        let mut link = RoceLink::open(&LinkConfig {
            no_gso,
            ..LinkConfig::default()
        })
        .unwrap();
        let qpn = link.qpn_ranges()[0].first + 17;
        let mut addresses = vec![lo4];
        match std::net::UdpSocket::bind((lo6, 0)) {
            Ok(_) => addresses.push(lo6),
            Err(e) => rnic_skip::skipped("ICRCs over IPv6", &format!("no ::1 here: {e}")),
        }
        for ip in addresses {
            checked(tap.packets());
            // Alone; a batch; a batch with a short tail; lengths that make several runs in one
            // flush.
            send(&mut link, &spec(ip, ip, qpn), 0, 1, 1040, 1);
            send(&mut link, &spec(ip, ip, qpn), 1, 20, 1040, 1);
            let id = link.path(&spec(ip, ip, qpn)).unwrap();
            for len in [300, 300, 300, 40, 300, 500, 500] {
                let packet = link.packet(id, len).unwrap();
                common::write_packet(packet, qpn, 99);
            }
            link.flush(1);
            let seen = checked(tap.packets());
            let lens: Vec<usize> = seen.iter().map(|s| s.3 - 4).collect();
            let mut expected = vec![1040; 21];
            expected.extend([300, 300, 300, 40, 300, 500, 500]);
            assert_eq!(lens, expected);
            assert!(seen.iter().all(|s| s.1 && s.2 == qpn));
            if ip.is_ipv4() {
                let ids: Vec<u16> = seen.iter().map(|s| s.0).collect();
                let mut expected: Vec<u16> = vec![0];
                expected.extend(0..20);
                expected.extend([0, 1, 2, 3, 0, 0, 1]);
                if no_gso {
                    expected.fill(0);
                }
                assert_eq!(ids, expected);
            }
            // They came uncut from GRO or one by one: the receiver found all of them right.
            let arrived = common::receive(&mut link, start, 28, common::PATIENCE);
            assert_eq!(common::total(&arrived), 28);
            assert_eq!(link.counters().rx_bad_icrc, 0);
        }
    }
}

#[test]
fn traffic_class_and_hop_limit_are_on_the_wire() {
    if !isolated("wire::traffic_class_and_hop_limit_are_on_the_wire") {
        return;
    }
    let tap = Tap::open();
    let mut link = RoceLink::open(&LinkConfig::default()).unwrap();
    let qpn = link.qpn_ranges()[0].first;
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        if std::net::UdpSocket::bind((ip, 0)).is_err() {
            rnic_skip::skipped("traffic class and hop limit", &format!("no {ip} here"));
            continue;
        }
        tap.packets();
        for (traffic_class, hop_limit) in [(0x6a, 7), (0, 0), (0xff, 255), (0, 1)] {
            let path = rnic_link::PathSpec {
                traffic_class,
                hop_limit,
                ..spec(ip, ip, qpn)
            };
            send(&mut link, &path, 0, 1, 100, 1);
            let packets = tap.packets();
            let [p] = &packets[..] else {
                panic!("{} packets", packets.len());
            };
            let (tc, hops) = if ip.is_ipv4() {
                (p[1], p[8])
            } else {
                (p[0] << 4 | p[1] >> 4, p[7])
            };
            assert_eq!(tc, traffic_class);
            assert_eq!(hops, if hop_limit == 0 { 64 } else { hop_limit });
            checked(packets);
        }
    }
}

/// Faults change what is sent and nothing else: no GSO, ID 0, and every packet that is not hit is
/// right.
#[test]
fn packets_with_faults_leave_one_by_one() {
    if !isolated("wire::packets_with_faults_leave_one_by_one") {
        return;
    }
    let tap = Tap::open();
    let mut link = RoceLink::open(&LinkConfig {
        faults: Some("dup=20%,reorder=20%,drop=20%,seed=4".parse().unwrap()),
        ..LinkConfig::default()
    })
    .unwrap();
    let qpn = link.qpn_ranges()[0].first;
    let lo = IpAddr::V4(Ipv4Addr::LOCALHOST);
    tap.packets();
    send(&mut link, &spec(lo, lo, qpn), 0, 60, 300, 1);
    if let Some(due) = link.next_timeout() {
        link.flush(due);
    }
    assert_eq!(link.next_timeout(), None);
    let seen = checked(tap.packets());
    assert!((30..90).contains(&seen.len()), "{}", seen.len());
    assert!(seen.iter().all(|&(id, df, ..)| id == 0 && df));
    assert_eq!(link.counters().tx_packets, seen.len() as u64);
}

#[test]
fn packets_for_nobody_count_as_work() {
    if !isolated("wire::packets_for_nobody_count_as_work") {
        return;
    }
    let mut link = RoceLink::open(&LinkConfig::default()).expect("a link");
    // What the link asked itself when it was opened.
    while link.receive(1, 4, false, &mut |_| ()) > 0 || link.counters().rx_syscalls < 8 {}
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    // So long that more is likely behind each, and for a queue pair of nobody's.
    let mut garbage = vec![0; 9000];
    garbage[5..8].copy_from_slice(&[0xff, 0xfe, 0]);
    for _ in 0..12 {
        let sent = stranger.send_to(&garbage, "127.0.0.1:4791");
        assert_eq!(sent.expect("sent"), garbage.len());
    }
    // Whoever calls has other things to do, however much of it comes.
    link.receive(1, 4, false, &mut |_| panic!("it is for nobody"));
    let counters = link.counters();
    assert_eq!(counters.rx_unknown_qpn, 4, "{counters:?}");
}
