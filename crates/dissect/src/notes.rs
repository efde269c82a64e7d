//! Findings as they accumulate, so that a bad capture cannot fill the memory with them.

use crate::finding::{Finding, What};
use crate::packet::Packet;

/// Kept per kind and conversation.
const PER_KIND: usize = 200;
/// Packet numbers kept per finding.
const PACKETS: usize = 32;

/// Packets that show the same: how many, the first ones, and when it began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub count: u64,
    pub first: Vec<u64>,
    pub time: u64,
}

impl Numbers {
    pub fn push(&mut self, p: &Packet) {
        if self.count == 0 {
            self.time = p.time_ns;
        }
        self.count += 1;
        if self.first.len() < PACKETS {
            self.first.push(p.number);
        }
    }

    pub fn append(&mut self, other: &Numbers) {
        if self.count == 0 || other.count > 0 && other.time < self.time {
            self.time = other.time;
        }
        self.count += other.count;
        self.first.extend(&other.first);
        self.first.sort_unstable();
        self.first.truncate(PACKETS);
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub findings: Vec<Finding>,
    pub more: u64,
    counts: Vec<(&'static str, usize)>,
}

impl Notes {
    pub fn push(&mut self, finding: Finding) {
        let name = finding.what.name();
        let count = match self.counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => count,
            None => {
                self.counts.push((name, 0));
                &mut self.counts.last_mut().expect("just pushed").1
            }
        };
        *count += 1;
        if *count <= PER_KIND {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Adds a packet to the latest finding for which `update` says yes, or makes one.
    pub fn add(
        &mut self,
        number: u64,
        mut update: impl FnMut(&mut Finding) -> bool,
        make: impl FnOnce() -> Finding,
    ) {
        for finding in self.findings.iter_mut().rev().take(64) {
            if update(finding) {
                if finding.packets.len() < PACKETS {
                    finding.packets.push(number);
                }
                return;
            }
        }
        self.push(make());
    }

    /// In the order of the packets, and of what is said of the same packet in the order of time.
    pub fn sort(&mut self) {
        self.findings.sort_by_key(|finding| {
            let first = finding.packets.first().copied().unwrap_or(u64::MAX);
            (first, finding.time)
        });
    }

    /// Takes over what another one has, of the other side.
    pub fn absorb(&mut self, other: Notes, side: usize) {
        self.more += other.more;
        for mut finding in other.findings {
            finding.side = side;
            self.push(finding);
        }
    }

    pub fn at(&mut self, side: usize, time: u64, packets: &[u64], what: What) {
        let mut packets = packets.to_vec();
        packets.dedup();
        self.push(Finding {
            side,
            time,
            packets,
            bad: Vec::new(),
            what,
        });
    }
}
