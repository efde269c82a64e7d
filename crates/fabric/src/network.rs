//! The network: what becomes of a packet, and when it arrives.

use std::collections::HashMap;
use std::net::IpAddr;

use rnic_nic::Frame;

use crate::scenario::{Fate, Impairments, Scenario};

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Packets that devices sent.
    pub sent: u64,
    /// Those of them that never arrived.
    pub lost: u64,
    /// Those that arrived with a wrong ICRC, which a port drops.
    pub corrupted: u64,
    /// Those that arrived twice.
    pub duplicated: u64,
    /// Those that others overtook.
    pub reordered: u64,
    /// Bytes of all.
    pub bytes: u64,
}

impl NetworkCounters {
    /// Those that were harmed in a way that its sender has to repair.
    pub fn harmed(&self) -> u64 {
        self.lost + self.corrupted + self.reordered
    }
}

/// A packet on its way. Source and destination are places in the list of hosts.
struct Link {
    /// When the last packet that kept its order arrives.
    last: u64,
    /// Packets so far.
    count: u64,
}

pub(crate) struct Network {
    impairments: Impairments,
    /// By source, destination and number.
    fates: HashMap<(usize, usize, u64), Fate>,
    hosts: HashMap<IpAddr, usize>,
    links: Vec<Link>,
    /// How often a PSN of a flow was harmed.
    harmed: HashMap<(u32, u32, u8), u8>,
    rng: fastrand::Rng,
    pub(crate) counters: NetworkCounters,
}

/// The connection manager's queue pair.
const QP1: u32 = 1;
/// 100 Gbit/s.
const BITS_PER_NS: u64 = 100;
/// What a packet has beside its bytes: Ethernet, IPv4, UDP, ICRC, FCS, gap.
const OVERHEAD: u64 = 14 + 20 + 8 + 4 + 4 + 20;

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Network {
        let hosts = scenario.hosts.len();
        let addresses = scenario.hosts.iter().zip(0..);
        Network {
            impairments: scenario.impairments.clone(),
            fates: scenario
                .fates
                .iter()
                .map(|(from, to, nth, fate)| ((*from, *to, *nth), *fate))
                .collect(),
            hosts: addresses.map(|(host, at)| (host.address, at)).collect(),
            links: (0..hosts * hosts)
                .map(|_| Link { last: 0, count: 0 })
                .collect(),
            harmed: HashMap::new(),
            rng: fastrand::Rng::with_seed(scenario.seed ^ 0x6e65_7477_6f72_6b00),
            counters: NetworkCounters::default(),
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }

    fn delay(&mut self) -> u64 {
        let delay = self.impairments.delay;
        self.rng.u64(delay.0..=delay.1.max(delay.0))
    }

    /// Whether this packet may be harmed once more.
    fn may_harm(&mut self, frame: &Frame) -> bool {
        let Some(most) = self.impairments.harm_per_psn else {
            return true;
        };
        // The connection manager goes on asking for long.
        if frame.dest_qpn() == QP1 {
            return true;
        }
        let bytes = &frame.bytes;
        let [opcode, .., _, a, b, c] = bytes[..12.min(bytes.len())] else {
            return true;
        };
        let psn = u32::from_be_bytes([0, a, b, c]);
        // Requests and responses to one queue pair count apart.
        let response = u8::from((0x0d..=0x12).contains(&(opcode & 0x1f)));
        let count = self
            .harmed
            .entry((frame.dest_qpn(), psn, response))
            .or_default();
        *count = count.saturating_add(1);
        *count <= most
    }

    /// Takes a packet that a device has sent now; `arrives` gets the host, the time, and the packet
    /// for each time that it arrives.
    pub(crate) fn send(
        &mut self,
        now: u64,
        from: usize,
        frame: Frame,
        mut arrives: impl FnMut(usize, u64, Frame),
    ) {
        self.counters.sent += 1;
        self.counters.bytes += frame.bytes.len() as u64;
        let Some(&to) = self.hosts.get(&frame.dst) else {
            self.counters.lost += 1;
            return;
        };
        let hosts = self.hosts.len();
        let link = from * hosts + to;
        self.links[link].count += 1;
        let nth = self.links[link].count;
        let fate = self.fates.get(&(from, to, nth)).copied();
        let (loss, corrupt) = (self.impairments.loss, self.impairments.corrupt);
        let lost = fate == Some(Fate::Drop)
            || fate.is_none() && self.chance(loss) && self.may_harm(&frame);
        if lost {
            self.counters.lost += 1;
            return;
        }
        if fate.is_none() && self.chance(corrupt) && self.may_harm(&frame) {
            self.counters.corrupted += 1;
            return;
        }
        let takes = (frame.bytes.len() as u64 + OVERHEAD) * 8 / BITS_PER_NS;
        let delay = self.delay();
        let detour = self.impairments.detour;
        let reorder = self.impairments.reorder;
        let late = match fate {
            Some(Fate::Delay(ns)) => Some(ns),
            Some(_) => None,
            None if self.chance(reorder) && self.may_harm(&frame) => {
                Some(self.rng.u64(1..=detour.max(1)))
            }
            None => None,
        };
        let duplicate = self.impairments.duplicate;
        if fate == Some(Fate::Duplicate) || fate.is_none() && self.chance(duplicate) {
            self.counters.duplicated += 1;
            let again = now + delay + takes + self.rng.u64(1..=detour.max(1));
            arrives(to, again, frame.clone());
        }
        let at = match late {
            Some(late) => {
                self.counters.reordered += 1;
                now + delay + takes + late
            }
            None => {
                let link = &mut self.links[link];
                link.last = link.last.max(now + delay) + takes;
                link.last
            }
        };
        arrives(to, at, frame);
    }
}
