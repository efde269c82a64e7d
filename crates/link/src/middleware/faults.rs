//! Fault injection: a bad wire around any link, for what this process sends.
//!
//! Packets leave one by one (no GSO, IP ID 0), and for each of them a seeded generator decides, in
//! this order: lost; [corrupted](corruption) somewhere from BTH to ICRC; sent twice; held back
//! behind one to four later packets (or [`REORDER_PATIENCE_NS`], if none come). A delay adds to all
//! of that. The same seed and the same packets give the same faults.
//!
//! UDP checksums are made later, of the corrupted packet, so they are right: the receiver's kernel
//! would lose a packet with a wrong one.

pub mod corruption;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use corruption::Corruption;
use rnic_wire::ICRC_LEN;

use crate::LinkCounters;
use crate::staging::batch::TxBatch;
use crate::staging::datagram::{Arrival, Link};
use crate::staging::path::Route;

/// How long a packet held back waits for later ones to overtake it.
pub const REORDER_PATIENCE_NS: u64 = 1_000_000;
/// Most packets held back or delayed at once; more are lost, as in a switch.
const MAX_HELD: usize = 65_536;

/// Probabilities and amounts of injected faults (`--faults
/// drop=1%,dup=..,reorder=..,corrupt=..,delay=..,seed=N`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultSpec {
    /// Probability 0..=1 that a packet is lost.
    pub drop: f64,
    /// Probability that it is sent twice.
    pub duplicate: f64,
    /// Probability that it is held back behind later packets.
    pub reorder: f64,
    /// Probability that it is [corrupted](corruption).
    pub corrupt: f64,
    /// Added to every packet, nanoseconds.
    pub delay_ns: u64,
    /// Seed of the generator; `None`: a fresh one, printed to stderr.
    pub seed: Option<u64>,
}

/// Why a text is no [`FaultSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultSpecError {
    /// An item without `=`.
    #[error("`{0}` has no value; write `{0}=...`, as in `drop=1%,delay=10us`")]
    NoValue(String),
    /// A key that there is not.
    #[error("there is no fault `{0}`; known are drop, dup, reorder, corrupt, delay and seed")]
    UnknownKey(String),
    /// A key given twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// A value that is no probability.
    #[error(
        "`{key}={value}`: a probability is a percentage such as `1%` or a number from 0 to 1 such as `0.01`"
    )]
    Probability {
        /// What was to be set.
        key: String,
        /// To what.
        value: String,
    },
    /// A value that is no time.
    #[error("`delay={0}`: a time has a unit, ns, us, ms or s, as in `10us`, and is at most 10 s")]
    Time(String),
    /// A value that is no seed.
    #[error("`seed={0}`: a seed is a whole number from 0 to 2^64-1")]
    Seed(String),
}

fn probability(key: &str, value: &str) -> Result<f64, FaultSpecError> {
    let parsed = match value.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|p| p / 100.0),
        None => value.parse(),
    };
    parsed
        .ok()
        .filter(|p| (0.0..=1.0).contains(p))
        .ok_or_else(|| FaultSpecError::Probability {
            key: key.into(),
            value: value.into(),
        })
}

