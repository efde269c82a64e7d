//! A wire with a seed: packets as bytes under a real ICRC, lost, duplicated, delayed, overtaken and corrupted at random.

use rnic_wire::{Flow, ICRC_LEN, IcrcContext, Operation, Packet, PathMtu, Service, pad_len};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

/// What the wire does to packets. Probabilities are per packet.
#[derive(Clone, Debug)]
pub struct Impairments {
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub corrupt: f64,
    /// Nanoseconds from one end to the other; packets that are not reordered keep their order.
    pub delay: Range<u64>,
    /// Nanoseconds added to reordered and duplicated packets.
    pub detour: Range<u64>,
    /// How often one PSN of one direction may be harmed (lost, corrupted, overtaken) before it is let through. With a
    /// bound below the retry counter every operation must succeed; without one, "retry exceeded" is a legal end.
    pub harm_per_psn: Option<u8>,
}

impl Impairments {
    /// A wire that does no harm.
    pub fn none() -> Impairments {
        Impairments {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay: 1_000..1_001,
            detour: 1_000..50_000,
            harm_per_psn: None,
        }
    }
}

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct WireCounters {
    pub sent: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
}

/// 100 Gbit/s.
const BITS_PER_NS: u64 = 100;

/// The wire between the two NICs of a `Pair`.
pub struct Network {
    pub impairments: Impairments,
    pub counters: WireCounters,
    rng: fastrand::Rng,
    icrc: IcrcContext,
    /// When the last packet that kept its order arrives at each end.
    last_arrival: [u64; 2],
    harmed: HashMap<(usize, u32, u32, bool), u8>,
}

impl Network {
    pub fn new(impairments: Impairments, seed: u64) -> Network {
        // IPv6: nothing under the ICRC is hidden, so a random corruption passes with a probability of 2^-32 and no
        // test will ever see one.
        let address = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        Network {
            impairments,
            counters: WireCounters::default(),
            rng: fastrand::Rng::with_seed(seed),
            icrc: IcrcContext::new(&Flow {
                src: address(1),
                dst: address(2),
                src_port: 0xc000,
                dst_port: rnic_wire::ROCE_PORT,
            }),
            last_arrival: [0; 2],
            harmed: HashMap::new(),
        }
    }

    /// Sends a packet (BTH to last pad byte) to NIC `to`; gives the copies that will arrive: when, and what.
    ///
    /// One that goes by memory, with path MTU `mtu`, has no ICRC and is not corrupted; instead its payload may be gone when
    /// it arrives.
    pub fn send(
        &mut self,
        now: u64,
        to: usize,
        mut bytes: Vec<u8>,
        by_memory: Option<PathMtu>,
    ) -> Vec<(u64, Arrived)> {
        self.counters.sent += 1;
        let keys = harm_keys(to, &bytes, by_memory);
        if by_memory.is_none() {
            let start = bytes.len();
            bytes.resize(start + ICRC_LEN, 0);
            self.icrc.append(0, true, &mut bytes);
        }

        let serialisation = bytes.len() as u64 * 8 / BITS_PER_NS;
        let delay = self.rng.u64(self.impairments.delay.clone());
        let in_order = (now + delay).max(self.last_arrival[to]) + serialisation;

        let spared = self.impairments.harm_per_psn.is_some_and(|limit| {
            keys.iter()
                .any(|key| self.harmed.get(key).is_some_and(|&harm| harm >= limit))
        });
        let chance = |rng: &mut fastrand::Rng, p: f64| p > 0.0 && rng.f64() < p;
        let mut arrivals = Vec::with_capacity(1);
        if chance(&mut self.rng, self.impairments.duplicate) {
            self.counters.duplicated += 1;
            let detour = self.rng.u64(self.impairments.detour.clone());
            let copy = Arrived {
                bytes: bytes.clone(),
                by_memory,
                gone: false,
            };
            arrivals.push((in_order + detour, copy));
        }
        let lost = !spared && chance(&mut self.rng, self.impairments.loss);
        let corrupted = !spared && chance(&mut self.rng, self.impairments.corrupt);
        let reordered = !spared && chance(&mut self.rng, self.impairments.reorder);
        if lost || corrupted || reordered {
            for key in keys {
                let harm = self.harmed.entry(key).or_default();
                *harm = harm.saturating_add(1);
            }
        }
        if lost {
            self.counters.lost += 1;
            return arrivals;
        }
        if corrupted {
            self.counters.corrupted += 1;
        }
        if corrupted && by_memory.is_none() {
            for _ in 0..self.rng.u32(1..4) {
                let bit = self.rng.usize(..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if self.rng.u8(..) < 16 {
                bytes.truncate(self.rng.usize(..bytes.len()));
            }
        }
        let arrived = Arrived {
            bytes,
            by_memory,
            gone: corrupted && by_memory.is_some(),
        };
        if reordered {
            self.counters.reordered += 1;
            let detour = self.rng.u64(self.impairments.detour.clone());
            arrivals.push((in_order + detour, arrived));
        } else {
            self.last_arrival[to] = in_order;
            arrivals.push((in_order, arrived));
        }
        arrivals
    }

    /// Checks the ICRC of what arrived over the wire and cuts it off.
    pub fn open<'a>(&self, arrived: &'a Arrived) -> Option<&'a [u8]> {
        let bytes = &arrived.bytes[..];
        if arrived.by_memory.is_some() {
            return Some(bytes);
        }
        self.icrc.check(bytes, 0).ok()?;
        Some(&bytes[..bytes.len() - ICRC_LEN])
    }
}

