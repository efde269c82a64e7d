//! Shoots malformed and hostile RoCEv2 packets at a process on this host, paced so that the kernel
//! drops next to none.
//!
//! `blaster ADDRESS SECRET-FILE COUNT SEED`: the file is what `victim.c` writes. The blaster knows
//! everything, so that its packets get as deep as possible: addresses, keys, queue pair numbers,
//! expected PSNs. It never sends what a peer may do: a packet with a good ICRC, from the peer's
//! address, that writes to a granted range with the right key.
//!
//! Packets and their ICRC are made here from the specification, sharing no code with the NIC.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

const PORT: u16 = 4791;

/// A small generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn index(&mut self, length: usize) -> usize {
        (self.next() % length as u64) as usize
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

/// What the victim told.
struct Target {
    address: u64,
    length: u64,
    rkey: u32,
    /// Queue pair number and the PSN it expects.
    qps: Vec<(u32, u32)>,
}

fn read_target(path: &str) -> Target {
    let text = std::fs::read_to_string(path).expect("the secret file");
    let mut lines = text.lines().map(|line| {
        line.split_whitespace()
            .map(|field| field.parse::<u64>().expect("a number"))
            .collect::<Vec<u64>>()
    });
    let first = lines.next().expect("a first line");
    let qps = lines
        .map(|fields| (fields[0] as u32, fields[1] as u32))
        .collect();
    Target {
        address: first[0],
        length: first[1],
        rkey: first[2] as u32,
        qps,
    }
}

/// CRC-32 (IEEE 802.3) of several pieces.
fn crc32(pieces: &[&[u8]]) -> u32 {
    static TABLE: std::sync::OnceLock<[u32; 256]> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        std::array::from_fn(|byte| {
            (0..8).fold(byte as u32, |crc, _| {
                if crc & 1 == 1 {
                    0xedb8_8320 ^ (crc >> 1)
                } else {
                    crc >> 1
                }
            })
        })
    });
    let mut crc = u32::MAX;
    for byte in pieces.iter().copied().flatten() {
        crc = table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    }
    !crc
}

/// The ICRC of a UDP payload (without ICRC) that leaves with the given addresses and source port.
fn icrc(source: IpAddr, source_port: u16, destination: IpAddr, payload: &[u8]) -> u32 {
    let udp_length = (8 + payload.len() + 4) as u16;
    let mut udp = [0xff; 8];
    udp[..2].copy_from_slice(&source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    let mut ip = Vec::with_capacity(40);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            // Unconnected with PMTUDISC_DO: identification 0, do not fragment.
            ip.extend([0x45, 0xff]);
            ip.extend((20 + udp_length).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
            ip.extend(source.octets());
            ip.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ip.extend([0x6f, 0xff, 0xff, 0xff]);
            ip.extend(udp_length.to_be_bytes());
            ip.extend([17, 0xff]);
            ip.extend(source.octets());
            ip.extend(destination.octets());
        }
        _ => unreachable!("one family"),
    }
    let mut bth = [0; 12];
    let have = payload.len().min(12);
    bth[..have].copy_from_slice(&payload[..have]);
    bth[4] = 0xff;
    crc32(&[&[0xff; 8], &ip, &udp, &bth[..have], &payload[have..]])
}

/// One source of packets.
struct Gun {
    socket: UdpSocket,
    source: IpAddr,
    source_port: u16,
    destination: IpAddr,
    /// Whether packets from here come from where the victim's peers are.
    right_source: bool,
}

