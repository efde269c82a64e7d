//! How a policy learns from what its decisions led to.
//!
//! A policy that holds something back, or stays awake, is wrong about some programs. It cannot know
//! about which, so it tries, and takes what it was wrong about as a reason to try less often. There
//! are two forms of that, and all policies use these:
//!
//! * [`Backoff`]: the policy acts as a rule. After a mistake it does not, for a number of occasions
//!   that doubles with each mistake.
//! * [`Confidence`]: the policy does not act as a rule. It does after a number of signs in a row,
//!   which doubles with each mistake.
//!
//! Both keep one promise, whatever a program does: of `n` occasions the policy is wrong at most
//! about `log2(MOST / LEAST) + n / MOST` times, unless it was right in between. The tests show it.

/// Occasions on which a policy does not act after it was wrong: `LEAST` at first, and `MOST` at
/// most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff<const LEAST: u32, const MOST: u32> {
    /// Occasions still to be left out.
    left: u32,
    /// How many the next mistake costs.
    next: u32,
}

impl<const LEAST: u32, const MOST: u32> Backoff<LEAST, MOST> {
    pub(crate) const fn new() -> Self {
        Backoff {
            left: 0,
            next: LEAST,
        }
    }

    /// Whether the policy does not act now.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.left > 0
    }

    /// `count` occasions came. True: the policy does not act on them.
    #[inline]
    pub(crate) fn pass(&mut self, count: u32) -> bool {
        let off = self.left > 0;
        self.left = self.left.saturating_sub(count);
        off
    }

    /// The policy was wrong. Returns how many occasions it leaves out.
    pub(crate) fn wrong(&mut self) -> u32 {
        self.left = self.next;
        self.next = self.next.saturating_mul(2).min(MOST);
        self.left
    }

    /// The policy was right: the next mistake costs half.
    #[inline]
    pub(crate) fn right(&mut self) {
        self.next = (self.next / 2).max(LEAST);
    }

    /// Earlier mistakes do not count any more.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.next = LEAST;
    }
}

impl<const LEAST: u32, const MOST: u32> Default for Backoff<LEAST, MOST> {
    fn default() -> Self {
        Backoff::new()
    }
}

/// Signs in a row after which a policy acts: `LEAST` at first, and `MOST` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confidence<const LEAST: u32, const MOST: u32> {
    /// Signs, one after the other.
    in_a_row: u32,
    /// How many are wanted.
    wanted: u32,
}

impl<const LEAST: u32, const MOST: u32> Confidence<LEAST, MOST> {
    pub(crate) const fn new() -> Self {
        Confidence {
            in_a_row: 0,
            wanted: LEAST,
        }
    }

    /// Whether the policy acts.
    #[inline]
    pub(crate) fn is_sure(&self) -> bool {
        self.in_a_row >= self.wanted
    }

    /// A sign for it, or one against it.
    #[inline]
    pub(crate) fn sign(&mut self, good: bool) {
        self.in_a_row = match good {
            true => self.in_a_row.saturating_add(1),
            false => 0,
        };
    }

    /// The policy acted and was wrong.
    #[inline]
    pub(crate) fn wrong(&mut self) {
        self.in_a_row = 0;
        self.wanted = self.wanted.saturating_mul(2).min(MOST);
    }

    /// It acted and was right: half as many signs do the next time.
    #[inline]
    pub(crate) fn right(&mut self) {
        self.wanted = (self.wanted / 2).max(LEAST);
    }

    /// Earlier mistakes do not count any more.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.in_a_row = 0;
        self.wanted = LEAST;
    }
}

impl<const LEAST: u32, const MOST: u32> Default for Confidence<LEAST, MOST> {
    fn default() -> Self {
        Confidence::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEAST: u32 = 64;
    const MOST: u32 = 16_384;
    const DOUBLINGS: u32 = (MOST / LEAST).ilog2();

    /// How often a policy acts in `occasions` for a program about which it is always wrong.
    fn mistakes(backoff: &mut Backoff<LEAST, MOST>, occasions: u32) -> u32 {
        let mut wrong = 0;
        for _ in 0..occasions {
            if !backoff.pass(1) {
                backoff.wrong();
                wrong += 1;
            }
        }
        wrong
    }

    proptest! {
        /// Of many occasions few are mistakes, however many there are.
        #[test]
        fn mistakes_are_few(occasions in 0..500_000u32) {
            let wrong = mistakes(&mut Backoff::new(), occasions);
            prop_assert!(wrong <= DOUBLINGS + 1 + occasions / MOST);
        }

        /// Of signs that all mislead few lead to an act.
        #[test]
        fn a_program_that_misleads_does_so_seldom(occasions in 0..500_000u32) {
            let mut confidence = Confidence::<4, 4096>::new();
            let mut wrong = 0;
            for _ in 0..occasions {
                if confidence.is_sure() {
                    confidence.wrong();
                    wrong += 1;
                } else {
                    confidence.sign(true);
                }
            }
            prop_assert!(wrong <= 11 + occasions / 4096);
        }

        /// Whatever happens, the next mistake costs no less than the least and no more than the
        /// most.
        #[test]
        fn bounds_hold(events in proptest::collection::vec(0..4u8, 0..200)) {
            let mut backoff = Backoff::<LEAST, MOST>::new();
            let mut confidence = Confidence::<LEAST, MOST>::new();
            for event in events {
                match event {
                    0 => { backoff.wrong(); confidence.wrong(); }
                    1 => { backoff.right(); confidence.right(); }
                    2 => { backoff.forget(); confidence.forget(); }
                    _ => { backoff.pass(1); confidence.sign(true); }
                }
                prop_assert!((LEAST..=MOST).contains(&backoff.next));
                prop_assert!(backoff.left <= MOST);
                prop_assert!((LEAST..=MOST).contains(&confidence.wanted));
            }
        }

        /// A policy that is right as often as wrong is never off for longer than at first.
        #[test]
        fn who_is_right_between_mistakes_pays_the_least(mistakes in 1..100u32) {
            let mut backoff = Backoff::<LEAST, MOST>::new();
            for _ in 0..mistakes {
                prop_assert_eq!(backoff.wrong(), LEAST);
                backoff.right();
            }
        }

        /// One sign against it, and all signs have to come anew.
        #[test]
        fn one_sign_against_it_is_enough(signs in 0..1000u32) {
            let mut confidence = Confidence::<4, 4096>::new();
            (0..signs).for_each(|_| confidence.sign(true));
            confidence.sign(false);
            prop_assert!(!confidence.is_sure());
            (0..4).for_each(|_| confidence.sign(true));
            prop_assert!(confidence.is_sure());
        }
    }

    #[test]
    fn nothing_is_left_out_before_the_first_mistake() {
        let mut backoff = Backoff::<LEAST, MOST>::new();
        assert!(!backoff.pass(1) && !backoff.is_off());
        assert_eq!(backoff.wrong(), LEAST);
        assert!((0..LEAST).all(|_| backoff.pass(1)));
        assert!(!backoff.is_off());
        assert_eq!(backoff.wrong(), 2 * LEAST);
        backoff.forget();
        assert_eq!(backoff.wrong(), LEAST);
    }
}
