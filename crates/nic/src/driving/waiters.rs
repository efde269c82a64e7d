//! Which of the threads that wait for events drives the engine, and when it may sleep.
//!
//! Of each engine one thread at most drives, and only if no other waits for it when it begins: where
//! several wait, the one that is woken may be the wrong one and busy afterwards. A thread that waits
//! for what several engines bring about drives all of them that no other thread drives. The others
//! sleep until somebody has driven. Each asks the background thread to wake for packets
//! ([`super::wakeup`]) before that.
//!
//! The promise: no thread sleeps while its event is there, or while packets are there that nobody
//! is woken for. A thread that drives looks in this order: it takes packets in, has their senders
//! wake it from now on, looks whether more came meanwhile, and asks last whether it is over. The
//! tests run the interleavings of this by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p rnic-nic --lib waiters`.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::RawFd;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use smallvec::SmallVec;

/// Wake-ups in one wait that found nothing: somebody else drives.
const NEEDLESS: u32 = 16;
/// Rounds of work without an end after which others are to go on with it: the thread cannot be
/// cancelled meanwhile.
const ROUNDS: u32 = 256;
/// Rounds that others run for a thread that sleeps before they leave packets that come without end
/// to the next tick.
const TRIES: u32 = 8;

/// Of the thread that drives: it looks by itself, or sleeps on the descriptors of packets.
const LOOKS: u32 = 1;
const SLEEPS: u32 = 2;

/// How many threads of the process wait for events.
#[derive(Debug)]
pub(super) struct Waiters {
    /// And drive; at most one. Whether it [`LOOKS`] or [`SLEEPS`].
    driving: AtomicU32,
    /// And sleep until somebody else has driven.
    asleep: AtomicU32,
    /// When the last wait began of a thread that drives, ns.
    begun_at: AtomicU64,
    /// When the last round was of a thread that polls while another sleeps on the descriptors of
    /// packets, ns.
    polled_at: AtomicU64,
    /// That thread has told senders that it looks by itself, and they do not wake the sleeper: 1.
    unwoken: AtomicU32,
}

impl Waiters {
    pub(super) fn new() -> Arc<Waiters> {
        Arc::new(Waiters {
            driving: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            begun_at: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            unwoken: AtomicU32::new(0),
        })
    }

    /// A thread looks after packets while it waits.
    pub(super) fn drive(&self) -> bool {
        self.driving.load(Ordering::Relaxed) > 0
    }

    /// A thread does so, or began to so recently, ns, that it will do so again soon, as a rule.
    pub(super) fn drive_or_will(&self, now: u64, recently: u64) -> bool {
        self.drive() || now.saturating_sub(self.begun_at.load(Ordering::Relaxed)) < recently
    }

    /// A thread needs others to look after its packets.
    pub(super) fn sleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) > 0
    }

    /// The thread that drives, which has the engine, may sleep on the descriptors of packets after
    /// it lets go of it.
    pub(super) fn will_sleep_on_packets(&self) {
        self.driving.store(SLEEPS, Ordering::Relaxed);
    }

    /// Whoever has run the engine, and has it still, may have told senders that it looks by itself.
    /// If a thread sleeps on the descriptors of packets, they are to wake that. `more` has them do
    /// so from now on; if something was there already it runs a round, and gives true.
    #[inline]
    pub(super) fn leave_packets(&self, mut more: impl FnMut() -> bool) {
        if self.driving.load(Ordering::Relaxed) == SLEEPS {
            let _ = (0..TRIES).all(|_| more());
        }
        self.unwoken.store(0, Ordering::Relaxed);
    }

    /// The same after a round of a thread that polls. If its last one was no longer than `tick` ns
    /// ago it brings about what the other sleeps for, and to wake that for each packet would only
    /// take its core: then senders are left as they are. Once it polls no more, the background
    /// thread has them wake the sleeper at its next tick, which comes soon
    /// ([`super::watchdog::SLEEPERS_TICK_NS`]).
    #[inline]
    pub(super) fn leave_packets_of_poll(&self, now: u64, tick: u64, more: impl FnMut() -> bool) {
        if self.driving.load(Ordering::Relaxed) == SLEEPS {
            let before = self.polled_at.load(Ordering::Relaxed);
            self.polled_at.store(now, Ordering::Relaxed);
            match now.saturating_sub(before) > tick {
                true => self.leave_packets(more),
                false => self.unwoken.store(1, Ordering::Relaxed),
            }
        }
    }

    /// A thread sleeps whose packets wake nobody, as another polls.
    #[inline]
    pub(super) fn are_unwoken(&self) -> bool {
        self.unwoken.load(Ordering::Relaxed) != 0
    }

    fn one_more_sleeps(&self) {
        self.asleep.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Drives,
    Sleeps,
}