impl Gun {
    fn new(source: IpAddr, destination: IpAddr) -> Gun {
        let socket = UdpSocket::bind((source, 0)).expect("an address of this host");
        if source.is_ipv4() {
            let probe: libc::c_int = libc::IP_PMTUDISC_DO;
            // SAFETY: the pointer and length describe `probe`, which outlives the call.
            let result = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::IPPROTO_IP,
                    libc::IP_MTU_DISCOVER,
                    (&raw const probe).cast(),
                    size_of_val(&probe) as libc::socklen_t,
                )
            };
            assert_eq!(result, 0, "IP_MTU_DISCOVER");
        }
        let source_port = socket.local_addr().expect("bound").port();
        Gun {
            socket,
            source,
            source_port,
            destination,
            right_source: source == destination,
        }
    }

    fn seal(&self, packet: &mut Vec<u8>) {
        let icrc = icrc(self.source, self.source_port, self.destination, packet);
        packet.extend(icrc.to_le_bytes());
    }

    /// Sends; refusals (nobody listens yet, buffers full) are the kernel's business.
    fn fire(&self, packet: &[u8]) -> bool {
        self.socket
            .send_to(packet, (self.destination, PORT))
            .is_ok()
    }
}

/// Kinds of packets.
const KINDS: [&str; 8] = [
    "noise",
    "random fields, good ICRC",
    "wrong key",
    "wrong range",
    "wrong source",
    "broken ICRC",
    "cut or grown",
    "answers to nothing",
];

/// RC opcodes that carry a RETH, with whether an immediate follows: WRITE FIRST, ONLY, ONLY with
/// immediate.
const WRITES: [(u8, bool); 3] = [(0x06, false), (0x0a, false), (0x0b, true)];
const READ_REQUEST: u8 = 0x0c;
const ATOMICS: [u8; 2] = [0x13, 0x14];

fn bth(opcode: u8, pad: u8, qpn: u32, psn: u32) -> Vec<u8> {
    let mut bytes = vec![opcode, pad << 4, 0xff, 0xff];
    bytes.extend(qpn.to_be_bytes());
    bytes.extend((psn | 0x8000_0000).to_be_bytes());
    bytes
}

/// An access to (address, length) with a key: a WRITE with payload, a READ, or an atomic.
fn access(
    random: &mut Random,
    qpn: u32,
    psn: u32,
    address: u64,
    length: u32,
    rkey: u32,
    may_read: bool,
) -> Vec<u8> {
    match random.below(if may_read { 4 } else { 3 }) {
        0 => {
            let mut packet = bth(ATOMICS[random.index(2)], 0, qpn, psn);
            packet.extend(address.to_be_bytes());
            packet.extend(rkey.to_be_bytes());
            packet.extend(random.next().to_be_bytes());
            packet.extend(random.next().to_be_bytes());
            packet
        }
        3 => {
            let mut packet = bth(READ_REQUEST, 0, qpn, psn);
            packet.extend(address.to_be_bytes());
            packet.extend(rkey.to_be_bytes());
            packet.extend(length.to_be_bytes());
            packet
        }
        _ => {
            let (opcode, immediate) = WRITES[random.index(WRITES.len())];
            let payload = (length.min(1024) as usize).next_multiple_of(4);
            let pad = (payload - length.min(1024) as usize) as u8;
            let mut packet = bth(opcode, pad, qpn, psn);
            packet.extend(address.to_be_bytes());
            packet.extend(rkey.to_be_bytes());
            packet.extend(length.to_be_bytes());
            if immediate {
                packet.extend([1, 2, 3, 4]);
            }
            let from = packet.len();
            packet.resize(from + payload, 0);
            random.fill(&mut packet[from..]);
            packet
        }
    }
}

/// An access that the victim would grant, if it came from its peer.
fn granted(random: &mut Random, target: &Target) -> Vec<u8> {
    let (qpn, psn) = target.qps[random.index(target.qps.len())];
    let address = target.address + random.below((target.length - 2048) / 8) * 8;
    let length = 1 + random.below(1024) as u32;
    access(random, qpn, psn, address, length, target.rkey, false)
}

/// A key that is not the right one, often a near one.
fn wrong_key(random: &mut Random, target: &Target) -> u32 {
    let change = match random.below(3) {
        0 => 1 << random.below(32),
        1 => 1 + random.below(255) as u32,
        _ => (random.next() as u32).max(1),
    };
    target.rkey ^ change
}

