//! Bytes that others may change at any time: by which atomic accesses the program reads and writes
//! them.
//!
//! Rust's memory model, like that of C++, has no atomic accesses of different sizes to the same
//! bytes. So each byte is always accessed in one way, which its address decides: as part of an
//! aligned word of eight bytes where the whole word is ours, else by itself.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = 8;

/// A range of such bytes.
#[derive(Clone, Copy)]
pub(super) struct Changing<'a> {
    first: NonNull<u8>,
    len: usize,
    /// Bytes in front of the first whole word.
    head: usize,
    lives: PhantomData<&'a AtomicU64>,
}

/// A part of a range that is accessed in one way.
enum Piece {
    /// The byte there.
    Byte,
    /// These bytes of that word.
    Part(usize, Range<usize>),
    /// That word, and as many in all.
    Words(usize, usize),
}

impl<'a> Changing<'a> {
    /// # Safety
    /// The bytes are initialised, and valid for reads and writes as long as `'a`. The program reaches
    /// them by values of this type for the very same range alone; what else changes them is no part
    /// of the program.
    pub(super) unsafe fn new(first: NonNull<u8>, len: usize) -> Changing<'a> {
        let head = first.as_ptr().align_offset(WORD).min(len);
        Changing {
            first,
            len,
            head,
            lives: PhantomData,
        }
    }

    /// Whole words.
    fn words(&self) -> usize {
        (self.len - self.head) / WORD
    }

    /// Word `index` of the whole ones.
    fn at_word(&self, index: usize) -> &'a AtomicU64 {
        assert!(index < self.words(), "word {index} of {}", self.words());
        // SAFETY: within the range, aligned (`head` ends at a multiple), alive as long as `'a`, and
        // always accessed so.
        unsafe { AtomicU64::from_ptr(self.first.as_ptr().add(self.head + index * WORD).cast()) }
    }

    /// The byte at `offset`, which is in no whole word.
    fn at_byte(&self, offset: usize) -> &'a AtomicU8 {
        assert!(offset < self.len, "byte {offset} of {}", self.len);
        // SAFETY: within the range, alive as long as `'a`, and always accessed so.
        unsafe { AtomicU8::from_ptr(self.first.as_ptr().add(offset)) }
    }

    /// The word at `offset`; `None`: it is not aligned, or not all within the range.
    pub(super) fn word(&self, offset: usize) -> Option<&'a AtomicU64> {
        let within = offset.checked_sub(self.head)?;
        let index = within / WORD;
        (within.is_multiple_of(WORD) && index < self.words()).then(|| self.at_word(index))
    }

    /// What comes first of `len` bytes at `offset`, and how many bytes it has.
    fn piece(&self, offset: usize, len: usize) -> (Piece, usize) {
        let words_end = self.head + self.words() * WORD;
        if offset < self.head || offset >= words_end {
            return (Piece::Byte, 1);
        }
        let (index, skip) = ((offset - self.head) / WORD, (offset - self.head) % WORD);
        if skip == 0 && len >= WORD {
            let count = (len / WORD).min(self.words() - index);
            return (Piece::Words(index, count), count * WORD);
        }
        let bytes = len.min(WORD - skip);
        (Piece::Part(index, skip..skip + bytes), bytes)
    }

    /// Copies out, relaxed.
    ///
    /// # Panics
    /// If it leaves the range.
    pub(super) fn copy_out(&self, mut offset: usize, mut into: &mut [u8]) {
        while !into.is_empty() {
            let (piece, bytes) = self.piece(offset, into.len());
            let (now, rest) = into.split_at_mut(bytes);
            match piece {
                Piece::Byte => now[0] = self.at_byte(offset).load(Ordering::Relaxed),
                Piece::Part(index, part) => {
                    let word = self.at_word(index).load(Ordering::Relaxed);
                    now.copy_from_slice(&word.to_ne_bytes()[part]);
                }
                Piece::Words(index, count) => {
                    let words = (index..index + count).map(|index| self.at_word(index));
                    for (bytes, word) in now.chunks_exact_mut(WORD).zip(words) {
                        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
                    }
                }
            }
            (offset, into) = (offset + bytes, rest);
        }
    }

    /// Copies in, relaxed. Of a word that is written in part, what others write to the rest of it
    /// meanwhile stays.
    ///
    /// # Panics
    /// If it leaves the range.
    pub(super) fn copy_in(&self, mut offset: usize, mut from: &[u8]) {
        while !from.is_empty() {
            let (piece, bytes) = self.piece(offset, from.len());
            let (now, rest) = from.split_at(bytes);
            match piece {
                Piece::Byte => self.at_byte(offset).store(now[0], Ordering::Relaxed),
                Piece::Part(index, part) => {
                    let word = self.at_word(index);
                    let set = |old: u64| {
                        let mut whole = old.to_ne_bytes();
                        whole[part.clone()].copy_from_slice(now);
                        Some(u64::from_ne_bytes(whole))
                    };
                    // It never refuses.
                    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
                }
                Piece::Words(index, count) => {
                    let words = (index..index + count).map(|index| self.at_word(index));
                    for (bytes, word) in now.chunks_exact(WORD).zip(words) {
                        let mut value = [0; WORD];
                        value.copy_from_slice(bytes);
                        word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
                    }
                }
            }
            (offset, from) = (offset + bytes, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: wherever a range begins and ends, and whatever part of it is copied, exactly those
    /// bytes are read and written.
    #[test]
    fn every_part_of_every_range_is_copied_exactly() {
        let old: Vec<u8> = (0..40).collect();
        for start in 0..9 {
            for len in 0..25 {
                for offset in 0..=len {
                    for count in 0..=len - offset {
                        let mut memory = old.clone();
                        let first = NonNull::from(&mut memory[start..]).cast();
                        // SAFETY: alive, and nobody else's until it is dropped.
                        let changing = unsafe { Changing::new(first, len) };
                        let mut out = vec![0; count];
                        changing.copy_out(offset, &mut out);
                        let from = start + offset;
                        assert_eq!(out, old[from..from + count]);
                        changing.copy_in(offset, &vec![0xff; count]);
                        let mut expected = old.clone();
                        expected[from..from + count].fill(0xff);
                        assert_eq!(memory, expected, "{start} {len} {offset} {count}");
                    }
                }
            }
        }
    }

    /// Promise: two threads that write neighbouring bytes of one word lose nothing.
    #[test]
    fn neighbours_in_a_word_do_not_undo_each_other() {
        let mut memory = [0u64; 1];
        let first = NonNull::from(&mut memory).cast();
        // SAFETY: alive, and nobody else's until it is dropped.
        let changing = unsafe { Changing::new(first, 8) };
        let word = changing.word(0).expect("aligned");
        std::thread::scope(|scope| {
            for half in [0, 4] {
                scope.spawn(move || {
                    let first = NonNull::from(word).cast();
                    // SAFETY: the same range, which lives.
                    let changing = unsafe { Changing::new(first, 8) };
                    for round in 0..50_000u32 {
                        changing.copy_in(half, &round.to_ne_bytes());
                        let mut seen = [0; 4];
                        changing.copy_out(half, &mut seen);
                        assert_eq!(u32::from_ne_bytes(seen), round);
                    }
                });
            }
        });
    }

    /// Promise: only whole words of the range are words.
    #[test]
    fn words_are_aligned_and_within() {
        let mut memory = [0u64; 3];
        let first: NonNull<u8> = NonNull::from(&mut memory).cast();
        // SAFETY: the array has 24 bytes.
        let odd = unsafe { first.add(4) };
        // SAFETY: alive, and nobody else's until it is dropped.
        let changing = unsafe { Changing::new(odd, 19) };
        let words: Vec<usize> = (0..24).filter(|at| changing.word(*at).is_some()).collect();
        assert_eq!(words, [4]);
    }
}
