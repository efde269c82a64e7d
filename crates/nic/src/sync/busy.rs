//! What processes of a host share, and one of them is at.

use std::time::{Duration, Instant};

use crate::error::Result;

/// Another process has it for microseconds; for longer it is stopped.
const STOPPED_HOLDER_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(100);

/// Tries again while another process is at what `attempt` needs (EBUSY), and ends with that after a
/// while. No lock is held in between.
pub(crate) fn while_busy<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(e) if e.errno() == libc::EBUSY && start.elapsed() < STOPPED_HOLDER_TIMEOUT => {
                rnic_sys::uncancelled(|| std::thread::sleep(PAUSE));
            }
            done => return done,
        }
    }
}
