//! What the shards of an engine have in common, besides what has a module of its own.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use rnic_host::QpnRange;
use rnic_host::registry::{RANGES, range_of};
use rustix_futex_sync::Mutex;

use crate::engine::counters::PortCounters;
use crate::host::Host;
use crate::queues::CqFacts;

/// Nobody who has its lock waits for another.
#[derive(Debug)]
pub(crate) struct Common {
    /// The machine that the device is on.
    pub(crate) host: Host,
    /// Whose shard each QPN range is, plus one; 0: another process's, or nobody's.
    ranges: Box<[AtomicU8]>,
    /// Queue pairs of all shards.
    pub(in crate::engine) live: AtomicUsize,
    /// What each shard has counted when it told so last.
    pub(in crate::engine) counted: Mutex<Vec<PortCounters>>,
    /// The first range of the first shard, by which others know the process.
    pub(in crate::engine) first_range: AtomicU32,
    /// The process's completion queues, past ones included.
    cqs: Mutex<Vec<Weak<CqFacts>>>,
}

impl Common {
    pub(crate) fn new(host: Host) -> Common {
        Common {
            host,
            ranges: (0..RANGES).map(|_| AtomicU8::new(0)).collect(),
            live: AtomicUsize::new(0),
            counted: Mutex::default(),
            first_range: AtomicU32::new(0),
            cqs: Mutex::default(),
        }
    }

    pub(crate) fn add_range(&self, range: QpnRange, shard: usize) {
        if let Some(owner) = self.ranges.get(range_of(range.first) as usize) {
            owner.store(shard as u8 + 1, Ordering::Release);
        }
    }

    pub(crate) fn first_range(&self) -> u32 {
        self.first_range.load(Ordering::Relaxed)
    }

    pub(crate) fn know_cq(&self, facts: &Arc<CqFacts>) {
        let mut cqs = self.cqs.lock();
        // Now and then: programs have thousands.
        if cqs.len().is_power_of_two() {
            cqs.retain(|cq| cq.strong_count() > 0);
        }
        cqs.push(Arc::downgrade(facts));
    }

    /// The process's completion queues from the place `from` on.
    pub(crate) fn each_cq_from(&self, from: usize, mut tell: impl FnMut(&CqFacts) -> bool) {
        let cqs = self.cqs.lock();
        for facts in cqs.iter().filter_map(Weak::upgrade).skip(from) {
            if !tell(&facts) {
                return;
            }
        }
    }

    /// The shard that a number of this process belongs to, whether a queue pair has it or not.
    pub(crate) fn shard_of(&self, qpn: u32) -> Option<usize> {
        let owner = self.ranges.get(range_of(qpn) as usize)?;
        usize::from(owner.load(Ordering::Acquire)).checked_sub(1)
    }
}
