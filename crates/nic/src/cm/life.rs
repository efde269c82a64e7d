//! Peers of this host that die: a killed process says nothing, but the kernel lets go of its QPN ranges.

use std::collections::{HashMap, HashSet};

use rnic_cm::Time;

use super::slab::Key;
use super::state::{Cm, Connection, Number};
use crate::report;

/// How often the peers are looked after: a killed one is noticed within a second, with plenty of time to spare.
const PERIOD: u64 = 250_000_000;
/// Communication ids begin with the number of their process's first range of QPNs.
const RANGE_SHIFT: u32 = 20;

/// The processes of this host that connections lead to.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// By their first range.
    peers: HashMap<u32, HashSet<Key>>,
    /// When to look next; meaningless without peers.
    next: u64,
}

impl Life {
    pub(super) fn deadline(&self) -> Option<u64> {
        (!self.peers.is_empty()).then_some(self.next)
    }
}

impl Cm {
    /// Watches the process of a peer, whose communication id is known now, if it is another one of this host.
    pub(super) fn watch(&mut self, key: Key, remote_id: u32, now: u64) {
        let range = remote_id >> RANGE_SHIFT;
        if range == u32::from(self.endpoint.config().range) {
            return;
        }
        let Some(entry) = self.ids.get_mut(key) else {
            return;
        };
        let Some(connection) = &mut entry.connection else {
            return;
        };
        let remote = connection.terms.ah.dgid;
        if !self.table.iter().any(|row| row.gid == remote) {
            return;
        }
        if self.life.peers.is_empty() {
            self.life.next = now.saturating_add(PERIOD);
        }
        connection.peer_range = Some(range);
        self.life.peers.entry(range).or_default().insert(key);
    }

    pub(super) fn unwatch(&mut self, key: Key, connection: &Connection) {
        let Some(range) = connection.peer_range else {
            return;
        };
        if let Some(keys) = self.life.peers.get_mut(&range) {
            keys.remove(&key);
            if keys.is_empty() {
                self.life.peers.remove(&range);
            }
        }
    }

    /// Ends what there was with processes that are dead.
    pub(super) fn look_after_peers(&mut self, now: u64) {
        if self.life.deadline().is_none_or(|at| at > now) {
            return;
        }
        self.life.next = now.saturating_add(PERIOD);
        let Some(ports) = self.ports.clone() else {
            return;
        };
        let ranges: Vec<u32> = self.life.peers.keys().copied().collect();
        for range in ranges {
            if ports.range_is_alive(range) {
                continue;
            }
            for key in self.life.peers.remove(&range).into_iter().flatten() {
                let connection = self.ids.get(key).and_then(|entry| entry.connection);
                if let Some(Number::Conn(conn)) = connection.map(|c| c.number) {
                    self.note(Some(key), report::cm::peer_died);
                    self.endpoint.peer_died(Time(now), conn);
                }
            }
        }
    }
}
