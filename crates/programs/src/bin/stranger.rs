//! Somebody on the network who tells a host by ICMP that its packets are too long, or reach nobody.
//!
//! ```text
//! stranger VICTIM PEER MTU ROUNDS
//! ```
//! sends, to VICTIM, for each port that a socket of VICTIM may have been given, messages about a
//! packet from there to port 4791 of PEER: "fragmentation needed" with that MTU ("packet too big"
//! over IPv6), and "port unreachable". He knows of no connection, and may not read VICTIM's
//! packets. Takes CAP_NET_RAW. Prints how many messages he sent, of both kinds together.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

const ROCE_PORT: u16 = 4791;
/// Those that Linux gives to who asks for none (net.ipv4.ip_local_port_range), and some more.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=61_000;

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        u32::from(u16::from_be_bytes([
            word[0],
            word.get(1).copied().unwrap_or(0),
        ]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The beginning of a packet of VICTIM's to PEER.
fn packet(victim: IpAddr, peer: IpAddr, port: u16) -> Vec<u8> {
    const UDP_LEN: u16 = 1064;
    let mut packet = Vec::new();
    match (victim, peer) {
        (IpAddr::V4(victim), IpAddr::V4(peer)) => {
            packet.extend([0x45, 0]);
            packet.extend((20 + UDP_LEN).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            packet.extend(victim.octets());
            packet.extend(peer.octets());
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(victim), IpAddr::V6(peer)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(UDP_LEN.to_be_bytes());
            packet.extend([17, 64]);
            packet.extend(victim.octets());
            packet.extend(peer.octets());
        }
        _ => panic!("both of one family"),
    }
    packet.extend(port.to_be_bytes());
    packet.extend(ROCE_PORT.to_be_bytes());
    packet.extend(UDP_LEN.to_be_bytes());
    packet.extend([0; 2]);
    packet
}

/// Type and code, four bytes that depend on them, and what it is about. The kernel sums up ICMPv6
/// by itself.
fn message(kind: [u8; 2], word: u32, about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind[0], kind[1], 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(about);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn raw_socket(v4: bool) -> OwnedFd {
    let (family, protocol) = match v4 {
        true => (libc::AF_INET, libc::IPPROTO_ICMP),
        false => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
    };
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    assert!(fd >= 0, "a raw socket: {}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor, which nobody else has.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn send(socket: &OwnedFd, message: &[u8], to: IpAddr) -> bool {
    // struct sockaddr_in, or sockaddr_in6: the family, and from there on the address.
    let mut address = [0; 28];
    let (family, len) = match to {
        IpAddr::V4(v4) => {
            address[4..8].copy_from_slice(&v4.octets());
            (libc::AF_INET, 16)
        }
        IpAddr::V6(v6) => {
            address[8..24].copy_from_slice(&v6.octets());
            (libc::AF_INET6, 28)
        }
    };
    address[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    // SAFETY: message and address are only read, and have these lengths.
    let sent = unsafe {
        let (bytes, to) = (message.as_ptr().cast(), address.as_ptr().cast());
        libc::sendto(socket.as_raw_fd(), bytes, message.len(), 0, to, len)
    };
    sent >= 0
}

fn main() -> ExitCode {
    rnic_sys::signal::end_on_broken_pipe();
    let args: Vec<String> = std::env::args().collect();
    let [_, victim, peer, mtu, rounds] = &args[..] else {
        eprintln!("usage: stranger VICTIM PEER MTU ROUNDS");
        return ExitCode::FAILURE;
    };
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let (victim, peer, mtu) = (address(victim), address(peer), number(mtu));
    let v4 = victim.is_ipv4();
    let socket = raw_socket(v4);
    let mut sent = 0;
    for round in 0..number(rounds) {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        for port in PORTS {
            let about = packet(victim, peer, port);
            // RFC 792, RFC 1191; RFC 4443.
            let [too_long, unreachable] = match v4 {
                true => [[3, 4], [3, 3]],
                false => [[2, 0], [1, 4]],
            };
            for message in [
                message(too_long, mtu, &about),
                message(unreachable, 0, &about),
            ] {
                sent += u32::from(send(&socket, &message, victim));
            }
        }
    }
    println!("{sent}");
    ExitCode::SUCCESS
}
