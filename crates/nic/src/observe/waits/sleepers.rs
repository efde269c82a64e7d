//! Threads that wait for the descriptors of channels in poll(2), select(2), epoll_wait(2) or read(2):
//! in calls that are not ours, or that programs make past us. The kernel tells which descriptors
//! each thread sleeps on, and which eventfd a descriptor is, however often it was duplicated.

use std::os::fd::RawFd;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::futures::Known as Futures;
use super::place::Place;
use super::{LONG, Long, Over, Wanted};
use crate::observe::State;
use crate::queues::{AsyncEvents, ChannelShared};
use rnic_sys::{Asleep, EventFd, asleep_on, eventfd_id, threads};

/// With more threads, it is looked at them less often: so many at each look.
const THREADS: usize = 32;

/// What becomes readable.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Completions(Weak<ChannelShared>),
    /// Of the connection manager.
    Connections(Weak<EventFd>),
    Asynchronous(Weak<AsyncEvents>),
}

impl Source {
    /// It is the same channel.
    pub(super) fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Completions(a), Source::Completions(b)) => a.ptr_eq(b),
            (Source::Connections(a), Source::Connections(b)) => a.ptr_eq(b),
            (Source::Asynchronous(a), Source::Asynchronous(b)) => a.ptr_eq(b),
            _ => false,
        }
    }
}

impl Source {
    /// Its descriptor, and the events so far; `None`: it is gone.
    fn look(&self) -> Option<(RawFd, u64)> {
        let of = |event: &EventFd| (event.fd(), event.added());
        match self {
            Source::Completions(channel) => Some(of(&channel.upgrade()?.events)),
            Source::Connections(event) => Some(of(&*event.upgrade()?)),
            Source::Asynchronous(events) => Some(of(events.upgrade()?.event())),
        }
    }
}

#[derive(Debug)]
struct Known {
    source: Source,
    /// Of its eventfd.
    id: u64,
}

/// A thread that was seen to sleep.
#[derive(Debug)]
struct Sleeper {
    thread: u32,
    serial: u64,
    /// Since when it was seen so, with no event in between.
    since: u64,
    /// The eventfds that it waits for, each with the events so far.
    ids: Vec<(u64, u64)>,
    others: bool,
    reads: bool,
    place: Place,
    /// It was seen at the last look.
    seen: bool,
}

/// All of these.
#[derive(Debug)]
pub(super) struct Sleepers {
    known: Vec<Known>,
    sleepers: Vec<Sleeper>,
    /// Looks that are left out.
    rest: usize,
}

impl Sleepers {
    pub(super) const fn new() -> Sleepers {
        Sleepers {
            known: Vec::new(),
            sleepers: Vec::new(),
            rest: 0,
        }
    }

    /// Something was made that threads may wait for.
    pub(super) fn know(&mut self, source: Source) {
        let id = source.look().and_then(|(fd, _)| eventfd_id(fd));
        if let Some(id) = id {
            if self.known.len() == self.known.capacity() {
                self.known.retain(|known| known.source.look().is_some());
            }
            self.known.push(Known { source, id });
        }
    }

    /// The line of a wait.
    pub(super) fn place(&mut self, serial: u64) -> Option<&mut Place> {
        let sleeper = self.sleepers.iter_mut().find(|s| s.serial == serial);
        sleeper.map(|sleeper| &mut sleeper.place)
    }

    /// All lines.
    pub(super) fn places(&mut self) -> impl Iterator<Item = &mut Place> {
        self.sleepers.iter_mut().map(|sleeper| &mut sleeper.place)
    }
}

impl State {
    /// Looks at all threads but those of `seated`, which said what they wait for. `own`: descriptors
    /// of the device, on which a thread may sleep beside its own.
    pub(super) fn look_at_sleepers(
        &mut self,
        now: u64,
        own: &[RawFd],
        seated: &[u32],
        longs: &mut Vec<Long>,
    ) {
        let waits = &mut self.waits;
        let all = &mut waits.sleepers;
        if all.known.is_empty() || all.rest > 0 {
            all.rest = all.rest.saturating_sub(1);
        } else {
            let threads = threads();
            all.rest = threads.len() / THREADS;
            all.sleepers
                .iter_mut()
                .for_each(|sleeper| sleeper.seen = false);
            for thread in threads
                .into_iter()
                .filter(|thread| !seated.contains(thread))
            {
                all.see(thread, now, own, &waits.futures);
            }
            all.sleepers.retain_mut(|sleeper| {
                if !sleeper.seen {
                    sleeper.place.end(Over::Done, None, &mut waits.free);
                    waits.free.leave(&mut sleeper.place);
                }
                sleeper.seen
            });
        }
        for sleeper in &mut all.sleepers {
            if now.saturating_sub(sleeper.since) < LONG {
                continue;
            }
            if sleeper.serial == 0 {
                waits.serial += 1;
                sleeper.serial = waits.serial;
            }
            let of = |id: &(u64, u64)| all.known.iter().find(|known| known.id == id.0);
            longs.push(Long {
                serial: sleeper.serial,
                verb: match sleeper.reads {
                    true => "read",
                    false => "poll, select or epoll_wait",
                },
                wanted: Wanted::Descriptors {
                    sources: sleeper
                        .ids
                        .iter()
                        .filter_map(of)
                        .map(|known| known.source.clone())
                        .collect(),
                    others: sleeper.others,
                },
                since: sleeper.since,
                thread: Some(sleeper.thread),
                seat: None,
                cqs: Vec::new(),
            });
        }
    }
}

impl Sleepers {
    /// rsockets have threads of their own, which wait for the events of their connections and for a
    /// word from a thread of the program: nobody waits for these.
    fn are_of_sockets(&self, ids: &[(u64, u64)]) -> bool {
        let is_connection = |id: &(u64, u64)| {
            let known = self.known.iter().find(|known| known.id == id.0);
            known.is_some_and(|known| matches!(known.source, Source::Connections(_)))
        };
        super::HAS_SOCKETS.load(Ordering::Relaxed) && ids.iter().all(is_connection)
    }

    /// What wakes futures is none of the thread's: these are told themselves.
    fn see(&mut self, thread: u32, now: u64, own: &[RawFd], futures: &Futures) {
        let Some(Asleep { fds, reads }) = asleep_on(thread) else {
            return;
        };
        let (mut ids, mut others) = (Vec::new(), false);
        for fd in fds.into_iter().filter(|fd| !own.contains(fd)) {
            let known = || {
                let id = eventfd_id(fd)?;
                let known = self.known.iter().find(|known| known.id == id)?;
                let is_own = !futures.wakes(&known.source);
                is_own.then_some((id, known.source.look()?.1))
            };
            match known() {
                Some(known) => ids.push(known),
                None => others = true,
            }
        }
        if ids.is_empty() || (others && self.are_of_sockets(&ids)) {
            return;
        }
        ids.dedup();
        match self.sleepers.iter_mut().find(|s| s.thread == thread) {
            Some(known) if known.ids == ids && known.others == others => known.seen = true,
            // Another wait of the thread: the old one ends.
            _ => self.sleepers.push(Sleeper {
                thread,
                serial: 0,
                since: now,
                ids,
                others,
                reads,
                place: Place::default(),
                seen: true,
            }),
        }
    }
}
