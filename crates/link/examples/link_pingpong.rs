//! Half round trip of a 40-byte datagram between two processes: a bare UDP socket, then the link,
//! in turns.
//!
//! `cargo run --release -p rnic-link --example link_pingpong [ADDRESS] [BYTES]`

mod support;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;

use rnic_link::{LinkConfig, PathId, RoceLink};
use support::{Peer, bare_socket, core_round_trip_ns, path, pin, read_line};

const ROUNDS: usize = 20_000;
const TURNS: usize = 9;

fn link_once(link: &mut RoceLink, path: PathId, qpn: u32, len: usize) {
    if let Some(packet) = link.packet(path, len) {
        packet.fill(0);
        packet[0] = 4;
        packet[4..8].copy_from_slice(&qpn.to_be_bytes());
    }
    link.flush(1);
}

fn link_wait(link: &mut RoceLink) {
    while link.receive(1, 64, false, &mut |_| {}) == 0 {}
}

fn bare_wait(socket: &UdpSocket, buffer: &mut [u8]) -> SocketAddr {
    loop {
        if let Ok((_, from)) = socket.recv_from(buffer) {
            return from;
        }
    }
}

fn echo(ip: IpAddr, bytes: usize) {
    pin(1);
    let socket = bare_socket(ip);
    socket.set_nonblocking(true).expect("non-blocking");
    let mut link = RoceLink::open(&LinkConfig::default()).expect("open the link");
    println!(
        "{} {}",
        socket.local_addr().expect("address").port(),
        link.qpn_ranges()[0].first
    );
    let qpn: u32 = read_line().parse().expect("a QPN");
    let id = link.path(&path(ip, qpn)).expect("path");
    let mut buffer = vec![0; 65536];
    for _ in 0..TURNS {
        for _ in 0..ROUNDS {
            let from = bare_wait(&socket, &mut buffer);
            socket.send_to(&buffer[..bytes], from).expect("send");
        }
        for _ in 0..ROUNDS {
            link_wait(&mut link);
            link_once(&mut link, id, qpn, bytes - 4);
        }
    }
    println!("{:?}", link.counters());
    read_line();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let echo_side = args.first().is_some_and(|a| a == "echo");
    let mut rest = args.iter().skip(usize::from(echo_side));
    let ip: IpAddr = rest
        .next()
        .map_or("127.0.0.1", String::as_str)
        .parse()
        .expect("an IP address");
    let bytes: usize = rest
        .next()
        .map_or(40, |b| b.parse().expect("a number of bytes"));
    if echo_side {
        return echo(ip, bytes);
    }
    println!("cache line between cores: {:.0} ns", core_round_trip_ns());
    pin(0);
    let mut peer = Peer::start(&["echo".into(), ip.to_string(), bytes.to_string()]);
    let hello = peer.line();
    let (port, qpn) = hello.split_once(' ').expect("port and QPN");
    let to = SocketAddr::new(ip, port.parse().expect("a port"));
    let qpn: u32 = qpn.parse().expect("a QPN");
    let socket = bare_socket(ip);
    socket.set_nonblocking(true).expect("non-blocking");
    let mut link = RoceLink::open(&LinkConfig::default()).expect("open the link");
    peer.tell(&link.qpn_ranges()[0].first.to_string());
    let id = link.path(&path(ip, qpn)).expect("path");
    let mut buffer = vec![0; 65536];
    let (mut bare, mut linked) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            socket.send_to(&buffer[..bytes], to).expect("send");
            bare_wait(&socket, &mut buffer);
        }
        bare.push(start.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2e3);
        let start = Instant::now();
        for _ in 0..ROUNDS {
            link_once(&mut link, id, qpn, bytes - 4);
            link_wait(&mut link);
        }
        linked.push(start.elapsed().as_nanos() as f64 / ROUNDS as f64 / 2e3);
    }
    println!("bare socket {:.2} us: {bare:.2?}", median(bare.clone()));
    println!("link        {:.2} us: {linked:.2?}", median(linked.clone()));
    println!("ratio       {:.2}", median(linked) / median(bare));
    println!("{:?}", link.counters());
    println!("{}", peer.line());
    println!("cache line between cores: {:.0} ns", core_round_trip_ns());
}
