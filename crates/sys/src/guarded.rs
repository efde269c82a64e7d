//! Copies from and to memory that its owner may have unmapped, or made read-only, meanwhile.
//!
//! A NIC copies to and from memory of a program that has promised to keep it. Where the promise is
//! broken, the processor faults inside the copy. As in the kernel's own copies from and to user
//! space, a handler of SIGSEGV and SIGBUS knows by the instruction's address that it was one of
//! those below, and lets it return "gone". Nothing is spent on this before a fault. Every other
//! fault is for the handler that was there before, or for nobody.
//!
//! So the instructions are written by hand, all in one range of addresses. None of them uses the
//! stack: wherever the fault is, what is left to do is to return.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::{c_int, c_void, siginfo_t};

/// Signals that tell of a fault.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// `si_code` of a memory error that nobody has run into yet.
const BUS_MCEERR_AO: c_int = 5;

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(thread_sanitizer, address_sanitizer))
))]
#[path = "guarded/by_hand.rs"]
mod access;
/// Sanitizers see no instructions that are written by hand.
#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(thread_sanitizer, address_sanitizer))
)))]
#[path = "guarded/plain.rs"]
mod access;

use access::{NOTICES, leave};

/// A word to be stored at once, after all that was stored before.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// A byte.
    Byte(u8),
    /// 4 bytes.
    Half(u32),
    /// 8 bytes.
    Whole(u64),
}

/// Copies `len` bytes, in no particular order. False: some of them were gone; others may be copied.
///
/// # Safety
/// The ranges do not overlap. `[from, from + len)` may be read and `[to, to + len)` be written, or
/// is not mapped so, and [`watch`] was called. Other threads may access both meanwhile.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: by contract.
    unsafe { access::copy(from, to, len) }
}

/// Stores a word. False: its memory was gone.
///
/// # Safety
/// The word at `to` is aligned. It may be written, or is not mapped so, and [`watch`] was called.
#[inline]
pub unsafe fn store(to: *mut u8, word: Word) -> bool {
    // SAFETY: by contract.
    unsafe { access::store(to, word) }
}

/// Adds to a word at once: what it was before; `None`: its memory was gone.
///
/// # Safety
/// As [`store`]'s.
pub unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    // SAFETY: by contract.
    unsafe { access::fetch_add(at, add) }
}

/// Replaces a word at once if it is `compare`: what it was before; `None`: its memory was gone.
///
/// # Safety
/// As [`store`]'s.
pub unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    // SAFETY: by contract.
    unsafe { access::compare_swap(at, compare, swap) }
}

/// How often a program may put a handler of its own in front of ours.
const LEVELS: usize = 4;

/// What each of our handlers found when it was set up: it goes on there.
static BEFORE: [[OnceLock<libc::sigaction>; SIGNALS.len()]; LEVELS] =
    [const { [const { OnceLock::new() }; SIGNALS.len()] }; LEVELS];

/// Handlers that were set up, of each signal.
static LEVEL: [AtomicUsize; SIGNALS.len()] = [const { AtomicUsize::new(0) }; SIGNALS.len()];

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// A function for each level: a handler of the program's that goes on with ours knows the one that
/// it had found, and that one leads on, not back.
const HANDLERS: [Handler; LEVELS] = [handle::<0>, handle::<1>, handle::<2>, handle::<3>];

/// Sees to it that faults in copies are told from others, from now on and until the program sets
/// up a handler of its own for SIGSEGV or SIGBUS. Where it has done so before, ours is put in front
/// of that one, and hands on what is not its own.
pub fn watch() {
    if !NOTICES {
        return;
    }
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (place, signal) in SIGNALS.into_iter().enumerate() {
        // SAFETY: sigaction is a plain structure, for which zeros are a valid value.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is set; the pointer is to a local value.
        if unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } != 0
            || HANDLERS
                .iter()
                .any(|ours| now.sa_sigaction == *ours as usize)
        {
            continue;
        }
        let level = LEVEL[place].load(Ordering::Relaxed);
        // Set before the handler is: it may be needed at once.
        if level == LEVELS || BEFORE[level][place].set(now).is_err() {
            continue;
        }
        let mut ours = now;
        ours.sa_sigaction = HANDLERS[level] as usize;
        ours.sa_flags = libc::SA_SIGINFO
            | libc::SA_ONSTACK
            | now.sa_flags & (libc::SA_RESTART | libc::SA_NODEFER);
        // SAFETY: the handler follows the rules for one, see there; the pointer is to a local value.
        unsafe { libc::sigaction(signal, &ours, std::ptr::null_mut()) };
        LEVEL[place].store(level + 1, Ordering::Relaxed);
    }
}

/// Calls nothing but what a signal handler may call (signal-safety(7)), and takes no lock.
unsafe extern "C" fn handle<const LEVEL: usize>(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel passes both to a handler with SA_SIGINFO.
    unsafe {
        if (*info).si_code > 0 && leave(context.cast()) {
            return;
        }
        hand_on(LEVEL, signal, info, context);
    }
}

/// Does what would have been done without us.
///
/// # Safety
/// The arguments are what the kernel passed to the handler.
unsafe fn hand_on(level: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let place = usize::from(signal == SIGNALS[1]);
    // SAFETY: by contract.
    let code = unsafe { (*info).si_code };
    let sent = code <= 0 || signal == libc::SIGBUS && code == BUS_MCEERR_AO;
    let before = BEFORE[level][place].get();
    let end_here = || {
        super::signal::set_default(signal);
        if sent {
            // It comes when the handler has returned. What a fault is, the instruction shows again.
            super::signal::raise(signal);
        }
    };
    let Some(before) = before else {
        return end_here();
    };
    match before.sa_sigaction {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => end_here(),
        function => {
            if before.sa_flags & libc::SA_RESETHAND != 0 {
                super::signal::set_default(signal);
            }
            // SAFETY: it is a handler of the kind that the flag says, which the program has set up
            // for this signal; it gets what the kernel would have passed.
            unsafe {
                if before.sa_flags & libc::SA_SIGINFO != 0 {
                    std::mem::transmute::<usize, Handler>(function)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, extern "C" fn(c_int)>(function)(signal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
