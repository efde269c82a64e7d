//! RDMA WRITEs and READs without packets: what peers of this host are granted, and what is taken
//! back from them.
//!
//! A peer whose request was executed has proven that it knows the key and is connected: from then
//! on it may do the same by itself, until the region or the queue pair changes in whatever way. How
//! that works: `rnic_link`'s `shm::grants`.

use rnic_link::{Copies, Grant, GrantName, Port, RingId};
use rnic_transport::{QueuePair, Role};
use rnic_wire::{Packet, Reth};

use super::Engine;
use crate::engine::QpEntry;
use crate::engine::peer_service::Imports;

/// A request that came by a ring and was executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProvenKey {
    ring: RingId,
    qpn: u32,
    key: u32,
}

/// A request that came by a ring, before its queue pair has it: it may prove a key.
pub(super) struct KeyProof {
    proven: ProvenKey,
    before: u64,
}

/// What another request that is executed changes; `None`: nothing is executed for peers.
#[inline]
fn progress(transport: &QueuePair) -> Option<u64> {
    match transport {
        QueuePair::Rc(rc) => (!rc.is_error()).then(|| rc.rq_psn().value().into()),
        // Its PSN goes on past what it drops.
        QueuePair::Uc(uc) => (!uc.is_error()).then(|| uc.counters().served.write.bytes),
        QueuePair::Ud(_) => None,
    }
}

impl KeyProof {
    /// Before the packet is handed to its queue pair.
    #[inline]
    pub(super) fn begin(
        entry: &QpEntry,
        ring: Option<RingId>,
        packet: &Packet<'_>,
    ) -> Option<KeyProof> {
        let (Some(ring), Some(reth)) = (ring, packet.ext.reth) else {
            return None;
        };
        let proven = ProvenKey {
            ring,
            qpn: entry.shared.qpn,
            key: key_to_check(&reth)?,
        };
        let before = progress(&entry.transport)?;
        Some(KeyProof { proven, before })
    }

    /// After that: what is proven if it was the expected one and was not refused.
    pub(super) fn finish(self, entry: &QpEntry) -> Option<ProvenKey> {
        (progress(&entry.transport)? != self.before).then_some(self.proven)
    }
}

/// The key of a request for no bytes is not looked at (IBTA vol. 1, 9.7.4.1.5): whoever has one
/// executed has proven nothing.
fn key_to_check(reth: &Reth) -> Option<u32> {
    (reth.dma_len > 0).then_some(reth.rkey)
}

/// What may still touch memory that was taken back.
#[must_use = "the memory is in use until it is over"]
#[derive(Default)]
pub(crate) struct Uses {
    imports: Imports,
    copies: Copies,
}

impl Uses {
    pub(crate) fn join(&mut self, more: Uses) {
        self.imports.join(more.imports);
        self.copies.join(more.copies);
    }

    /// To be called without the engine's lock: until none of it is under way. False: a process was
    /// stopped in the middle.
    pub(crate) fn wait(self) -> bool {
        let imports = self.imports.wait();
        self.copies.wait() && imports
    }
}

impl Engine {
    /// Grants what was proven to be known.
    #[cold]
    pub(super) fn grant_shown(&mut self) {
        while let Some(proven) = self.proven.pop() {
            self.grant(proven);
        }
    }

    fn grant(&mut self, proven: ProvenKey) -> Option<()> {
        let ProvenKey { ring, qpn, key } = proven;
        let entry = self.qps.get_mut(qpn)?;
        let (pd, src_qpn, mtu, may_read, may_write) = match &entry.transport {
            QueuePair::Rc(rc) if !rc.is_error() && rc.attr().role == Role::Rc => {
                let attr = rc.attr();
                let may_read = attr.remote_read && attr.max_dest_rd_atomic > 0;
                (
                    attr.pd,
                    attr.dest_qpn,
                    attr.mtu,
                    may_read,
                    attr.remote_write,
                )
            }
            QueuePair::Uc(uc) if !uc.is_error() => {
                let attr = uc.attr();
                (attr.pd, attr.dest_qpn, attr.mtu, false, attr.remote_write)
            }
            _ => return None,
        };
        let region = self.memory.reachable(pd, key)?;
        let grant = Grant {
            name: GrantName {
                src_qpn,
                dest_qpn: qpn,
                key,
            },
            mtu,
            pkey: entry.fast.pkey(),
            iova: region.iova,
            base: region.base,
            len: region.len,
            read: region.read && may_read,
            write: region.write && may_write,
        };
        entry.granted = true;
        self.link.grant(ring, &grant);
        Some(())
    }

    /// Nobody reaches memory any more by way of a queue pair. Gives what is under way, though it
    /// was taken back before.
    pub(crate) fn revoke_qp(&mut self, qpn: u32) -> Copies {
        let entry = self.qps.get_mut(qpn);
        let reached = |entry: &mut QpEntry| {
            std::mem::take(&mut entry.granted) | std::mem::take(&mut entry.lingers)
        };
        if entry.is_some_and(reached) {
            self.link.revoke(|name| name.dest_qpn == qpn)
        } else {
            Copies::default()
        }
    }

    /// Nobody reaches a region any more, neither by itself nor by an import.
    pub(crate) fn revoke_key(&mut self, key: u32) -> Uses {
        self.withdraw_key(key);
        Uses {
            imports: self.neighbours.revoke(key),
            copies: self.link.revoke(|name| name.key == key),
        }
    }

    /// Unacknowledged packets that refer to memory of that key do so no more. Those with which a
    /// queue pair has to begin anew are copied.
    fn withdraw_key(&mut self, key: u32) {
        let Engine {
            qps, by_reference, ..
        } = self;
        by_reference.retain(|qpn| {
            let Some(entry) = qps.get_mut(*qpn).filter(|entry| entry.by_reference) else {
                return false;
            };
            let QueuePair::Rc(rc) = &entry.transport else {
                return false;
            };
            if rc.points_at(key) {
                entry.withdraw();
            }
            entry.by_reference
        });
    }
}

impl QpEntry {
    /// It has failed by itself, so that nobody was promised anything yet. Whoever destroys it
    /// waits.
    #[inline]
    pub(super) fn revoke_failed(&mut self, link: &mut Port) {
        if std::mem::take(&mut self.granted) {
            self.lingers = true;
            let qpn = self.shared.qpn;
            let _ = link.revoke(|name| name.dest_qpn == qpn);
        }
    }
}

#[cfg(test)]
mod tests {
    //! A peer is granted what it has proven to know the key of.

    use super::*;

    #[test]
    fn a_request_for_no_bytes_shows_no_key() {
        let reth = |dma_len| Reth {
            va: 1 << 40,
            rkey: 7,
            dma_len,
        };
        assert_eq!(key_to_check(&reth(0)), None);
        assert_eq!(key_to_check(&reth(1)), Some(7));
    }
}
