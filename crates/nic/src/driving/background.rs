//! The background thread: the engine's driver while the application does not poll.
//!
//! It sleeps in ppoll(2). While the application is idle, the receive socket is in its set and a
//! packet wakes it at once (*armed*). While the application polls, a woken thread would only find
//! the packet gone and cost both sides microseconds; so after some needless wake-ups it leaves the
//! socket out of its set and only looks whether the application still polls (*watching*): once per
//! millisecond, or less often where to wake takes long or the application puts that off by polling
//! all the time (`watchdog`). Which of both it is to be is decided by `election`.
//!
//! It queues for the engine's lock only if nothing else helps: a lock is handed to whoever waits in
//! line for it, asleep, and until that thread has a core the application polls in vain.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rnic_link::{Look, QuickPoll};
use smallvec::{SmallVec, smallvec};

use super::election::{Action, Driver, Election, Event, Value, action};
use super::halt_poll::{self, HaltPoll, Offers};
use super::kernel_events::{KernelTables, PortWatch};
use super::shard::Shard;
use super::wakeup::{Bell, Wakeup};
use super::watchdog::{self, Alarm, Timer, WakeUpCost};
use super::yielding::CpuContention;
use crate::engine::{Acks, Engine, TICK_NS};
use crate::error::{Error, Result};
use crate::sync::bias::Guard;
use rnic_sys::{EventFd, TimerFd};

/// So many packets in one round are a stream, of which more is on its way.
pub(super) const STREAM: usize = 8;
/// How long a stream is waited for awake: to wake a sleeping thread costs the sender more than a
/// batch of packets.
const FOLLOW_NS: u64 = 30_000;
/// How long the thread waits awake at most before it looks after the rest of its duties.
const AWAKE_NS: u64 = 2_000_000;
/// How often it tries to get the engine from whoever has it. Between two tries a round that found
/// nothing is over. More would be in vain where it took the core from that very thread.
const TRIES: u32 = 8;

/// The background thread as the application's threads see it.
pub(super) struct Background {
    pub(super) wakeup: Wakeup<EventFd>,
    pub(super) alarm: Alarm<TimerFd>,
    stop: AtomicBool,
    /// What it costs to wake, ns, as its own wake-ups show.
    wake_up: AtomicU64,
    pub(super) contention: CpuContention,
    thread: rustix_futex_sync::Mutex<Option<rnic_sys::Thread>>,
}

impl Bell for EventFd {
    fn ring(&self) {
        self.add(1);
    }

    fn silence(&self) {
        self.try_take();
    }
}

impl Timer for TimerFd {
    fn set(&self, at: u64) {
        TimerFd::set(self, at);
    }
}

impl Background {
    pub(super) fn new() -> std::io::Result<Background> {
        Ok(Background {
            wakeup: Wakeup::new(EventFd::new()?),
            alarm: Alarm::new(TimerFd::new()?),
            stop: AtomicBool::new(false),
            wake_up: AtomicU64::new(0),
            contention: CpuContention::new(),
            thread: rustix_futex_sync::Mutex::new(None),
        })
    }

    /// What it costs to wake a thread, ns, as far as is known.
    pub(super) fn wake_up(&self) -> u64 {
        self.wake_up.load(Ordering::Relaxed)
    }
}

