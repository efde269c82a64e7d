//! The process's NIC: the shards of its engine, and how the application's threads get at them.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_link::LinkCounters;
use rnic_settings::GuardedMemory;
use rustix_futex_sync::Mutex;

use super::background;
use super::fork;
use super::shard::{Driven, Shard};
use super::shards::Shards;
use crate::engine::Common;
use crate::engine::Incast;
use crate::engine::{DropCounters, Engine, KeyViolations, Objects, PortCounters, sum};
use crate::error::{self, Error, Result};
use crate::host::Host;
use crate::memory::Windows;
use crate::observe;
use crate::queues::{AsyncEvents, CqFacts, CqTasks, DeviceUpcalls, Places, ShardSet};
use crate::sync::bias::Guard;
use rnic_sys::ForkWitness;

/// What all threads of the process share.
pub(crate) struct NicShared {
    /// At least one, in order; the first has what there is once: QP 1 and the connection manager,
    /// the numbers of shared receive queues, XRC targets, what is done for other processes, and UD
    /// queue pairs with their address handles.
    pub(super) shards: Shards,
    witness: ForkWitness,
    dead: AtomicBool,
    guarded_memory: GuardedMemory,
    windows: Arc<Windows>,
    pub(crate) common: Arc<Common>,
    /// Held by who enters or takes back another process's region: the shards are locked one by one,
    /// and have it all or none.
    pub(super) imports: Mutex<()>,
}

/// The process's NIC: shared by all its contexts, closed with the last.
#[derive(Clone)]
pub(crate) struct Nic {
    handle: Arc<NicHandle>,
}

pub(crate) struct NicHandle {
    pub(crate) shared: Arc<NicShared>,
    pub(super) reporter: Option<observe::Reporter>,
}

impl std::fmt::Debug for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nic").finish_non_exhaustive()
    }
}

impl Nic {
    /// The process's NIC, opened if there is none.
    pub(crate) fn get() -> Result<Nic> {
        // Before the first lock is taken that they hold.
        fork::guard_forks()?;
        fork::get_or_open(|| {
            if crate::addressing::gid_table::gid_table().is_empty() {
                // It may be that nobody answers.
                rnic_sys::interface_addresses()
                    .map_err(|error| error::os("ibv_open_device", "getifaddrs", &error))?;
                return Err(Error::new(
                    "ibv_open_device",
                    libc::ENODEV,
                    "no network interface is up with an address; `ip link set lo up` is enough for this host alone",
                ));
            }
            let shards = Shards::open()?;
            // While the process has few threads, as a rule: later it takes longer.
            rnic_sys::join_private_barriers();
            let shared = Arc::new(NicShared::of(shards));
            background::start(shared.shards.first())?;
            let noted = Arc::downgrade(&shared);
            let looked = noted.clone();
            let mut own = Vec::new();
            let reporter = observe::opened(
                move || noted.upgrade()?.note_counters(),
                move || looked.upgrade()?.look_at_waits(&mut own),
            );
            Ok(Arc::new(NicHandle { shared, reporter }))
        })
        .map(|handle| Nic { handle })
    }

    pub(super) fn of(handle: Arc<NicHandle>) -> Nic {
        Nic { handle }
    }

    /// The machine that it is on.
    pub(crate) fn host(&self) -> &Host {
        &self.shared().common.host
    }

    pub(super) fn shared(&self) -> &NicShared {
        &self.handle.shared
    }

