//! Threads that wait for an event inside a verb, and drive the engine meanwhile.
//!
//! A thread that waits in `ibv_get_cq_event` would be woken by the background thread, which a packet woke before: two
//! wake-ups for one message. So it waits for packets itself and runs the engine when they come. Only one thread does, and
//! only while no other waits: where several wait, whoever is woken may be the wrong one and busy afterwards. The
//! background thread then has one more thread that looks after packets, as one that polls is, and it knows in the same
//! way when there is none (`background.rs`): packets are waiting, and nobody takes them. Before it sleeps it stays awake for a
//! moment if that is worth it (`halt_poll.rs`).
//!
//! A thread may be cancelled while it waits. What it holds is therefore not in its stack, but in a thread-local variable.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rnic_link::Glance;

use super::halt_poll::{self, Found, HaltPoll, Offers};
use super::nic::Nic;
use super::shard::{Shard, ShardSet};
use super::yielding;
use crate::engine::Acks;
use crate::sys::{self, PerThread};

/// Wake-ups in one wait that found nothing: somebody else drives.
const NEEDLESS: u32 = 16;
/// Rounds of work without an end after which others are to go on with it: the thread cannot be cancelled meanwhile.
const ROUNDS: u32 = 256;

/// How long those that spin stay awake at most, ns: a thread cannot be cancelled meanwhile.
const SPIN_NS: u64 = 50_000_000;

/// How threads of this process wait. A value that cannot be kept the device from being opened.
fn wait_setting() -> rnic_settings::Wait {
    static WAIT: OnceLock<rnic_settings::Wait> = OnceLock::new();
    *WAIT.get_or_init(|| rnic_settings::wait().unwrap_or_default())
}

/// How many threads of the process wait for events.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// And drive; at most one.
    driving: AtomicU32,
    /// And sleep until somebody else has driven.
    asleep: AtomicU32,
}

impl Waiters {
    /// A thread looks after packets while it waits.
    pub(super) fn drive(&self) -> bool {
        self.driving.load(Ordering::Relaxed) > 0
    }

    /// A thread needs others to look after its packets.
    pub(super) fn sleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) > 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Drives,
    Sleeps,
}

/// What this thread is at.
#[derive(Debug)]
struct Wait {
    waiters: Arc<Waiters>,
    /// Those of other shards, on which it sleeps, too.
    others: Vec<Arc<Waiters>>,
    role: Role,
    needless: u32,
    /// When it began.
    since: u64,
}

impl Wait {
    fn begin(waiters: &Arc<Waiters>, may_drive: bool) -> Wait {
        let drives = may_drive
            && !waiters.sleep()
            && waiters
                .driving
                .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        let mut wait = Wait {
            waiters: waiters.clone(),
            others: Vec::new(),
            role: Role::Drives,
            needless: 0,
            since: sys::now_ns(),
        };
        if !drives {
            wait.role = Role::Sleeps;
            wait.waiters.asleep.fetch_add(1, Ordering::Relaxed);
        }
        wait
    }

    /// Others drive all these shards.
    fn sleep(shards: impl Iterator<Item = Arc<Waiters>>) -> Option<Wait> {
        let mut others: Vec<_> = shards.collect();
        let waiters = others.pop()?;
        for waiters in others.iter().chain([&waiters]) {
            waiters.asleep.fetch_add(1, Ordering::Relaxed);
        }
        Some(Wait {
            waiters,
            others,
            role: Role::Sleeps,
            needless: 0,
            since: 0,
        })
    }

