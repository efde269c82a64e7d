//! How many corrupted packets pass for good ones: counted, not computed.
//!
//! `cargo test --release -p rnic-link --lib -- --ignored --nocapture
//! a_hundred_million_corrupted_packets`; `CORRUPTED` says how many of each row, and `SEED` chooses
//! other ones. Through sockets: `tests/corrupted.rs`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use rnic_wire::ROCE_PORT;

use super::*;
use crate::middleware::faults::corruption::Corruption;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// What the sender does with the identification.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// rnic's datagrams.
    Single,
    /// rnic's batches, of up to 64.
    Batches,
    /// One counter for all flows, as Soft-RoCE's.
    Counted,
    /// One for each flow.
    CountedByFlow,
}

/// Of one kind of sender.
struct Row {
    numbers: Numbers,
    ports: usize,
    /// Of ten packets so many are good.
    good: usize,
    /// So many packets.
    corrupted: u64,
}

#[derive(Debug, Default)]
struct Counts {
    corrupted: u64,
    /// By kind.
    delivered: BTreeMap<String, u64>,
    good: u64,
    refused: u64,
}

impl Counts {
    fn delivered(&self) -> u64 {
        self.delivered.values().sum()
    }
}

fn flow(port: usize) -> Flow {
    Flow {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        src_port: 0xc000 + port as u16,
        dst_port: ROCE_PORT,
    }
}

impl Row {
    fn measure(&self, seed: u64) -> Counts {
        let mut random = Random(seed);
        let mut senders = Senders::default();
        let mut counts = Counts::default();
        let contexts: Vec<_> = (0..self.ports)
            .map(|port| IcrcContext::new(&flow(port)))
            .collect();
        let mut last = vec![0u16; self.ports];
        let mut all = 0u16;
        let mut clean = [0u8; 320];
        let mut packet = clean;
        while counts.corrupted < self.corrupted {
            let port = random.below(self.ports);
            let ip_id = match self.numbers {
                Numbers::Single => 0,
                Numbers::Batches if random.below(64) == 0 => 0,
                Numbers::Batches => (last[port] + 1) % 64,
                Numbers::Counted => all.wrapping_add(1),
                Numbers::CountedByFlow => last[port].wrapping_add(1),
            };
            last[port] = ip_id;
            all = ip_id;
            // A datagram: BTH, DETH, payload.
            let len = 20 + 8 + 4 * random.below(72) + 4;
            for word in clean[..len].chunks_mut(8) {
                word.copy_from_slice(&random.next().to_ne_bytes()[..word.len()]);
            }
            contexts[port].append(ip_id, true, &mut clean[..len]);
            let from = flow(port);
            let takes = |senders: &mut Senders, from: &Flow, packet: &[u8]| {
                senders.of(from).check(packet, IpIds::Hidden, 0, 0).is_ok()
            };
            if random.below(10) < self.good {
                counts.good += 1;
                counts.refused += u64::from(!takes(&mut senders, &from, &clean[..len]));
                continue;
            }
            packet[..len].copy_from_slice(&clean[..len]);
            let how = random.next();
            let (kind, left, claims) = if how.is_multiple_of(16) {
                // The headers in front of it, and their checksums are right again.
                let src = Ipv4Addr::from(0x0a00_0001 ^ random.next() as u32);
                let src_port = from.src_port ^ (1 << random.below(16));
                let claims = match random.below(2) {
                    0 => Flow {
                        src: src.into(),
                        ..from
                    },
                    _ => Flow { src_port, ..from },
                };
                ("Flow".to_owned(), len, claims)
            } else {
                let (kind, left) = Corruption::strike(&mut packet[..len], how);
                (format!("{kind:?}"), left, from)
            };
            // What the ICRC is not over is no corruption.
            let masked = packet[4] ^ clean[4];
            packet[4] ^= masked;
            if claims == from && packet[..left] == clean[..len] {
                continue;
            }
            packet[4] ^= masked;
            counts.corrupted += 1;
            if takes(&mut senders, &claims, &packet[..left]) {
                *counts.delivered.entry(kind).or_default() += 1;
            }
        }
        counts
    }
}

/// With 16 bits, which was all that many flows left of the ICRC, one in 65,536 passes: 15 of each
/// of these.
#[test]
fn of_three_million_corrupted_packets_none_is_delivered() {
    for (numbers, ports) in [
        (Numbers::Single, 1),
        (Numbers::Single, 1000),
        (Numbers::Batches, 64),
    ] {
        let row = Row {
            numbers,
            ports,
            good: 1,
            corrupted: 1_000_000,
        };
        let counts = row.measure(7 + ports as u64);
        assert_eq!(counts.delivered(), 0, "{numbers:?} {ports} {counts:?}");
        assert!(counts.good > 100_000);
        // A receiver that refuses everything would not do. Batches lose more, since few of their
        // packets are neighbours now.
        if matches!(numbers, Numbers::Single) {
            assert_eq!(counts.refused, 0, "{numbers:?} {ports} {counts:?}");
        }
    }
}

/// Where one packet in five is corrupted nearly all others are believed, whatever the sender does;
/// and of the corrupted ones none.
#[test]
fn good_packets_pass_among_corrupted_ones() {
    for (numbers, ports, most) in [
        (Numbers::Single, 64, 0.0),
        (Numbers::Batches, 64, 0.01),
        (Numbers::Counted, 64, 0.01),
        (Numbers::CountedByFlow, 64, 0.01),
    ] {
        let row = Row {
            numbers,
            ports,
            good: 8,
            corrupted: 50_000,
        };
        let counts = row.measure(11);
        assert_eq!(counts.delivered(), 0, "{numbers:?} {ports} {counts:?}");
        let share = counts.refused as f64 / counts.good as f64;
        assert!(share <= most, "{numbers:?} {share} {counts:?}");
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_million_corrupted_packets() {
    let each: u64 = std::env::var("CORRUPTED").ok().map_or(100_000_000, |text| {
        text.parse().expect("CORRUPTED is a number")
    });
    let first: u64 = std::env::var("SEED")
        .ok()
        .map_or(1, |text| text.parse().expect("SEED is a number"));
    let mut all = Counts::default();
    for (seed, (numbers, ports, part)) in (first..).zip([
        (Numbers::Single, 1, 3),
        (Numbers::Single, 64, 3),
        (Numbers::Single, 1000, 3),
        (Numbers::Batches, 64, 10),
        (Numbers::Counted, 64, 10),
        (Numbers::CountedByFlow, 64, 10),
    ]) {
        let row = Row {
            numbers,
            ports,
            good: 1,
            corrupted: each / part,
        };
        let counts = row.measure(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        println!(
            "{numbers:?} from {ports} ports: {} of {} corrupted packets delivered {:?}; {} of {} good ones refused",
            counts.delivered(),
            counts.corrupted,
            counts.delivered,
            counts.refused,
            counts.good,
        );
        if matches!(numbers, Numbers::Single) {
            all.corrupted += counts.corrupted;
            all.good += counts.good;
            all.delivered.extend(counts.delivered);
        }
    }
    println!(
        "of rnic's single datagrams: {} of {}",
        all.delivered(),
        all.corrupted
    );
    assert!(all.delivered() <= 1, "{all:?}");
}
