//! Whether the payload of long packets should go by reference or by value.
//!
//! By reference it costs a system call that finds and pins each page of the other process; by value
//! it costs a copy on either side, at rates that depend on how far apart the two processors are,
//! which some virtual machines change from one minute to the next. Neither is the faster one
//! everywhere, so both sides take the time of what they do. The two copies by value are made by two
//! processors at the same time, so that the slower one counts, as a rule the one into the ring: its
//! lines are the consumer's. The consumer compares its own, and says in the [grant
//! table](super::grants) what the producer's may take at most. Now and then the producer takes the
//! other way, so that its time is known.

use std::cell::Cell;

use super::surroundings::{Stopwatch, Surroundings};

/// What is compared: the time that so many bytes take.
const UNIT: u64 = 16 * 1024;
/// Shorter copies say little.
const LEAST: usize = 4096;
/// Of copies into and out of a ring the time of one in so many is taken: the clock is a part of
/// what it measures.
const SAMPLED: u32 = 4;
/// Packets by reference, after which one goes by value, and the other way round: those by reference
/// are longer.
const VALUE_AFTER: u32 = 64;
const REFERENCE_AFTER: u32 = 1024;

/// What copies of one kind took of late, ns for [`UNIT`]; 0 is unknown.
#[derive(Debug, Default)]
pub(super) struct Average {
    ns: Cell<u64>,
    copies: Cell<u32>,
    stopwatch: Stopwatch,
}

impl Average {
    fn on(surroundings: &Surroundings) -> Average {
        Average {
            stopwatch: surroundings.stopwatch(),
            ..Average::default()
        }
    }

    fn get(&self) -> u64 {
        self.ns.get()
    }

    fn follow(&self, len: usize, ns: u64) {
        let new = (ns.saturating_mul(UNIT) / len as u64).max(1);
        self.ns.set(match self.ns.get() {
            0 => new,
            old => (3 * old.min(u64::MAX / 4) + new.min(u64::MAX / 4)) / 4,
        });
    }

    /// Does a copy, the time of which is taken if it is one in so many.
    #[inline]
    fn of<R>(&self, one_in: u32, len: usize, copy: impl FnOnce() -> R) -> R {
        if len < LEAST {
            return copy();
        }
        self.copies.set(self.copies.get().wrapping_add(1));
        if !self.copies.get().is_multiple_of(one_in) {
            return copy();
        }
        let (result, ns) = self.stopwatch.time(len, copy);
        self.follow(len, ns);
        result
    }
}

/// Whether to go by value from now on, by what both ways cost: a change has to be worth a fifth, so
/// that it is not made over and over.
fn prefers_value(so_far: bool, by_reference: u64, by_value: u64) -> bool {
    let is_worth_it = |old: u64, new: u64| new < old - old / 5;
    if so_far {
        !is_worth_it(by_value, by_reference)
    } else {
        is_worth_it(by_reference, by_value)
    }
}

/// The consumer's side.
#[derive(Debug, Default)]
pub(super) struct Costs {
    by_reference: Average,
    by_value: Average,
    prefers_value: Cell<bool>,
}

impl Costs {
    /// Of copies there.
    pub(super) fn on(surroundings: &Surroundings) -> Costs {
        Costs {
            by_reference: Average::on(surroundings),
            by_value: Average::on(surroundings),
            ..Costs::default()
        }
    }

    /// What the producer's copy of payload by value may take, ns for 16 KiB; 0: it should
    /// go by reference.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        if self.prefers_value.get() {
            self.by_reference.get()
        } else {
            0
        }
    }

    /// A limit differs from what was said by more than matters.
    #[inline]
    pub(super) fn differ(said: u64, limit: u64) -> bool {
        (said == 0) != (limit == 0) || said.abs_diff(limit) > said / 8
    }

    /// Does a copy out of another process's memory.
    pub(super) fn of_by_reference<R>(&self, len: usize, copy: impl FnOnce() -> R) -> R {
        let result = self.by_reference.of(1, len, copy);
        self.decide();
        result
    }

    /// Does a copy out of a ring.
    #[inline]
    pub(super) fn of_by_value<R>(&self, len: usize, copy: impl FnOnce() -> R) -> R {
        let result = self.by_value.of(SAMPLED, len, copy);
        self.decide();
        result
    }

    #[inline]
    fn decide(&self) {
        let (by_reference, by_value) = (self.by_reference.get(), self.by_value.get());
        if by_reference == 0 || by_value == 0 {
            return;
        }
        self.prefers_value.set(prefers_value(
            self.prefers_value.get(),
            by_reference,
            by_value,
        ));
    }
}

