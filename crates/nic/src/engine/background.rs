//! The background thread: the engine's driver while the application does not poll.
//!
//! It sleeps in ppoll(2). While the application is idle, the receive socket is in its set and a packet wakes it at once
//! (*armed*). While the application polls, a woken thread would only find the packet gone and cost both sides
//! microseconds; so after some needless wake-ups it leaves the socket out of its set and only looks once per
//! millisecond whether the application still polls (*watching*).

use std::cell::Cell;
use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::drive::Acks;
use super::nic::NicShared;
use super::port::PortWatch;
use super::wakeup::{Bell, Wakeup};
use crate::error::{Error, Result};
use crate::sys::{self, EventFd};

/// How often a watching thread looks whether the application still polls.
const TICK: Duration = Duration::from_millis(1);
/// Needless wake-ups, less what useful ones earn, after which the thread leaves the socket alone.
const NEEDLESS: i32 = 16;
/// What one useful wake-up is worth.
const USEFUL: i32 = 4;
/// What finding packets late is worth, at first and at most: a thread that watched although it was needed stays armed for
/// so many wake-ups. It doubles each time, since a program that polls now and then does so again; an application that was
/// just kept from its core soon gets the engine back.
const LATE: std::ops::RangeInclusive<i32> = 64..=4096;
/// So many packets in one round are a stream, of which more is on its way.
const STREAM: usize = 8;
/// How long a stream is waited for awake: to wake a sleeping thread costs the sender more than a batch of packets.
const LINGER_NS: u64 = 30_000;
/// Ticks of undisturbed watching after which all lateness is forgotten.
const FORGET: u32 = 50;

/// The background thread as the application's threads see it.
pub(super) struct Background {
    pub(super) wakeup: Wakeup<EventFd>,
    stop: AtomicBool,
    /// Threads of the application that rest on the receive socket between two polls.
    resting: AtomicU32,
    crowd: Crowd,
    thread: parking_lot::Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Bell for EventFd {
    fn ring(&self) {
        self.add(1);
    }

    fn silence(&self) {
        self.try_take();
    }
}

impl Background {
    pub(super) fn new() -> std::io::Result<Background> {
        Ok(Background {
            wakeup: Wakeup::new(EventFd::new()?),
            stop: AtomicBool::new(false),
            resting: AtomicU32::new(0),
            crowd: Crowd::new(),
            thread: parking_lot::Mutex::new(None),
        })
    }
}

/// Starts the thread with all signals blocked, so that the application's handlers run in its own threads.
pub(super) fn start(shared: &Arc<NicShared>) -> Result<()> {
    let mine = shared.clone();
    // From here on no change of the addresses is missed.
    let watch = PortWatch::open();
    let spawned = sys::with_signals_blocked(|| {
        std::thread::Builder::new()
            .name("rnic".into())
            .stack_size(256 * 1024)
            .spawn(move || {
                sys::become_background_thread();
                run(&mine, watch);
            })
    });
    match spawned {
        Ok(thread) => {
            *shared.background.thread.lock() = Some(thread);
            Ok(())
        }
        Err(e) => Err(Error::new(
            "ibv_open_device",
            e.raw_os_error().unwrap_or(libc::EAGAIN),
            format!("cannot start the background thread: {e}"),
        )),
    }
}

/// Stops the thread and waits for it.
pub(super) fn stop(shared: &NicShared) {
    shared.background.stop.store(true, Ordering::Release);
    shared.background.wakeup.ring();
    let thread = shared.background.thread.lock().take();
    // The last handle may go on the thread itself; then there is nobody to wait for.
    if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
        // The thread does not panic; if it did, there is nobody left to tell.
        let _ = thread.join();
    }
}

