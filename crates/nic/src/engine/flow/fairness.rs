//! Short messages beside a bulk transfer.
//!
//! Queue pairs have their turns one after the other, but what a program that has both waits for is
//! more than a turn: all that is under way ahead of the short message, in the peer's receive buffer
//! or ring, and all that this call of the engine and the peer's do before they return to their
//! programs. A card's queue pairs share its wire by a few kilobytes; here it would be megabytes. So
//! while queue pairs have short messages, the engine does less for the others in one call, and they
//! have less under way. Where nobody waits they go on undivided, which is faster.

use rnic_settings::ablation::{self, Policy};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_wire::{Operation, Packet};

/// Bytes of a short message, at most.
const SHORT: usize = 4096;
/// Whoever had one has the next one within this: longer than a round trip anywhere, and on a
/// machine that is slow or crowded.
const SOON_NS: u64 = 100_000_000;

/// Who had short messages lately.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    /// The last one,
    who: u32,
    at: u64,
    /// and when another than that last had one.
    other_at: u64,
}

impl Lately {
    const NOBODY: Lately = Lately {
        who: 0,
        at: 0,
        other_at: 0,
    };

    #[inline]
    fn had(&mut self, who: u32, now: u64) {
        if self.who != who {
            self.who = who;
            self.other_at = self.at;
        }
        self.at = now;
    }

    /// When another had one.
    #[inline]
    fn other_than(&self, who: u32) -> u64 {
        if self.who == who {
            self.other_at
        } else {
            self.at
        }
    }
}

/// The process has several engines: what a thread does in one keeps it from another.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// From now on it has.
pub(crate) fn several_engines() {
    SEVERAL.store(true, Ordering::Relaxed);
}

fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

thread_local! {
    /// Which shards had, while this thread drove them: to whom they are one device, what it does in
    /// one keeps it from another.
    static DRIVEN: Cell<Lately> = const { Cell::new(Lately::NOBODY) };
}

/// What an engine knows of its queue pairs.
#[derive(Debug)]
pub(in crate::engine) struct Fairness {
    /// Its place among the shards.
    shard: u32,
    qps: Lately,
    /// When a part of a long one came last.
    long_at: u64,
    /// When a thread that drives this shard had a short one of another; for the background thread,
    /// which has none.
    elsewhere_at: u64,
}

impl Fairness {
    pub(in crate::engine) fn of(shard: usize) -> Fairness {
        Fairness {
            shard: shard as u32,
            qps: Lately::NOBODY,
            long_at: 0,
            elsewhere_at: 0,
        }
    }

    /// That queue pair had a message.
    #[inline]
    fn message(&mut self, qpn: u32, bytes: usize, now: u64) {
        if bytes <= SHORT {
            self.short(qpn, now);
        }
    }

    /// A packet came.
    #[inline]
    pub(in crate::engine) fn came(&mut self, qpn: u32, packet: &Packet<'_>, now: u64) {
        match message_of(packet) {
            Some(bytes) => self.message(qpn, bytes, now),
            None if packet.payload.len() > SHORT / 4 => self.long_at = now,
            None => {}
        }
    }

    /// That queue pair had a short message.
    #[inline]
    pub(in crate::engine) fn short(&mut self, qpn: u32, now: u64) {
        self.qps.had(qpn, now);
        if are_several() {
            DRIVEN.with(|driven| {
                let mut lately = driven.get();
                lately.had(self.shard, now);
                driven.set(lately);
            });
        }
    }

    /// Others than that queue pair have short messages.
    #[inline]
    pub(in crate::engine) fn others_wait(&mut self, qpn: u32, now: u64) -> bool {
        is_recent(self.qps.other_than(qpn), now) || self.is_wanted_elsewhere(now)
    }

    /// Packets of short messages come among those of long ones.
    #[inline]
    pub(in crate::engine) fn is_mixed(&mut self, now: u64) -> bool {
        is_recent(self.long_at, now)
            && (is_recent(self.qps.at, now) || self.is_wanted_elsewhere(now))
    }

