//! Files whose contents are a counter, at any time they are read.
//!
//! Programs open a counter once and read it again and again. So it is a file in memory
//! (memfd_create(2)) that is mapped here, and the numbers are stored into the mapping as the engine
//! runs: a program that reads finds the latest. That costs nothing in processes that open no
//! counter.

use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rnic_nic::PortCounters;
use rnic_sys::segment::Segment;
use rustix_futex_sync::{Mutex, MutexGuard};

use crate::system::counters::COUNTERS;

/// Length of a file: the longest number and a newline, in whole words.
const WORDS: usize = 3;

struct Live {
    counter: usize,
    fd: i32,
    text: Segment,
    value: u64,
}

/// The open counters of the process with this id.
struct Open {
    pid: u32,
    files: Vec<Live>,
}

static OPEN: Mutex<Open> = Mutex::new(Open {
    pid: 0,
    files: Vec::new(),
});

/// A fork may have left the lock taken for ever: then there are no live files.
const ORPHANED_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Unless it stays locked that long.
fn lock_soon() -> Option<MutexGuard<'static, Open>> {
    rnic_nic::within(ORPHANED_LOCK_TIMEOUT, || OPEN.try_lock())
}

/// A path by which the live file of a counter can be opened.
pub fn path(counter: usize) -> Option<CString> {
    let mut open = lock_soon()?;
    if open.pid != std::process::id() {
        // Made by the parent, which goes on writing to them. The child's copies stay open: they do
        // no harm.
        open.files.clear();
        open.pid = std::process::id();
    }
    let known = open.files.iter().find(|live| live.counter == counter);
    let fd = match known {
        Some(live) => live.fd,
        None => {
            let live = create(counter)?;
            let fd = live.fd;
            open.files.push(live);
            fd
        }
    };
    drop(open);
    rnic_nic::watch_counters(update);
    update(&rnic_nic::port_counters());
    CString::new(format!("/proc/self/fd/{fd}")).ok()
}

fn create(counter: usize) -> Option<Live> {
    let size = WORDS * size_of::<u64>();
    let (text, file) = Segment::create(size, size).ok()?;
    let live = Live {
        counter,
        // For the rest of the process: a descriptor that the program has closed since may be one
        // of its own by then.
        fd: file.give(),
        text,
        value: 0,
    };
    live.store(0);
    Some(live)
}

/// Stores what has changed.
fn update(counters: &PortCounters) {
    let Some(mut open) = lock_soon() else {
        return;
    };
    if open.pid != std::process::id() {
        return;
    }
    for live in &mut open.files {
        let value = (COUNTERS[live.counter].value)(counters);
        // Counts only grow: a smaller one was taken earlier and comes late.
        if value > live.value {
            live.value = value;
            live.store(value);
        }
    }
}

impl Live {
    /// Digits, and newlines up to the end. Without memory of the allocator: the engine's lock is
    /// held.
    fn store(&self, value: u64) {
        let mut bytes = [b'\n'; WORDS * 8];
        let count = value.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = value;
        for byte in bytes[..count].iter_mut().rev() {
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for (i, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
            self.text
                .word(8 * i)
                .store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }
}
