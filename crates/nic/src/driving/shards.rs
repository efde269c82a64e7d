//! The shards of an engine: the first is opened with the device, each other one when a completion
//! queue first needs it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rnic_host::registry::Registry;
use rnic_link::{LinkConfig, LinkError, Port, RoceLink};
use rustix_futex_sync::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::background;
use super::shard::Shard;
use crate::engine::{Engine, config_from_environment, several_engines};
use crate::error::{self, Error, Result, meaning};
use rnic_settings::MAX_SHARDS;

const VERB: &str = "ibv_open_device";
/// By default there are at most so many.
const MOST_BY_DEFAULT: usize = 8;
/// By default there may be so many for threads that sleep, however few cores there are.
const FEW_ASLEEP: usize = 4;

/// One at least, in order.
pub(super) struct Shards {
    /// Those that are open are at the front.
    places: [OnceLock<Arc<Shard>>; MAX_SHARDS],
    /// So many of them there may be for threads that poll,
    wanted: AtomicUsize,
    /// and for those that sleep.
    wanted_asleep: AtomicUsize,
    /// Completion queues that are at home in each.
    homes: [AtomicU32; MAX_SHARDS],
    /// Of the first one's link; those of the others are like it, whatever the environment and the
    /// thread have become.
    config: LinkConfig,
    registered: PathBuf,
    /// Who opens one has this, for as long as that takes. This lock and the next are the standard
    /// library's for the sake of forked children (`super::fork`).
    opening: Mutex<()>,
    /// Who changes what is the same in all shards reads, so that there are as many before as after;
    /// who adds one writes.
    growth: RwLock<()>,
}

/// No shard is being opened, and there are as many as there are.
pub(super) struct Still<'a> {
    _opening: MutexGuard<'a, ()>,
    _growth: RwLockWriteGuard<'a, ()>,
}

impl Shards {
    /// Opens the first.
    pub(super) fn open() -> Result<Shards> {
        let config = config_from_environment().map_err(failed)?;
        // Only the first shard's packets go past the network stack.
        let most = match config.xdp {
            Some(_) => [1; 2],
            None => [shards_by_default(), shards_asleep_by_default()],
        };
        let wanted = rnic_settings::shards().map_err(|e| failed(e.into()))?;
        let [wanted, wanted_asleep] = wanted.map_or(most, |wanted| [wanted; 2]);
        rnic_settings::wait().map_err(|e| failed(e.into()))?;
        rnic_settings::guarded_memory().map_err(|e| failed(e.into()))?;
        rnic_settings::pkeys().map_err(|e| failed(e.into()))?;
        let engine = Engine::open(&config).map_err(failed)?;
        let first = enter(engine)?;
        let shards = Shards {
            places: [const { OnceLock::new() }; MAX_SHARDS],
            wanted: AtomicUsize::new(wanted),
            wanted_asleep: AtomicUsize::new(wanted_asleep),
            homes: [const { AtomicU32::new(0) }; MAX_SHARDS],
            config,
            registered: Registry::of_this_thread(),
            opening: Mutex::new(()),
            growth: RwLock::new(()),
        };
        let _ = shards.places[0].set(first);
        Ok(shards)
    }

    /// One that there is already; there will be no other.
    pub(super) fn of_one(engine: Engine) -> Result<Shards> {
        let shards = Shards {
            places: [const { OnceLock::new() }; MAX_SHARDS],
            wanted: AtomicUsize::new(1),
            wanted_asleep: AtomicUsize::new(1),
            homes: [const { AtomicU32::new(0) }; MAX_SHARDS],
            config: LinkConfig::default(),
            registered: PathBuf::new(),
            opening: Mutex::new(()),
            growth: RwLock::new(()),
        };
        let _ = shards.places[0].set(enter(engine)?);
        Ok(shards)
    }

    pub(super) fn first(&self) -> &Arc<Shard> {
        self.get(0)
            .expect("the first is open as long as the device")
    }

