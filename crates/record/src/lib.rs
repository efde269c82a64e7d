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
//! sockets that stdio reads and writes.

mod flow;
mod hooks;
mod table;

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rnic_sys::tally::Tally;

/// The file, if there is one.
static FILE: OnceLock<CString> = OnceLock::new();
/// This process's part of it.
static TALLY: OnceLock<Tally> = OnceLock::new();
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
        STATE.store(IDLE, Ordering::Release);
    }
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
        ON => TALLY.get(),
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
    let order = Ordering::AcqRel;
    (STATE.compare_exchange(IDLE, STARTING, order, Ordering::Relaxed)).ok()?;
    let taken = FILE.get().and_then(|file| Tally::take(file).ok());
    let state = match taken.map(|tally| TALLY.set(tally)) {
        Some(Ok(())) => ON,
        _ => OFF,
    };
    STATE.store(state, Ordering::Release);
    TALLY.get()
}
