//! Threads that wait for an event inside a verb, and drive the engine meanwhile.
//!
//! A thread that waits in `ibv_get_cq_event` would be woken by the background thread, which a
//! packet woke before: two wake-ups for one message. So it waits for packets itself and runs the
//! engine when they come. [`super::waiters`] decides which of the threads that wait does. The
//! background thread knows in the same way as of one that polls when there is none
//! (`background.rs`): packets are waiting, and nobody takes them. Before the thread sleeps it stays
//! awake for a moment if that is worth it (`halt_poll`).
//!
//! A thread may be cancelled while it waits. What it holds is therefore not in its stack, but in a
//! thread-local variable.

use std::cell::Cell;
use std::sync::OnceLock;

use rnic_link::QuickPoll;

use super::halt_poll::{self, Found, HaltPoll, Offers};
use super::nic::Nic;
use super::shard::Shard;
use super::waiters::{Awaitable, Look, Looked, Readable, Wait, Waiting};
use super::yielding;
use crate::engine::Acks;
use crate::queues::Places;
use rnic_sys::PerThread;

/// How long those that spin stay awake at most, ns: a thread cannot be cancelled meanwhile.
const SPIN_NS: u64 = 50_000_000;

/// How threads of this process wait. A value that cannot be kept the device from being opened.
fn wait_setting() -> rnic_settings::Wait {
    static WAIT: OnceLock<rnic_settings::Wait> = OnceLock::new();
    *WAIT.get_or_init(|| rnic_settings::wait().unwrap_or_default())
}

static WAIT: PerThread<Wait> = PerThread::new();

thread_local! {
    static HALT: Cell<HaltPoll> = const { Cell::new(HaltPoll::new()) };
}

/// This thread waits no longer.
pub(crate) fn end_wait() {
    WAIT.with(|wait| wait.borrow_mut().take());
}

impl Nic {
    /// This thread waits until `over`, which queue pairs of `shards` bring about, and which it was
    /// not just now. `woken`: it slept on the descriptors that the last call gave, and these are
    /// readable now; `None`: it begins to wait. `acks`: what becomes of the ACK of what it waited
    /// for. The next wait sends it.
    pub(crate) fn wait(
        &self,
        shards: Places,
        woken: Option<Readable>,
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
                let engines = shards.iter().map(|place| self.shard(place));
                let engines = engines.map(|shard| (shard.index, shard.waiters.clone()));
                *wait = Some(Wait::begin(engines, may_drive, self.host().now_ns()));
            }
            let current = wait.as_mut()?;
            for place in shards.iter() {
                // Queue pairs of other shards may have come.
                if !current.is_for(place) {
                    current.add(place, self.shard(place).waiters.clone());
                }
            }
            let waiting = self.drive_while_waiting(current, woken, acks, &over);
            for place in current.left_to_others() {
                self.shard(place).expect_sleep();
            }
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

    /// `None`: the thread does not drive, or not any more.
    fn drive_while_waiting(
        &self,
        wait: &mut Wait,
        woken: Option<Readable>,
        acks: Acks,
        over: impl Fn() -> bool,
    ) -> Option<Waiting> {
        if woken.is_none() && wait.drives() && self.wait_awake(wait, acks, &over) {
            return Some(Waiting::Over);
        }
        let awaited = Awaited {
            nic: self,
            acks,
            over,
        };
        let waiting = wait.drive(woken, &awaited);
        if waiting == Some(Waiting::Over) {
            let stay = halt_poll::how_long(self.wake_up(wait));
            let mut halt = HALT.get();
            halt.slept(self.host().now_ns().saturating_sub(wait.since), stay);
            HALT.set(halt);
        }
        waiting
    }

    /// What it costs to wake a thread, ns, as far as is known.
    fn wake_up(&self, wait: &Wait) -> u64 {
        let costs = wait
            .driven()
            .map(|place| self.shard(place).background.wake_up());
        costs.max().unwrap_or(0)
    }

    /// Drives the engines awake since the wait began, if that is worth it; true: it is `over`.
    fn wait_awake(&self, wait: &Wait, acks: Acks, over: impl Fn() -> bool) -> bool {
        let mut halt = HALT.get();
        let since = wait.since;
        let adaptive = halt_poll::how_long(self.wake_up(wait));
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
            self.drive_until(wait, stay, offers, acks, over)
        });
        let now = || self.host().now_ns();
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
        wait: &Wait,
        stay: u64,
        mut offers: Offers,
        acks: Acks,
        over: impl Fn() -> bool,
    ) -> Spun {
        let mut found = Found::AtOnce;
        loop {
            for place in wait.driven() {
                self.shard(place).look_awake(acks, &over);
            }
            if over() {
                return Spun::Over(found);
            }
            let now = self.host().now_ns();
            let before = offers.count();
            if now.saturating_sub(wait.since) > stay {
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

impl Shard {
    /// One look of a thread that waits awake.
    fn look_awake(&self, acks: Acks, over: impl Fn() -> bool) {
        self.count_poll();
        if let Some(mut engine) = self.engine.try_lock() {
            if engine.quick_poll() == QuickPoll::Something {
                engine.round_until(acks, over);
            }
            self.after_drive(engine);
        }
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

/// What a thread waits for, and the engines that bring it about.
struct Awaited<'a, F> {
    nic: &'a Nic,
    acks: Acks,
    over: F,
}

impl<F: Fn() -> bool> Awaitable for Awaited<'_, F> {
    fn look(&self, place: usize, look: Look) -> Looked {
        let shard = self.nic.shard(place);
        let mut engine = shard.lock();
        let received = (look != Look::First).then(|| {
            shard.count_poll();
            if let Look::Woken([socket, rings]) = look {
                let now = engine.now();
                engine.link.woken(now, socket, rings);
            }
            engine.round_until(self.acks, &self.over)
        });
        let looked = Looked {
            received,
            // In this order: what arrives after it wakes the thread.
            left: engine.link.fall_asleep() || engine.has_turns(),
            waits_for_receives: engine.waits_for_receives(),
            packets: [engine.link.rx_fd(), engine.link.wake_fd()],
        };
        shard.waiters.will_sleep_on_packets();
        shard.after_drive(engine);
        looked
    }

    fn is_over(&self) -> bool {
        (self.over)()
    }
}
