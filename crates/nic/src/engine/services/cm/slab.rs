//! Things by number, where the number of one that is gone finds nothing.

/// The number of a thing in a [`Slab`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// As one number.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.place)
    }

    /// Which place it is of, which no other thing has at the same time.
    pub(crate) fn place(self) -> u32 {
        self.place
    }

    pub(crate) fn from_bits(bits: u64) -> Key {
        Key {
            place: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// A table whose places are used again, under another number. The things lie apart: the table stays
/// small, and need not find much memory in one piece when it grows.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<Box<T>>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, thing: T) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[place as usize];
        slot.1 = Some(Box::new(thing));
        Key {
            place,
            generation: slot.0,
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, thing) = self.slots.get(key.place as usize)?;
        thing.as_deref().filter(|_| *generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, thing) = self.slots.get_mut(key.place as usize)?;
        thing
            .as_deref_mut()
            .filter(|_| *generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, thing) = self.slots.get_mut(key.place as usize)?;
        if *generation != key.generation {
            return None;
        }
        let thing = thing.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.place);
        Some(*thing)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// All, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let numbered = (0..).zip(&self.slots);
        numbered.filter_map(|(place, (generation, thing))| {
            let key = Key {
                place,
                generation: *generation,
            };
            Some((key, thing.as_deref()?))
        })
    }

    /// The numbers of all.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_does_not_come_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        let c = slab.insert('c');
        assert_eq!(Key::from_bits(c.to_bits()), c);
        assert_eq!(
            (slab.get(a), slab.get(b), slab.get(c)),
            (None, Some(&'b'), Some(&'c'))
        );
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.keys(), [c, b]);
    }
}