fn time(value: &str) -> Result<u64, FaultSpecError> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let parse = |(unit, scale): (&str, f64)| {
        let number = value.strip_suffix(unit)?.trim_end();
        Some(number.parse::<f64>().ok()? * scale)
    };
    if value == "0" {
        return Ok(0);
    }
    units
        .into_iter()
        .find_map(parse)
        .filter(|ns| (0.0..=1e10).contains(ns))
        .map(|ns| ns.round() as u64)
        .ok_or_else(|| FaultSpecError::Time(value.into()))
}

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    /// `drop=1%,dup=0.5%,reorder=5%,corrupt=1%,delay=10us,seed=42`, any of them, in any order; an
    /// empty text: no faults.
    fn from_str(text: &str) -> Result<FaultSpec, FaultSpecError> {
        let mut spec = FaultSpec::default();
        let mut seen: Vec<&str> = Vec::new();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| FaultSpecError::NoValue(item.into()))?;
            let (key, value) = (key.trim(), value.trim());
            let key = if key == "duplicate" { "dup" } else { key };
            match key {
                "drop" => spec.drop = probability(key, value)?,
                "dup" => spec.duplicate = probability(key, value)?,
                "reorder" => spec.reorder = probability(key, value)?,
                "corrupt" => spec.corrupt = probability(key, value)?,
                "delay" => spec.delay_ns = time(value)?,
                "seed" => {
                    spec.seed = Some(
                        value
                            .parse()
                            .map_err(|_| FaultSpecError::Seed(value.into()))?,
                    );
                }
                _ => return Err(FaultSpecError::UnknownKey(key.into())),
            }
            if seen.contains(&key) {
                return Err(FaultSpecError::Twice(key.into()));
            }
            seen.push(key);
        }
        Ok(spec)
    }
}

impl fmt::Display for FaultSpec {
    /// As [`FromStr`] reads it: the result of parsing it is the same spec.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut items = Vec::new();
        for (key, p) in [
            ("drop", self.drop),
            ("dup", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ] {
            if p != 0.0 {
                items.push(format!("{key}={p}"));
            }
        }
        if self.delay_ns != 0 {
            items.push(format!("delay={}ns", self.delay_ns));
        }
        if let Some(seed) = self.seed {
            items.push(format!("seed={seed}"));
        }
        f.write_str(&items.join(","))
    }
}

