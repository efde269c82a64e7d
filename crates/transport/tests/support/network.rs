//! A wire with a seed: packets as bytes under a real ICRC, lost, duplicated, delayed, overtaken and
//! corrupted at random.
//!
//! It is IPv6 or IPv4. Over IPv4 the receiver does not see the identification, as with a socket,
//! and checks as the link does.

use rnic_wire::{
    Bth, Flow, FlowIds, ICRC_LEN, IcrcContext, IcrcError, IcrcOk, Leeway, Operation, Packet,
    PathMtu, PeerIds, Service, pad_len,
};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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
    /// How often one PSN of one direction may be harmed (lost, corrupted, overtaken) before it is
    /// let through. With a bound below the retry counter every operation must succeed; without one,
    /// "retry exceeded" is a legal end.
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
    /// The ICRC would have held, but with an identification that the receiver did not believe.
    pub refused: u64,
}

/// 100 Gbit/s.
const BITS_PER_NS: u64 = 100;

/// What a NIC does with the identification over IPv4.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// 0.
    Single,
    /// 0, 1, 2 ..., and 0 again after at most so many.
    Batches(u16),
    /// One counter for all, which also counts milliseconds.
    Counted,
}

/// What one NIC sends, and what the other one knows of it.
struct Direction {
    numbers: Numbers,
    next_id: u16,
    last_sent: u64,
    source: PeerIds,
    leeway: Leeway,
    /// By UDP source port.
    flows: HashMap<u16, (IcrcContext, FlowIds)>,
}

/// The wire between the two NICs of a `Pair`.
pub struct Network {
    pub impairments: Impairments,
    pub counters: WireCounters,
    rng: fastrand::Rng,
    v4: bool,
    /// By the NIC that receives.
    directions: [Direction; 2],
    /// When the last packet that kept its order arrives at each end.
    last_arrival: [u64; 2],
    harmed: HashMap<(usize, u32, u32, bool), u8>,
}

impl Network {
    pub fn new(impairments: Impairments, seed: u64) -> Network {
        let mut rng = fastrand::Rng::with_seed(seed);
        let direction = |rng: &mut fastrand::Rng| Direction {
            numbers: match rng.u8(..3) {
                0 => Numbers::Single,
                1 => Numbers::Batches(rng.u16(2..128)),
                _ => Numbers::Counted,
            },
            next_id: rng.u16(..),
            last_sent: 0,
            source: PeerIds::default(),
            // With corruption there would be none left soon. Until then one corrupted packet in
            // 65,536 could pass, which a test that takes many seeds would see.
            leeway: match impairments.corrupt > 0.0 {
                true => Leeway::none(0),
                false => Leeway::default(),
            },
            flows: HashMap::new(),
        };
        Network {
            v4: rng.bool(),
            directions: [direction(&mut rng), direction(&mut rng)],
            counters: WireCounters::default(),
            rng,
            last_arrival: [0; 2],
            harmed: HashMap::new(),
            impairments,
        }
    }

    #[allow(dead_code, reason = "not all tests ask")]
    pub fn is_v4(&self) -> bool {
        self.v4
    }

    /// The ICRC of what goes to NIC `to` from this UDP port.
    fn icrc(v4: bool, to: usize, port: u16) -> IcrcContext {
        let address = |nic: usize| {
            let last = 1 + nic as u8;
            match v4 {
                true => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
                false => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
            }
        };
        IcrcContext::new(&Flow {
            src: address(1 - to),
            dst: address(to),
            src_port: port,
            dst_port: rnic_wire::ROCE_PORT,
        })
    }

    /// The identification of the packet that leaves now.
    fn number(&mut self, now: u64, to: usize) -> u16 {
        let ends = self.rng.u8(..8) == 0;
        let Direction {
            numbers,
            next_id,
            last_sent,
            ..
        } = &mut self.directions[to];
        let idle_ms = (now - *last_sent) / 1_000_000;
        *last_sent = now;
        let id = match numbers {
            Numbers::Single => 0,
            Numbers::Batches(longest) if *next_id >= *longest || ends => 0,
            Numbers::Batches(_) => *next_id,
            Numbers::Counted => next_id.wrapping_add(idle_ms as u16),
        };
        *next_id = id.wrapping_add(1);
        id
    }

