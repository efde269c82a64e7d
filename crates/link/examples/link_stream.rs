//! Bytes per second between two processes in packets of one size: a bare UDP socket with GSO and
//! GRO, then the link, in turns. Both keep at most 256 KiB in flight, as a window would: the
//! receiver acknowledges every train.
//!
//! `cargo run --release -p rnic-link --example link_stream [ADDRESS] [PAYLOAD]`

mod support;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rnic_link::{LinkConfig, PathId, RoceLink};
use support::{Peer, bare_socket, core_round_trip_ns, path, pin, read_line, set_option};

const WINDOW: usize = 256 * 1024;
const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(300);
/// BTH, RETH, ICRC.
const OVERHEAD: usize = 32;

/// Receiving side of the bare socket: copies out, acknowledges every datagram train by its length.
fn bare_sink(socket: &UdpSocket, buffer: &mut [u8], place: &mut [u8]) -> bool {
    let Ok((n, from)) = socket.recv_from(buffer) else {
        return false;
    };
    place[..n].copy_from_slice(&buffer[..n]);
    socket
        .send_to(&(n as u64).to_ne_bytes(), from)
        .expect("acknowledge");
    n == 1
}

fn link_sink(link: &mut RoceLink, back: PathId, qpn: u32, place: &mut [u8]) -> bool {
    let (mut bytes, mut over) = (0u64, false);
    link.receive(1, 64, false, &mut |packet| {
        place[..packet.bytes.len()].copy_from_slice(packet.bytes);
        bytes += packet.bytes.len() as u64;
        over |= packet.bytes.len() == 16;
    });
    if bytes > 0 {
        if let Some(packet) = link.packet(back, 20) {
            packet.fill(0);
            packet[4..8].copy_from_slice(&qpn.to_be_bytes());
            packet[12..20].copy_from_slice(&bytes.to_ne_bytes());
        }
        link.flush(1);
    }
    over
}

fn sink(ip: IpAddr) {
    pin(1);
    let socket = bare_socket(ip);
    socket.set_nonblocking(true).expect("non-blocking");
    set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20);
    let mut link = RoceLink::open(&LinkConfig::default()).expect("open the link");
    println!(
        "{} {}",
        socket.local_addr().expect("address").port(),
        link.qpn_ranges()[0].first
    );
    let qpn: u32 = read_line().parse().expect("a QPN");
    let back = link.path(&path(ip, qpn)).expect("path");
    let (mut buffer, mut place) = (vec![0; 65536], vec![0; 65536]);
    for _ in 0..TURNS {
        while !bare_sink(&socket, &mut buffer, &mut place) {}
        while !bare_sink(&socket, &mut buffer, &mut place) {}
        while !link_sink(&mut link, back, qpn, &mut place) {}
    }
    println!("{:?}", link.counters());
    read_line();
}

/// `source`: the payload is copied from there packet by packet, as whoever sends user memory in
/// packets must.
fn bare_turn(socket: &UdpSocket, to: SocketAddr, segment: usize, source: Option<&[u8]>) -> f64 {
    let per_batch = (65_000 / segment).clamp(1, 64);
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment as i32);
    let mut batch = vec![1u8; per_batch * segment];
    let mut from = 0;
    let (mut sent, mut acknowledged, mut count) = (0u64, 0u64, [0; 8]);
    let start = Instant::now();
    while start.elapsed() < TURN {
        while sent - acknowledged + batch.len() as u64 <= WINDOW as u64 {
            if let Some(source) = source {
                for packet in batch.chunks_mut(segment) {
                    let payload = segment - OVERHEAD;
                    packet[OVERHEAD - 4..segment - 4]
                        .copy_from_slice(&source[from..from + payload]);
                    from = (from + payload) % (source.len() - payload);
                }
            }
            socket.send_to(&batch, to).expect("send");
            sent += batch.len() as u64;
        }
        while let Ok(8) = socket.recv(&mut count) {
            acknowledged += u64::from_ne_bytes(count);
        }
    }
    while acknowledged < sent {
        if let Ok(8) = socket.recv(&mut count) {
            acknowledged += u64::from_ne_bytes(count);
        }
    }
    let rate = (sent / segment as u64 * (segment - OVERHEAD) as u64) as f64
        / start.elapsed().as_nanos() as f64;
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    socket.send_to(&[0], to).expect("send");
    while socket.recv(&mut count).is_err() {}
    rate
}

