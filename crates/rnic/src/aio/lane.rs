//! What one queue pair's futures share: requests in flight, messages that wait to be taken, and who
//! waits for what.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use rustix_futex_sync::Mutex;
use smallvec::SmallVec;

use super::pool::Pool;
use crate::completion::Completion;
use crate::error::CompletionError;
use crate::nic::{Asleep, Awaited, CompletionOpcode, Status};
use crate::post::{PostError, SendRequest};
use crate::raw::memory::Buffer;

/// What happens when locks are let go: futures are woken, and what was left behind is dropped.
#[derive(Default)]
pub(super) struct News {
    pub(super) wakers: SmallVec<[Waker; 8]>,
    buffers: SmallVec<[(Pool, Buffer); 4]>,
    rest: Vec<Box<dyn Send>>,
    completions: Vec<Completion>,
}

impl News {
    /// Drops it when locks are let go.
    pub(super) fn keep(&mut self, completion: Completion) {
        self.completions.push(completion);
    }

    pub(super) fn tell(self) {
        for waker in self.wakers {
            waker.wake();
        }
        for (pool, buffer) in self.buffers {
            pool.put(buffer);
        }
    }
}

/// A request in flight, by its number and its use of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// As the request's id.
    pub(super) fn id(self) -> u64 {
        self.0
    }

    fn new(index: usize, generation: u32) -> Key {
        Key(u64::from(generation) << 32 | index as u64)
    }

    fn index(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Where the outcomes of an unsignaled stream go.
#[derive(Default)]
pub(super) struct Outcomes {
    state: Mutex<OutcomesState>,
}

#[derive(Default)]
struct OutcomesState {
    failed: Option<CompletionError>,
    buffers: Vec<Buffer>,
    /// Requests that are in flight.
    open: usize,
    /// Those posted behind the last signaled one.
    since: usize,
    /// Told when all are done.
    waker: Option<Waker>,
    /// Told when the next one is.
    next: Option<Waker>,
}

impl Outcomes {
    fn posted(&self, signaled: bool) {
        let mut state = self.state.lock();
        state.open += 1;
        state.since = if signaled { 0 } else { state.since + 1 };
    }

    /// Requests behind the last signaled one: nothing tells of their end.
    pub(super) fn since(&self) -> usize {
        self.state.lock().since
    }

    pub(super) fn failed(&self) -> Option<CompletionError> {
        self.state.lock().failed
    }

    /// Wakes this when the next one is done.
    pub(super) fn tell_next(&self, waker: Option<&Waker>) {
        if let Some(waker) = waker {
            self.state.lock().next = Some(waker.clone());
        }
    }

    /// A future sleeps until one of them is done, or all.
    fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        state.waker.is_some() || state.next.is_some()
    }

    pub(super) fn take_buffers(&self) -> Vec<Buffer> {
        std::mem::take(&mut self.state.lock().buffers)
    }

    /// All that was posted is done.
    pub(super) fn are_in(&self, waker: Option<&Waker>) -> bool {
        let mut state = self.state.lock();
        let all = state.open == 0;
        if !all && let Some(waker) = waker {
            state.waker = Some(waker.clone());
        }
        all
    }

    fn done(
        &self,
        error: Option<CompletionError>,
        buffers: impl IntoIterator<Item = Buffer>,
        news: &mut News,
    ) {
        let mut state = self.state.lock();
        state.open -= 1;
        worse(&mut state.failed, error);
        state.buffers.extend(buffers);
        news.wakers.extend(state.next.take());
        if state.open == 0 {
            news.wakers.extend(state.waker.take());
        }
    }
}

/// What a completion does.
enum Slot {
    Free,
    /// A future waits for it.
    Waiting(Option<Waker>),
    /// Its future has not looked yet.
    Done(Box<Completion>),
    /// Its future is gone. What is held by it goes with it.
    Abandoned(Option<Box<dyn Send>>),
    /// It is one of many, and this one is signaled.
    Signaled(Arc<Outcomes>),
    /// The same without a completion if it succeeds.
    Unsignaled(Arc<Outcomes>),
}

