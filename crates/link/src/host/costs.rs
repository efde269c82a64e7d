//! Whether long packets should point at their payload or carry it.
//!
//! To read another process's memory costs a system call that finds and pins each page; to carry costs a copy on either side, at a
//! rate that depends on how far apart the two processors are, which some virtual machines change from one minute to the next.
//! Neither is the faster one everywhere, so the consumer takes the time of both, and says on the [board](super::grants) which it
//! would rather have. What it copies out took about as long to copy in, by another processor at the same time, so the two copies
//! count as one. Now and then the producer takes the other way, so that its time is known.

use std::cell::Cell;
use std::time::Instant;

/// What is compared: the time that so many bytes take.
const UNIT: u64 = 16 * 1024;
/// Shorter copies say little.
const LEAST: usize = 4096;
/// Of copies out of the ring the time of one in so many is taken: the clock is a part of what it measures.
const SAMPLED: u32 = 4;
/// Packets that point, after which one carries, and the other way round: what points is longer.
const CARRY_AFTER: u32 = 64;
const POINT_AFTER: u32 = 1024;

/// The consumer's side: what copies took of late, ns for [`UNIT`]; 0 is unknown.
#[derive(Debug, Default)]
pub(super) struct Costs {
    pointed: Cell<u64>,
    carried: Cell<u64>,
    copies: Cell<u32>,
    carries: Cell<bool>,
}

fn follow(average: &Cell<u64>, len: usize, ns: u64) {
    let new = (ns.saturating_mul(UNIT) / len as u64).max(1);
    average.set(match average.get() {
        0 => new,
        old => (3 * old.min(u64::MAX / 4) + new.min(u64::MAX / 4)) / 4,
    });
}

impl Costs {
    /// Packets should carry their payload.
    #[inline]
    pub(super) fn carries(&self) -> bool {
        self.carries.get()
    }

    /// Does a copy out of another process's memory.
    pub(super) fn of_pointed<R>(&self, len: usize, copy: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = copy();
        if len >= LEAST {
            self.pointed(len, start.elapsed().as_nanos() as u64);
        }
        result
    }

    /// Does a copy out of a ring.
    #[inline]
    pub(super) fn of_carried<R>(&self, len: usize, copy: impl FnOnce() -> R) -> R {
        if len < LEAST {
            return copy();
        }
        self.copies.set(self.copies.get().wrapping_add(1));
        if !self.copies.get().is_multiple_of(SAMPLED) {
            return copy();
        }
        let start = Instant::now();
        let result = copy();
        self.carried(len, start.elapsed().as_nanos() as u64);
        result
    }

    fn pointed(&self, len: usize, ns: u64) {
        follow(&self.pointed, len, ns);
        self.decide();
    }

    fn carried(&self, len: usize, ns: u64) {
        follow(&self.carried, len, ns);
        self.decide();
    }

    /// A change has to be worth a fifth, so that it is not made over and over.
    fn decide(&self) {
        let (pointed, carried) = (self.pointed.get(), self.carried.get());
        if pointed == 0 || carried == 0 {
            return;
        }
        let limit = if self.carries.get() {
            pointed
        } else {
            pointed - pointed / 5
        };
        self.carries.set(carried < limit);
    }
}

/// The producer's side.
#[derive(Debug, Default)]
pub(super) struct Turns(Cell<u32>);

impl Turns {
    /// Whether the next long packet points, if the consumer would rather have it carry (or not).
    #[inline]
    pub(super) fn points(&self, carries: bool) -> bool {
        let turn = self.0.get().wrapping_add(1);
        let after = if carries { POINT_AFTER } else { CARRY_AFTER };
        let other = turn >= after;
        self.0.set(if other { 0 } else { turn });
        carries == other
    }
}

#[cfg(test)]
mod tests {
    //! Which way is taken follows what both cost, and neither is forgotten.

    use super::*;

    /// ns for 16 KiB.
    fn after(costs: &Costs, pointed: u64, carried: u64, times: usize) -> bool {
        for _ in 0..times {
            costs.pointed(4 * UNIT as usize, pointed.saturating_mul(4));
            costs.carried(UNIT as usize, carried);
        }
        costs.carries()
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let costs = Costs::default();
        costs.carried(UNIT as usize, 1);
        assert!(!costs.carries(), "pointing may be as cheap");
        let costs = Costs::default();
        costs.pointed(UNIT as usize, u64::MAX);
        assert!(!costs.carries(), "carrying may be as dear");
    }

    #[test]
    fn the_cheaper_way_is_found_and_found_again() {
        let costs = Costs::default();
        assert!(after(&costs, 1200, 300, 1));
        assert!(!after(&costs, 1200, 6000, 3), "the processors moved apart");
        assert!(after(&costs, 1200, 300, 30), "and back");
    }

    #[test]
    fn a_small_difference_changes_nothing() {
        let costs = Costs::default();
        assert!(!after(&costs, 1000, 900, 50));
        assert!(after(&costs, 1000, 700, 50));
        assert!(after(&costs, 1000, 900, 50), "as it was");
        assert!(!after(&costs, 1000, 1100, 50));
    }

    #[test]
    fn times_of_any_length_are_taken() {
        let costs = Costs::default();
        for ns in [0, 1, u64::MAX, u64::MAX, 0] {
            after(&costs, ns, u64::MAX - ns, 3);
        }
    }

    #[test]
    fn the_other_way_has_its_turn() {
        let turns = Turns::default();
        let pointed = |carries| (0..65_536).filter(|_| turns.points(carries)).count();
        assert_eq!(pointed(false), 65_536 - 65_536 / CARRY_AFTER as usize);
        assert_eq!(pointed(true), 65_536 / POINT_AFTER as usize);
    }

    #[test]
    fn the_first_long_packets_point() {
        let turns = Turns::default();
        assert!((1..CARRY_AFTER).all(|_| turns.points(false)));
    }
}