    /// The engine of this very process. In a forked child there is none: its copy may be locked by
    /// a thread that does not exist there, so every caller of [`Nic::lock`] has asked
    /// [`Nic::check_alive`] before, or asks here.
    pub(crate) fn lock_if_alive(&self) -> Option<Guard<'_, Engine>> {
        self.shared().is_alive().then(|| self.lock())
    }

    /// The engine's first shard, waiting for its lock.
    pub(crate) fn lock(&self) -> Guard<'_, Engine> {
        self.first().lock()
    }

    fn first(&self) -> &Arc<Shard> {
        self.shared().shards.first()
    }

    /// A shard by its place.
    #[inline]
    pub(crate) fn shard(&self, index: usize) -> &Arc<Shard> {
        let shards = &self.shared().shards;
        shards.get(index).unwrap_or_else(|| shards.first())
    }

    /// No more than so many shards are open.
    pub(crate) fn has_no_more_shards(&self, than: usize) -> bool {
        self.shared().shards.get(than).is_none()
    }

    /// A completion queue was made.
    pub(crate) fn know_cq(&self, facts: &Arc<CqFacts>) {
        self.shared().common.know_cq(facts);
    }

    /// All memory windows.
    pub(crate) fn windows(&self) -> &Windows {
        &self.shared().windows
    }

    /// Does it in each shard of the engine, the first one last. What is to be the same in all is
    /// changed while they are steady.
    pub(crate) fn each(&self, mut act: impl FnMut(&mut Engine)) {
        self.each_other(&mut act);
        act(&mut self.lock());
    }

    /// The same in all but the first.
    pub(super) fn each_other(&self, mut act: impl FnMut(&mut Engine)) {
        for shard in self.shared().shards.iter().skip(1) {
            act(&mut shard.lock());
        }
    }

    /// Takes in what other processes have said so far.
    pub(crate) fn hear_neighbours(&self) {
        if let Some(mut engine) = self.lock_if_alive() {
            engine.hear_neighbours(self.host().now_ns(), true);
            self.after_drive(engine);
        }
    }

    /// Fails in a forked child, where the engine is a dead copy, and after shutdown.
    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        if self.shared().is_alive() {
            Ok(())
        } else {
            Err(Error::new(
                verb,
                libc::ENODEV,
                "this object was made before fork() or daemon() and is the parent's: make it afterwards",
            ))
        }
    }

    /// Events of the port and the device go there, too, as long as it lives.
    pub(crate) fn tell_of_the_port(&self, events: &Arc<AsyncEvents>) {
        self.first().contexts.add(events);
    }

    /// What notices that registered memory is gone (`RNIC_GUARDED_MEMORY`).
    pub(crate) fn guarded_memory(&self) -> GuardedMemory {
        self.shared().guarded_memory
    }

    /// Runs the shards for one round each, see [`Shard::drive`].
    pub(crate) fn drive(
        &self,
        verb: &'static str,
        set: &ShardSet,
        satisfied: impl Fn() -> bool,
    ) -> Result<Driven> {
        self.check_alive(verb)?;
        if let Some(only) = set.only() {
            return Ok(self.shard(only).drive(satisfied));
        }
        // What is most of what was done.
        let driven = set.iter().map(|index| self.shard(index).drive(&satisfied));
        Ok(driven.max().unwrap_or(Driven::QuickPolled))
    }

    /// Somebody polls.
    #[inline]
    pub(crate) fn count_poll(&self, set: &ShardSet) {
        match set.only() {
            Some(only) => self.shard(only).count_poll(),
            None => set.iter().for_each(|index| self.shard(index).count_poll()),
        }
    }

    /// Leaves the first shard.
    pub(crate) fn after_drive(&self, engine: Guard<'_, Engine>) {
        self.first().after_drive(engine);
    }

    /// The application is about to wait for an event instead of polling.
    pub(crate) fn expect_sleep(&self, places: Places) {
        for place in places.iter() {
            self.shard(place).expect_sleep();
        }
    }

    /// Called after each poll: if cores are short, or somebody else has the engine for long, an
    /// application that finds nothing lets others run.
    #[inline]
    pub(crate) fn spin_or_yield(&self, set: &ShardSet, driven: Driven, found: bool) {
        let only = set.only().unwrap_or(0);
        if self.shard(only).spin_or_yield(driven, found) {
            self.drive_unpolled(set);
        }
    }

    /// A thread polls in vain. What it waits for may need another engine first, as where both ends
    /// of a connection are in this process: one that nobody polls now, although its background
    /// thread leaves it to threads that do. So this thread drives it.
    #[cold]
    fn drive_unpolled(&self, set: &ShardSet) {
        for shard in self.shared().shards.iter() {
            if !set.iter().any(|index| index == shard.index) {
                shard.drive_if_unpolled();
            }
        }
    }
}

