//! Memory for when the system has none left.
//!
//! Small allocations are everywhere, also in the standard library, and most of them cannot fail:
//! without memory the process would be aborted. A library that does not own its process may not do
//! that. So the shared library has this allocator ([`Reserve`]): the system's, and behind it some
//! blocks that were taken before.
//!
//! * Whoever makes an object asks [`begin`] first. It gives ENOMEM unless most of the reserve is
//!   free.
//! * If that thread took anything from the reserve meanwhile ([`Begun::has_drawn`]), memory is
//!   short: the object is destroyed again, and the verb fails with ENOMEM. So no object lies in the
//!   reserve, and one object fewer is room for another one.
//! * What is not the making of an object (sending, receiving, destroying) may draw from it.
//!
//! What grows with what a program asks for is not left to the reserve: it is allocated in ways that
//! can fail, where it is made, and before it is needed.
//!
//! The blocks are of few sizes, and a bit says that one is taken, so that there is no lock: a
//! thread may be in the middle of this when another one forks, or when a signal's handler does. A
//! block costs address space only, until it is used.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// Blocks of one size.
struct Class {
    size: usize,
    count: usize,
}

const fn class(size: usize, count: usize) -> Class {
    Class { size, count }
}

const KIB: usize = 1024;

/// In order. Each size is a power of two, and the blocks of a class begin at a page.
const CLASSES: [Class; 8] = [
    class(64, 4096),
    class(256, 2048),
    class(KIB, 1024),
    class(4 * KIB, 128),
    class(16 * KIB, 32),
    class(64 * KIB, 16),
    class(256 * KIB, 8),
    class(1024 * KIB, 2),
];

const PAGE: usize = 4096;

/// Bits of one word.
const BITS: usize = 64;

/// Words of all classes.
const WORDS: usize = words_before(CLASSES.len());

const fn words_before(class: usize) -> usize {
    let (mut words, mut at) = (0, 0);
    while at < class {
        words += CLASSES[at].count.div_ceil(BITS);
        at += 1;
    }
    words
}

/// Where the blocks of a class begin.
const fn offset(class: usize) -> usize {
    let (mut bytes, mut at) = (size_of::<Arena>().next_multiple_of(PAGE), 0);
    while at < class {
        bytes += CLASSES[at].size * CLASSES[at].count;
        at += 1;
    }
    bytes
}

const ARENA_LEN: usize = offset(CLASSES.len());

/// The beginning of a mapping of [`ARENA_LEN`] bytes, which holds one set of blocks.
struct Arena {
    /// Of each block: it is taken.
    taken: [AtomicU64; WORDS],
}

/// More than one only if what was drawn stays taken.
const ARENAS: usize = 8;

static ARENA: [AtomicPtr<Arena>; ARENAS] = [const { AtomicPtr::new(null_mut()) }; ARENAS];

/// No block lies outside of these addresses.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Blocks of each class that are taken, in all arenas.
static TAKEN: [AtomicU32; CLASSES.len()] = [const { AtomicU32::new(0) }; CLASSES.len()];

/// How often threads drew. Threads share a counter if their numbers meet; then one learns of what
/// another one did, and gives up an object that it could have had.
static DRAWN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn drawn() -> &'static AtomicU32 {
    // Not a variable of the thread's: its memory may have to be allocated.
    let mark = rnic_sys::thread_mark() as u64;
    &DRAWN[(mark.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
}

/// The arenas there are.
fn arenas() -> impl Iterator<Item = NonNull<Arena>> {
    ARENA
        .iter()
        .map_while(|arena| NonNull::new(arena.load(Ordering::Acquire)))
}

/// One set of blocks more, unless there are as many as can be; false: there is no memory for it.
fn add_arena() -> bool {
    let Some(place) = ARENA
        .iter()
        .find(|arena| arena.load(Ordering::Acquire).is_null())
    else {
        return false;
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), ARENA_LEN, rights, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return false;
    }
    // A large page would be memory that nobody needs.
    // SAFETY: the own mapping; no contents change.
    unsafe { libc::madvise(at, ARENA_LEN, libc::MADV_NOHUGEPAGE) };
    LOWEST.fetch_min(at.addr(), Ordering::AcqRel);
    HIGHEST.fetch_max(at.addr() + ARENA_LEN, Ordering::AcqRel);
    // Zeros are an arena whose blocks are all free.
    let mine = at.cast::<Arena>();
    let placed = place.compare_exchange(null_mut(), mine, Ordering::AcqRel, Ordering::Acquire);
    if placed.is_err() {
        // SAFETY: the own mapping, which nobody has seen.
        unsafe { libc::munmap(at, ARENA_LEN) };
    }
    true
}

/// The class whose blocks are fit for that; `None`: it is too large.
fn class_for(layout: Layout) -> Option<usize> {
    if layout.align() > PAGE {
        return None;
    }
    let size = layout.size().max(layout.align());
    CLASSES.iter().position(|class| class.size >= size)
}

