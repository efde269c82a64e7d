//! The kernel's tables of interfaces, routes and neighbours: the background thread follows them, as a rule without the engine, so that no
//! message waits for what it asks.

use std::os::fd::RawFd;
use std::sync::Arc;

use rnic_link::Ways;

use super::port::PortWatch;
use super::shard::Shard;
use crate::sys;

/// What follows them.
pub(super) struct KernelTables {
    port: PortWatch,
    /// If packets leave past the kernel's network stack.
    ways: Option<Arc<Ways>>,
    /// When the ways are to be tended.
    tend_at: u64,
}

impl KernelTables {
    pub(super) fn new(port: PortWatch, ways: Option<Arc<Ways>>) -> KernelTables {
        let tend_at = if ways.is_some() { 0 } else { u64::MAX };
        KernelTables {
            port,
            ways,
            tend_at,
        }
    }

    /// Readable when one has changed; -1: nobody asks.
    pub(super) fn fds(&self) -> [RawFd; 2] {
        let ways = self.ways.as_ref().map_or(-1, |ways| ways.raw_fd());
        [self.port.fd(), ways]
    }

    /// When to look even though none has.
    pub(super) fn deadline(&self) -> u64 {
        self.tend_at
    }

    /// `changed`: of [`KernelTables::fds`].
    pub(super) fn look(&mut self, shared: &Shard, changed: [bool; 2]) {
        let [port, told] = changed;
        if port {
            self.port.look(shared);
        }
        if let Some(ways) = &self.ways {
            let now = sys::now_ns();
            if told || now >= self.tend_at {
                self.tend_at = ways.tend(now, told);
            }
        }
    }
}
