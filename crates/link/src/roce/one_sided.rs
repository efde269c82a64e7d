//! Memory that processes of this host read and write without packets.

use std::sync::Arc;

use super::RoceLink;
use crate::shm::{Copies, RingId};
use crate::staging::path::PathId;
use crate::{CmaWindow, Grant, GrantName};

impl RoceLink {
    /// The CMA window to the process that a path leads to; `None`: its memory cannot be used
    /// without packets.
    pub fn cma_window(&mut self, path: PathId) -> Option<Arc<CmaWindow>> {
        let live = self.live.as_mut()?;
        let route = live.paths.shm(path)?;
        live.shm.as_mut()?.cma_window(route)
    }

    /// All packets that were given to a path through shared memory were delivered, and their
    /// receiver is done with them.
    #[inline]
    pub fn is_drained(&self, path: PathId) -> bool {
        let drained = || {
            let live = self.live.as_ref()?;
            let route = live.paths.shm(path)?;
            Some(live.shm.as_ref()?.is_drained(route))
        };
        drained().unwrap_or(false)
    }

    /// Lets the process whose packets come by that ring reach memory of this one. It may be
    /// forgotten without a word.
    pub fn grant(&mut self, ring: RingId, grant: &Grant) {
        if let Some(shm) = self.live.as_mut().and_then(|live| live.shm.as_mut()) {
            shm.grant(ring, grant);
        }
    }

    /// Takes back all grants that are meant.
    pub fn revoke(&mut self, which: impl Fn(&GrantName) -> bool) -> Copies {
        let shm = self.live.as_mut().and_then(|live| live.shm.as_mut());
        shm.map_or(Copies::default(), |shm| shm.revoke(&which))
    }
}