/// Of a wait, what concerns one engine.
#[derive(Debug)]
struct Part {
    /// The engine's place among the process's.
    place: usize,
    waiters: Arc<Waiters>,
    role: Role,
    needless: u32,
    /// What it has to look for before the thread sleeps. `None`: its packets wake the thread.
    look: Option<Look>,
    packets: [RawFd; 2],
}

impl Part {
    fn new(place: usize, waiters: Arc<Waiters>, may_drive: bool, since: u64) -> Part {
        let drives = may_drive
            && !waiters.sleep()
            && waiters
                .driving
                .compare_exchange(0, LOOKS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        match drives {
            true => waiters.begun_at.store(since, Ordering::Relaxed),
            false => waiters.one_more_sleeps(),
        }
        Part {
            place,
            waiters,
            role: if drives { Role::Drives } else { Role::Sleeps },
            needless: 0,
            look: drives.then_some(Look::First),
            packets: [-1; 2],
        }
    }

    fn drives(&self) -> bool {
        self.role == Role::Drives
    }

    fn go_to_sleep(&mut self) {
        if self.drives() {
            self.waiters.driving.store(0, Ordering::Relaxed);
            self.waiters.one_more_sleeps();
            self.role = Role::Sleeps;
            self.look = None;
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        match self.role {
            Role::Drives => self.waiters.driving.store(0, Ordering::Relaxed),
            Role::Sleeps => {
                self.waiters.asleep.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// What a thread that waits is at. Of the engines that bring about what it waits for it drives
/// those that no other thread drives, as many as [`MOST_DRIVEN`].
#[derive(Debug)]
pub(super) struct Wait {
    parts: SmallVec<[Part; 1]>,
    /// When it began, ns.
    pub(super) since: u64,
}

impl Wait {
    /// `engines`: each with its place.
    pub(super) fn begin(
        engines: impl Iterator<Item = (usize, Arc<Waiters>)>,
        may_drive: bool,
        since: u64,
    ) -> Wait {
        let parts = engines.enumerate().map(|(count, (place, waiters))| {
            let may_drive = may_drive && count < MOST_DRIVEN;
            Part::new(place, waiters, may_drive, since)
        });
        Wait {
            parts: parts.collect(),
            since,
        }
    }

    /// It drives one at least.
    pub(super) fn drives(&self) -> bool {
        self.parts.iter().any(Part::drives)
    }

    /// The places of those that it drives.
    pub(super) fn driven(&self) -> impl Iterator<Item = usize> {
        self.by_role(Role::Drives)
    }

    /// The places of those that others drive.
    pub(super) fn left_to_others(&self) -> impl Iterator<Item = usize> {
        self.by_role(Role::Sleeps)
    }

    fn by_role(&self, role: Role) -> impl Iterator<Item = usize> {
        let parts = self.parts.iter().filter(move |part| part.role == role);
        parts.map(|part| part.place)
    }

    /// It waits for what is brought about by the engine of that place.
    pub(super) fn is_for(&self, place: usize) -> bool {
        self.parts.iter().any(|part| part.place == place)
    }

    /// It waits for this engine as well, which others drive.
    pub(super) fn add(&mut self, place: usize, waiters: Arc<Waiters>) {
        self.parts
            .push(Part::new(place, waiters, false, self.since));
    }

    /// Others drive from now on. The background threads are to be told after this.
    pub(super) fn go_to_sleep(&mut self) {
        self.parts.iter_mut().for_each(Part::go_to_sleep);
    }

    /// Looks after packets until it is over or the thread may sleep. `woken`: it slept on the
    /// descriptors that the last call gave, and these are readable. `None`: others drive from now
    /// on, or have all the time. Others drive, too, what is [left to
    /// them](Wait::left_to_others): the background threads are to be told after this.
    pub(super) fn drive(
        &mut self,
        woken: Option<Readable>,
        awaited: &impl Awaitable,
    ) -> Option<Waiting> {
        if !self.drives() {
            return None;
        }
        if let Some(woken) = woken {
            let driven = self.parts.iter_mut().filter(|part| part.drives());
            for (part, readable) in driven.zip(woken.pairs()) {
                part.look = readable.contains(&true).then_some(Look::Woken(readable));
            }
        }
        // An event may have come by another thread.
        if self.parts.iter().all(|part| part.look.is_none()) && awaited.is_over() {
            return Some(Waiting::Over);
        }
        for _ in 0..ROUNDS {
            for part in self.parts.iter_mut().filter(|part| part.drives()) {
                let Some(look) = part.look else {
                    continue;
                };
                let looked = awaited.look(part.place, look);
                match looked.received {
                    Some(0) => part.needless += 1,
                    Some(_) => part.needless = 0,
                    None => {}
                }
                part.look = looked.left.then_some(Look::Again);
                part.packets = looked.packets;
                // What waits for receives would wake the thread over and over.
                if looked.waits_for_receives || part.needless > NEEDLESS {
                    part.go_to_sleep();
                }
                if awaited.is_over() {
                    return Some(Waiting::Over);
                }
            }
            let mut driven = self.parts.iter().filter(|part| part.drives()).peekable();
            driven.peek()?;
            if driven.clone().all(|part| part.look.is_none()) {
                let packets = driven.map(|part| part.packets);
                return Some(Waiting::SleepOn(Packets::new(packets)));
            }
        }
        self.go_to_sleep();
        None
    }
}

/// Most engines that a thread drives while it waits.
const MOST_DRIVEN: usize = 8;

/// What a thread that waits for an event is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The event is there.
    Over,
    /// Sleep until its channel or one of these descriptors is readable, then ask again.
    SleepOn(Packets),
    /// Sleep until its channel is readable: others drive.
    SleepOnChannel,
}

/// Descriptors that become readable when packets come: two of each engine that a thread drives. No
/// more than [`Packets::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    fds: [RawFd; Packets::MOST],
    count: u8,
}

impl Packets {
    /// Most descriptors.
    pub const MOST: usize = 2 * MOST_DRIVEN;
    /// No descriptor.
    pub const NONE: Packets = Packets {
        fds: [-1; Packets::MOST],
        count: 0,
    };

    fn new(pairs: impl Iterator<Item = [RawFd; 2]>) -> Packets {
        let mut packets = Packets::NONE;
        for fd in pairs.flatten().take(Packets::MOST) {
            packets.fds[usize::from(packets.count)] = fd;
            packets.count += 1;
        }
        packets
    }

    /// The descriptors.
    pub fn fds(&self) -> &[RawFd] {
        &self.fds[..usize::from(self.count)]
    }
}

/// Which of [`Packets::fds`] are readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readable(u32);

impl Readable {
    /// In their order.
    pub fn new(readable: impl Iterator<Item = bool>) -> Readable {
        let bits = (0..Packets::MOST as u32).zip(readable);
        Readable(bits.fold(0, |bits, (bit, readable)| bits | u32::from(readable) << bit))
    }

    fn pairs(self) -> impl Iterator<Item = [bool; 2]> {
        let is = move |bit: usize| self.0 >> bit & 1 == 1;
        (0..MOST_DRIVEN).map(move |pair| [is(2 * pair), is(2 * pair + 1)])
    }
}

/// How a thread looks after packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It has just begun to wait, and need not run the engine.
    First,
    /// It slept on the descriptors of packets, and these are readable.
    Woken([bool; 2]),
    /// Something was left, or came meanwhile.
    Again,
}

/// What it found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// So many packets were taken in, if the engine was run.
    pub(super) received: Option<usize>,
    /// Something is there for which no descriptor becomes readable.
    pub(super) left: bool,
    pub(super) waits_for_receives: bool,
    /// The descriptors that become readable for what comes later.
    pub(super) packets: [RawFd; 2],
}

/// An event that a thread waits for, and the engines that bring it about.
pub(super) trait Awaitable {
    /// Runs the engine of that place but at the first time, and has senders wake this thread from
    /// now on.
    fn look(&self, place: usize, look: Look) -> Looked;
    /// The event is there.
    fn is_over(&self) -> bool;
}

#[cfg(all(test, not(loom)))]
mod alone;

#[cfg(all(test, loom))]
mod tests {
    //! No interleaving of threads that wait, the background thread and a peer leaves an event
    //! unseen, and a thread that waits alone is woken once a message.
    //!
    //! There are no ticks: whatever is seen only at the background thread's next tick hangs, but
    //! for what a thread leaves behind that waits no longer.

    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::super::wakeup::{Bell, Wakeup};
    use super::*;

    /// What the kernel and the peer know. How a sender learns that it is to wake a process is
    /// tested in `link/src/shm/wake.rs`: here that is one step.
    #[derive(Debug, Default)]
    struct Outside {
        /// Packets in the ring: the channel that each brings an event of.
        packets: Vec<usize>,
        /// Their sender is to wake this process,
        wakes: bool,
        /// and has done so.
        woke: bool,
        bell: u32,
        events: [u32; 2],
        tick: bool,
        end: bool,
        /// Sleeps that were ended by packets: of those who wait, and of the background thread.
        woken: [u32; 2],
    }

    #[derive(Default)]
    struct Kernel {
        outside: Mutex<Outside>,
        changed: Condvar,
    }

    impl Kernel {
        fn change<T>(&self, change: impl FnOnce(&mut Outside) -> T) -> T {
            let changed = change(&mut self.outside.lock().unwrap());
            self.changed.notify_all();
            changed
        }

        /// ppoll(2). Gives what `ready` gives.
        fn sleep<T>(&self, ready: impl Fn(&mut Outside) -> Option<T>) -> T {
            let mut outside = self.outside.lock().unwrap();
            loop {
                match ready(&mut outside) {
                    Some(ready) => return ready,
                    None => outside = self.changed.wait(outside).unwrap(),
                }
            }
        }
    }

    #[derive(Clone)]
    struct Rings(Arc<Kernel>);

    impl Bell for Rings {
        fn ring(&self) {
            self.0.change(|outside| outside.bell += 1);
        }

        fn silence(&self) {
            self.0.change(|outside| outside.bell -= 1);
        }
    }

    struct World {
        kernel: Arc<Kernel>,
        /// Whether rounds are those of an application that polls, and senders need not wake it.
        engine: Mutex<bool>,
        wakeup: Wakeup<Rings>,
        waiters: Arc<Waiters>,
    }

    impl World {
        /// The background thread watches, or is armed.
        fn new(watching: bool) -> Arc<World> {
            let kernel = Arc::new(Kernel::default());
            let wakeup = Wakeup::new(Rings(kernel.clone()));
            wakeup.watch(watching);
            kernel.change(|outside| outside.wakes = !watching);
            Arc::new(World {
                engine: Mutex::new(watching),
                wakeup,
                waiters: Waiters::new(),
                kernel,
            })
        }

        /// The peer sends one message to each of these channels.
        fn send(&self, channels: &[usize]) {
            for channel in channels {
                self.kernel.change(|outside| {
                    outside.packets.push(*channel);
                    outside.woke |= std::mem::take(&mut outside.wakes);
                });
            }
        }

        /// A round of the engine, which is locked.
        fn round(&self, polled: bool) -> usize {
            self.kernel.change(|outside| {
                let packets = std::mem::take(&mut outside.packets);
                for channel in &packets {
                    outside.events[*channel] += 1;
                }
                outside.wakes = !polled;
                packets.len()
            })
        }

        /// True: something is there already.
        fn have_senders_wake(&self) -> bool {
            self.kernel.change(|outside| {
                outside.wakes = true;
                !outside.packets.is_empty()
            })
        }

        /// Another thread of the application polls once.
        fn poll(&self) {
            let polled = self.engine.lock().unwrap();
            self.round(*polled);
            self.waiters.leave_packets(|| {
                let left = self.have_senders_wake();
                if left {
                    self.round(*polled);
                }
                left
            });
            drop(polled);
        }

        /// An application's thread waits for an event of a channel and takes it, as `Nic::wait` and
        /// what calls it do.
        fn wait(&self, channel: usize, may_drive: bool) {
            let mut wait = Wait::begin([(0, self.waiters.clone())].into_iter(), may_drive, 0);
            let mut woken = None;
            loop {
                match wait.drive(woken, &Of(self, channel)) {
                    Some(Waiting::Over) => break,
                    Some(_) => {
                        let (its, rings) = self.kernel.sleep(|outside| {
                            let its = outside.events[channel] > 0;
                            (its || outside.woke).then_some((its, outside.woke))
                        });
                        if its {
                            break;
                        }
                        self.kernel.change(|outside| outside.woken[0] += 1);
                        woken = Some(Readable::new([false, rings].into_iter()));
                    }
                    None => {
                        self.wakeup.stop_watching();
                        self.kernel
                            .sleep(|outside| (outside.events[channel] > 0).then_some(()));
                        break;
                    }
                }
            }
            drop(wait);
            self.kernel.change(|outside| {
                outside.events[channel] -= 1;
                outside.tick = true;
            });
        }

        /// The background thread, as `background::run`.
        fn background(&self) {
            loop {
                let watching = self.wakeup.is_watching();
                if !watching {
                    let polled = self.engine.lock().unwrap();
                    self.wakeup.will_sleep(u64::MAX);
                    self.kernel.change(|outside| outside.wakes = true);
                    drop(polled);
                }
                let (rang, packets) = self.kernel.sleep(|outside| {
                    let packets = outside.woke || !outside.packets.is_empty();
                    let packets = !watching && packets;
                    let tick = watching && std::mem::take(&mut outside.tick);
                    let rang = outside.bell > 0;
                    (rang || packets || tick || outside.end).then_some((rang, packets))
                });
                let asked = self.wakeup.woke(rang);
                if self.kernel.change(|outside| {
                    outside.woken[1] += u32::from(packets);
                    outside.end
                }) {
                    return;
                }
                if watching && self.waiters.drive() && !asked {
                    continue;
                }
                self.wakeup.watch(false);
                let mut polled = self.engine.lock().unwrap();
                *polled = false;
                self.kernel.change(|outside| outside.woke = false);
                self.round(false);
            }
        }
    }

    struct Of<'a>(&'a World, usize);

    impl Awaitable for Of<'_> {
        fn look(&self, _: usize, look: Look) -> Looked {
            let Of(world, _) = self;
            let polled = world.engine.lock().unwrap();
            if let Look::Woken([_, true]) = look {
                world.kernel.change(|outside| outside.woke = false);
            }
            let received = (look != Look::First).then(|| world.round(*polled));
            let left = world.have_senders_wake();
            world.waiters.will_sleep_on_packets();
            drop(polled);
            Looked {
                received,
                left,
                waits_for_receives: false,
                packets: [-1; 2],
            }
        }

        fn is_over(&self) -> bool {
            self.0.kernel.change(|outside| outside.events[self.1] > 0)
        }
    }

