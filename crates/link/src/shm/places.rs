//! Some of the rings, by their places: to go through them touches no others.

/// A set of places.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<usize>);

impl Places {
    /// All of them, in their order.
    #[inline]
    pub(super) fn all(&self) -> &[usize] {
        &self.0
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, place: usize) -> bool {
        self.0.binary_search(&place).is_ok()
    }

    #[cold]
    pub(super) fn insert(&mut self, place: usize) {
        if let Err(index) = self.0.binary_search(&place) {
            self.0.insert(index, place);
        }
    }

    #[cold]
    pub(super) fn remove(&mut self, place: usize) {
        self.0.retain(|other| *other != place);
    }

    /// All of them, in their order, beginning at place `first` and going round.
    #[inline]
    pub(super) fn round(&self, first: usize) -> impl Iterator<Item = usize> {
        let (before, behind) = self.0.split_at(self.index_of(first));
        behind.iter().chain(before).copied()
    }

    /// The first place, beginning at `first` and going round, of `count` that is not in it.
    #[inline]
    pub(super) fn first_without(&self, first: usize, count: usize) -> Option<usize> {
        if self.0.len() == count {
            return None;
        }
        let free = |from: usize, to: usize, places: &[usize]| {
            let mut places = places.iter();
            (from..to).find(|place| places.next() != Some(place))
        };
        let behind = free(first, count, &self.0[self.index_of(first)..]);
        behind.or_else(|| free(0, first, &self.0))
    }

    #[inline]
    fn index_of(&self, first: usize) -> usize {
        self.0.partition_point(|place| *place < first)
    }
}

impl FromIterator<bool> for Places {
    /// Each place in turn: is it in?
    fn from_iter<T: IntoIterator<Item = bool>>(flags: T) -> Places {
        let flags = flags.into_iter().enumerate();
        Places(flags.filter_map(|(p, is_in)| is_in.then_some(p)).collect())
    }
}

#[cfg(test)]
mod tests {
    //! It is what a list of flags would be.

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_gone_through_as_flags_are(
            flags in proptest::collection::vec(prop_oneof![any::<bool>(), Just(false)], 1..50),
            first in any::<prop::sample::Index>(),
            flip in any::<prop::sample::Index>(),
        ) {
            let mut flags = flags;
            let mut places: Places = flags.iter().copied().collect();
            let flip = flip.index(flags.len());
            flags[flip] = !flags[flip];
            for _ in 0..2 {
                if flags[flip] {
                    places.insert(flip);
                } else {
                    places.remove(flip);
                }
            }
            prop_assert_eq!(places.is_empty(), !flags.contains(&true));
            let has: Vec<bool> = (0..flags.len()).map(|place| places.has(place)).collect();
            prop_assert_eq!(&has, &flags);
            let first = first.index(flags.len());
            let round = || (first..flags.len()).chain(0..first);
            let with: Vec<usize> = round().filter(|place| flags[*place]).collect();
            prop_assert_eq!(places.round(first).collect::<Vec<_>>(), with);
            let without = round().find(|place| !flags[*place]);
            prop_assert_eq!(places.first_without(first, flags.len()), without);
            let all: Vec<usize> = (0..flags.len()).filter(|place| flags[*place]).collect();
            prop_assert_eq!(places.all(), all);
        }
    }
}
