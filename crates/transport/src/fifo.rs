//! A queue whose memory is taken before it is needed.
//!
//! [`Fifo::try_reserve`] takes it, and can fail. Elements are written where they lie, over what was
//! there before, and the queue goes round in no more places than it ever had elements at a time: of
//! a long queue in which few wait, little memory is touched.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::mem;

/// Places of a queue that has had any.
const FEWEST: usize = 4;

/// Elements, oldest first.
#[derive(Debug, Default)]
pub struct Fifo<T> {
    /// A power of two of them, or none. Who is not in the queue is left over from what was.
    places: Vec<T>,
    /// Where the oldest is.
    first: usize,
    len: usize,
}

impl<T: Default> Fifo<T> {
    /// Takes memory for `most` elements at a time: up to so many are pushed without any more.
    ///
    /// # Errors
    /// There is none; nothing has changed.
    pub fn try_reserve(&mut self, most: usize) -> Result<(), TryReserveError> {
        // What overflows is more than there can be.
        let most = most.max(FEWEST).checked_next_power_of_two();
        let more = most.unwrap_or(usize::MAX).saturating_sub(self.places.len());
        self.places.try_reserve_exact(more)
    }

    /// Elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// None.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, index: usize) -> usize {
        self.first.wrapping_add(index) & self.places.len().wrapping_sub(1)
    }

    /// The oldest but `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index < self.len {
            self.places.get(self.place(index))
        } else {
            None
        }
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index < self.len {
            let place = self.place(index);
            self.places.get_mut(place)
        } else {
            None
        }
    }

    /// The oldest.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The oldest, to be changed.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.get_mut(0)
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|index| self.get(index))
    }

    /// The place of a new element at the end, to be written: it is as another one left it.
    #[inline]
    pub fn push_place(&mut self) -> &mut T {
        if self.len == self.places.len() {
            self.grow();
        }
        let place = self.place(self.len);
        self.len += 1;
        &mut self.places[place]
    }

    /// Adds one at the end.
    #[inline]
    pub fn push_back(&mut self, element: T) {
        *self.push_place() = element;
    }

    /// Adds one before the oldest.
    pub fn push_front(&mut self, element: T) {
        if self.len == self.places.len() {
            self.grow();
        }
        self.first = self.place(self.places.len().wrapping_sub(1));
        self.len += 1;
        let first = self.first;
        self.places[first] = element;
    }

    #[cold]
    fn grow(&mut self) {
        self.places.rotate_left(self.first);
        self.first = 0;
        let places = (2 * self.places.len()).max(FEWEST);
        self.places.resize_with(places, T::default);
    }

    /// Takes the oldest out; gives it as it lies there.
    #[inline]
    pub fn pop_place(&mut self) -> Option<&mut T> {
        if self.len == 0 {
            return None;
        }
        let place = self.first;
        self.first = self.place(1);
        self.len -= 1;
        self.places.get_mut(place)
    }

    /// Takes the oldest out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        self.pop_place().map(mem::take)
    }

    /// Takes the `count` oldest out, which stay as they are until their places are needed.
    #[inline]
    pub fn skip(&mut self, count: usize) {
        let count = count.min(self.len);
        self.first = self.place(count);
        self.len -= count;
    }

    /// Drops all elements. Their memory stays.
    pub fn clear(&mut self) {
        self.places.clear();
        (self.first, self.len) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    //! It is a queue, whatever lay in its places before, and keeps to the memory that it was given.

    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        PushFront,
        Pop,
        Skip(usize),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => Just(Step::Push),
            2 => Just(Step::PushFront),
            8 => Just(Step::Pop),
            2 => (0..5usize).prop_map(Step::Skip),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn first_in_first_out(steps in prop::collection::vec(step(), 0..200)) {
            let mut fifo = Fifo::default();
            let mut model = VecDeque::new();
            for (id, step) in (1..).zip(steps) {
                match step {
                    Step::Push => {
                        fifo.push_back(id);
                        model.push_back(id);
                    }
                    Step::PushFront => {
                        fifo.push_front(id);
                        model.push_front(id);
                    }
                    Step::Pop => prop_assert_eq!(fifo.pop_front(), model.pop_front()),
                    Step::Skip(count) => {
                        fifo.skip(count);
                        model.drain(..count.min(model.len()));
                    }
                    Step::Clear => {
                        fifo.clear();
                        model.clear();
                    }
                }
                prop_assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(fifo.iter().eq(model.iter()));
                prop_assert_eq!(fifo.front(), model.front());
                prop_assert_eq!(fifo.front_mut(), model.front_mut());
                for at in 0..model.len() + 2 {
                    prop_assert_eq!(fifo.get(at), model.get(at));
                }
            }
        }

        #[test]
        fn what_was_reserved_is_enough(most in 1..300usize, rounds in 1..4usize) {
            let mut fifo = Fifo::default();
            fifo.try_reserve(most).expect("memory");
            let memory = (fifo.places.as_ptr(), fifo.places.capacity());
            for round in 0..rounds {
                (0..most).for_each(|id| fifo.push_back(id));
                (0..most / 2).for_each(|_| { fifo.pop_front(); });
                if round == 1 {
                    fifo.clear();
                }
                while fifo.pop_front().is_some() {}
            }
            prop_assert_eq!((fifo.places.as_ptr(), fifo.places.capacity()), memory);
        }
    }

    #[test]
    fn too_much_is_refused_and_few_use_little() {
        let mut fifo = Fifo::<[u64; 8]>::default();
        assert!(fifo.try_reserve(usize::MAX).is_err());
        assert!(fifo.try_reserve(1 << 60).is_err());
        fifo.try_reserve(1 << 10).expect("memory");
        for _ in 0..1 << 12 {
            fifo.push_back([1; 8]);
            fifo.push_back([2; 8]);
            fifo.skip(2);
        }
        assert_eq!(fifo.places.len(), FEWEST);
    }
}