/// The producer's side.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turn: Cell<u32>,
    by_value: Average,
    prefers_value: Cell<bool>,
}

impl Turns {
    /// Of copies there.
    pub(super) fn on(surroundings: &Surroundings) -> Turns {
        Turns {
            by_value: Average::on(surroundings),
            ..Turns::default()
        }
    }

    /// Does a copy into the ring.
    #[inline]
    pub(super) fn of_by_value<R>(&self, len: usize, copy: impl FnOnce() -> R) -> R {
        self.by_value.of(SAMPLED, len, copy)
    }

    /// Whether the next long packet goes by reference. `limit`: see [`Costs::limit`].
    #[inline]
    pub(super) fn by_reference(&self, limit: u64) -> bool {
        // What copies take is not known at first, and is 0 then.
        let by_value =
            limit != 0 && prefers_value(self.prefers_value.get(), limit, self.by_value.get());
        self.prefers_value.set(by_value);
        let turn = self.turn.get().wrapping_add(1);
        let after = if by_value {
            REFERENCE_AFTER
        } else {
            VALUE_AFTER
        };
        let other = turn >= after;
        self.turn.set(if other { 0 } else { turn });
        by_value == other
    }
}

#[cfg(test)]
mod tests {
    //! Which way is taken follows what both cost, and neither is forgotten.

    use super::*;

    /// ns for 16 KiB.
    fn after(costs: &Costs, by_reference: u64, by_value: u64, times: usize) -> bool {
        for _ in 0..times {
            costs
                .by_reference
                .follow(4 * UNIT as usize, by_reference.saturating_mul(4));
            costs.by_value.follow(UNIT as usize, by_value);
            costs.decide();
        }
        costs.limit() != 0
    }

    fn by_reference(turns: &Turns, limit: u64, of: u32) -> u32 {
        (0..of).map(|_| u32::from(turns.by_reference(limit))).sum()
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let costs = Costs::default();
        costs.by_value.follow(UNIT as usize, 1);
        costs.decide();
        assert_eq!(costs.limit(), 0, "by reference may be as cheap");
        let costs = Costs::default();
        costs.by_reference.follow(UNIT as usize, u64::MAX);
        costs.decide();
        assert_eq!(costs.limit(), 0, "by value may be as dear");
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
        assert!(after(&costs, 1000, 1100, 50), "as it was");
        assert!(!after(&costs, 1000, 1300, 50));
        assert!(!Costs::differ(1000, 1100) && Costs::differ(1000, 1200));
        assert!(Costs::differ(0, 1) && Costs::differ(1, 0) && !Costs::differ(0, 0));
    }

    #[test]
    fn times_of_any_length_are_taken() {
        let costs = Costs::default();
        for ns in [0, 1, u64::MAX, u64::MAX, 0] {
            after(&costs, ns, u64::MAX - ns, 3);
            by_reference(&Turns::default(), ns, 3);
        }
    }

    #[test]
    fn only_long_copies_are_timed() {
        let turns = Turns::default();
        for _ in 0..100 {
            turns.of_by_value(LEAST - 1, || ());
        }
        assert_eq!(turns.by_value.get(), 0);
        for _ in 0..SAMPLED {
            turns.of_by_value(LEAST, || ());
        }
        assert_ne!(turns.by_value.get(), 0);
    }

    #[test]
    fn the_other_way_has_its_turn() {
        let turns = Turns::default();
        assert_eq!(
            by_reference(&turns, 0, 65_536),
            65_536 - 65_536 / VALUE_AFTER
        );
        assert_eq!(by_reference(&turns, 1000, 65_536), 65_536 / REFERENCE_AFTER);
    }

    #[test]
    fn the_first_long_packets_go_by_reference() {
        let turns = Turns::default();
        assert!((1..VALUE_AFTER).all(|_| turns.by_reference(0)));
    }

    /// Where the copy into the ring is the slow one, nothing is gained by a fast one out of it.
    #[test]
    fn what_is_dear_by_value_for_the_producer_goes_by_reference() {
        let turns = Turns::default();
        let costs = |ns: u64| (0..50).for_each(|_| turns.by_value.follow(UNIT as usize, ns));
        costs(7000);
        assert!(by_reference(&turns, 1800, 1000) > 950);
        costs(1700);
        assert!(by_reference(&turns, 1800, 1000) > 950, "a small difference");
        costs(1000);
        assert!(by_reference(&turns, 1800, 1000) < 50);
        costs(1900);
        assert!(by_reference(&turns, 1800, 1000) < 50, "a small difference");
        assert!(
            by_reference(&turns, 0, 1000) > 950,
            "the consumer's is dearer"
        );
    }
}
