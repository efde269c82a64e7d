//! What the port has counted in this process, a watcher of these counts, and how many of each
//! object live: what a test or a monitor compares to find a leak.

use std::sync::OnceLock;

use rnic_link::LinkCounters;
use rnic_transport::Counters;

use super::{DropCounters, Engine};

/// With more queue pairs than this their counts are added up now and then only.
const FEW: usize = 128;
/// How often then, nanoseconds.
const PAUSE: u64 = 10_000_000;

/// Counts of this process since it opened the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets and bytes on the wire.
    pub link: LinkCounters,
    /// Packets that no queue pair took.
    pub drops: DropCounters,
    /// All queue pairs together, those destroyed too.
    pub qps: Counters,
}

static WATCHER: OnceLock<fn(&PortCounters)> = OnceLock::new();

/// Has `watcher` called whenever packets have come or gone. It runs under the engine's lock: it
/// must be quick and call nothing of this crate. There can be one; the first stays.
pub fn watch_counters(watcher: fn(&PortCounters)) {
    let _ = WATCHER.set(watcher);
}

/// Packets that a port took for violations of keys (IBTA vol. 1, 14.2.5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyViolations {
    /// Of another partition.
    pub pkey: u64,
    /// UD datagrams with another Q_Key.
    pub qkey: u64,
}

pub(crate) fn sum(counters: impl Iterator<Item = PortCounters>) -> PortCounters {
    counters.fold(PortCounters::default(), |mut all, more| {
        all.link += more.link;
        all.drops += more.drops;
        all.qps += more.qps;
        all
    })
}

/// What was reported to the watcher last.
#[derive(Debug, Default)]
pub(super) struct Reported {
    link: LinkCounters,
    drops: DropCounters,
    at: u64,
}

impl Engine {
    pub(crate) fn port_counters(&self) -> PortCounters {
        let mut qps = self.counted.retired;
        for entry in self.qps.iter() {
            qps += entry.transport.counters();
        }
        PortCounters {
            link: self.link.counters(),
            drops: self.counted.drops,
            qps,
        }
    }

    /// Violations of keys so far. Programs ask for each of many queue pairs, so those that cannot
    /// have any are not looked at.
    pub(crate) fn key_violations(&self) -> KeyViolations {
        let mut qkey = self.counted.retired.qkey_violations;
        if self.flow.receive_hold.has_unreliable(self.qps.len()) {
            let counters = self.qps.iter().map(|entry| entry.transport.counters());
            qkey += counters
                .map(|counters| counters.qkey_violations)
                .sum::<u64>();
        }
        KeyViolations {
            pkey: self.counted.drops.bad_pkey,
            qkey,
        }
    }

    /// Turns that queue pairs have had. What leaves without one is not among them.
    pub(crate) fn turns(&self) -> u64 {
        self.counted.turns
    }

    /// Gives the counters to the watcher, if there is one and something has changed.
    #[inline]
    pub(crate) fn publish_counters(&mut self) {
        if let Some(watcher) = WATCHER.get() {
            self.publish_to(*watcher);
        }
    }

    #[cold]
    fn publish_to(&mut self, watcher: fn(&PortCounters)) {
        let (link, drops) = (self.link.counters(), self.counted.drops);
        if self.counted.reported.link == link && self.counted.reported.drops == drops {
            return;
        }
        if self.qps.len() > FEW {
            let now = self.common.host.now_ns();
            if now - self.counted.reported.at < PAUSE {
                return;
            }
            self.counted.reported.at = now;
        }
        self.counted.reported.link = link;
        self.counted.reported.drops = drops;
        let own = self.port_counters();
        let mut counted = self.common.counted.lock();
        if counted.len() <= self.index {
            counted.resize(self.index + 1, PortCounters::default());
        }
        counted[self.index] = own;
        watcher(&sum(counted.iter().copied()));
    }
}

/// Objects of this process's NIC that live now, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Memory regions and bound windows.
    pub memory: usize,
    /// Event channels of the connection manager.
    pub cm_channels: usize,
    /// Its ids, requests that wait at listeners included.
    pub cm_ids: usize,
    /// Its connections and resolutions, those in time-wait included.
    pub cm_connections: usize,
    /// Requests that nobody listens for, so far.
    pub cm_held: usize,
}

impl Engine {
    /// Regions and the like are the same in all shards, and other objects are in the first alone.
    pub(crate) fn objects(&self) -> Objects {
        let (cm_channels, cm_ids, cm_connections) = self.cm.objects();
        Objects {
            queue_pairs: self.qps.len(),
            memory: self.memory.len(),
            cm_channels,
            cm_ids,
            cm_connections,
            cm_held: self.cm.held.len(),
        }
    }
}