    fn go_to_sleep(&mut self) {
        if self.role == Role::Drives {
            self.waiters.driving.store(0, Ordering::Relaxed);
            self.waiters.asleep.fetch_add(1, Ordering::Relaxed);
            self.role = Role::Sleeps;
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        match self.role {
            Role::Drives => self.waiters.driving.store(0, Ordering::Relaxed),
            Role::Sleeps => {
                for waiters in self.others.iter().chain([&self.waiters]) {
                    waiters.asleep.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
}

static WAIT: PerThread<Wait> = PerThread::new();

thread_local! {
    static HALT: Cell<HaltPoll> = const { Cell::new(HaltPoll::new()) };
}

/// This thread waits no longer.
pub(crate) fn end_wait() {
    WAIT.with(|wait| wait.borrow_mut().take());
}

/// What a thread that waits for an event is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The event is there.
    Over,
    /// Sleep until its channel or one of these descriptors is readable, then ask again.
    SleepOn([RawFd; 2]),
    /// Sleep until its channel is readable: others drive.
    SleepOnChannel,
}

impl Nic {
    /// This thread waits until `over`, which queue pairs of `shards` bring about, and which it was not just now. `woken`: it
    /// slept on the descriptors that the last call gave, and these are
    /// readable now; `None`: it begins to wait. `acks`: what becomes of the ACK of what it waited for. The next wait sends it.
    pub(crate) fn wait(
        &self,
        shards: &ShardSet,
        woken: Option<[bool; 2]>,
        may_drive: bool,
        acks: Acks,
        over: impl Fn() -> bool,
    ) -> Waiting {
        let waiting = WAIT.with(|wait| {
            let mut wait = wait.borrow_mut();
            if woken.is_none() {
                // What a thread left that did not come back from its sleep ends first.
                *wait = None;
                yielding::begin_anew();
                *wait = match shards.only() {
                    Some(only) => Some(Wait::begin(&self.shard(only).waiters, may_drive)),
                    None => Wait::sleep(shards.iter().map(|i| self.shard(i).waiters.clone())),
                };
            }
            let waiting = wait.as_mut().and_then(|wait| {
                let shard = shards.only().map(|only| self.shard(only));
                match shard.filter(|shard| Arc::ptr_eq(&shard.waiters, &wait.waiters)) {
                    Some(shard) => shard.drive_while_waiting(wait, woken, acks, &over),
                    // Queue pairs of other shards have come.
                    None => {
                        wait.go_to_sleep();
                        None
                    }
                }
            });
            if waiting == Some(Waiting::Over) {
                *wait = None;
            }
            waiting
        });
        waiting.flatten().unwrap_or_else(|| {
            self.expect_sleep(shards);
            Waiting::SleepOnChannel
        })
    }
}

/// How a wait ended in which a thread stayed awake.
#[derive(Clone, Copy, Debug)]
enum Spun {
    /// What it waited for is there.
    Over(Found),
    /// It did not come in time.
    InVain,
    /// Others need the core.
    Crowded,
}

impl Shard {
    /// `None`: the thread does not drive, or not any more.
    fn drive_while_waiting(
        &self,
        wait: &mut Wait,
        mut woken: Option<[bool; 2]>,
        acks: Acks,
        over: impl Fn() -> bool,
    ) -> Option<Waiting> {
        if wait.role == Role::Sleeps {
            return None;
        }
        if woken.is_none() && self.stay_awake(wait.since, acks, &over) {
            return Some(Waiting::Over);
        }
        let mut look = woken.is_some();
        for _ in 0..ROUNDS {
            let mut engine = self.lock();
            if look {
                self.count_poll();
                if let Some([socket, rings]) = woken.take() {
                    engine.link.woken(sys::now_ns(), socket, rings);
                }
                let received = engine.round_until(acks, &over);
                wait.needless = if received > 0 { 0 } else { wait.needless + 1 };
            }
            look = engine.link.fall_asleep() || engine.has_turns();
            // What waits for receives would wake the thread over and over.
            let in_vain = engine.waits_for_receives() || wait.needless > NEEDLESS;
            let fds = [engine.link.rx_fd(), engine.link.wake_fd()];
            self.after_drive(engine);
            if over() {
                let stay = halt_poll::how_long(self.background.wake_up());
                let mut halt = HALT.get();
                halt.slept(sys::now_ns().saturating_sub(wait.since), stay);
                HALT.set(halt);
                return Some(Waiting::Over);
            }
            if in_vain {
                break;
            }
            if !look {
                return Some(Waiting::SleepOn(fds));
            }
        }
        wait.go_to_sleep();
        None
    }

    /// Drives the engine awake since `since`, if that is worth it; true: it is `over`.
    fn stay_awake(&self, since: u64, acks: Acks, over: impl Fn() -> bool) -> bool {
        let mut halt = HALT.get();
        let adaptive = halt_poll::how_long(self.background.wake_up());
        let stay = match wait_setting() {
            rnic_settings::Wait::Sleep => None,
            rnic_settings::Wait::Spin => Some(SPIN_NS),
            rnic_settings::Wait::Adaptive => halt.begins(since, false).then_some(adaptive),
        };
        let spun = stay.map(|stay| {
            let offers = match halt.shares_core() {
                true => Offers::at_once(since, stay),
                false => Offers::new(since, stay),
            };
            self.drive_until(since, stay, offers, acks, over)
        });
        let now = || sys::now_ns();
        match spun {
            Some(Spun::Over(found)) => halt.paid(now().saturating_sub(since), found),
            Some(Spun::InVain) => halt.in_vain(now(), adaptive),
            Some(Spun::Crowded) => halt.crowded(now(), adaptive),
            None => {}
        }
        HALT.set(halt);
        matches!(spun, Some(Spun::Over(_)))
    }

    /// For `stay` ns at most, and while nobody else needs the core.
    fn drive_until(
        &self,
        since: u64,
        stay: u64,
        mut offers: Offers,
        acks: Acks,
        over: impl Fn() -> bool,
    ) -> Spun {
        let mut found = Found::AtOnce;
        loop {
            self.count_poll();
            if let Some(mut engine) = self.engine.try_lock() {
                if engine.glance() == Glance::Something {
                    engine.round_until(acks, &over);
                }
                self.after_drive(engine);
            }
            if over() {
                return Spun::Over(found);
            }
            let now = sys::now_ns();
            let before = offers.count();
            if now.saturating_sub(since) > stay {
                return Spun::InVain;
            }
            if offers.in_vain(now) {
                return Spun::Crowded;
            }
            found = match offers.count() == before {
                true => Found::Looking,
                false => Found::Offering,
            };
            std::hint::spin_loop();
        }
    }
}