/// xorshift64* behind a splitmix64 of the seed: small, and the same everywhere.
#[derive(Clone, Debug)]
struct Generator(u64);

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Generator((z ^ (z >> 31)).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, as many as an f64 holds. Drawn even where it cannot matter, so that one fault's
        // probability does not change the others' pattern.
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

struct Held {
    route: Arc<Route>,
    packet: Box<[u8]>,
    /// Which of all packets it is; copies are the same one.
    number: u64,
    due_ns: u64,
    /// Later packets that must overtake it first, unless it is due; 0: only delayed.
    behind: u32,
}

/// A link with faults.
pub struct Faults<L> {
    inner: L,
    spec: FaultSpec,
    generator: Generator,
    /// Packets so far.
    count: u64,
    held: VecDeque<Held>,
    out: TxBatch,
}

impl<L: Link> Faults<L> {
    /// Around `inner`. Without a seed in `spec` one is drawn and printed, so that a run can be
    /// repeated.
    pub fn new(inner: L, spec: FaultSpec) -> Faults<L> {
        let seed = spec.seed.unwrap_or_else(|| {
            let seed = rnic_sys::random_u64();
            rnic_host::log(format_args!(
                "faults {}",
                FaultSpec {
                    seed: Some(seed),
                    ..spec
                }
            ));
            seed
        });
        Faults {
            inner,
            spec,
            generator: Generator::new(seed),
            count: 0,
            held: VecDeque::new(),
            out: TxBatch::default(),
        }
    }

    fn emit(
        &mut self,
        route: &Arc<Route>,
        packet: &[u8],
        now_ns: u64,
        counters: &mut LinkCounters,
    ) {
        if !self.out.push_sealed(route, packet) {
            self.inner.send(&mut self.out, now_ns, counters);
            self.out.clear();
            self.out.push_sealed(route, packet);
        }
    }

    /// Holds the packet of this moment.
    fn hold(&mut self, route: &Arc<Route>, packet: &[u8], due_ns: u64, behind: u32) {
        if self.held.len() < MAX_HELD {
            self.held.push_back(Held {
                route: route.clone(),
                packet: packet.into(),
                number: self.count,
                due_ns,
                behind,
            });
        }
    }

    fn one(
        &mut self,
        route: &Arc<Route>,
        packet: &mut [u8],
        now_ns: u64,
        counters: &mut LinkCounters,
    ) {
        let spec = self.spec;
        self.count += 1;
        let g = &mut self.generator;
        let dropped = g.chance(spec.drop);
        let corrupted = g.chance(spec.corrupt);
        let how = g.next();
        let copies = 1 + usize::from(g.chance(spec.duplicate));
        let reordered = g.chance(spec.reorder);
        let behind = 1 + g.below(4) as u32;
        counters.fault_packets += 1;
        if dropped {
            counters.fault_drops += 1;
            return;
        }
        counters.fault_corruptions += u64::from(corrupted);
        counters.fault_duplicates += u64::from(copies > 1);
        counters.fault_reorders += u64::from(reordered);
        counters.fault_delays += u64::from(spec.delay_ns != 0);
        let left = match corrupted {
            true => Corruption::strike(packet, how).1,
            false => packet.len(),
        };
        // Less than an ICRC is no packet that the link underneath could send.
        let packet = &packet[..left.max(ICRC_LEN)];
        for copy in 0..copies {
            if reordered && copy == 0 {
                let due = now_ns
                    .saturating_add(spec.delay_ns)
                    .saturating_add(REORDER_PATIENCE_NS);
                self.hold(route, packet, due, behind);
            } else if spec.delay_ns != 0 {
                self.hold(route, packet, now_ns.saturating_add(spec.delay_ns), 0);
            } else {
                self.emit(route, packet, now_ns, counters);
                self.overtake(self.count, now_ns, counters);
            }
        }
    }

    /// Packet `number` went out: earlier ones that are held back are one nearer to their turn.
    fn overtake(&mut self, number: u64, now_ns: u64, counters: &mut LinkCounters) {
        let mut i = 0;
        while i < self.held.len() {
            let held = &mut self.held[i];
            match held.behind {
                _ if held.number >= number => {}
                0 => {}
                1 => {
                    if let Some(held) = self.held.remove(i) {
                        self.emit(&held.route, &held.packet, now_ns, counters);
                    }
                    continue;
                }
                _ => held.behind -= 1,
            }
            i += 1;
        }
    }

    fn release_due(&mut self, now_ns: u64, counters: &mut LinkCounters) {
        let mut i = 0;
        while i < self.held.len() {
            if self.held[i].due_ns > now_ns {
                i += 1;
                continue;
            }
            let Some(held) = self.held.remove(i) else {
                break;
            };
            self.emit(&held.route, &held.packet, now_ns, counters);
            if held.behind == 0 {
                self.overtake(held.number, now_ns, counters);
                i = 0;
            }
        }
    }
}

impl<L: Link> Link for Faults<L> {
    fn max_segments(&self, _route: &Route) -> usize {
        1
    }

    fn send(&mut self, batch: &mut TxBatch, now_ns: u64, counters: &mut LinkCounters) {
        self.release_due(now_ns, counters);
        let (runs, bytes) = batch.parts_mut();
        for run in runs {
            let Some(route) = &run.route else {
                counters.tx_errors += run.count as u64;
                continue;
            };
            for packet in bytes[run.start..run.start + run.len].chunks_mut(run.segment) {
                self.one(route, packet, now_ns, counters);
            }
        }
        let inner_waits = || self.inner.next_timeout().is_some_and(|at| at <= now_ns);
        if !self.out.is_empty() || inner_waits() {
            self.inner.send(&mut self.out, now_ns, counters);
            self.out.clear();
        }
    }

    fn receive(&mut self, buffer: &mut [u8], thorough: bool) -> io::Result<Arrival> {
        self.inner.receive(buffer, thorough)
    }

    fn adopt(&mut self, message: &[u8]) {
        self.inner.adopt(message);
    }

    fn received_by_xdp(&self) -> u64 {
        self.inner.received_by_xdp()
    }

    fn overrun(&self) -> u64 {
        self.inner.overrun()
    }

    fn has_arrivals(&self) -> bool {
        self.inner.has_arrivals()
    }

    fn has_left(&self) -> bool {
        self.inner.has_left()
    }

    fn is_still(&self) -> bool {
        self.inner.is_still()
    }

    fn next_timeout(&self) -> Option<u64> {
        let held = self.held.iter().map(|held| held.due_ns).min();
        match (held, self.inner.next_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests;
