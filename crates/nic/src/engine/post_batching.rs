//! Which posts wait for others, so that several leave or are done together.

use rnic_transport::QueuePair;

use super::doorbell::{self, Posted};
use super::one_sided_batch::OneSidedBatch;
use super::{Engine, QpEntry};
use crate::host::Clock;

impl Engine {
    /// What was just posted to this queue pair, which is in the list of the ready, may wait there
    /// (see [`super::batching`]). Nobody need be told: the ACK of what is under way, or a timer,
    /// brings somebody.
    #[inline]
    pub(crate) fn may_batch(&mut self, qpn: u32, posted: Posted) -> bool {
        if self.strict {
            return false;
        }
        let Some(entry) = self.qps.get_mut(qpn) else {
            return false;
        };
        let (QueuePair::Rc(rc), Some(peer)) = (&mut entry.transport, entry.peer) else {
            return false;
        };
        let by_memory = self.link.is_by_memory(peer.path);
        let streams = rc.is_streaming() && !by_memory;
        rc.expect_more(streams && entry.signals.left(1) > 0);
        if by_memory {
            return may_join(entry, &mut self.batching.one_sided, &mut self.clock, posted);
        }
        let left = entry.signals.left(doorbell::POSTS);
        streams
            && self
                .batching
                .doorbell
                .may_wait(posted, left, || self.clock.exact_ns())
    }
}

/// What was just posted to this queue pair, whose packets go by memory, may wait for a batch.
#[inline]
fn may_join(
    entry: &mut QpEntry,
    rows: &mut OneSidedBatch,
    clock: &mut Clock,
    posted: Posted,
) -> bool {
    // Whoever waits for each of them posts the next when it has the completion.
    let alone = entry.shared.slots.send.used() <= posted.count as i32;
    if alone || !is_one_sided(entry) {
        return false;
    }
    let left = entry.signals.left(doorbell::POSTS);
    let now = clock.ticks_or_ns();
    entry.succession.posted(now) && rows.may_wait(posted, left, || clock.now_ns())
}

/// What was posted last needs no packet, nor does what waits before it, as far as is known; and
/// nobody sleeps until it is done.
#[inline]
fn is_one_sided(entry: &QpEntry) -> bool {
    entry.cma.is_some()
        && matches!(&entry.transport, QueuePair::Rc(rc) if rc.waits_for_row())
        && !entry.shared.cqs().any(|cq| cq.has_channel())
}