    /// The one of that place, if it is open.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Arc<Shard>> {
        self.places.get(index)?.get()
    }

    /// Those that are open, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.places.iter().map_while(OnceLock::get)
    }

    /// No shard is opened as long as this is held. Taken before any shard is locked.
    pub(super) fn steady(&self) -> RwLockReadGuard<'_, ()> {
        self.growth.read()
    }

    /// Neither is one opened, nor does anybody change what is the same in all. For fork(2).
    pub(super) fn still(&self) -> Still<'_> {
        Still {
            _opening: self.opening.lock(),
            _growth: self.growth.write(),
        }
    }

    /// A home for the queue pairs that send to a completion queue: whoever polls it, or waits for
    /// its events, drives them, so they are together, and those of different completion queues are
    /// apart, where the fewest are. That suits a thread with a completion queue of its own, whoever
    /// has made it; a thread that waits for the events of many drives all their shards; and a
    /// program that makes them one after the other stays where it is. Opens the shard if it is not;
    /// one that cannot be opened is done without. `sleeps`: threads wait for events of the queue.
    pub(super) fn enter_home(&self, near: Option<usize>, sleeps: bool) -> usize {
        let wanted = match sleeps {
            true => &self.wanted_asleep,
            false => &self.wanted,
        };
        let mut home = near.unwrap_or_else(|| self.emptiest(wanted));
        while self.get(home).is_none() {
            rnic_sys::uncancelled(|| self.grow(home));
            home = self.emptiest(wanted);
        }
        self.homes[home].fetch_add(1, Ordering::Relaxed);
        home
    }

    /// The completion queue that had this home is gone.
    pub(super) fn leave_home(&self, home: usize) {
        self.homes[home].fetch_sub(1, Ordering::Relaxed);
    }

    /// The first of those with the fewest.
    fn emptiest(&self, wanted: &AtomicUsize) -> usize {
        let count = |place: &usize| self.homes[*place].load(Ordering::Relaxed);
        let wanted = wanted.load(Ordering::Relaxed);
        (0..wanted).min_by_key(count).unwrap_or(0)
    }

    fn want_no_more_than(&self, count: usize) {
        self.wanted.fetch_min(count, Ordering::Relaxed);
        self.wanted_asleep.fetch_min(count, Ordering::Relaxed);
    }

    /// Opens those up to that place, or as many as can be: then there shall be no more.
    #[cold]
    fn grow(&self, place: usize) {
        let _opening = self.opening.lock();
        for index in 1..=place {
            if self.get(index).is_none() && self.open_next(index).is_err() {
                self.want_no_more_than(index);
                return;
            }
        }
    }

    /// Opens the one of that place, all before which are open.
    fn open_next(&self, index: usize) -> Result<()> {
        let closed = || {
            Error::new(
                VERB,
                libc::ENODEV,
                "the device is closed, or is another one here",
            )
        };
        // In another network namespace, or with another runtime folder, it would be another host's.
        if Registry::of_this_thread() != self.registered {
            return Err(closed());
        }
        let first = self.first();
        let config = first.lock().config_beside(&self.config);
        // Without a lock that others take: it makes system calls, and asks other processes.
        let link = Port::from(RoceLink::open(&config).map_err(failed)?);
        let ranges = link.qpn_ranges().to_vec();
        let _growth = self.growth.write();
        let (engine, common) = {
            let first = first.lock();
            if first.closed {
                return Err(closed());
            }
            let engine = first.beside(index, link);
            let engine = engine.map_err(|_| error::no_memory(VERB))?;
            (engine, first.common.clone())
        };
        let shard = enter(engine)?;
        background::start(&shard)?;
        several_engines();
        for range in ranges {
            common.add_range(range, index);
        }
        let _ = self.places[index].set(shard);
        Ok(())
    }

    /// For the end of the device: no more are opened, if that can be had soon.
    pub(super) fn end_growth(&self) -> Option<Still<'_>> {
        const GROWTH_END_TIMEOUT: Duration = Duration::from_millis(50);
        self.want_no_more_than(1);
        let start = Instant::now();
        loop {
            if let (Some(_opening), Some(_growth)) =
                (self.opening.try_lock(), self.growth.try_write())
            {
                return Some(Still { _opening, _growth });
            }
            if start.elapsed() > GROWTH_END_TIMEOUT {
                return None;
            }
            std::thread::yield_now();
        }
    }
}

