//! Random queue pairs of UD.

use std::net::{IpAddr, Ipv4Addr};

use super::Shape;
use crate::scenario::{Datagram, Endpoint, Scenario, To};

const NAMES: [&str; 6] = ["m", "n", "o", "p", "q", "r"];
/// What a datagram has at most: no path is narrower.
const LONGEST: u32 = 4096;

/// Adds some, of which each sends to several others and to groups.
pub(super) fn add(rng: &mut fastrand::Rng, scenario: &mut Scenario, shape: &Shape) {
    let groups = [1, 2].map(|group| IpAddr::V4(Ipv4Addr::new(239, 1, 1, group)));
    let count = rng.usize(2..=NAMES.len());
    for name in &NAMES[..count] {
        let host = rng.usize(..scenario.hosts.len());
        let joined = groups.iter().filter(|_| rng.u8(..3) == 0);
        let groups = joined.copied().collect();
        scenario.endpoints.push(Endpoint {
            qkey: [0x1234_5678, 0x1234_5678, 7][rng.usize(..3)],
            groups,
            depth: rng.u32(1..=32),
            receives: rng.u32(0..=32),
            late: [0, 0, 300_000, 100_000_000][rng.usize(..4)],
            psn: [0, 0xff_ffff - rng.u32(..64)][rng.usize(..2)],
            ..Endpoint::new(name, host)
        });
    }
    for at in 0..count {
        let datagrams = (0..rng.usize(..=shape.ops)).map(|_| {
            let to = match rng.u8(..5) {
                0 => To::Group(groups[rng.usize(..2)]),
                _ => To::Endpoint(rng.usize(..count)),
            };
            let len = match rng.u8(..5) {
                0 => 0,
                1..=2 => rng.u32(1..=64),
                _ => rng.u32(..=LONGEST.min(shape.largest)),
            };
            Datagram {
                imm: rng.bool(),
                qkey: [None, None, None, Some(7)][rng.usize(..4)],
                after: [0, 0, 0, 1_000, 100_000][rng.usize(..5)],
                signaled: rng.bool(),
                ..Datagram::new(to, len)
            }
        });
        let datagrams = datagrams.collect();
        scenario.endpoints[at].datagrams = datagrams;
    }
}