    /// All interleavings take minutes: those with few preemptions find what there is. `check` is
    /// asked at the end.
    fn run(
        watching: bool,
        preemptions: usize,
        messages: &'static [usize],
        waits: Vec<fn(&World)>,
        check: fn(&Outside),
    ) {
        let mut few = loom::model::Builder::new();
        few.preemption_bound = Some(preemptions);
        few.check(move || {
            let world = World::new(watching);
            let start = |body: fn(&World)| {
                let world = world.clone();
                thread::spawn(move || body(&world))
            };
            let background = start(World::background);
            let waits: Vec<_> = waits.iter().map(|wait| start(*wait)).collect();
            world.send(messages);
            waits.into_iter().for_each(|wait| wait.join().unwrap());
            world.kernel.change(|outside| outside.end = true);
            background.join().unwrap();
            let outside = world.kernel.outside.lock().unwrap();
            assert!(outside.packets.is_empty() && outside.events == [0; 2]);
            check(&outside);
        });
    }

    #[test]
    fn a_thread_that_waits_alone_is_woken_once_a_message() {
        let twice = |world: &World| (0..2).for_each(|_| world.wait(0, true));
        run(true, 2, &[0, 0], vec![twice], |outside| {
            assert!(outside.woken[0] <= 2, "{outside:?}");
        });
    }