fn make(kind: usize, random: &mut Random, target: &Target, gun: &Gun) -> Vec<u8> {
    let (qpn, expected) = target.qps[random.index(target.qps.len())];
    let near = |random: &mut Random| {
        let distance = random.below(8).wrapping_sub(2) as u32;
        if random.below(4) == 0 {
            random.next() as u32 & 0xff_ffff
        } else {
            expected.wrapping_add(distance) & 0xff_ffff
        }
    };
    let psn = if random.below(2) == 0 {
        expected
    } else {
        near(random)
    };
    match kind {
        // Any bytes, mostly short.
        0 => {
            let length = if random.below(4) == 0 {
                random.index(4200)
            } else {
                random.index(80)
            };
            let mut packet = vec![0; length];
            random.fill(&mut packet);
            packet
        }
        // Any opcode, flags, P_Key, queue pair, with bytes behind that fit or not.
        1 => {
            let mut packet = bth(random.next() as u8, 0, qpn, psn);
            if random.below(2) == 0 {
                packet[1] = random.next() as u8;
            }
            if random.below(8) == 0 {
                random.fill(&mut packet[2..8]);
            }
            let limit = if random.below(8) == 0 { 4100 } else { 64 };
            let more = random.index(limit);
            let from = packet.len();
            packet.resize(from + more, 0);
            random.fill(&mut packet[from..]);
            // Whatever lies where a key may be is not the key: see below.
            if packet.len() >= 24 && packet[20..24] == target.rkey.to_be_bytes() {
                packet[20] ^= 0x80;
            }
            gun.seal(&mut packet);
            packet
        }
        2 => {
            let address = target.address + random.below(target.length);
            let length = 1 + random.below(2048) as u32;
            let key = wrong_key(random, target);
            let mut packet = access(random, qpn, psn, address, length, key, true);
            gun.seal(&mut packet);
            packet
        }
        // The right key, outside its range: across either end, far away, or wrapping around.
        3 => {
            let (address, length) = match random.below(5) {
                0 => (
                    target.address + target.length - random.below(8),
                    16 + random.below(1024) as u32,
                ),
                1 => (
                    target.address - 8 - random.below(64),
                    8 + random.below(1024) as u32,
                ),
                2 => (
                    target.address,
                    target.length as u32 + 1 + random.below(1 << 30) as u32,
                ),
                3 => (u64::MAX - random.below(16), 64 + random.below(1024) as u32),
                _ => (random.next() & !(1 << 46), 8 + random.below(1024) as u32),
            };
            let inside = address >= target.address && address - target.address < target.length;
            // An atomic that starts in the last bytes of the region ends outside, or is misaligned;
            // but one at the very start of it is fine, so that case is for writes and reads.
            let atomic_would_fit = inside && address - target.address + 8 <= target.length;
            let mut packet = access(random, qpn, psn, address, length, target.rkey, true);
            if ATOMICS.contains(&packet[0]) && atomic_would_fit {
                packet[0] = READ_REQUEST;
            }
            gun.seal(&mut packet);
            packet
        }
        // All of it right, but from an address that is not the peer's.
        4 => {
            let mut packet = granted(random, target);
            if gun.right_source {
                // This gun has only the right address: the key has to be wrong then.
                let key = wrong_key(random, target).to_be_bytes();
                packet[20..24].copy_from_slice(&key);
            }
            gun.seal(&mut packet);
            packet
        }
        // All of it right, then up to three bits flipped, which CRC-32 always notices. Over IPv4
        // the receiver cannot see the identification and solves the CRC for it, so there a flip may
        // pass: the key is wrong, too.
        5 => {
            let mut packet = granted(random, target);
            if gun.source.is_ipv4() {
                let key = wrong_key(random, target).to_be_bytes();
                packet[20..24].copy_from_slice(&key);
            }
            gun.seal(&mut packet);
            for _ in 0..1 + random.below(3) {
                // Not the byte that the ICRC leaves out; and each flip at another place, lest they
                // cancel.
                let at = 5 + random.index(packet.len() - 5);
                packet[at] ^= 1 << random.below(8);
            }
            if gun.source.is_ipv6() && is_whole(&packet, gun) {
                packet[5] ^= 1;
            }
            packet
        }
        // The wrong key again, cut off or grown, with or without a good ICRC behind.
        6 => {
            let key = wrong_key(random, target);
            let address = target.address + random.below(target.length);
            let length = 1 + random.below(1024) as u32;
            let mut packet = access(random, qpn, psn, address, length, key, true);
            if random.below(2) == 0 {
                packet.truncate(random.index(packet.len()));
            } else {
                let more = 1 + random.index(64);
                packet.resize(packet.len() + more, 0xa5);
            }
            if random.below(4) != 0 {
                gun.seal(&mut packet);
            }
            packet
        }
        // READ responses, ACKs and NAKs of every syndrome, atomic answers: nothing was asked.
        _ => {
            let mut packet = bth(0x0d + random.below(6) as u8, 0, qpn, near(random));
            packet.extend((random.next() as u32).to_be_bytes());
            let more = random.index(256) & !3;
            packet.resize(packet.len() + more, 0x5a);
            gun.seal(&mut packet);
            packet
        }
    }
}

