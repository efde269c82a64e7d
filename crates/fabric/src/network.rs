//! The network: what becomes of a packet, and when it arrives.

use std::collections::HashMap;

use rnic_nic::{Frame, PortAddress};

use rnic_wire::Opcode;

use crate::scenario::{Fate, Impairments, Marked, Scenario};

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
    /// The same by operation, of which there are 32.
    of_operation: [u64; 32],
}

pub(crate) struct Network {
    impairments: Impairments,
    /// What becomes of certain packets, and how many of them there were.
    fates: Vec<(Marked, u64)>,
    hosts: HashMap<PortAddress, usize>,
    places: usize,
    /// Of hosts with several processes: which of them has a range of QPNs.
    owners: HashMap<u32, usize>,
    links: Vec<Link>,
    /// How often a PSN of a flow was harmed.
    harmed: HashMap<(u32, u32, u8), u8>,
    seed: u64,
    /// Random harm that was done, as fates that do the same.
    pub(crate) harm: Vec<Marked>,
    pub(crate) counters: NetworkCounters,
}

/// The connection manager's queue pair.
const QP1: u32 = 1;
/// QPNs of a range, in bits.
const RANGE_BITS: u32 = 12;
/// 100 Gbit/s.
const BITS_PER_NS: u64 = 100;
/// What a packet has beside its bytes: Ethernet, IPv4, UDP, ICRC, FCS, gap.
const OVERHEAD: u64 = 14 + 20 + 8 + 4 + 4 + 20;

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Network {
        let hosts = scenario.hosts.len();
        let addresses = scenario.hosts.iter().zip(0..hosts);
        Network {
            impairments: scenario.impairments.clone(),
            fates: scenario.fates.iter().map(|fate| (*fate, 0)).collect(),
            hosts: addresses
                .rev()
                .map(|(host, at)| (host.address.into(), at))
                .collect(),
            places: hosts,
            owners: HashMap::new(),
            links: (0..hosts * hosts)
                .map(|_| Link {
                    last: 0,
                    count: 0,
                    of_operation: [0; 32],
                })
                .collect(),
            harmed: HashMap::new(),
            seed: scenario.seed ^ 0x6e65_7477_6f72_6b00,
            harm: Vec::new(),
            counters: NetworkCounters::default(),
        }
    }

    /// A process has a range of QPNs.
    pub(crate) fn know(&mut self, range: u32, place: usize) {
        self.owners.insert(range, place);
    }

    /// It does not bring all packets, each once and in order.
    pub(crate) fn harms(&self) -> bool {
        let chances = &self.impairments;
        let harm = chances.loss + chances.corrupt + chances.reorder + chances.duplicate;
        harm > 0.0 || !self.fates.is_empty()
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

    /// The fates of this packet, the `nth` of its link and the `same`th of its operation.
    fn fates(&mut self, link: (usize, usize), nth: u64, same: u64, opcode: Opcode) -> Vec<Fate> {
        let mut fates = Vec::new();
        for (marked, met) in &mut self.fates {
            let number = match marked.operation {
                None => nth,
                Some(operation) if opcode.operation() == Some(operation) => same,
                Some(_) => continue,
            };
            let (first, last) = marked.nth;
            if link == (marked.from, marked.to) && (first..=last).contains(&number) {
                *met += 1;
                fates.push(marked.fate);
            }
        }
        fates
    }

    /// A fate whose packets were not all sent.
    pub(crate) fn unmet(&self) -> Option<Marked> {
        let mut fates = self.fates.iter();
        let unmet = fates.find(|(marked, met)| match marked.nth {
            (_, u64::MAX) => *met == 0,
            (first, last) => *met != last.saturating_sub(first) + 1,
        });
        unmet.map(|(marked, _)| *marked)
    }

    /// Takes a packet that a device has sent now; `arrives` gets the host, the time, and the packet
    /// for each time that it arrives.
    pub(crate) fn send(
        &mut self,
        now: u64,
        from: usize,
        frame: Frame,
        arrives: impl FnMut(usize, u64, Frame),
    ) {
        self.counters.sent += 1;
        self.counters.bytes += frame.bytes.len() as u64;
        let Some(&host) = self.hosts.get(&frame.dst) else {
            self.counters.lost += 1;
            return;
        };
        let owner = self.owners.get(&(frame.dest_qpn() >> RANGE_BITS));
        let to = owner.copied().unwrap_or(host);
        self.carry(now, (from, to), frame, arrives);
    }

    /// The same for a packet to a multicast group, of which each member gets a copy, the sender's
    /// host too if it is one (`ibv_attach_mcast(3)`).
    pub(crate) fn send_to_group(
        &mut self,
        now: u64,
        from: usize,
        (frame, members): (Frame, &[usize]),
        mut arrives: impl FnMut(usize, u64, Frame),
    ) {
        self.counters.sent += 1;
        self.counters.bytes += frame.bytes.len() as u64;
        for member in members {
            self.carry(now, (from, *member), frame.clone(), &mut arrives);
        }
    }

    #[inline]
    fn carry(
        &mut self,
        now: u64,
        (from, to): (usize, usize),
        frame: Frame,
        mut arrives: impl FnMut(usize, u64, Frame),
    ) {
        let opcode = Opcode(frame.bytes.first().copied().unwrap_or_default());
        let at = from * self.places + to;
        let link = &mut self.links[at];
        link.count += 1;
        let nth = link.count;
        let same = &mut link.of_operation[usize::from(opcode.0 & 31)];
        *same += 1;
        let same = *same;

        // What is random about a packet does not depend on what becomes of others, and all of it is
        // drawn: then fates can do what harm at random has done.
        let seed = self.seed ^ (at as u64) << 48 ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = fastrand::Rng::with_seed(seed);
        let drawn: [f64; 4] = std::array::from_fn(|_| rng.f64());
        let (least, most) = self.impairments.delay;
        let delay = rng.u64(least..=most.max(least));
        let detour = self.impairments.detour.max(1);
        let [late, again] = [rng.u64(1..=detour), rng.u64(1..=detour)];

        let mut fates = match self.fates.is_empty() {
            true => Vec::new(),
            false => self.fates((from, to), nth, same, opcode),
        };
        if fates.is_empty() {
            fates = self.harm_at_random(drawn, (late, again), &frame);
            self.harm.extend(fates.iter().map(|fate| Marked {
                from,
                to,
                operation: opcode.operation(),
                nth: match opcode.operation() {
                    Some(_) => (same, same),
                    None => (nth, nth),
                },
                fate: *fate,
            }));
        }
        let takes = (frame.bytes.len() as u64 + OVERHEAD) * 8 / BITS_PER_NS;
        let mut late = None;
        for fate in fates {
            match fate {
                Fate::Drop => {
                    self.counters.lost += 1;
                    return;
                }
                Fate::Corrupt => {
                    self.counters.corrupted += 1;
                    return;
                }
                Fate::Delay(ns) => late = Some(ns),
                Fate::Duplicate(ns) => {
                    self.counters.duplicated += 1;
                    arrives(to, now + delay + takes + ns, frame.clone());
                }
            }
        }
        let at = match late {
            Some(late) => {
                self.counters.reordered += 1;
                now + delay + takes + late
            }
            None => {
                let link = &mut self.links[at];
                link.last = link.last.max(now + delay) + takes;
                link.last
            }
        };
        arrives(to, at, frame);
    }

    /// What becomes of a packet that is not marked, by four numbers from 0 to 1, and what a detour
    /// takes.
    fn harm_at_random(
        &mut self,
        [loss, corrupt, reorder, duplicate]: [f64; 4],
        (late, again): (u64, u64),
        frame: &Frame,
    ) -> Vec<Fate> {
        let chances = &self.impairments;
        let lost = loss < chances.loss;
        let corrupted = corrupt < chances.corrupt;
        let overtaken = reorder < chances.reorder;
        let duplicated = duplicate < chances.duplicate;
        if lost && self.may_harm(frame) {
            return vec![Fate::Drop];
        }
        if corrupted && self.may_harm(frame) {
            return vec![Fate::Corrupt];
        }
        let mut fates = Vec::new();
        if overtaken && self.may_harm(frame) {
            fates.push(Fate::Delay(late));
        }
        if duplicated {
            fates.push(Fate::Duplicate(again));
        }
        fates
    }
}
