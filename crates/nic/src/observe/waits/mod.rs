//! Threads that wait: for what, and since when. A program that waits for ever is interrupted one
//! day, and `rnic run` then says what it waited for; with `--watch` it says so before.
//!
//! A thread that goes to sleep in a call of ours notes that in a place of its own, which costs
//! nothing where nobody reads it and a few stores where somebody does. A thread of the device's
//! looks at these places now and then. It records the waits that are long, and how the objects
//! stand that could end them. Each has one line of a fixed length in the file ([`place`]), which
//! is written anew as long as the wait goes on: so the file does not grow with the number of waits,
//! and what it says last is how things were when the process was killed.
//!
//! Threads that wait for a descriptor of ours in a call that is not ours are found by procfs
//! ([`sleepers`]). Who has futures says which of them sleep ([`futures`]). Programs that poll wait,
//! too. Each completion queue has marks of polls that found nothing, and of those that found
//! something.

mod futures;
mod place;
mod sleepers;
mod tell;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix_futex_sync::Mutex;

use super::counters::TICK;
use super::{State, is_on, settings, state};
use crate::queues::{ChannelShared, CqShared};
pub(crate) use futures::know_futures;
pub use futures::{Asleep, Awaited, Futures};
use place::Place;
use rnic_sys::PerThread;
use sleepers::Sleepers;
pub(crate) use sleepers::Source;
pub(crate) use tell::{Facts, IdStanding, QpStanding};

/// What lasts so long is recorded, ns.
const LONG: u64 = 250_000_000;
/// Who has not polled a queue for so long polls it no more, ns.
const GAP: u64 = 3_000_000_000;
/// Waits of a process that are recorded at a time.
const MOST: usize = 64;

/// What a thread waits for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// An event of this channel.
    CqEvent(Weak<ChannelShared>),
    AsyncEvent,
    /// An event of the connection manager's channel that has this descriptor.
    CmEvent(RawFd),
    Acks(Unacknowledged),
    /// What ends a call of rsockets: what a peer asks for, or a completion.
    Sockets,
    /// A completion in this queue, which is polled.
    Completion(Weak<CqShared>),
    /// One of these to become readable; `others`: or another descriptor.
    Descriptors {
        sources: Vec<Source>,
        others: bool,
    },
    /// What these futures sleep for; the events of the channel wake them.
    Future(Asleep, Source),
}

/// Events that a program took and did not acknowledge, for which the end of their object waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unacknowledged {
    /// The object, for people.
    pub object: String,
    /// Events of it that were taken, and acknowledged.
    pub taken: u64,
    /// See above.
    pub acknowledged: u64,
    /// Those that are not, by name, as far as that is known.
    pub events: String,
    /// The call that would acknowledge them.
    pub remedy: &'static str,
}

impl Wanted {
    /// Who waited for one and goes on with the other has not done anything else.
    fn is_same(&self, other: &Wanted) -> bool {
        match (self, other) {
            (Wanted::CqEvent(a), Wanted::CqEvent(b)) => a.ptr_eq(b),
            (Wanted::AsyncEvent, Wanted::AsyncEvent) | (Wanted::Sockets, Wanted::Sockets) => true,
            (Wanted::CmEvent(a), Wanted::CmEvent(b)) => a == b,
            (Wanted::Acks(a), Wanted::Acks(b)) => a.object == b.object,
            _ => false,
        }
    }
}

