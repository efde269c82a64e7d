//! Whether a file holds nearly every packet twice: two captures of the same packets, put together.
//! If their clocks differ, the second ones look as if a timer had repeated them.

use std::collections::{HashMap, HashSet, VecDeque};

use rnic_wire::{Opcode, Psn};

use crate::packet::Packet;

/// Packets that are remembered; the second one comes within so many.
const RECENT: usize = 4096;

/// Packets of one direction that are the same in it.
type Key = (Psn, Opcode, u16);

#[derive(Clone, Debug, Default)]
pub(crate) struct Twice {
    recent: VecDeque<Key>,
    /// How often each of them came.
    seen: HashMap<Key, u32>,
    /// Different packets, those that came a second time, and what came beyond that.
    pub first: u64,
    pub second: u64,
    beyond: u64,
    /// IP identifications that were seen.
    ids: HashSet<u16>,
}

impl Twice {
    pub fn push(&mut self, p: &Packet) {
        // Whoever sends a packet again gives it another identification, if he numbers packets at
        // all.
        self.ids.insert(p.outer.ip_id);
        let key = (p.bth.psn, p.bth.opcode, p.outer.ip_id);
        if self.recent.len() == RECENT
            && let Some(old) = self.recent.pop_front()
            && let Some(count) = self.seen.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.seen.remove(&old);
            }
        }
        self.recent.push_back(key);
        let count = self.seen.entry(key).or_default();
        *count += 1;
        match count {
            1 => self.first += 1,
            2 => self.second += 1,
            _ => self.beyond += 1,
        }
    }

    /// Nine of ten came exactly twice, and `fewest` or more. Not known of packets that are not
    /// numbered (IPv6, and who sends one number or few): a second one may have been sent again.
    pub fn nearly_all(&self, fewest: u64) -> bool {
        let numbered = self.ids.len() as u64 * 2 >= self.first.min(1 << 16);
        numbered
            && self.second >= fewest
            && self.second * 10 >= self.first * 9
            && self.beyond * 10 <= self.first
    }
}
