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

use libc::{c_int, c_void, siginfo_t, ucontext_t};

/// Signals that tell of a fault.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// `si_code` of a memory error that nobody has run into yet.
const BUS_MCEERR_AO: c_int = 5;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(include_str!("guarded/x86_64.s"));
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(include_str!("guarded/aarch64.s"));

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod by_hand {
    unsafe extern "C" {
        pub(super) fn rnic_guarded_copy(to: *mut u8, from: *const u8, len: usize) -> u32;
        #[cfg(target_arch = "x86_64")]
        pub(super) fn rnic_guarded_copy_avx(to: *mut u8, from: *const u8, len: usize) -> u32;
        pub(super) fn rnic_guarded_store_1(to: *mut u8, value: u8) -> u32;
        pub(super) fn rnic_guarded_store_4(to: *mut u8, value: u32) -> u32;
        pub(super) fn rnic_guarded_store_8(to: *mut u8, value: u64) -> u32;
        pub(super) fn rnic_guarded_add(at: *mut u64, add: u64, before: &mut u64) -> u32;
        pub(super) fn rnic_guarded_swap(
            at: *mut u64,
            compare: u64,
            swap: u64,
            before: &mut u64,
        ) -> u32;
        /// Begin and end of all of these, and where one goes on that met a fault. None is called.
        pub(super) safe static rnic_guarded_begin: u8;
        pub(super) safe static rnic_guarded_end: u8;
        pub(super) safe static rnic_guarded_gone: u8;
    }
}

/// Copies `len` bytes, in no particular order. False: some of them were gone; others may be copied.
///
/// # Safety
/// The ranges do not overlap. `[from, from + len)` may be read and `[to, to + len)` be written, or
/// is not mapped so, and [`watch`] was called. Other threads may access both meanwhile.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if len >= 128 && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: by contract; the processor has the instructions.
        return unsafe { by_hand::rnic_guarded_copy_avx(to, from, len) } != 0;
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: by contract.
    return unsafe { by_hand::rnic_guarded_copy(to, from, len) } != 0;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        // SAFETY: by contract; a fault ends the process.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        true
    }
}

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

/// Stores a word. False: its memory was gone.
///
/// # Safety
/// The word at `to` is aligned. It may be written, or is not mapped so, and [`watch`] was called.
#[inline]
pub unsafe fn store(to: *mut u8, word: Word) -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: by contract.
    unsafe {
        let stored = match word {
            Word::Byte(value) => by_hand::rnic_guarded_store_1(to, value),
            Word::Half(value) => by_hand::rnic_guarded_store_4(to, value),
            Word::Whole(value) => by_hand::rnic_guarded_store_8(to, value),
        };
        stored != 0
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
        // SAFETY: by contract; a fault ends the process.
        unsafe {
            match word {
                Word::Byte(value) => AtomicU8::from_ptr(to).store(value, Ordering::Release),
                Word::Half(value) => AtomicU32::from_ptr(to.cast()).store(value, Ordering::Release),
                Word::Whole(value) => {
                    AtomicU64::from_ptr(to.cast()).store(value, Ordering::Release);
                }
            }
        }
        true
    }
}

/// Adds to a word at once: what it was before; `None`: its memory was gone.
///
/// # Safety
/// As [`store`]'s.
pub unsafe fn fetch_add(at: *mut u64, add: u64) -> Option<u64> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut before = 0;
        // SAFETY: by contract; `before` is ours.
        let done = unsafe { by_hand::rnic_guarded_add(at, add, &mut before) } != 0;
        done.then_some(before)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    // SAFETY: by contract; a fault ends the process.
    unsafe {
        use std::sync::atomic::AtomicU64;
        Some(AtomicU64::from_ptr(at).fetch_add(add, Ordering::AcqRel))
    }
}

/// Replaces a word at once if it is `compare`: what it was before; `None`: its memory was gone.
///
/// # Safety
/// As [`store`]'s.
pub unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> Option<u64> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut before = 0;
        // SAFETY: by contract; `before` is ours.
        let done = unsafe { by_hand::rnic_guarded_swap(at, compare, swap, &mut before) } != 0;
        done.then_some(before)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    // SAFETY: by contract; a fault ends the process.
    unsafe {
        use std::sync::atomic::AtomicU64;
        let cell = AtomicU64::from_ptr(at);
        let swapped = cell.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
        Some(swapped.unwrap_or_else(|seen| seen))
    }
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
    if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
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
        if (*info).si_code > 0 && leave_copy(context.cast()) {
            return;
        }
        hand_on(LEVEL, signal, info, context);
    }
}

/// If a copy met the fault, lets it go on where it returns.
///
/// # Safety
/// `context` is what the kernel passed to the handler.
unsafe fn leave_copy(context: *mut ucontext_t) -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        use by_hand::{rnic_guarded_begin, rnic_guarded_end, rnic_guarded_gone};
        let begin = &raw const rnic_guarded_begin as usize;
        let end = &raw const rnic_guarded_end as usize;
        let gone = &raw const rnic_guarded_gone as usize;
        // SAFETY: by contract, and nobody else has it now.
        let mcontext = unsafe { &mut (*context).uc_mcontext };
        #[cfg(target_arch = "x86_64")]
        let at = &mut mcontext.gregs[libc::REG_RIP as usize];
        #[cfg(target_arch = "aarch64")]
        let at = &mut mcontext.pc;
        let ours = (begin..end).contains(&(*at as usize));
        if ours {
            *at = gone as _;
        }
        ours
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        false
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
