//! The recorder of `rnic advise`: a library that is preloaded into a program and counts how it uses
//! sockets.
//!
//! * [`hooks`]: the functions of the C library that it stands in front of. Each calls the next one
//!   of its name, and looks at what that returned.
//! * [`flow`]: what calls on one socket mean: which way bytes go, whose turn it is.
//! * [`table`]: what is known of each descriptor.
//!
//! The counts are words of a file that `rnic advise` has made (`rnic_sys::tally`). Nothing here
//! allocates, takes a lock or changes errno on the way of a call, so that signal handlers, children
//! of vfork(2) and programs that close all descriptors find everything as without it. Without
//! `RNIC_RECORD` it only passes calls on.
//!
//! What a program does past the C library is not seen: system calls of its own (Go), io_uring, and
//! sockets that stdio reads and writes: of those it only counts how many there are.

mod flow;
mod hooks;
mod table;

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use rnic_sys::tally::Tally;

/// The file, if there is one.
static FILE: OnceLock<CString> = OnceLock::new();
/// The parts of it that this process and those that it was forked from took, each behind that of its
/// parent. They stay, since threads count in them at any time.
static TALLIES: [OnceLock<Tally>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];
/// How many of them are taken: the last one is this process's, or, in a forked child that has used
/// no socket yet, its parent's.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Children of children count in a part of their own up to here, and then in their parent's.
const GENERATIONS: usize = 16;
/// One of the values below.
static STATE: AtomicU8 = AtomicU8::new(OFF);

/// Nothing is counted.
const OFF: u8 = 0;
/// The process has used no socket yet.
const IDLE: u8 = 1;
/// A thread takes a part; what others do meanwhile is not counted.
const STARTING: u8 = 2;
/// Sockets are counted.
const ON: u8 = 3;
/// A forked child that has used no socket yet: what its parent counts in is not its own.
const FORKED: u8 = 4;

#[used]
// SAFETY: the section holds pointers to functions that the loader calls, and this is one.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let Some(path) = rnic_settings::RECORD.path() else {
        return;
    };
    let Ok(path) = CString::new(path.into_os_string().into_vec()) else {
        return;
    };
    if Tally::join(&path).is_ok() && FILE.set(path).is_ok() {
        extern "C" fn nothing() {}
        // Without it children count in their parent's part.
        let _ = rnic_sys::at_fork(nothing, nothing, in_child);
        STATE.store(IDLE, Ordering::Release);
    }
}

/// A forked child has its one thread here, so nobody else changes the state meanwhile.
extern "C" fn in_child() {
    let state = match (is_on(), TAKEN.load(Ordering::Relaxed)) {
        (false, _) => OFF,
        (true, 0) => IDLE,
        (true, _) => FORKED,
    };
    STATE.store(state, Ordering::Release);
}

/// Calls are looked at.
#[inline]
fn is_on() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
}

/// Where this process counts, if it has used a socket.
#[inline]
fn counting() -> Option<&'static Tally> {
    match STATE.load(Ordering::Acquire) {
        ON => TALLIES
            .get(TAKEN.load(Ordering::Relaxed).wrapping_sub(1))?
            .get(),
        _ => None,
    }
}

/// The same; the process uses a socket now.
#[inline]
fn tally() -> Option<&'static Tally> {
    counting().or_else(start)
}

#[cold]
fn start() -> Option<&'static Tally> {
    let state = STATE.load(Ordering::Relaxed);
    if state != IDLE && state != FORKED {
        return None;
    }
    let order = Ordering::AcqRel;
    (STATE.compare_exchange(state, STARTING, order, Ordering::Relaxed)).ok()?;
    let taken = TAKEN.load(Ordering::Relaxed);
    let part = FILE.get().zip(TALLIES.get(taken));
    let part = part.and_then(|(file, place)| place.set(Tally::take(file).ok()?).ok());
    let taken = taken + usize::from(part.is_some());
    TAKEN.store(taken, Ordering::Relaxed);
    STATE.store(if taken > 0 { ON } else { OFF }, Ordering::Release);
    counting()
}