    /// Sends a packet (BTH to last pad byte) to NIC `to`; gives the copies that will arrive: when,
    /// and what.
    ///
    /// One that goes by memory, with path MTU `mtu`, has no ICRC and is not corrupted; instead its
    /// payload may be gone when it arrives.
    pub fn send(
        &mut self,
        now: u64,
        to: usize,
        mut bytes: Vec<u8>,
        by_memory: Option<PathMtu>,
    ) -> Vec<(u64, Arrived)> {
        self.counters.sent += 1;
        let keys = harm_keys(to, &bytes, by_memory);
        let [_, qpn @ ..] = keys[0].1.to_be_bytes();
        // As many flows as queue pairs.
        let port = 0xc000 | u16::from_be_bytes([qpn[1], qpn[2]]) & 0x3fff;
        let mut ip_id = 0;
        if by_memory.is_none() {
            ip_id = self.number(now, to);
            bytes.resize(bytes.len() + ICRC_LEN, 0);
            Network::icrc(self.v4, to, port).append(ip_id, true, &mut bytes);
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
                to,
                port,
                ip_id,
                spared,
                by_memory,
                gone: false,
            };
            arrivals.push((in_order + detour, copy));
        }
        let lost = !spared && chance(&mut self.rng, self.impairments.loss);
        let corrupted = !spared && chance(&mut self.rng, self.impairments.corrupt);
        let reordered = !spared && chance(&mut self.rng, self.impairments.reorder);
        if lost || corrupted || reordered {
            self.note_harm(keys);
        }
        if lost {
            self.counters.lost += 1;
            return arrivals;
        }
        if corrupted {
            self.counters.corrupted += 1;
        }
        if corrupted && by_memory.is_none() {
            self.strike(&mut bytes);
        }
        let arrived = Arrived {
            bytes,
            to,
            port,
            ip_id,
            spared,
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

    fn note_harm(&mut self, keys: Vec<(usize, u32, u32, bool)>) {
        for key in keys {
            let harm = self.harmed.entry(key).or_default();
            *harm = harm.saturating_add(1);
        }
    }

    /// Corrupts a packet, as `--faults corrupt` does.
    fn strike(&mut self, bytes: &mut Vec<u8>) {
        let rng = &mut self.rng;
        let len = bytes.len();
        match rng.u8(..16) {
            0..2 => bytes[rng.usize(..len)] ^= 1 << rng.u8(..8),
            2..7 => {
                for _ in 0..rng.u8(2..5) {
                    bytes[rng.usize(..len)] ^= rng.u8(1..);
                }
            }
            7..10 => {
                let burst = rng.usize(2..65).min(len);
                let start = rng.usize(..=len - burst);
                rng.fill(&mut bytes[start..start + burst]);
            }
            10..13 => {
                for _ in 0..rng.u8(1..4) {
                    bytes[rng.usize(..len.min(Bth::LEN + 16))] ^= rng.u8(1..);
                }
            }
            13..15 => {
                let (a, b) = (2 * rng.usize(..len / 2), 2 * rng.usize(..len / 2));
                bytes.swap(a, b);
                bytes.swap(a + 1, b + 1);
            }
            _ => bytes.truncate(rng.usize(..len)),
        }
    }

    /// Checks the ICRC of what arrived over the wire and cuts it off.
    pub fn open<'a>(&mut self, now: u64, arrived: &'a Arrived) -> Option<&'a [u8]> {
        let bytes = &arrived.bytes[..];
        if arrived.by_memory.is_some() {
            return Some(bytes);
        }
        let Direction {
            source,
            leeway,
            flows,
            ..
        } = &mut self.directions[arrived.to];
        let (icrc, ids) = flows.entry(arrived.port).or_insert_with(|| {
            let icrc = Network::icrc(self.v4, arrived.to, arrived.port);
            (icrc, FlowIds::default())
        });
        let now_ms = (now / 1_000_000) as u32;
        let checked = if arrived.spared {
            let header = IcrcOk {
                ip_id: arrived.ip_id,
                df: true,
            };
            ids.check_seen(source, leeway, icrc, bytes, header, now_ms)
        } else {
            ids.check(source, leeway, icrc, bytes, now_ms)
        };
        let without_icrc = &bytes[..bytes.len().saturating_sub(ICRC_LEN)];
        match checked {
            Ok(_) => return Some(without_icrc),
            Err(IcrcError::Unlikely) => {
                self.counters.refused += 1;
                // One in 65,536 corrupted packets comes to this, and may be no packet.
                if Packet::parse(without_icrc).is_ok() {
                    self.note_harm(harm_keys(arrived.to, without_icrc, None));
                }
            }
            Err(_) => {}
        }
        None
    }
}

/// A packet as it arrives.
#[derive(Clone)]
pub struct Arrived {
    pub bytes: Vec<u8>,
    /// The NIC that receives it.
    pub to: usize,
    /// Its UDP source port.
    pub port: u16,
    /// Its identification over IPv4, which the receiver does not see
    pub ip_id: u16,
    /// unless the packet was harmed often enough: to be refused is harm as well.
    pub spared: bool,
    /// Its payload may be detached, and may span several PSNs, of its sender's path MTU.
    pub by_memory: Option<PathMtu>,
    /// A detached payload cannot be had.
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

/// What every packet that a queue pair emits must obey, whatever the situation (IBTA 9.2,
/// 9.7.4.1.7), also on a path by memory that takes `most_payload` bytes a packet.
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