fn link_turn(link: &mut RoceLink, id: PathId, qpn: u32, source: &[u8], payload: usize) -> f64 {
    let len = payload + OVERHEAD - 4;
    let (mut sent, mut acknowledged, mut lost_after) = (0u64, 0u64, Instant::now());
    let mut from = 0;
    let start = Instant::now();
    loop {
        let running = start.elapsed() < TURN;
        if !running && acknowledged >= sent {
            break;
        }
        // As many as fill one batch of the kernel.
        let burst = (65_000 / (len + 4)).clamp(1, 64);
        if running && sent - acknowledged + (burst * len) as u64 <= WINDOW as u64 {
            for _ in 0..burst {
                let packet = link.packet(id, len).expect("room");
                packet[..28].fill(0);
                packet[4..8].copy_from_slice(&qpn.to_be_bytes());
                packet[28..].copy_from_slice(&source[from..from + payload]);
                from = (from + payload) % (source.len() - payload);
                sent += len as u64;
            }
            link.flush(1);
        }
        let n = link.receive(1, 64, false, &mut |packet| {
            let mut count = [0; 8];
            count.copy_from_slice(&packet.bytes[12..20]);
            acknowledged += u64::from_ne_bytes(count);
        });
        if n > 0 {
            lost_after = Instant::now();
        }
        assert!(
            lost_after.elapsed() < Duration::from_secs(5),
            "packets were lost: {:?}",
            link.counters()
        );
    }
    let rate = (sent / len as u64 * payload as u64) as f64 / start.elapsed().as_nanos() as f64;
    let packet = link.packet(id, 16).expect("room");
    packet.fill(0);
    packet[4..8].copy_from_slice(&qpn.to_be_bytes());
    link.flush(1);
    while link.receive(1, 64, false, &mut |_| {}) == 0 {}
    rate
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let sink_side = args.first().is_some_and(|a| a == "sink");
    let mut rest = args.iter().skip(usize::from(sink_side));
    let ip: IpAddr = rest
        .next()
        .map_or("127.0.0.1", String::as_str)
        .parse()
        .expect("an IP address");
    let payload: usize = rest
        .next()
        .map_or(1024, |b| b.parse().expect("a number of bytes"));
    if sink_side {
        return sink(ip);
    }
    println!("cache line between cores: {:.0} ns", core_round_trip_ns());
    pin(0);
    let mut peer = Peer::start(&["sink".into(), ip.to_string()]);
    let hello = peer.line();
    let (port, qpn) = hello.split_once(' ').expect("port and QPN");
    let to = SocketAddr::new(ip, port.parse().expect("a port"));
    let qpn: u32 = qpn.parse().expect("a QPN");
    let socket = bare_socket(ip);
    socket.set_nonblocking(true).expect("non-blocking");
    let mut link = RoceLink::open(&LinkConfig::default()).expect("open the link");
    peer.tell(&link.qpn_ranges()[0].first.to_string());
    let id = link.path(&path(ip, qpn)).expect("path");
    let source: Vec<u8> = (0..8 << 20).map(|i| (i * 31) as u8).collect();
    let (mut bare, mut copied, mut linked) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        bare.push(bare_turn(&socket, to, payload + OVERHEAD, None));
        copied.push(bare_turn(&socket, to, payload + OVERHEAD, Some(&source)));
        linked.push(link_turn(&mut link, id, qpn, &source, payload));
    }
    println!("payload {payload} bytes");
    println!("bare socket {:.2} GB/s: {bare:.2?}", median(bare.clone()));
    println!(
        "  and copy  {:.2} GB/s: {copied:.2?}",
        median(copied.clone())
    );
    println!(
        "link        {:.2} GB/s: {linked:.2?}",
        median(linked.clone())
    );
    let linked = median(linked);
    println!(
        "ratio       {:.2} and {:.2}",
        linked / median(bare),
        linked / median(copied)
    );
    println!("{:?}", link.counters());
    println!("{}", peer.line());
    println!("cache line between cores: {:.0} ns", core_round_trip_ns());
}
