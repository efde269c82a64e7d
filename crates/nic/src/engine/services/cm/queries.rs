//! Ids that wait until the neighbour on the way to their peer is known.

use std::net::SocketAddr;

use rnic_link::next_hop::NextHop;

use super::slab::Key;

/// When to look for the first time: most neighbours answer at once.
const FIRST_LOOK: u64 = 1_000_000;
/// How often to have the kernel ask, who gives up after three seconds.
pub(super) const KNOCK: u64 = 1_000_000_000;

/// Ids that wait for a neighbour.
#[derive(Debug, Default)]
pub(crate) struct Queries(pub(super) Vec<Query>);

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) id: Key,
    pub(crate) hop: NextHop,
    pub(crate) source: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) until: u64,
    pub(crate) look: u64,
    pub(crate) knock: u64,
}

impl Queries {
    pub(crate) fn add(&mut self, query: Query) {
        self.0.push(query);
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.0.iter().map(|query| query.look).min()
    }
}

impl Query {
    pub(crate) fn new(
        id: Key,
        hop: NextHop,
        (source, peer): (SocketAddr, SocketAddr),
        timeout_ms: u32,
        now: u64,
    ) -> Query {
        Query {
            id,
            hop,
            source,
            peer,
            until: now.saturating_add(u64::from(timeout_ms) * 1_000_000),
            look: now.saturating_add(FIRST_LOOK),
            knock: now.saturating_add(KNOCK),
        }
    }
}