fn run(shared: &NicShared, mut port: PortWatch) {
    let state = &shared.background;
    let (rx, wake, doors) = {
        let engine = shared.engine.lock();
        let link = &engine.link;
        (link.rx_fd(), link.wake_fd(), link.door_fds())
    };
    let mut score = 0;
    let mut lateness = *LATE.start();
    let mut calm_ticks = 0;
    let mut last_polls = shared.polls.load(Ordering::Relaxed);
    let mut maintain_at = 0;
    while !state.stop.load(Ordering::Acquire) {
        shared.cq_tasks.let_go();
        let watching = state.wakeup.is_watching();
        let (work, deadline, patient) = {
            let mut engine = shared.engine.lock();
            let now = sys::now_ns();
            if now >= maintain_at {
                maintain_at = now.saturating_add(engine.link.maintain(now));
            }
            let wake_at = engine.next_deadline().unwrap_or(u64::MAX).min(maintain_at);
            state.wakeup.will_sleep(wake_at);
            let patient = engine.patience.is_waiting();
            // What waits for receives is no work.
            let arrived = !watching && engine.link.fall_asleep() && !patient;
            (!engine.ready.is_empty() || arrived, wake_at, patient)
        };
        let bell = state.wakeup.bell().fd();
        let mut fds = match (patient, watching) {
            // What waits for receives would wake the thread over and over.
            (true, _) => vec![bell],
            (false, watching) => wait_set(bell, [rx, wake], &doors, watching),
        };
        fds.push(port.fd());
        let ready = sleep(&fds, work && !watching, deadline, watching);
        let asked = state.wakeup.woke(ready[0]);
        if ready.get(fds.len() - 1) == Some(&true) {
            port.look(shared);
        }
        let polls = shared.polls.load(Ordering::Relaxed);
        let application_polls = polls != last_polls;
        last_polls = polls;

        if watching {
            if application_polls && !asked && !neglected(shared, rx) {
                // The application drives; only what it never looks at is left to do here.
                if let Some(mut engine) = shared.engine.try_lock() {
                    let now = sys::now_ns();
                    let doors = ready.get(1..fds.len() - 1).unwrap_or_default();
                    if engine.next_deadline().is_some_and(|at| at <= now) || doors.contains(&true) {
                        engine.round(true);
                    } else {
                        engine.send_out(Acks::Leave);
                    }
                }
                calm_ticks += 1;
                if calm_ticks == FORGET {
                    lateness = *LATE.start();
                }
                continue;
            }
            calm_ticks = 0;
            state.wakeup.watch(false);
            let late = {
                let mut engine = shared.engine.lock();
                engine.link.leave_to_polling(false);
                engine.round(true) > 0
            };
            score = 0;
            if late && !asked {
                score = -lateness;
                lateness = (2 * lateness).min(*LATE.end());
            }
            continue;
        }
        let rests = state.resting.load(Ordering::Relaxed) > 0;
        // Whoever has the engine now is the application, and would have found the packet at its next look.
        let (received, contended) = match shared.engine.try_lock() {
            Some(mut engine) => (engine.round(true), false),
            None => (shared.engine.lock().round(true), true),
        };
        if received >= STREAM {
            linger(shared);
        }
        if (ready[1] || ready[2]) && fds.contains(&rx) {
            // An application that polls would have found the packet itself, even if this thread was quicker.
            if application_polls || contended || rests {
                score += 1;
            } else if received > 0 {
                score = (score - USEFUL).max(-*LATE.end());
            }
            if score > NEEDLESS {
                shared.engine.lock().link.leave_to_polling(true);
                state.wakeup.watch(true);
                score = 0;
            }
        }
    }
}

/// Drives the engine as long as a stream goes on.
fn linger(shared: &NicShared) {
    let mut last = sys::now_ns();
    while !shared.background.stop.load(Ordering::Relaxed) {
        let received = shared.engine.lock().round(false);
        let now = sys::now_ns();
        if received > 0 {
            last = now;
        } else if now - last > LINGER_NS {
            return;
        }
        // Whoever wants the lock meanwhile gets it.
        std::hint::spin_loop();
    }
}

/// Packets wait and the application, although it polled since the last look, leaves them: it polls now and then only, as
/// one does that waits for bytes of its memory to change.
fn neglected(shared: &NicShared, rx: RawFd) -> bool {
    /// This thread may have taken the core from the very thread that polls: it gives it back before it judges.
    const PATIENCE: Duration = Duration::from_micros(100);
    let waiting = || {
        sys::poll(&[rx], Some(Duration::ZERO)).is_ok_and(|r| r[0])
            // Whoever has the engine takes in what has arrived.
            || shared
                .engine
                .try_lock()
                .is_some_and(|engine| engine.link.has_arrivals())
    };
    if !waiting() {
        return false;
    }
    let polls = shared.polls.load(Ordering::Relaxed);
    // Waits on nothing, for so long.
    let _ = sys::poll(&[], Some(PATIENCE));
    shared.polls.load(Ordering::Relaxed) == polls && waiting()
}

/// The bell first, then what packets arrive by if it is to wake the thread.
fn wait_set(bell: RawFd, packets: [RawFd; 2], doors: &[RawFd], watching: bool) -> Vec<RawFd> {
    let mut fds = vec![bell];
    if !watching {
        fds.extend(packets);
    }
    fds.extend(doors);
    fds
}

fn sleep(fds: &[RawFd], work: bool, deadline: u64, watching: bool) -> [bool; 8] {
    let mut timeout = if work {
        Some(Duration::ZERO)
    } else if deadline == u64::MAX {
        None
    } else {
        Some(Duration::from_nanos(deadline.saturating_sub(sys::now_ns())))
    };
    if watching {
        timeout = Some(timeout.map_or(TICK, |t| t.min(TICK)));
    }
    sys::poll(fds, timeout).unwrap_or([false; 8])
}

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
struct Crowd {
    loadavg: Option<File>,
    cores: usize,
}

impl Crowd {
    fn new() -> Crowd {
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
