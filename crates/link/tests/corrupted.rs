//! Corrupted packets with right UDP checksums, through sockets: none is delivered, from few ports
//! or many.
//!
//! `CORRUPTED=10000000 cargo test --release -p rnic-link --test all -- corrupted:: --nocapture`
//! sends as many from each number of ports. What comes to the same without sockets, and so ten
//! times as fast: `src/senders/corrupted.rs`.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Instant;

use crate::common::{PATIENCE, isolated_if_possible, now_ns, read_packet, write_packet};
use rnic_link::faults::corruption::Corruption;
use rnic_link::{LinkConfig, RoceLink};
use rnic_wire::{Flow, ICRC_LEN, IcrcContext, ROCE_PORT};

/// A socket that sends from loopback as rnic does: with DF, and identification 0.
fn sender() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let value = libc::IP_PMTUDISC_DO;
    // SAFETY: the option's value is an int that lives for the whole call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    assert_eq!(result, 0);
    socket
}

/// What was not delivered as it was sent.
#[derive(Debug, Default)]
struct Counts {
    good: u64,
    corrupted: u64,
    good_delivered: u64,
    corrupted_delivered: u64,
}

/// Sends so many corrupted packets, and one good one for each nine of them.
fn measure(ports: usize, corrupted: u64) -> Counts {
    let mut link = RoceLink::open(&LinkConfig::default()).expect("open a link");
    let qpn = link.qpn_ranges()[0].first + 5;
    let senders: Vec<_> = (0..ports)
        .map(|_| {
            let socket = sender();
            let from = socket.local_addr().expect("an address");
            let icrc = IcrcContext::new(&Flow {
                src: from.ip(),
                dst: from.ip(),
                src_port: from.port(),
                dst_port: ROCE_PORT,
            });
            (socket, icrc)
        })
        .collect();
    let start = Instant::now();
    let mut counts = Counts::default();
    let mut number = 0;
    let mut packet = [0; 400];
    while counts.corrupted < corrupted {
        for _ in 0..64 {
            number += 1;
            let seed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let len = 28 + 4 * (seed >> 33) as usize % 90;
            let (socket, icrc) = &senders[(seed >> 17) as usize % ports];
            let whole = &mut packet[..len + ICRC_LEN];
            write_packet(&mut whole[..len], qpn, number & 0xff_ffff);
            icrc.append(0, true, whole);
            let mut left = whole.len();
            if number % 10 == 0 {
                counts.good += 1;
            } else {
                let clean = whole.to_vec();
                left = Corruption::strike(whole, seed).1;
                // What routers may change is no corruption, and another destination is none of
                // ours.
                whole[4] = clean[4];
                if whole[5..8] != clean[5..8] || whole[..left] == clean {
                    continue;
                }
                counts.corrupted += 1;
            }
            socket
                .send_to(&whole[..left], ("127.0.0.1", ROCE_PORT))
                .expect("send");
        }
        let mut arrived = 1;
        while arrived > 0 {
            arrived = link.receive(now_ns(start), 256, true, &mut |received| match read_packet(
                received.bytes,
                qpn,
            ) {
                Some(_) => counts.good_delivered += 1,
                None => counts.corrupted_delivered += 1,
            });
        }
        assert!(start.elapsed() < 100 * PATIENCE, "{counts:?}");
    }
    let seen = link.counters();
    assert!(seen.rx_bad_icrc > corrupted * 8 / 10, "{seen:?}");
    println!(
        "from {ports} ports {} of {} corrupted packets and {} of {} good ones were delivered",
        counts.corrupted_delivered, counts.corrupted, counts.good_delivered, counts.good
    );
    counts
}

/// With the 16 bits that many flows once left of the ICRC, five of these would be.
#[test]
fn no_corrupted_packet_is_delivered() {
    if !isolated_if_possible("corrupted::no_corrupted_packet_is_delivered") {
        return;
    }
    let corrupted = std::env::var("CORRUPTED")
        .ok()
        .map_or(300_000, |text| text.parse().expect("CORRUPTED is a number"));
    for ports in [1, 64, 600] {
        let share = if ports < 600 {
            corrupted / 10
        } else {
            corrupted
        };
        let counts = measure(ports, share);
        assert_eq!(counts.corrupted_delivered, 0, "{counts:?}");
        assert_eq!(counts.good_delivered, counts.good, "{counts:?}");
    }
}