/// Whether the ICRC is right after all (the flips cancelled).
fn is_whole(packet: &[u8], gun: &Gun) -> bool {
    let (body, stored) = packet.split_at(packet.len() - 4);
    icrc(gun.source, gun.source_port, gun.destination, body).to_le_bytes() == stored
}

/// Bytes waiting in, and datagrams dropped by, all sockets on port 4791 of one family.
fn kernel_queue(destination: IpAddr) -> (u64, u64) {
    let table = if destination.is_ipv4() {
        "/proc/self/net/udp"
    } else {
        "/proc/self/net/udp6"
    };
    let (mut waiting, mut drops) = (0, 0);
    for line in std::fs::read_to_string(table)
        .unwrap_or_default()
        .lines()
        .skip(1)
    {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() < 13 || !fields[1].ends_with(":12B7") {
            continue;
        }
        let received = fields[4]
            .split_once(':')
            .map_or("0", |(_, received)| received);
        waiting += u64::from_str_radix(received, 16).unwrap_or(0);
        drops += fields[12].parse::<u64>().unwrap_or(0);
    }
    (waiting, drops)
}

/// How many packets to send before looking at the kernel's queue again: looking costs as much as
/// many packets, but the smallest usual receive buffer holds only some hundreds.
const LOOK_EVERY: u64 = 100;
/// More than this in the queue: wait.
const QUEUE_LIMIT: u64 = 64 * 1024;

fn main() {
    rnic_sys::signal::end_on_broken_pipe();
    let args: Vec<String> = std::env::args().collect();
    let [_, address, secret, count, seed] = &args[..] else {
        eprintln!("usage: blaster ADDRESS SECRET-FILE COUNT SEED");
        std::process::exit(2);
    };
    let destination: IpAddr = address.parse().expect("an address");
    let target = read_target(secret);
    let count: u64 = count.parse().expect("a number");
    let mut random = Random(seed.parse().expect("a number"));
    let mut guns = vec![Gun::new(destination, destination)];
    if destination.is_ipv4() {
        guns.push(Gun::new(
            IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
            destination,
        ));
    }
    let (_, drops_before) = kernel_queue(destination);
    let mut sent = [0_u64; KINDS.len()];
    let mut refused = 0_u64;
    for number in 0..count {
        if number % LOOK_EVERY == 0 {
            while kernel_queue(destination).0 > QUEUE_LIMIT {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        let kind = random.index(KINDS.len());
        // The wrong source is what the second gun is for; everything else comes from the right one.
        let gun = if kind == 4 { guns.last() } else { guns.first() }.expect("at least one");
        let packet = make(kind, &mut random, &target, gun);
        if gun.fire(&packet) {
            sent[kind] += 1;
        } else {
            refused += 1;
        }
    }
    let mut line = String::new();
    for (kind, sent) in KINDS.iter().zip(sent) {
        let _ = write!(line, "{kind}: {sent}; ");
    }
    println!("{line}refused: {refused}");
    println!(
        "sent {} dropped {}",
        sent.iter().sum::<u64>(),
        kernel_queue(destination).1 - drops_before
    );
}