struct Entry {
    generation: u32,
    /// Its place in the send queue, counted from the first request.
    seq: u64,
    /// The caller's id.
    id: u64,
    slot: Slot,
}

/// What a receive queue has for a future.
pub(super) enum Arrival {
    Message(Completion),
    Failed(CompletionError),
    /// No receive is posted, none is held by a message, and nothing has arrived.
    NoReceives,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Those of unsignaled requests, oldest first.
    unsignaled: VecDeque<Key>,
    posted: u64,
    retired: u64,
    /// Unsignaled requests at the end of the queue.
    tail: u64,
    room: VecDeque<(u64, Waker)>,
    inbox: VecDeque<Completion>,
    readers: Vec<(u64, Waker)>,
    /// Messages so far.
    arrived: u64,
    failed: Option<CompletionError>,
    receives: usize,
    /// Receives whose messages the program holds; they are posted again.
    held: usize,
}

/// One queue pair.
pub(super) struct Lane {
    qpn: u32,
    depth: u64,
    /// `None`: its receives are of a shared queue, and never known to be gone.
    receive_depth: Option<usize>,
    /// A failed send ends receiving, too: of RC. UC and UD go to SQE (IBTA vol. 1, 10.3.1).
    fails_whole: bool,
    pool: Option<Pool>,
    state: Mutex<State>,
}

/// Keeps the first cause: what was flushed is a consequence.
fn worse(known: &mut Option<CompletionError>, new: Option<CompletionError>) {
    let flushed = |error: &CompletionError| error.status == Status::WorkRequestFlushed;
    match (&known, &new) {
        (None, Some(_)) => *known = new,
        (Some(old), Some(error)) if flushed(old) && !flushed(error) => *known = new,
        _ => {}
    }
}

pub(super) fn error_of(completion: &Completion) -> Option<CompletionError> {
    (completion.entry.status != Status::Success).then_some(CompletionError {
        status: completion.entry.status,
        opcode: completion.entry.opcode,
        vendor_err: completion.entry.vendor_err,
        qpn: completion.entry.qpn,
        id: completion.id,
    })
}

/// A request that a future posts.
pub(super) enum Sort {
    /// It waits for it.
    Single,
    /// One of a stream of requests, of which each so-many-th is signaled.
    Stream(Arc<Outcomes>, usize),
    /// Nobody waits for it. This is held until it is done.
    Detached(Option<Box<dyn Send>>),
}

/// What became of an attempt to post.
pub(super) enum Posting {
    Posted(Key),
    /// There is no room.
    Full(SendRequest),
    Refused(PostError),
}