impl Wanted {
    /// The channels of completion queues that are waited for.
    fn channels(&self) -> Vec<Weak<ChannelShared>> {
        match self {
            Wanted::CqEvent(channel) => vec![channel.clone()],
            Wanted::Descriptors { sources, .. } => {
                let channels = sources.iter().filter_map(|source| match source {
                    Source::Completions(channel) => Some(channel.clone()),
                    _ => None,
                });
                channels.collect()
            }
            Wanted::Future(_, Source::Completions(channel)) => vec![channel.clone()],
            _ => Vec::new(),
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// What it was for is there.
    Done,
    /// In vain; who waits for the same again goes on with it.
    Idle,
    /// By a signal.
    Interrupted,
    /// The thread has ended, or the process does.
    End,
}

impl Over {
    /// In a record.
    fn name(self) -> &'static str {
        match self {
            Over::Done => "done",
            Over::Idle => "idle",
            Over::Interrupted => "interrupted",
            Over::End => "end",
        }
    }

    /// How a wait ended that failed with this errno.
    pub fn by_errno(errno: i32) -> Over {
        match errno {
            libc::EINTR => Over::Interrupted,
            _ => Over::Idle,
        }
    }
}

/// One wait.
#[derive(Debug)]
struct Wait {
    /// No other of the process has it.
    serial: u64,
    verb: &'static str,
    wanted: Wanted,
    since: u64,
    over: Option<(Over, u64)>,
}

impl Wait {
    /// It goes on: who waits with a short timeout, over and over, waits.
    fn goes_on(&self, now: u64) -> bool {
        match self.over {
            None => true,
            Some((Over::Idle, at)) => now.saturating_sub(at) < 2 * TICK,
            Some(_) => false,
        }
    }
}

/// What a thread waits for, or did last.
#[derive(Debug)]
struct Seat {
    pid: u32,
    tid: u32,
    /// The thread has ended.
    left: AtomicBool,
    /// The thread itself has it only for moments. Whoever looks has the report's state before.
    wait: Mutex<Option<Wait>>,
    /// The call of a layer above the verbs that the thread is in.
    call: Mutex<Option<&'static str>>,
    /// Its line, under the report's state; whether there is one.
    place: Mutex<Place>,
    has_place: AtomicBool,
}

/// Held by a thread, until it ends or is cancelled.
struct Mine(Arc<Seat>);

impl Drop for Mine {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

static MINE: PerThread<Mine> = PerThread::new();

/// The program has waited in rsockets.
static HAS_SOCKETS: AtomicBool = AtomicBool::new(false);

/// A completion queue, and how it was polled.
#[derive(Debug)]
struct Polled {
    cq: Weak<CqShared>,
    serial: u64,
    /// Since when, by all looks, polls have found nothing.
    since: Option<u64>,
    /// The last look that saw one, and how many did.
    last: u64,
    times: u32,
    place: Place,
}

/// The waits of a process.
#[derive(Debug)]
pub(super) struct Waits {
    seats: Vec<Arc<Seat>>,
    cqs: Vec<Polled>,
    sleepers: Sleepers,
    futures: futures::Known,
    /// Lines that are free.
    free: place::Free,
    serial: u64,
    looked: u64,
}

impl Waits {
    pub(super) const fn new() -> Waits {
        Waits {
            seats: Vec::new(),
            cqs: Vec::new(),
            sleepers: Sleepers::new(),
            futures: futures::Known::new(),
            free: place::Free::new(),
            serial: 0,
            looked: 0,
        }
    }
}

/// This thread waits from now on, or goes on to. Not for handlers of signals.
pub(crate) fn begin(verb: &'static str, wanted: impl FnOnce() -> Wanted) {
    if is_on() {
        note(verb, wanted);
    }
}

fn note(verb: &'static str, wanted: impl FnOnce() -> Wanted) {
    MINE.with(|mine| {
        let Ok(mut mine) = mine.try_borrow_mut() else {
            return;
        };
        let own = |mine: &&mut Mine| mine.0.pid == std::process::id();
        let seat = match mine.as_mut().filter(own) {
            Some(mine) => mine.0.clone(),
            None => {
                let Some(seat) = take_seat() else {
                    return;
                };
                *mine = Some(Mine(seat.clone()));
                seat
            }
        };
        let Some(mut wait) = seat.wait.try_lock() else {
            return;
        };
        let wanted = wanted();
        let verb = seat.call.try_lock().and_then(|call| *call).unwrap_or(verb);
        let goes_on = |wait: &&mut Wait| {
            wait.verb == verb
                && wait.wanted.is_same(&wanted)
                && wait
                    .over
                    .is_none_or(|(over, _)| matches!(over, Over::Idle | Over::Interrupted))
        };
        match wait.as_mut().filter(goes_on) {
            Some(wait) => {
                wait.wanted = wanted;
                wait.over = None;
            }
            None => {
                *wait = Some(Wait {
                    serial: 0,
                    verb,
                    wanted,
                    since: rnic_sys::now_ns(),
                    over: None,
                });
            }
        }
    });
}

fn take_seat() -> Option<Arc<Seat>> {
    let mut state = state()?;
    let seat = Arc::new(Seat {
        pid: std::process::id(),
        tid: rnic_sys::thread_id(),
        left: AtomicBool::new(false),
        wait: Mutex::new(None),
        call: Mutex::new(None),
        place: Mutex::new(Place::default()),
        has_place: AtomicBool::new(false),
    });
    state.waits.seats.push(seat.clone());
    Some(seat)
}

/// This thread waits from now on, in that call, until what it took is acknowledged; until
/// [`wait_over`].
pub fn wait_for_acks(verb: &'static str, what: impl FnOnce() -> Unacknowledged) {
    begin(verb, || Wanted::Acks(what()));
}

/// Runs a call of rsockets, which may sleep in calls of the device and in others: what it waits for is
/// told by the call's own name. `over` says how it ended. Nothing is owned while it runs: the thread
/// may be cancelled in it.
pub fn wait_in_sockets<T>(
    call: &'static str,
    run: impl FnOnce() -> T,
    over: impl FnOnce(&T) -> Over,
) -> T {
    if !is_on() {
        return run();
    }
    HAS_SOCKETS.store(true, Ordering::Relaxed);
    // Within another one it is that one's.
    let is_outer = call_of_thread().is_none();
    if is_outer {
        note(call, || Wanted::Sockets);
        set_call(Some(call));
    }
    let result = run();
    if is_outer {
        set_call(None);
        wait_over(over(&result));
    }
    result
}

fn call_of_thread() -> Option<&'static str> {
    let mut call = None;
    MINE.with(|mine| {
        let Ok(mine) = mine.try_borrow() else {
            return;
        };
        let own = mine
            .as_ref()
            .filter(|mine| mine.0.pid == std::process::id());
        call = own.and_then(|mine| mine.0.call.try_lock().and_then(|call| *call));
    });
    call
}

fn set_call(call: Option<&'static str>) {
    MINE.with(|mine| {
        let Ok(mine) = mine.try_borrow() else {
            return;
        };
        if let Some(mut of_thread) = mine.as_ref().and_then(|mine| mine.0.call.try_lock()) {
            *of_thread = call;
        }
    });
}

/// This thread waits no longer.
pub fn wait_over(over: Over) {
    if !is_on() {
        return;
    }
    MINE.with(|mine| {
        let Ok(mine) = mine.try_borrow() else {
            return;
        };
        let Some(Mine(seat)) = mine.as_ref() else {
            return;
        };
        let Some(mut wait) = seat.wait.try_lock() else {
            return;
        };
        let Some(wait) = wait.as_mut().filter(|wait| wait.over.is_none()) else {
            return;
        };
        wait.over = Some((over, rnic_sys::now_ns()));
        if over == Over::Idle || !seat.has_place.load(Ordering::Relaxed) {
            return;
        }
        // The next look would do it, too, but the process may be killed before.
        if let Some(mut state) = super::STATE.try_lock() {
            seat.place.lock().end(over, None, &mut state.waits.free);
        }
    });
}

/// A completion queue was made.
pub(crate) fn know_cq(cq: &Arc<CqShared>) {
    let Some(mut state) = state() else {
        return;
    };
    let Waits { cqs, free, .. } = &mut state.waits;
    if cqs.len() == cqs.capacity() {
        cqs.retain_mut(|polled| {
            let stays = polled.cq.strong_count() > 0;
            if !stays {
                free.leave(&mut polled.place);
            }
            stays
        });
    }
    cqs.push(Polled {
        cq: Arc::downgrade(cq),
        serial: 0,
        since: None,
        last: 0,
        times: 0,
        place: Place::default(),
    });
}

/// A long wait, to be recorded with how things stand.
#[derive(Debug)]
pub(crate) struct Long {
    serial: u64,
    verb: &'static str,
    wanted: Wanted,
    since: u64,
    thread: Option<u32>,
    seat: Option<Arc<Seat>>,
    /// The queues whose completions could end it.
    pub(crate) cqs: Vec<Arc<CqShared>>,
}

impl Long {
    /// The descriptors of the channels of the connection manager that it is about.
    pub(crate) fn cm_channels(&self) -> Vec<RawFd> {
        match &self.wanted {
            Wanted::CmEvent(fd) => vec![*fd],
            Wanted::Descriptors { sources, .. } => {
                let connections = sources.iter().filter_map(|source| match source {
                    Source::Connections(event) => Some(event.upgrade()?.fd()),
                    _ => None,
                });
                connections.collect()
            }
            Wanted::Future(_, Source::Connections(event)) => {
                event.upgrade().iter().map(|event| event.fd()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// It is about this queue pair alone.
    pub(crate) fn qpn(&self) -> Option<u32> {
        match &self.wanted {
            Wanted::Future(asleep, _) => asleep.awaited.qpn(),
            _ => None,
        }
    }

    /// It is about the ids of all of them.
    pub(crate) fn is_of_sockets(&self) -> bool {
        matches!(self.wanted, Wanted::Sockets)
    }

    /// How queue pairs or ids stand matters.
    pub(crate) fn needs_facts(&self) -> bool {
        self.is_of_sockets() || !self.cqs.is_empty() || !self.cm_channels().is_empty()
    }
}

/// Looks at all threads and queues of the process. Those that wait for long are to be told. `own`:
/// descriptors of the device for packets.
pub(crate) fn long(own: &[RawFd]) -> Vec<Long> {
    let futures = futures::ask();
    match state() {
        Some(mut state) => state.look(rnic_sys::now_ns(), own, futures),
        None => Vec::new(),
    }
}

/// Something was made that threads may wait for, in calls that are not the device's, too.
pub(crate) fn know_source(source: impl FnOnce() -> Source) {
    let watches = settings().is_some_and(|settings| settings.watch);
    if watches && let Some(mut state) = state() {
        state.waits.sleepers.know(source());
    }
}

impl State {
    fn look(&mut self, now: u64, own: &[RawFd], futures: Vec<(u64, Vec<Asleep>)>) -> Vec<Long> {
        let mut longs = Vec::new();
        let mut seated = Vec::new();
        for seat in self.waits.seats.clone() {
            if seat.left.load(Ordering::Relaxed) {
                self.clear(&seat);
                continue;
            }
            let mut wait = seat.wait.lock();
            let Some(wait) = wait.as_mut() else {
                continue;
            };
            // Whoever ended the wait before it may have left that to this look.
            let goes_on = wait.goes_on(now);
            if goes_on {
                seated.push(seat.tid);
            }
            let over = wait.over.map_or(Over::Done, |(over, _)| over);
            let but = Some(wait.serial).filter(|_| goes_on);
            let mut place = seat.place.lock();
            place.end(over, but, &mut self.waits.free);
            drop(place);
            // One look that did not sleep is no long wait: of several it is the last that counts.
            let until = wait.over.map_or(now, |(_, at)| at);
            if goes_on && until.saturating_sub(wait.since) >= LONG {
                if wait.serial == 0 {
                    self.waits.serial += 1;
                    wait.serial = self.waits.serial;
                }
                longs.push(Long {
                    serial: wait.serial,
                    verb: wait.verb,
                    wanted: wait.wanted.clone(),
                    since: wait.since,
                    thread: Some(seat.tid),
                    seat: Some(seat.clone()),
                    cqs: Vec::new(),
                });
            }
        }
        self.look_at_futures(now, futures, &mut longs);
        self.look_at_sleepers(now, own, &seated, &mut longs);
        self.look_at_polls(now, &mut longs);
        self.waits.looked = now;
        longs.truncate(MOST);
        for long in &mut longs {
            self.find_cqs(long);
        }
        longs
    }

    /// The thread has ended: its line is free.
    fn clear(&mut self, seat: &Arc<Seat>) {
        let over = seat.wait.lock().as_ref().and_then(|wait| wait.over);
        let over = over.map_or(Over::End, |(over, _)| over);
        let mut place = seat.place.lock();
        place.end(over, None, &mut self.waits.free);
        self.waits.free.leave(&mut place);
        self.waits.seats.retain(|other| !Arc::ptr_eq(other, seat));
    }

    fn look_at_polls(&mut self, now: u64, longs: &mut Vec<Long>) {
        let channels: Vec<_> = longs
            .iter()
            .flat_map(|long| long.wanted.channels())
            .collect();
        let mut cqs = std::mem::take(&mut self.waits.cqs);
        for polled in &mut cqs {
            let Some(cq) = polled.cq.upgrade() else {
                continue;
            };
            let (nothing, some) = cq.take_polls();
            if nothing {
                // Before the first look it may have been polled at any time.
                let before = match self.waits.looked {
                    0 => now,
                    looked => looked,
                };
                polled.since.get_or_insert(before);
                polled.last = now;
                polled.times += 1;
            }
            if some || now.saturating_sub(polled.last) > GAP {
                let over = if some { Over::Done } else { Over::End };
                polled.place.end(over, None, &mut self.waits.free);
                (polled.since, polled.times, polled.serial) = (None, 0, 0);
                continue;
            }
            let of_channel = cq.channel.as_ref();
            let told_so = of_channel
                .is_some_and(|own| channels.iter().any(|c| c.as_ptr() == Arc::as_ptr(own)));
            if let Some(since) = polled.since
                && polled.times > 1
                && now.saturating_sub(since) >= LONG
                && !told_so
            {
                if polled.serial == 0 {
                    self.waits.serial += 1;
                    polled.serial = self.waits.serial;
                }
                longs.push(Long {
                    serial: polled.serial,
                    verb: "ibv_poll_cq",
                    wanted: Wanted::Completion(polled.cq.clone()),
                    since,
                    thread: None,
                    seat: None,
                    cqs: Vec::new(),
                });
            }
        }
        self.waits.cqs = cqs;
    }

    fn find_cqs(&self, long: &mut Long) {
        let known = self
            .waits
            .cqs
            .iter()
            .filter_map(|polled| polled.cq.upgrade());
        long.cqs = match &long.wanted {
            Wanted::Completion(cq) => cq.upgrade().into_iter().collect(),
            Wanted::Sockets => known.collect(),
            wanted => {
                let channels = wanted.channels();
                let reports = |cq: &Arc<CqShared>| {
                    let own = cq.channel.as_ref().map(Arc::as_ptr);
                    own.is_some_and(|own| channels.iter().any(|c| c.as_ptr() == own))
                };
                known.filter(reports).collect()
            }
        };
    }
}

/// The process ends in order: what still waits was not waited for by it.
pub(crate) fn close() {
    let Some(mut state) = state() else {
        return;
    };
    for seat in state.waits.seats.clone() {
        seat.place
            .lock()
            .end(Over::End, None, &mut state.waits.free);
    }
    let Waits {
        sleepers,
        futures,
        free,
        ..
    } = &mut state.waits;
    for place in sleepers.places().chain(futures.places()) {
        place.end(Over::End, None, free);
    }
    let mut cqs = std::mem::take(&mut state.waits.cqs);
    for polled in &mut cqs {
        polled.place.end(Over::End, None, &mut state.waits.free);
    }
    state.waits.cqs = cqs;
}