/// Starts the thread with all signals blocked, so that the application's handlers run in its own
/// threads.
pub(super) fn start(shared: &Arc<Shard>) -> Result<()> {
    let mine = shared.clone();
    // From here on no change of the addresses is missed.
    let watch = PortWatch::open();
    let spawned = rnic_sys::with_signals_blocked(|| {
        rnic_sys::spawn(c"rnic", 256 * 1024, move || {
            rnic_sys::become_background_thread();
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
pub(super) fn stop(shared: &Shard) {
    shared.background.stop.store(true, Ordering::Release);
    shared.background.wakeup.ring();
    let thread = shared.background.thread.lock().take();
    // The last handle may go on the thread itself; then there is nobody to wait for.
    if let Some(thread) = thread.filter(|thread| !thread.is_current()) {
        thread.join();
    }
}

fn run(shared: &Shard, port: PortWatch) {
    let state = &shared.background;
    let (rx, wake, handover, ways) = {
        let engine = shared.engine.lock();
        let link = &engine.link;
        (
            link.rx_fd(),
            link.wake_fd(),
            link.handover_fds(),
            link.ways(),
        )
    };
    let mut tables = KernelTables::new(port, ways);
    let mut election = Election::new(shared.polls.load(Ordering::Relaxed));
    let mut halt = HaltPoll::new();
    // When packets woke it last.
    let mut woken_at = 0;
    let mut maintain_at = 0;
    let mut wake_up = WakeUpCost::measure();
    // Of the engine, as it was left last.
    let (mut deadline, mut patient) = (u64::MAX, false);
    // It looks after its other duties, but packets come so fast that it does not sleep meanwhile.
    let mut stays = false;
    while !state.stop.load(Ordering::Acquire) {
        shared.cq_tasks.let_go();
        let watching = state.wakeup.is_watching();
        let mut work = false;
        if watching {
            // The application has the engine; what it leaves there has time until the next tick.
        } else if let Some(mut engine) = engine_soon(shared) {
            (deadline, patient) = look_after(&mut engine, &mut maintain_at, wake_up.ns(), watching);
            state.wakeup.will_sleep(deadline);
            // What waits for receives is no work.
            let arrived = engine.link.fall_asleep() && !patient;
            work = engine.has_turns() || arrived;
        } else {
            // Whoever has it may have looked already whether this thread sleeps.
            deadline = shared.host.now_ns().saturating_add(TICK_NS);
            state.wakeup.will_sleep(deadline);
        }
        let bell = state.wakeup.bell().fd();
        let mut fds: WaitSet = match (patient, watching) {
            // What waits for receives would wake the thread over and over.
            (true, _) => smallvec![bell],
            (false, watching) => wait_set(bell, [rx, wake], &handover, watching),
        };
        let tables_at = fds.len();
        fds.extend(tables.fds());
        let until = deadline.min(tables.deadline());
        state.wake_up.store(wake_up.ns(), Ordering::Relaxed);
        let ready = if watching {
            sleep_watching(shared, &mut fds, until, &mut wake_up)
        } else {
            sleep(shared, &fds, if work || stays { 0 } else { until })
        };
        let asked = state.wakeup.woke(ready[0]);
        tables.look(shared, [ready[tables_at], ready[tables_at + 1]]);
        let found = Found::of(&ready[..tables_at], patient, watching);
        let polls = || shared.polls.load(Ordering::Relaxed);
        let application_polls = election.polled(polls());

        if watching {
            // A poll that finds much lasts longer than a tick.
            let polls = application_polls || shared.engine.try_lock().is_none();
            let waits = shared
                .waiters
                .drive_or_will(shared.host.now_ns(), RECENT_WAIT_NS);
            let driver = election.driver(polls, waits);
            let event = match asked {
                true => Event::Asked,
                false if action(driver, Event::Tick) != Action::Watch => Event::Tick,
                false if neglected(shared, rx, driver, &mut election) => Event::PacketsLeft,
                false => Event::Tick,
            };
            if let Action::TakeBack { late } = action(driver, event) {
                state.wakeup.watch(false);
                let received = {
                    let mut engine = shared.engine.lock();
                    engine.link.leave_to_polling(false);
                    engine.round_with(Look::Handover, Acks::MayWaitForAnswer)
                };
                election.takes_back(late && received > 0);
                continue;
            }
            // The application drives; only what it never looks at is left to do here.
            deadline = u64::MAX;
            if let Some(mut engine) = engine_soon(shared) {
                let now = engine.now();
                let due = engine.next_deadline_of_polled();
                let round = due.is_some_and(|at| at <= now) || found.handover;
                match round {
                    true => {
                        engine.round_with(Look::Handover, Acks::MayWaitForAnswer);
                    }
                    false => engine.send_out(now, Acks::Leave),
                }
                // Who polled told senders that it looks by itself, and has stopped to.
                if round || !application_polls {
                    shared.leave_packets(&mut engine);
                }
                (deadline, patient) = look_after(&mut engine, &mut maintain_at, wake_up.ns(), true);
            }
            election.undisturbed(shared.host.now_ns());
            continue;
        }
        let waits = shared.waiters.drive_or_will(shared.host.now_ns(), TICK_NS);
        // Who sleeps until its completion is there polls only afterwards.
        let application_polls = application_polls && !shared.waiters.sleep();
        // Whoever has the engine now is the application, and would have found the packet at its
        // next look.
        let (received, contended) = match engine_soon(shared) {
            Some(mut engine) => (found.take_in(&mut engine), false),
            // It has the engine for long, or wants this very core.
            None => (found.take_in(&mut shared.engine.lock()), true),
        };
        let driver = match (waits, application_polls || contended) {
            (true, _) => Driver::Waiter,
            (false, true) => Driver::Application,
            (false, false) => Driver::Nobody,
        };
        let stayed = std::mem::take(&mut stays);
        let some = received > 0 || stayed;
        let event = match found.packets {
            true if some => Event::Packets,
            true => Event::PacketsGone,
            false if ready[0] && !asked && application_polls => Event::RangInVain,
            false if some => Event::PacketsBeside,
            false => Event::Otherwise,
        };
        let (halt_polls, value) = match action(driver, event) {
            Action::HaltPoll(value) => (true, value),
            Action::Sleep(value) => (false, value),
            Action::Watch | Action::TakeBack { .. } => (false, Value::None),
        };
        let stay = halt_poll::how_long(wake_up.ns());
        let now = shared.host.now_ns();
        if halt_polls && !stayed {
            halt.slept(now.saturating_sub(woken_at), stay);
            woken_at = now;
        }
        if halt_polls && (stayed || halt.begins(now, received >= STREAM)) {
            stays = stay_awake(shared, &mut halt, stay);
            if stays {
                continue;
            }
        } else if received >= STREAM {
            follow(shared);
        }
        if election.leaves(value)
            && let Some(mut engine) = engine_soon(shared)
        {
            engine.link.leave_to_polling(true);
            state.wakeup.watch(true);
            election.watches(shared.host.now_ns());
        }
    }
}

/// The engine, if whoever has it lets go of it soon.
fn engine_soon(shared: &Shard) -> Option<Guard<'_, Engine>> {
    (0..TRIES).find_map(|tried| {
        for _ in 0..tried * 4 {
            std::hint::spin_loop();
        }
        shared.engine.try_lock()
    })
}

/// Keeps the link in order. When the engine must run again although nothing arrives, and whether
/// what has arrived waits.
fn look_after(
    engine: &mut Engine,
    maintain_at: &mut u64,
    wake_up: u64,
    polled: bool,
) -> (u64, bool) {
    let now = engine.common.host.now_ns();
    engine.batching.delayed_acks.wake_up_costs(wake_up);
    engine.batching.one_sided.looked(now);
    if now >= *maintain_at {
        *maintain_at = now.saturating_add(engine.link.maintain(now));
    }
    let deadline = match polled {
        true => engine.next_deadline_of_polled(),
        false => engine.next_deadline(),
    };
    let deadline = deadline.unwrap_or(u64::MAX).min(*maintain_at);
    (deadline, engine.waits_for_receives())
}

/// Drives the engine as long as a stream goes on and nobody else does.
fn follow(shared: &Shard) {
    let mut last = shared.host.now_ns();
    while !shared.background.stop.load(Ordering::Relaxed) {
        let Some(mut engine) = engine_soon(shared) else {
            return;
        };
        let received = engine.round(false);
        drop(engine);
        let now = shared.host.now_ns();
        if received > 0 {
            last = now;
        } else if now - last > FOLLOW_NS {
            return;
        }
        // Whoever wants the lock meanwhile gets it.
        std::hint::spin_loop();
    }
}

/// Drives the engine awake as long as that pays, nobody else does, and the core is free. `stay`:
/// how long it waits for each packet, ns. True: it is to go on, when the thread has looked after
/// its other duties.
fn stay_awake(shared: &Shard, halt: &mut HaltPoll, stay: u64) -> bool {
    let polls = || shared.polls.load(Ordering::Relaxed);
    let (polls_before, begin) = (polls(), shared.host.now_ns());
    let (mut last, mut offers) = (begin, Offers::new(begin, stay));
    let mut goes_on = false;
    // Until the thread sleeps again nobody need wake it.
    shared.engine.lock().link.leave_to_polling(true);
    while !shared.background.stop.load(Ordering::Relaxed)
        && polls() == polls_before
        && !shared.waiters.drive()
    {
        let Some(mut engine) = shared.engine.try_lock() else {
            break;
        };
        let received = match engine.quick_poll() {
            QuickPoll::Something => engine.round_with(Look::Poll, Acks::MayWaitForAnswer),
            QuickPoll::NothingInMemory | QuickPoll::NothingAtSocket => 0,
        };
        drop(engine);
        shared.cq_tasks.let_go();
        let now = shared.host.now_ns();
        if received > 0 {
            halt.paid(now.saturating_sub(last), halt_poll::Found::Looking);
            last = now;
            offers.found(now);
        } else if now - last > stay {
            halt.in_vain(now, stay);
            break;
        } else if offers.in_vain(now) {
            halt.crowded(now, stay);
            break;
        }
        if now - begin > AWAKE_NS {
            goes_on = true;
            break;
        }
        // Whoever wants the lock meanwhile gets it.
        std::hint::spin_loop();
    }
    shared.engine.lock().link.leave_to_polling(false);
    goes_on
}

/// Packets wait and the application, although it polled since the last look, leaves them: it polls
/// now and then only, as one does that waits for bytes of its memory to change.
fn neglected(shared: &Shard, rx: RawFd, driver: Driver, election: &mut Election) -> bool {
    // Whoever has the engine takes in what has arrived: where much does, one poll lasts longer than
    // this thread waits.
    let waiting = || {
        shared.engine.try_lock().is_some_and(|engine| {
            engine.link.has_arrivals()
                || rnic_sys::poll(&[rx], Some(Duration::ZERO)).is_ok_and(|r| r[0])
        })
    };
    let polls = || shared.polls.load(Ordering::Relaxed);
    if !waiting() {
        return false;
    }
    let before = polls();
    if driver == Driver::Waiter {
        return election.is_overdue(before);
    }
    watchdog::wait_for_the_late();
    polls() == before && waiting()
}

/// A thread that began to wait so recently, ns, and has left packets since, was kept from its core.
const RECENT_WAIT_NS: u64 = 4 * TICK_NS;

/// As many descriptors as [`rnic_sys::poll`] takes.
type WaitSet = SmallVec<[RawFd; 8]>;

/// The bell first, then what packets arrive by if it is to wake the thread.
fn wait_set(bell: RawFd, packets: [RawFd; 2], handover: &[RawFd], watching: bool) -> WaitSet {
    let mut fds: WaitSet = smallvec![bell];
    if !watching {
        fds.extend(packets);
    }
    fds.extend_from_slice(handover);
    fds
}

/// What a sleep found.
struct Found {
    /// The descriptors for packets were waited for,
    waited_for_packets: bool,
    /// and packets are in the socket,
    socket: bool,
    /// or a process woke this one for its ring.
    ring: bool,
    /// Either.
    packets: bool,
    /// Something that is readable rarely, or may be.
    handover: bool,
}

impl Found {
    /// `ready`: of the [`wait_set`], or of the bell alone if `patient`.
    fn of(ready: &[bool], patient: bool, watching: bool) -> Found {
        let waited_for_packets = !patient && !watching;
        let (socket, ring) = (
            waited_for_packets && ready[1],
            waited_for_packets && ready[2],
        );
        let handover = ready
            .get(if waited_for_packets { 3 } else { 1 }..)
            .unwrap_or_default();
        Found {
            waited_for_packets,
            socket,
            ring,
            packets: socket || ring,
            handover: patient || handover.contains(&true),
        }
    }

    /// A round that looks where something is. Gives the number of packets received.
    fn take_in(&self, engine: &mut Engine) -> usize {
        if self.waited_for_packets {
            engine
                .link
                .woken(engine.common.host.now_ns(), self.socket, self.ring);
        }
        let look = if self.handover {
            Look::Handover
        } else {
            Look::Drain
        };
        engine.round_with(look, Acks::MayWaitForAnswer)
    }
}

fn sleep(shared: &Shard, fds: &[RawFd], until: u64) -> [bool; 8] {
    let time = match until {
        0 => Some(Duration::ZERO),
        u64::MAX => None,
        until => Some(Duration::from_nanos(
            until.saturating_sub(shared.host.now_ns()),
        )),
    };
    rnic_sys::poll(fds, time).unwrap_or([false; 8])
}

/// Until nobody has polled for a tick, too.
fn sleep_watching(
    shared: &Shard,
    fds: &mut WaitSet,
    deadline: u64,
    wake_up: &mut WakeUpCost,
) -> [bool; 8] {
    let alarm = &shared.background.alarm;
    let now = shared.host.now_ns();
    let at_most = now.saturating_add(u64::from(watchdog::AT_MOST) * TICK_NS);
    let until = deadline.min(at_most);
    alarm.set(now, shared.done(), shared.tick());
    fds.push(alarm.timer().fd());
    let ready = sleep(shared, fds, until);
    // By itself.
    if !ready[..fds.len() - 1].contains(&true) {
        let rang = ready[fds.len() - 1];
        wake_up.woke(shared.host.now_ns(), if rang { alarm.due() } else { until });
    }
    ready
}

#[cfg(test)]
mod tests {
    //! Who is on its way to its packets is waited for, but not for ever.

    use super::*;

    #[test]
    fn it_looks_where_something_is() {
        let found = |ready: &[bool], patient, watching| {
            let found = Found::of(ready, patient, watching);
            (found.socket, found.ring, found.handover)
        };
        // Bell, socket, rings, two sockets of the hand-over.
        let armed = |ready: [bool; 5]| found(&ready, false, false);
        assert_eq!(
            armed([true, false, false, false, false]),
            (false, false, false)
        );
        assert_eq!(
            armed([false, true, false, false, false]),
            (true, false, false)
        );
        assert_eq!(
            armed([false, false, true, false, false]),
            (false, true, false)
        );
        assert_eq!(
            armed([false, true, false, false, true]),
            (true, false, true)
        );
        // Bell and the sockets of the hand-over.
        assert_eq!(
            found(&[true, false, false], false, true),
            (false, false, false)
        );
        assert_eq!(
            found(&[false, false, true], false, true),
            (false, false, true)
        );
        // The bell alone: nothing is known of the others.
        assert_eq!(found(&[true], true, false), (false, false, true));
    }

    /// Or the thread shares the core with an application whose polls find much, and each takes half
    /// of what comes.
    #[test]
    fn who_has_the_engine_neglects_nothing() {
        let shard = Shard::new(Engine::open(&rnic_link::LinkConfig::default()).expect("a device"))
            .expect("descriptors");
        let readable = EventFd::new().expect("a descriptor");
        readable.add(1);
        let is_neglected = || {
            neglected(
                &shard,
                readable.fd(),
                Driver::Application,
                &mut Election::new(0),
            )
        };
        assert!(is_neglected());
        let engine = shard.engine.lock();
        assert!(!is_neglected());
        drop(engine);
        assert!(is_neglected());
    }
}