impl Lane {
    /// `sends` and `receives`: depths of its queues; `None`: it shares receives.
    pub(super) fn new(
        qpn: u32,
        sends: u32,
        receives: Option<u32>,
        fails_whole: bool,
        pool: Option<Pool>,
    ) -> Lane {
        Lane {
            qpn,
            depth: u64::from(sends.max(1)),
            receive_depth: receives.map(|depth| depth as usize),
            fails_whole,
            pool,
            state: Mutex::default(),
        }
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Posts if there is room; else the waiter is woken when there may be.
    pub(super) fn post(
        &self,
        mut request: SendRequest,
        sort: Sort,
        waiter: Option<(u64, &Waker)>,
        post: impl FnOnce(SendRequest) -> Result<(), PostError>,
    ) -> Posting {
        let mut state = self.state.lock();
        if state.posted - state.retired >= self.depth {
            state.wait_for_room(waiter);
            return Posting::Full(request);
        }
        let (seq, id) = (state.posted, request.id);
        // However many streams there are: a full queue has one request that makes room.
        let tail = state.tail + 1 >= self.depth.div_ceil(2);
        let slot = match sort {
            Sort::Single => Slot::Waiting(None),
            Sort::Detached(held) => Slot::Abandoned(held),
            Sort::Stream(outcomes, every) if tail || outcomes.since() + 1 >= every => {
                Slot::Signaled(outcomes)
            }
            Sort::Stream(outcomes, _) => Slot::Unsignaled(outcomes),
        };
        request.signaled = !matches!(slot, Slot::Unsignaled(_));
        let key = state.insert(seq, id, slot);
        request.id = key.id();
        match post(request) {
            Ok(()) => {
                state.posted += 1;
                let state = &mut *state;
                match &state.entries[key.index()].slot {
                    Slot::Unsignaled(outcomes) => {
                        outcomes.posted(false);
                        state.unsignaled.push_back(key);
                        state.tail += 1;
                        return Posting::Posted(key);
                    }
                    Slot::Signaled(outcomes) => outcomes.posted(true),
                    _ => {}
                }
                state.tail = 0;
                Posting::Posted(key)
            }
            Err(mut refused) => {
                // What it holds goes when the lock is let go.
                let slot = state.remove(key);
                refused.request.id = id;
                let full = refused.error.is_queue_full() && state.posted > state.retired;
                if full {
                    state.wait_for_room(waiter);
                }
                drop(state);
                drop(slot);
                match full {
                    true => Posting::Full(*refused.request),
                    false => Posting::Refused(refused),
                }
            }
        }
    }

    /// The outcome of a request, if there is one. Else `waker` is woken when there is.
    pub(super) fn outcome(&self, key: Key, waker: Option<&Waker>) -> Option<Completion> {
        let mut state = self.state.lock();
        let entry = state.entry(key)?;
        match &mut entry.slot {
            Slot::Done(_) => match state.remove(key) {
                Slot::Done(completion) => Some(*completion),
                _ => None,
            },
            Slot::Waiting(place) => {
                if let Some(waker) = waker
                    && !place.as_ref().is_some_and(|old| old.will_wake(waker))
                {
                    *place = Some(waker.clone());
                }
                None
            }
            _ => None,
        }
    }

    /// The future is gone. Its buffers stay until the device is done with them.
    pub(super) fn abandon(&self, key: Key, news: &mut News) {
        let mut state = self.state.lock();
        let Some(entry) = state.entry(key) else {
            return;
        };
        match entry.slot {
            Slot::Waiting(_) => entry.slot = Slot::Abandoned(None),
            Slot::Done(_) => {
                if let Slot::Done(completion) = state.remove(key) {
                    self.recycle(completion.into_buffers(), news);
                }
            }
            _ => {}
        }
    }

    /// Nobody waits for room by this ticket any more.
    pub(super) fn leave_room(&self, ticket: u64) {
        let mut state = self.state.lock();
        state.room.retain(|(other, _)| *other != ticket);
    }

    /// The oldest message. Else the waiter is woken when one comes.
    pub(super) fn arrival(&self, waiter: Option<(u64, &Waker)>) -> Option<Arrival> {
        let mut state = self.state.lock();
        if let Some(completion) = state.inbox.pop_front() {
            state.held += 1;
            return Some(Arrival::Message(completion));
        }
        if let Some(error) = state.failed {
            return Some(Arrival::Failed(error));
        }
        if self.receive_depth.is_some() && state.receives == 0 && state.held == 0 {
            return Some(Arrival::NoReceives);
        }
        if let Some((ticket, waker)) = waiter {
            state.readers.retain(|(other, _)| *other != ticket);
            state.readers.push((ticket, waker.clone()));
        }
        None
    }

    /// Nobody waits for messages by this ticket any more.
    pub(super) fn leave_readers(&self, ticket: u64) {
        let mut state = self.state.lock();
        state.readers.retain(|(other, _)| *other != ticket);
    }

    /// The messages that nobody has asked for. No further one will be.
    pub(super) fn take_unread(&self) -> VecDeque<Completion> {
        std::mem::take(&mut self.state.lock().inbox)
    }

    /// The program holds the message no more.
    pub(super) fn release(&self, news: &mut News) {
        let mut state = self.state.lock();
        state.held -= 1;
        if state.receives == 0 && state.held == 0 {
            state.wake_readers(news);
        }
    }

    /// A receive is about to be posted: it may complete before its caller goes on. False: the queue
    /// is as full as was asked for.
    pub(super) fn receive_posted(&self) -> bool {
        let mut state = self.state.lock();
        let fits = self
            .receive_depth
            .is_some_and(|depth| state.receives < depth);
        state.receives += usize::from(fits);
        fits
    }

    /// It was not posted after all.
    pub(super) fn receive_refused(&self) {
        self.state.lock().receives -= 1;
    }

    /// The connection is over, whatever completions say.
    pub(super) fn close(&self, news: &mut News) {
        let mut state = self.state.lock();
        let over = CompletionError {
            status: Status::WorkRequestFlushed,
            opcode: CompletionOpcode::Recv,
            vendor_err: 0,
            qpn: self.qpn,
            id: 0,
        };
        worse(&mut state.failed, Some(over));
        state.wake_readers(news);
    }

    /// Everybody looks anew.
    pub(super) fn wake_all(&self, news: &mut News) {
        let mut state = self.state.lock();
        state.wake_readers(news);
        let room = std::mem::take(&mut state.room);
        news.wakers.extend(room.into_iter().map(|(_, waker)| waker));
        for entry in &mut state.entries {
            match &mut entry.slot {
                Slot::Waiting(waker) => news.wakers.extend(waker.take()),
                Slot::Signaled(outcomes) | Slot::Unsignaled(outcomes) => {
                    let mut state = outcomes.state.lock();
                    news.wakers.extend(state.waker.take());
                    news.wakers.extend(state.next.take());
                }
                _ => {}
            }
        }
    }

    /// What futures sleep for.
    pub(super) fn asleep(&self) -> impl Iterator<Item = Asleep> + use<> {
        let state = self.state.lock();
        let (mut requests, mut streams) = (0, Vec::new());
        for entry in &state.entries {
            match &entry.slot {
                Slot::Waiting(Some(_)) => requests += 1,
                Slot::Signaled(outcomes) | Slot::Unsignaled(outcomes) if outcomes.is_awaited() => {
                    streams.push(Arc::as_ptr(outcomes));
                }
                _ => {}
            }
        }
        streams.sort_unstable();
        streams.dedup();
        let kinds = [
            (
                Awaited::Message(self.qpn),
                state.readers.len(),
                state.arrived,
            ),
            (
                Awaited::Completion(self.qpn),
                requests + streams.len(),
                state.retired,
            ),
            (Awaited::Room(self.qpn), state.room.len(), state.retired),
        ];
        let some = kinds.into_iter().filter(|(_, futures, _)| *futures > 0);
        some.map(|(awaited, futures, came)| Asleep {
            awaited,
            futures,
            came,
        })
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        let state = self.state.lock();
        (state.posted - state.retired) as usize
    }

    /// Hands out a completion of this queue pair.
    pub(super) fn complete(&self, mut completion: Completion, news: &mut News) {
        let error = error_of(&completion);
        let mut state = self.state.lock();
        if is_receive(completion.entry.opcode) {
            state.receives = state.receives.saturating_sub(1);
            match error {
                Some(_) => {
                    worse(&mut state.failed, error);
                    self.recycle(completion.into_buffers(), news);
                }
                None => {
                    state.arrived += 1;
                    state.inbox.push_back(completion);
                }
            }
            state.wake_readers(news);
            return;
        }
        if self.fails_whole && error.is_some() {
            worse(&mut state.failed, error);
            state.wake_readers(news);
        }
        let key = Key(completion.id);
        let Some(entry) = state.entry(key) else {
            return;
        };
        completion.id = entry.id;
        let seq = entry.seq;
        let mut released = std::mem::take(&mut completion.released).into_iter();
        // Unsignaled requests in front of it have succeeded.
        while let Some(front) = state.unsignaled.front().copied() {
            let older = state.entry(front).is_some_and(|entry| entry.seq < seq);
            if !older {
                break;
            }
            state.unsignaled.pop_front();
            if let Slot::Unsignaled(outcomes) = state.remove(front) {
                let its = released.as_slice().iter();
                let count = its.take_while(|(id, _)| *id == front.id()).count();
                let buffers = released.by_ref().take(count).map(|(_, buffer)| buffer);
                outcomes.done(None, buffers, news);
            }
        }
        state.retire(seq + 1, news);
        let Some(entry) = state.entry(key) else {
            return;
        };
        match &mut entry.slot {
            Slot::Waiting(waker) => {
                news.wakers.extend(waker.take());
                entry.slot = Slot::Done(Box::new(completion));
            }
            Slot::Abandoned(_) => {
                if let Slot::Abandoned(Some(held)) = state.remove(key) {
                    news.rest.push(held);
                }
                self.recycle(completion.into_buffers(), news);
            }
            Slot::Signaled(_) | Slot::Unsignaled(_) => {
                if let Slot::Signaled(outcomes) | Slot::Unsignaled(outcomes) = state.remove(key) {
                    outcomes.done(error, completion.into_buffers(), news);
                }
                // It failed, and is the oldest of those that nobody would have told of.
                if state.unsignaled.front() == Some(&key) {
                    state.unsignaled.pop_front();
                }
            }
            Slot::Free | Slot::Done(_) => {}
        }
    }

    fn recycle(&self, buffers: Vec<Buffer>, news: &mut News) {
        match &self.pool {
            Some(pool) => {
                let back = buffers.into_iter().map(|buffer| (pool.clone(), buffer));
                news.buffers.extend(back);
            }
            None if buffers.is_empty() => {}
            None => news.rest.push(Box::new(buffers)),
        }
    }
}

impl State {
    fn wait_for_room(&mut self, waiter: Option<(u64, &Waker)>) {
        let Some((ticket, waker)) = waiter else {
            return;
        };
        match self.room.iter_mut().find(|(other, _)| *other == ticket) {
            Some((_, old)) => old.clone_from(waker),
            None => self.room.push_back((ticket, waker.clone())),
        }
    }

