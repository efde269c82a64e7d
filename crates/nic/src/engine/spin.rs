//! What a thread does that polls in vain.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::nic::NicShared;
use crate::sys;

/// Empty polls between two looks at the clock.
const LOOK_EVERY: u32 = 16;
/// How long an application may poll in vain before it is asked whether others need its core.
const SPIN_NS: u64 = 50_000;
/// How long it then waits for a packet before it polls again.
const REST: Duration = Duration::from_micros(200);

/// What a thread's polls found lately.
#[derive(Clone, Copy, Default)]
struct Vain {
    polls: u32,
    /// Since when nothing was found; 0: not looked at the clock yet.
    since: u64,
    /// Involuntary context switches at the last look.
    switches: i64,
}

thread_local! {
    static VAIN: Cell<Vain> = const { Cell::new(Vain { polls: 0, since: 0, switches: 0 }) };
}

/// Spinning is right while cores are free. Where they are not, a thread that spins in vain takes the core from others,
/// perhaps from the very peer it waits for: after a while it sleeps on the socket for a moment instead.
pub(super) fn spin_or_rest(shared: &NicShared, found: bool) {
    let mut vain = VAIN.get();
    if found {
        if vain.polls != 0 || vain.since != 0 {
            VAIN.set(Vain {
                polls: 0,
                since: 0,
                ..vain
            });
        }
        return;
    }
    vain.polls += 1;
    if vain.polls.is_multiple_of(LOOK_EVERY) {
        let now = sys::now_ns();
        if vain.since == 0 {
            vain.since = now;
        } else if now - vain.since > SPIN_NS {
            let switches = sys::involuntary_switches();
            let preempted = switches > vain.switches;
            vain.switches = switches;
            vain.since = now;
            if preempted || shared.background.crowd.cores_are_short() {
                rest(shared);
                // Still in vain: the next look comes after the next few polls, not after a whole spin.
                vain.since = now.saturating_sub(SPIN_NS);
            }
        }
    }
    VAIN.set(vain);
}

fn rest(shared: &NicShared) {
    let (rx, wake) = {
        let Some(mut engine) = shared.engine.try_lock() else {
            return;
        };
        if !engine.ready.is_empty() || engine.link.fall_asleep() {
            return;
        }
        (engine.link.rx_fd(), engine.link.wake_fd())
    };
    // An interrupted or failed wait is as good as none.
    let resting = &shared.background.resting;
    resting.fetch_add(1, Ordering::Relaxed);
    let ready = sys::poll(&[rx, wake], Some(REST));
    resting.fetch_sub(1, Ordering::Relaxed);
    // What woke it stays readable until it is seen to, which a round of polling does not.
    if ready.is_ok_and(|ready| ready[1])
        && let Some(mut engine) = shared.engine.try_lock()
    {
        engine.round(true);
    }
}

/// Whether more threads want to run on this machine than it has cores.
pub(super) struct Crowd {
    loadavg: Option<File>,
    cores: usize,
}

impl Crowd {
    pub(super) fn new() -> Crowd {
        Crowd {
            loadavg: File::open("/proc/loadavg").ok(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }

    fn cores_are_short(&self) -> bool {
        let mut text = [0u8; 64];
        let mut look = |file: &File| sys::uncancelled(|| file.read_at(&mut text, 0).ok());
        let Some(n) = self.loadavg.as_ref().and_then(&mut look) else {
            return false;
        };
        running(&text[..n]).is_some_and(|running| running > self.cores)
    }
}

/// The threads that run or want to: the number before the slash in /proc/loadavg (proc_loadavg(5)).
fn running(loadavg: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(loadavg).ok()?;
    let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
mod tests {
    //! Reading the scheduler's figures.

    #[test]
    fn the_number_of_running_threads_is_found() {
        assert_eq!(super::running(b"0.50 1.25 2.00 3/412 31337\n"), Some(3));
        assert_eq!(super::running(b"0.50 1.25"), None);
        assert_eq!(super::running(b"\xff\xff"), None);
    }
}