impl DeviceUpcalls for Nic {
    fn overran(&self, qpn: u32, cq: u32, capacity: u32) {
        observe::overran(qpn, cq, capacity);
    }

    fn check_alive(&self, verb: &'static str) -> Result<()> {
        Nic::check_alive(self, verb)
    }

    fn cq_tasks(&self, qpn: u32) -> &CqTasks {
        let shard = self.shared().common.shard_of(qpn).unwrap_or(0);
        &self.shard(shard).cq_tasks
    }

    fn first_cq_tasks(&self) -> &CqTasks {
        &self.first().cq_tasks
    }

    fn attend_to_tasks(&self) {
        self.after_drive(self.lock());
    }

    fn enter_home(&self, near: Option<usize>, sleeps: bool) -> usize {
        self.shared().shards.enter_home(near, sleeps)
    }

    fn leave_home(&self, home: usize) {
        self.shared().shards.leave_home(home);
    }
}

impl NicShared {
    /// With these shards.
    pub(super) fn of(shards: Shards) -> NicShared {
        let (windows, common) = {
            let engine = shards.first().lock();
            (engine.memory.windows().clone(), engine.common.clone())
        };
        NicShared {
            shards,
            windows,
            common,
            witness: ForkWitness::new(),
            dead: AtomicBool::new(false),
            guarded_memory: rnic_settings::guarded_memory().unwrap_or_default(),
            imports: Mutex::default(),
        }
    }

    /// For the report: notes what was counted so far. Gives the number of queue pairs; `None` when
    /// all is over.
    pub(crate) fn note_counters(&self) -> Option<usize> {
        if !self.is_alive() {
            return None;
        }
        let mut qps = 0;
        for shard in self.shards.iter() {
            let engine = shard.lock();
            engine.note_all(false);
            if engine.closed {
                return None;
            }
            qps += engine.qps.len();
        }
        Some(qps)
    }

    /// For the report: who waits for long, and how what could end it stands. Gives the number of
    /// such waits; `None` when all is over. `own`: the descriptors of the device for packets.
    pub(crate) fn look_at_waits(&self, own: &mut Vec<RawFd>) -> Option<usize> {
        if !self.is_alive() {
            return None;
        }
        // Asked of the engines only when there are more of them.
        if own.len() != 2 * self.shards.iter().count() {
            own.clear();
            self.each_shard(|shard| {
                let engine = shard.lock();
                own.extend([engine.link.rx_fd(), engine.link.wake_fd()]);
            });
        }
        let longs = observe::waits::long(own);
        let count = longs.len();
        for long in longs {
            let mut facts = observe::waits::Facts::default();
            if long.needs_facts() {
                self.each_shard(|shard| shard.lock().facts_of(&long, &mut facts));
            }
            long.tell(&facts);
        }
        Some(count)
    }

    /// Looks at all shards, one after the other.
    pub(crate) fn each_shard(&self, mut look: impl FnMut(&Shard)) {
        self.shards.iter().for_each(|shard| look(shard));
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.witness.same_process() && !self.dead.load(Ordering::Relaxed)
    }
}