    /// The queue is done with all requests before this place.
    fn retire(&mut self, upto: u64, news: &mut News) {
        let room = upto.saturating_sub(self.retired) as usize;
        self.retired = self.retired.max(upto);
        // As many as find room; if nothing is in flight that would wake the others, all.
        let wakes = match self.retired == self.posted {
            true => self.room.len(),
            false => room.min(self.room.len()),
        };
        let woken = self.room.drain(..wakes).map(|(_, waker)| waker);
        news.wakers.extend(woken);
    }

    fn wake_readers(&mut self, news: &mut News) {
        let readers = self.readers.drain(..);
        news.wakers.extend(readers.map(|(_, waker)| waker));
    }

    fn insert(&mut self, seq: u64, id: u64, slot: Slot) -> Key {
        match self.free.pop() {
            Some(index) => {
                let entry = &mut self.entries[index as usize];
                (entry.seq, entry.id, entry.slot) = (seq, id, slot);
                Key::new(index as usize, entry.generation)
            }
            None => {
                self.entries.push(Entry {
                    generation: 0,
                    seq,
                    id,
                    slot,
                });
                Key::new(self.entries.len() - 1, 0)
            }
        }
    }

    fn entry(&mut self, key: Key) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key.index())?;
        let its = entry.generation == key.generation() && !matches!(entry.slot, Slot::Free);
        its.then_some(entry)
    }

    fn remove(&mut self, key: Key) -> Slot {
        let Some(entry) = self.entry(key) else {
            return Slot::Free;
        };
        entry.generation = entry.generation.wrapping_add(1);
        let slot = std::mem::replace(&mut entry.slot, Slot::Free);
        self.free.push(key.index() as u32);
        slot
    }
}

pub(super) fn is_receive(opcode: CompletionOpcode) -> bool {
    matches!(
        opcode,
        CompletionOpcode::Recv | CompletionOpcode::RecvRdmaWithImm
    )
}