    /// Queue pairs of other shards have short messages, and whoever drives those drives this one.
    #[inline]
    fn is_wanted_elsewhere(&mut self, now: u64) -> bool {
        if !are_several() {
            return false;
        }
        let own = DRIVEN.get().other_than(self.shard);
        self.elsewhere_at = self.elsewhere_at.max(own);
        is_recent(self.elsewhere_at, now)
    }
}

/// Messages of that length, all in all, do not make others wait.
#[inline]
pub(in crate::engine) fn is_short(bytes: u64) -> bool {
    bytes <= SHORT as u64
}

/// Bytes of a message that is one packet, or of what it asks for; `None`: it is a part of one, or
/// an ACK.
#[inline]
fn message_of(packet: &Packet<'_>) -> Option<usize> {
    use Operation as O;
    match packet.bth.opcode.operation()? {
        O::SendOnly
        | O::SendOnlyImm
        | O::SendOnlyInvalidate
        | O::WriteOnly
        | O::WriteOnlyImm
        | O::ReadResponseOnly => Some(packet.payload.len()),
        O::ReadRequest => packet.ext.reth.map(|reth| reth.dma_len as usize),
        O::CompareSwap | O::FetchAdd | O::AtomicWrite | O::AtomicAcknowledge => Some(0),
        _ => None,
    }
}

/// 0 is never.
#[inline]
fn is_recent(at: u64, now: u64) -> bool {
    at != 0 && now.saturating_sub(at) < SOON_NS && !ablation::is_out(Policy::Fairness)
}

#[cfg(test)]
mod tests {
    //! Who waits for whom, and for how long.

    use super::*;

    const BULK: u32 = 1;
    const PING: u32 = 2;
    const NOW: u64 = 1_000_000_000;

    #[test]
    fn nobody_waits_for_itself() {
        let mut fairness = Fairness::of(0);
        assert!(!fairness.others_wait(BULK, NOW) && !fairness.others_wait(0, 0));
        fairness.message(BULK, 8, NOW);
        assert!(!fairness.others_wait(BULK, NOW));
        fairness.message(PING, 8, NOW);
        assert!(fairness.others_wait(BULK, NOW) && fairness.others_wait(PING, NOW));
        // Its own short ones do not hide the other's.
        fairness.message(BULK, 8, NOW + 1);
        assert!(fairness.others_wait(BULK, NOW + 1));
    }

    #[test]
    fn what_a_thread_drives_is_one_device_in_however_many_shards() {
        several_engines();
        let (mut first, mut second) = (Fairness::of(1), Fairness::of(2));
        // What a background thread sees, which has short messages of no other shard.
        let waits = |who: &mut Fairness| {
            let ask = || who.others_wait(PING, NOW);
            std::thread::scope(|scope| scope.spawn(ask).join().expect("it ends"))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                first.short(PING, NOW);
                second.short(PING, NOW);
                assert!(
                    !waits(&mut first) && !waits(&mut second),
                    "nobody drives both"
                );
                for who in [&mut first, &mut second] {
                    assert!(who.others_wait(PING, NOW));
                    assert!(waits(who), "it was told");
                    assert!(!who.others_wait(PING, NOW + SOON_NS));
                }
            });
        });
    }

    #[test]
    fn long_messages_wait_for_nobody() {
        let mut fairness = Fairness::of(0);
        fairness.message(PING, SHORT + 1, NOW);
        assert!(!fairness.others_wait(BULK, NOW));
        fairness.message(PING, SHORT, NOW);
        assert!(fairness.others_wait(BULK, NOW));
    }

    #[test]
    fn who_had_none_for_long_does_not_wait() {
        let mut fairness = Fairness::of(0);
        fairness.short(PING, NOW);
        assert!(fairness.others_wait(BULK, NOW + SOON_NS - 1));
        let later = NOW + SOON_NS;
        assert!(!fairness.others_wait(BULK, later));
        fairness.short(BULK, later);
        assert!(!fairness.others_wait(BULK, later));
    }
}