impl Drop for NicHandle {
    fn drop(&mut self) {
        let reporter = self.reporter.take();
        if self.shared.is_alive() {
            if let Some(reporter) = reporter {
                reporter.stop();
            }
            for shard in self.shared.shards.iter() {
                background::stop(shard);
            }
            for shard in self.shared.shards.iter() {
                let mut engine = shard.lock();
                if !engine.closed {
                    engine.close_cm();
                }
                engine.note_all(true);
            }
            observe::closed();
            return;
        }
        // Its thread is the parent's.
        std::mem::forget(reporter);
        // In a forked child: closing the copy must not tell anyone that the parent's part of the
        // port is gone.
        for shard in self.shared.shards.iter() {
            if let Some(mut engine) = shard.engine.try_lock() {
                engine.link.abandon();
            }
        }
        std::mem::forget(self.shared.clone());
    }
}

/// Stops the process's NIC for good (library fini): acknowledgements leave, all memory is revoked,
/// nothing is received.
pub fn shutdown() {
    let Some(handle) = fork::current().filter(|handle| handle.shared.is_alive()) else {
        return;
    };
    let _still = handle.shared.shards.end_growth();
    for shard in handle.shared.shards.iter() {
        let timeout = std::time::Duration::from_millis(50);
        if let Some(mut engine) = shard.engine.try_lock_for(timeout) {
            engine.round(false);
            // What arrives from now on finds no memory.
            engine.memory.clear();
            let mut copies = engine.link.revoke(|_| true);
            for qpn in engine.qps.qpns() {
                copies.join(engine.remove_qp(qpn));
            }
            engine.close_cm();
            engine.link.send_what_waits();
            engine.closed = true;
            engine.timers.incast = Incast::default();
            engine.note_all(true);
            drop(engine);
            copies.wait();
        }
    }
    observe::waits::close();
}

/// The link's counters and the device's drops, if the device is open.
pub fn stats() -> Option<(LinkCounters, DropCounters)> {
    let handle = fork::current().filter(|handle| handle.shared.is_alive())?;
    let mut all = (LinkCounters::default(), DropCounters::default());
    for shard in handle.shared.shards.iter() {
        let (link, drops) = shard.lock().counters();
        all.0 += link;
        all.1 += drops;
    }
    Some(all)
}

/// The counts now; zero if the device is not open.
pub fn port_counters() -> PortCounters {
    let handle = fork::current().filter(|handle| handle.shared.is_alive());
    let shards = handle.iter().flat_map(|handle| handle.shared.shards.iter());
    sum(shards.map(|shard| shard.lock().port_counters()))
}

/// Violations of keys so far; none if the device is not open.
pub fn key_violations() -> KeyViolations {
    let handle = fork::current().filter(|handle| handle.shared.is_alive());
    let shards = handle.iter().flat_map(|handle| handle.shared.shards.iter());
    let each = shards.map(|shard| shard.lock().key_violations());
    each.fold(KeyViolations::default(), |all, more| KeyViolations {
        pkey: all.pkey + more.pkey,
        qkey: all.qkey + more.qkey,
    })
}

/// What lives now, if the device is open.
pub fn objects() -> Option<Objects> {
    let handle = fork::current().filter(|handle| handle.shared.is_alive())?;
    let mut objects = handle.shared.shards.first().lock().objects();
    for shard in handle.shared.shards.iter().skip(1) {
        objects.queue_pairs += shard.lock().qps.len();
    }
    Some(objects)
}

#[cfg(test)]
impl Nic {
    /// With so many shards and no thread of its own: only calls drive it, as if the threads left
    /// the engines to those that poll and no tick were ever over.
    pub(crate) fn left_to_polling(shards: usize) -> Nic {
        let shared = NicShared::of(Shards::without_threads(shards));
        for shard in shared.shards.iter() {
            shard.background.wakeup.watch(true);
        }
        Nic::of(Arc::new(NicHandle {
            shared: Arc::new(shared),
            reporter: None,
        }))
    }

    /// The threads look after packets themselves from now on.
    pub(crate) fn is_taken_back(&self) {
        self.shared()
            .each_shard(|shard| shard.background.wakeup.watch(false));
    }
}