/// Takes a block of the class.
fn take_of(arena: NonNull<Arena>, class: usize) -> Option<*mut u8> {
    let first = words_before(class);
    let Class { size, count } = CLASSES[class];
    // SAFETY: an arena is never unmapped, and consists of atomics.
    let words = unsafe { &arena.as_ref().taken[first..first + count.div_ceil(BITS)] };
    for (at, word) in words.iter().enumerate() {
        let there = match count - at * BITS {
            few if few < BITS => (1 << few) - 1,
            _ => u64::MAX,
        };
        loop {
            let free = !word.load(Ordering::Relaxed) & there;
            if free == 0 {
                break;
            }
            let bit = free & free.wrapping_neg();
            if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                TAKEN[class].fetch_add(1, Ordering::AcqRel);
                let index = at * BITS + bit.trailing_zeros() as usize;
                let block = offset(class) + index * size;
                // SAFETY: within the arena's mapping.
                return Some(unsafe { arena.as_ptr().cast::<u8>().add(block) });
            }
        }
    }
    None
}

/// A block for that, a larger one if all fitting ones are taken; NULL if there is none.
#[cold]
fn draw(layout: Layout) -> *mut u8 {
    let Some(fitting) = class_for(layout) else {
        return null_mut();
    };
    drawn().fetch_add(1, Ordering::AcqRel);
    (fitting..CLASSES.len())
        .find_map(|class| arenas().find_map(|arena| take_of(arena, class)))
        .unwrap_or(null_mut())
}

/// It may be a block of ours.
#[inline]
fn may_own(block: *mut u8) -> bool {
    block.addr() < HIGHEST.load(Ordering::Acquire) && block.addr() >= LOWEST.load(Ordering::Acquire)
}

/// The arena, class and number of a block of ours.
#[cold]
fn locate(block: *mut u8) -> Option<(NonNull<Arena>, usize, usize)> {
    let arena = arenas().find(|arena| {
        let start = arena.addr().get();
        (start..start + ARENA_LEN).contains(&block.addr())
    })?;
    let at = block.addr() - arena.addr().get();
    let class = CLASSES
        .iter()
        .enumerate()
        .rposition(|(class, _)| offset(class) <= at)?;
    Some((arena, class, (at - offset(class)) / CLASSES[class].size))
}

/// A block is free again.
#[cold]
fn give_back((arena, class, index): (NonNull<Arena>, usize, usize)) {
    // SAFETY: an arena is never unmapped, and consists of atomics.
    let word = unsafe { &arena.as_ref().taken[words_before(class) + index / BITS] };
    word.fetch_and(!(1 << (index % BITS)), Ordering::AcqRel);
    TAKEN[class].fetch_sub(1, Ordering::AcqRel);
}

/// The system's allocator with the reserve behind it, for a `#[global_allocator]`. It uses the
/// reserve once there is one: from the first [`begin`] on.
#[derive(Debug)]
pub struct Reserve;

// SAFETY: blocks are the system's, or of an arena: aligned to their size or a page, disjoint, and
// given out once until they come back. Nothing here unwinds.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { draw(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let mut block = unsafe { System.alloc_zeroed(layout) };
        if block.is_null() {
            block = draw(layout);
            if !block.is_null() {
                // SAFETY: a block has at least the size that was asked for.
                unsafe { block.write_bytes(0, layout.size()) };
            }
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if may_own(block)
            && let Some(ours) = locate(block)
        {
            return give_back(ours);
        }
        // SAFETY: it is none of ours, so the system's; the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let ours = may_own(block).then(|| locate(block)).flatten();
        if ours.is_none() {
            // SAFETY: the system's; the caller's contract.
            let moved = unsafe { System.realloc(block, layout, new_size) };
            if !moved.is_null() {
                return moved;
            }
        }
        if let Some((_, class, _)) = ours
            && new_size <= CLASSES[class].size
        {
            return block;
        }
        // SAFETY: the new size, rounded up to the alignment, is no overflow: the caller's contract.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the caller's contract; the old block is as long as its layout says, and stays if
        // there is no new one.
        unsafe {
            let moved = match ours {
                Some(_) => self.alloc(new),
                None => draw(new),
            };
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

/// The making of an object.
#[derive(Debug)]
pub struct Begun(u32);

impl Begun {
    /// This thread has drawn from the reserve since: memory is short.
    pub fn has_drawn(&self) -> bool {
        drawn().load(Ordering::Acquire) != self.0
    }
}

/// Of each class at least half a set of blocks is free.
fn is_filled() -> bool {
    let sets = arenas().count();
    let filled = |(class, taken): (&Class, &AtomicU32)| {
        class.count * sets >= taken.load(Ordering::Acquire) as usize + class.count.div_ceil(2)
    };
    sets > 0 && CLASSES.iter().zip(&TAKEN).all(filled)
}

/// An object is about to be made.
///
/// # Errors
/// ENOMEM: the reserve is not full enough, and there is no memory to fill it.
pub fn begin(verb: &'static str) -> Result<Begun> {
    if is_filled() || (add_arena() && is_filled()) {
        Ok(Begun(drawn().load(Ordering::Acquire)))
    } else {
        Err(Error::new(verb, libc::ENOMEM, NO_MEMORY))
    }
}

/// Memory is so short that what can be left undone is: most of the reserve is in use. Never in a
/// process that has none.
pub(crate) fn is_short() -> bool {
    LOWEST.load(Ordering::Relaxed) != usize::MAX && !is_filled()
}

/// Why a verb fails with ENOMEM.
pub const NO_MEMORY: &str = "no memory is left";

#[cfg(test)]
mod tests;