/// A packet as it arrives.
#[derive(Clone)]
pub struct Arrived {
    pub bytes: Vec<u8>,
    /// Its payload may be left elsewhere, and may span several PSNs, of its sender's path MTU.
    pub by_memory: Option<PathMtu>,
    /// A payload that is elsewhere cannot be had.
    pub gone: bool,
}

/// One for each PSN that the packet takes.
fn harm_keys(to: usize, bytes: &[u8], by_memory: Option<PathMtu>) -> Vec<(usize, u32, u32, bool)> {
    let packet = Packet::parse(bytes).expect("checked by `lint`");
    let bth = packet.bth;
    let response = bth.opcode.operation().is_some_and(Operation::is_response);
    let psns = by_memory.map_or(1, |mtu| packet.payload.len().div_ceil(mtu.bytes()).max(1));
    (0..psns as u32)
        .map(|n| (to, bth.dest_qp, bth.psn.add(n).value(), response))
        .collect()
}

/// What every packet that a queue pair emits must obey, whatever the situation (IBTA 9.2, 9.7.4.1.7), also on a path by memory
/// that takes `most_payload` bytes a packet.
///
/// # Errors
/// The rule that was broken.
pub fn lint(
    bytes: &[u8],
    mtu: PathMtu,
    most_payload: Option<usize>,
    pkey: u16,
    dest_qp: u32,
) -> Result<(), String> {
    let packet = Packet::parse(bytes).map_err(|e| format!("unreadable: {e}"))?;
    let bth = &packet.bth;
    let operation = bth.opcode.operation().ok_or("no operation")?;
    let len = packet.payload.len();
    let mtu = mtu.bytes();
    let most = most_payload.unwrap_or(mtu).max(mtu);
    if (bth.pkey, bth.dest_qp, bth.version) != (pkey, dest_qp, 0) {
        return Err(format!("wrong P_Key, destination or version: {bth:?}"));
    }
    if bth.fecn || bth.becn {
        return Err("congestion bits set".into());
    }
    if !bytes.len().is_multiple_of(4) || bth.pad != pad_len(len) {
        return Err(format!("{} bytes with pad count {}", bytes.len(), bth.pad));
    }
    if bytes[bytes.len() - usize::from(bth.pad)..]
        .iter()
        .any(|&b| b != 0)
    {
        return Err("pad bytes are not zero".into());
    }
    let fits = if !operation.has_payload() {
        len == 0
    } else if operation.is_first() || operation.is_middle() {
        len.is_multiple_of(mtu) && (mtu..=most).contains(&len)
    } else if operation.is_last() {
        (1..=most).contains(&len)
    } else {
        len <= most
    };
    if !fits {
        return Err(format!(
            "{operation:?} with {len} bytes of payload at MTU {mtu}"
        ));
    }
    if operation.is_response() && (bth.ack_req || bth.solicited) {
        return Err("a response asks for something".into());
    }
    let may_be_solicited = operation.is_send() && (operation.is_last() || operation.is_only())
        || operation.has_immediate();
    if bth.solicited && !may_be_solicited {
        return Err(format!("solicited event on {operation:?}"));
    }
    let acknowledged = !matches!(bth.opcode.service(), Service::Uc | Service::Ud);
    if !acknowledged && bth.ack_req {
        return Err("asks for an acknowledgement that the service does not have".into());
    }
    Ok(())
}
