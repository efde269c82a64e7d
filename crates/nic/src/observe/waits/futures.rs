//! Futures that sleep. No thread is in a call of ours then, so whoever has futures is asked at each
//! look. A program pays nothing for that between the looks.

use std::sync::Weak;

use super::place::Place;
use super::{LONG, Long, Over, Source, Wanted};
use crate::observe::{State, is_on, state};

/// What futures of a queue pair, or of a channel of the connection manager, sleep for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A message for the queue pair of that number.
    Message(u32),
    /// The completion of a request that it posted.
    Completion(u32),
    /// Room in its send queue.
    Room(u32),
    /// An event of the connection manager.
    Connection,
}

impl Awaited {
    pub(super) fn qpn(self) -> Option<u32> {
        match self {
            Awaited::Message(qpn) | Awaited::Completion(qpn) | Awaited::Room(qpn) => Some(qpn),
            Awaited::Connection => None,
        }
    }
}

/// Futures that sleep for the same.
#[derive(Clone, Copy, Debug)]
pub struct Asleep {
    /// What it is.
    pub awaited: Awaited,
    /// How many; one at least.
    pub futures: usize,
    /// What came so far of what they wait for: with another number, it is another wait.
    pub came: u64,
}

/// Who has futures.
pub trait Futures: Send + Sync {
    /// Those that sleep now. It is called by a thread of the device that holds no lock. In a forked
    /// child it takes none.
    fn asleep(&self) -> Vec<Asleep>;
}

/// Somebody who has futures, which the events of a channel wake.
#[derive(Clone, Debug)]
struct Owner {
    futures: Weak<dyn Futures>,
    source: Source,
}

/// Futures that were seen to sleep.
#[derive(Debug)]
struct Sleeping {
    owner: u64,
    asleep: Asleep,
    serial: u64,
    /// The first look that saw them so.
    since: u64,
    seen: bool,
    place: Place,
}

/// All of a process.
#[derive(Debug)]
pub(super) struct Known {
    owners: Vec<(u64, Owner)>,
    next: u64,
    sleeping: Vec<Sleeping>,
}

impl Known {
    pub(super) const fn new() -> Known {
        Known {
            owners: Vec::new(),
            next: 0,
            sleeping: Vec::new(),
        }
    }

    /// The line of a wait.
    pub(super) fn place(&mut self, serial: u64) -> Option<&mut Place> {
        let its = self.sleeping.iter_mut().find(|s| s.serial == serial);
        its.map(|sleeping| &mut sleeping.place)
    }

    /// All lines.
    pub(super) fn places(&mut self) -> impl Iterator<Item = &mut Place> {
        self.sleeping.iter_mut().map(|sleeping| &mut sleeping.place)
    }

    /// The events of it wake futures. A thread that sleeps there waits for nothing of its own.
    pub(super) fn wakes(&self, source: &Source) -> bool {
        self.owners.iter().any(|(_, owner)| owner.source.is(source))
    }
}

/// From now on `futures` is asked, as long as it exists.
pub(crate) fn know_futures(futures: Weak<dyn Futures>, source: impl FnOnce() -> Source) {
    if !is_on() {
        return;
    }
    let Some(mut state) = state() else {
        return;
    };
    let known = &mut state.waits.futures;
    if known.owners.len() == known.owners.capacity() {
        let exists = |owner: &Owner| owner.futures.strong_count() > 0;
        known.owners.retain(|(_, owner)| exists(owner));
    }
    known.next += 1;
    let owner = Owner {
        futures,
        source: source(),
    };
    known.owners.push((known.next, owner));
}

/// Asks all of them. The report's state is not held meanwhile: who has futures may need it.
pub(super) fn ask() -> Vec<(u64, Vec<Asleep>)> {
    let owners = match state() {
        Some(state) => state.waits.futures.owners.clone(),
        None => Vec::new(),
    };
    let asleep = |(number, owner): (u64, Owner)| Some((number, owner.futures.upgrade()?.asleep()));
    owners.into_iter().filter_map(asleep).collect()
}

impl State {
    /// Adds the waits of these that are long, and ends those that are over.
    pub(super) fn look_at_futures(
        &mut self,
        now: u64,
        asked: Vec<(u64, Vec<Asleep>)>,
        longs: &mut Vec<Long>,
    ) {
        let waits = &mut self.waits;
        let known = &mut waits.futures;
        for sleeping in &mut known.sleeping {
            sleeping.seen = false;
        }
        let asked = asked
            .into_iter()
            .flat_map(|(owner, all)| all.into_iter().map(move |asleep| (owner, asleep)));
        for (owner, asleep) in asked {
            let same = |old: &&mut Sleeping| {
                old.owner == owner
                    && old.asleep.awaited == asleep.awaited
                    && old.asleep.came == asleep.came
            };
            match known.sleeping.iter_mut().find(same) {
                Some(old) => (old.asleep, old.seen) = (asleep, true),
                None => known.sleeping.push(Sleeping {
                    owner,
                    asleep,
                    serial: 0,
                    since: now,
                    seen: true,
                    place: Place::default(),
                }),
            }
        }
        known.sleeping.retain_mut(|sleeping| {
            if !sleeping.seen {
                sleeping.place.end(Over::Done, None, &mut waits.free);
                waits.free.leave(&mut sleeping.place);
            }
            sleeping.seen
        });
        for sleeping in &mut known.sleeping {
            let its = |(number, _): &&(u64, Owner)| *number == sleeping.owner;
            let Some((_, owner)) = known.owners.iter().find(its) else {
                continue;
            };
            if now.saturating_sub(sleeping.since) < LONG {
                continue;
            }
            if sleeping.serial == 0 {
                waits.serial += 1;
                sleeping.serial = waits.serial;
            }
            longs.push(Long {
                serial: sleeping.serial,
                verb: "a future",
                wanted: Wanted::Future(sleeping.asleep, owner.source.clone()),
                since: sleeping.since,
                thread: None,
                seat: None,
                cqs: Vec::new(),
            });
        }
    }
}