    #[test]
    fn the_background_thread_that_watches_is_not_woken_for_a_thread_that_waits() {
        run(
            true,
            2,
            &[0],
            vec![|world| world.wait(0, true)],
            |outside| {
                assert_eq!(outside.woken[1], 0, "{outside:?}");
            },
        );
    }

    #[test]
    fn a_thread_that_does_not_drive_is_woken_by_others() {
        run(true, 2, &[0], vec![|world| world.wait(0, false)], |_| ());
    }

    #[test]
    fn a_thread_that_gives_up_is_woken_by_others() {
        let gives_up = |world: &World| {
            let mut wait = Wait::begin([(0, world.waiters.clone())].into_iter(), true, 0);
            wait.drive(None, &Of(world, 0));
            wait.go_to_sleep();
            world.wakeup.stop_watching();
            let event = |outside: &mut Outside| (outside.events[0] > 0).then_some(());
            world.kernel.sleep(event);
            world.kernel.change(|outside| outside.events[0] -= 1);
        };
        run(true, 2, &[0], vec![gives_up], |_| ());
    }

    #[test]
    fn a_thread_that_polls_once_leaves_packets_to_one_that_sleeps() {
        let both: Vec<fn(&World)> = vec![|world| world.wait(0, true), World::poll];
        run(true, 2, &[0], both, |_| ());
    }

    #[test]
    fn of_two_threads_that_wait_each_sees_its_event() {
        let both: Vec<fn(&World)> = vec![|world| world.wait(0, true), |world| world.wait(1, true)];
        run(true, 1, &[1, 0], both, |_| ());
    }
}
