//! Things by the index of their key.
//!
//! A hash table with linear probing, in which what is removed leaves no trace. So one thing fewer
//! is room for another one, without any memory: in a table that marks removed places, as the
//! standard library's, it may have to be built anew.

use std::collections::TryReserveError;

/// Places of a table that has had any.
const FEWEST: usize = 8;

/// Things by index.
#[derive(Debug)]
pub(super) struct IndexTable<T> {
    /// A power of two of them, or none. A thing lies at its [home](Self::home) or behind it, with
    /// no gap between.
    places: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for IndexTable<T> {
    fn default() -> IndexTable<T> {
        IndexTable {
            places: Vec::new(),
            len: 0,
        }
    }
}

impl<T> IndexTable<T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    /// Where to look first. Indices are random, so they are nearly their own hash.
    #[inline]
    fn home(&self, index: u32) -> usize {
        let hash = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & self.mask()
    }

    /// The place of an index, or the free one where the search for it ends.
    #[inline]
    fn find(&self, index: u32) -> Result<usize, usize> {
        let mut place = self.home(index);
        loop {
            // There is always a free place, if there are any.
            match self.places.get(place) {
                Some(Some((other, _))) if *other == index => return Ok(place),
                Some(Some(_)) => place = (place + 1) & self.mask(),
                Some(None) | None => return Err(place),
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let place = self.find(index).ok()?;
        self.places[place].as_ref().map(|(_, thing)| thing)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let place = self.find(index).ok()?;
        self.places[place].as_mut().map(|(_, thing)| thing)
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.find(index).is_ok()
    }

    /// All, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = self.places.iter().flatten();
        all.map(|(index, thing)| (*index, thing))
    }

    /// Makes room for `more` things that are not in it.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        let all = self.len.saturating_add(more);
        let mut places = self.places.len().max(FEWEST);
        // Three of four are taken at most, and seven of eight if there is no memory.
        while all > places / 4 * 3 {
            places = places.saturating_mul(2);
        }
        if places == self.places.len() {
            return Ok(());
        }
        let mut new = Vec::new();
        if let Err(error) = new.try_reserve_exact(places) {
            return match all <= self.places.len() / 8 * 7 {
                true => Ok(()),
                false => Err(error),
            };
        }
        new.resize_with(places, || None);
        let old = std::mem::replace(&mut self.places, new);
        for (index, thing) in old.into_iter().flatten() {
            if let Err(place) = self.find(index) {
                self.places[place] = Some((index, thing));
            }
        }
        Ok(())
    }

    /// Enters a thing, in the place of another one of that index. There is
    /// [room](Self::try_reserve) for it, or else it is made.
    pub(super) fn insert(&mut self, index: u32, thing: T) {
        let place = match self.find(index) {
            Ok(place) => place,
            Err(_) => {
                if self.try_reserve(1).is_err() {
                    return;
                }
                self.len += 1;
                match self.find(index) {
                    Ok(place) | Err(place) => place,
                }
            }
        };
        self.places[place] = Some((index, thing));
    }

    /// Takes a thing out.
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let mut gap = self.find(index).ok()?;
        let (_, thing) = self.places[gap].take()?;
        self.len -= 1;
        // Whatever is behind and may lie in the gap comes there, until there is none.
        let mut place = gap;
        loop {
            place = (place + 1) & self.mask();
            let Some((other, _)) = &self.places[place] else {
                return Some(thing);
            };
            let from_home = place.wrapping_sub(self.home(*other)) & self.mask();
            let from_gap = place.wrapping_sub(gap) & self.mask();
            if from_home >= from_gap {
                self.places.swap(gap, place);
                gap = place;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = IndexTable::default();
    }
}

impl<T: Clone> IndexTable<T> {
    /// The same once more.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn try_clone(&self) -> Result<IndexTable<T>, TryReserveError> {
        let mut places = Vec::new();
        places.try_reserve_exact(self.places.len())?;
        places.extend(self.places.iter().cloned());
        Ok(IndexTable {
            places,
            len: self.len,
        })
    }
}

#[cfg(test)]
mod tests {
    //! It is a map, whatever comes and goes, and a full one takes as many as were taken out.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few, so that they meet, and many that have the same home in a small table.
        let index = || prop_oneof![0..40u32, (0..40u32).prop_map(|n| n << 8)];
        prop_oneof![
            60 => index().prop_map(Step::Insert),
            40 => index().prop_map(Step::Remove),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec(step(), 0..400)) {
            let mut table = IndexTable::default();
            let mut model = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(index) => {
                        table.insert(index, number);
                        model.insert(index, number);
                    }
                    Step::Remove(index) => {
                        prop_assert_eq!(table.remove(index), model.remove(&index));
                    }
                    Step::Clear => {
                        table.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                let all: BTreeMap<_, _> = table.iter().map(|(index, thing)| (index, *thing)).collect();
                prop_assert_eq!(&all, &model);
                for index in (0..40).chain((0..40).map(|n| n << 8)) {
                    prop_assert_eq!(table.get(index), model.get(&index));
                    prop_assert_eq!(table.get_mut(index), model.get_mut(&index));
                    prop_assert_eq!(table.has(index), model.contains_key(&index));
                }
                prop_assert_eq!(table.try_clone().expect("memory").len(), model.len());
            }
        }
    }

    #[test]
    fn one_fewer_is_room_for_one() {
        let mut table = IndexTable::default();
        // Up to where it would have to grow.
        for index in 0..96 {
            table.insert(index * 77, ());
        }
        let places = table.places.len();
        for index in 96..10_000 {
            assert!(table.remove((index - 96) * 77).is_some());
            table.insert(index * 77, ());
        }
        assert_eq!((table.places.len(), table.len()), (places, 96));
        assert!(table.try_reserve(usize::MAX / 1000).is_err());
    }
}