fn enter(engine: Engine) -> Result<Arc<Shard>> {
    let shard = Shard::new(engine).map_err(|error| error::os(VERB, "eventfd", &error))?;
    Ok(Arc::new(shard))
}

fn failed(e: LinkError) -> Error {
    let errno = match &e {
        LinkError::PortTaken { .. } => libc::EADDRINUSE,
        LinkError::Io { source, .. }
        | LinkError::Runtime { source, .. }
        | LinkError::Capture { source, .. } => source.raw_os_error().unwrap_or({
            // What rnic refuses by itself, as a folder that others may enter.
            match source.kind() {
                std::io::ErrorKind::PermissionDenied => libc::EACCES,
                std::io::ErrorKind::TimedOut => libc::EAGAIN,
                _ => libc::EINVAL,
            }
        }),
        _ => libc::ENODEV,
    };
    let call = match &e {
        LinkError::Io { source, .. }
        | LinkError::Runtime { source, .. }
        | LinkError::Capture { source, .. } => rnic_sys::failed_call(source),
        _ => None,
    };
    let mut words = e.to_string();
    if let Some(call) = call {
        words = format!("{words}, of {call}");
    }
    words += meaning(errno);
    Error::new(VERB, errno, words)
}

/// With one, threads that drive queue pairs of one process take turns, and each finds in the
/// other's cache what it needs; with several, those of different completion queues need not. But
/// each shard has sockets, rings and a background thread of its own, which is awake while packets
/// come that nobody polls for: so there are no more than half of the cores.
fn by_default(cores: usize) -> usize {
    (cores / 2).clamp(1, MOST_BY_DEFAULT)
}

/// How many engines a process of this machine has at most for threads that poll, if nothing else is
/// said.
pub fn shards_by_default() -> usize {
    by_default(cores())
}

/// The same for threads that sleep. They take in packets themselves, and the background threads
/// sleep all the time, so that there are more than where threads poll. With one engine for two
/// threads, each message costs several wake-ups and both wait for the engine's lock.
pub fn shards_asleep_by_default() -> usize {
    cores().clamp(FEW_ASLEEP, MOST_BY_DEFAULT)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

#[cfg(test)]
impl Shards {
    /// So many without threads: only those that call drive them.
    pub(super) fn without_threads(count: usize) -> Shards {
        let config = LinkConfig::default();
        let first = Engine::open(&config).expect("a device");
        let mut shards = Shards::of_one(first).expect("descriptors");
        shards.config = config;
        let first = shards.first().clone();
        for index in 1..count {
            let config = first.lock().config_beside(&shards.config);
            let link = Port::from(RoceLink::open(&config).expect("a part of the port"));
            let ranges = link.qpn_ranges().to_vec();
            let engine = first.lock().beside(index, link).expect("memory");
            several_engines();
            let common = engine.common.clone();
            for range in ranges {
                common.add_range(range, index);
            }
            let _ = shards.places[index].set(enter(engine).expect("descriptors"));
        }
        shards.wanted = AtomicUsize::new(count);
        shards.wanted_asleep = AtomicUsize::new(count);
        shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_cores_are_the_programs() {
        let shards = [1, 2, 3, 4, 8, 16, 64].map(by_default);
        assert_eq!(shards, [1, 1, 1, 2, 4, 8, 8]);
    }
}
