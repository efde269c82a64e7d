//! Short READ requests and atomics that leave together.
//!
//! With as many under way as may be (`max_rd_atomic`), each answer lets one more go: a packet by
//! itself, and so is the answer to that. By the network stack several packets cost little more than
//! one. So after there were as many as may be, the next ones wait until half of them are answered,
//! and leave as one train, to which the answers are one, too. Two trains are under way by turns, so
//! that the peer is never idle. A READ of more bytes has an answer of many packets anyway, and
//! waits for nobody.

/// Bytes that a short READ asks for at most.
const SHORT: u32 = 4096;
/// Fewer under way make no two trains.
const FEW: usize = 4;

/// Whether the next request waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trains {
    /// They cost less together.
    pub(super) on: bool,
    waits: bool,
}

impl Trains {
    /// One left: so many are under way, of so many that may be.
    #[inline]
    pub(super) fn left(&mut self, under_way: usize, most: usize) {
        self.waits = self.waits || self.on && under_way >= most.max(FEW);
    }

    /// There were answers.
    #[inline]
    pub(super) fn answered(&mut self, under_way: usize, most: usize) {
        self.waits = self.waits && under_way > most / 2;
    }

    /// Some are sent again.
    pub(super) fn go_back(&mut self) {
        self.waits = false;
    }

    /// The next one, which asks for so many bytes, waits.
    #[inline]
    pub(super) fn holds(&self, len: u32) -> bool {
        self.on && self.waits && len <= SHORT
    }
}

#[cfg(test)]
mod tests {
    //! Half of them leave together, and nobody waits who need not.

    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// How many leave at once, as each of so many that may be under way is answered.
    fn trains(most: usize, len: u32) -> Vec<usize> {
        let mut trains = Trains {
            on: true,
            ..Trains::default()
        };
        let mut under_way = 0;
        let train = |trains: &mut Trains, under_way: &mut usize| {
            let before = *under_way;
            while *under_way < most && !trains.holds(len) {
                *under_way += 1;
                trains.left(*under_way, most);
            }
            *under_way - before
        };
        let mut sizes = vec![train(&mut trains, &mut under_way)];
        for _ in 0..2 * most {
            under_way -= 1;
            trains.answered(under_way, most);
            sizes.push(train(&mut trains, &mut under_way));
        }
        sizes.retain(|size| *size > 0);
        sizes
    }

    #[test]
    fn half_of_what_may_be_under_way_leaves_together() {
        assert_eq!(trains(16, 8), [16, 8, 8, 8, 8]);
        assert_eq!(trains(5, SHORT)[..3], [5, 3, 3]);
    }

    #[test]
    fn long_ones_and_few_leave_one_by_one() {
        assert!(trains(16, SHORT + 1)[1..].iter().all(|size| *size == 1));
        assert!(trains(FEW - 1, 8)[1..].iter().all(|size| *size == 1));
    }

    #[test]
    fn where_each_costs_the_same_and_in_repetitions_none_waits() {
        let mut trains = Trains::default();
        trains.left(16, 16);
        assert!(!trains.holds(8));
        trains.on = true;
        trains.left(16, 16);
        assert!(trains.holds(8));
        trains.go_back();
        assert!(!trains.holds(8));
    }
}
