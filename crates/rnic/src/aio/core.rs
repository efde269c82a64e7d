//! A completion queue whose completions go to futures.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix_futex_sync::{Mutex, OnceLock as Once};

use super::arming::Arming;
use super::lane::{Lane, News};
use super::manager::Manager;
use super::reactor::{self, Descriptor, Reactor, Sleepers, Watched, Watching};
use crate::completion::Completion;
use crate::context;
use crate::cq::CompletionQueue;
use crate::error::{Error, Result};
use crate::nic::{Asleep, Futures};

/// Looks in one poll of a future that spins: about a microsecond.
const LOOKS: usize = 16;
/// Futures of a queue that spin at the same time.
const SPINNERS: usize = 4;

/// Names who waits for something.
pub(super) fn next_ticket() -> u64 {
    static TICKETS: AtomicU64 = AtomicU64::new(1);
    TICKETS.fetch_add(1, Ordering::Relaxed)
}

/// What the futures of one completion queue share.
pub(super) struct Core {
    cq: CompletionQueue,
    /// Completions it holds.
    capacity: u32,
    /// The thread that has it takes completions and hands them out: so they stay in order.
    turn: Mutex<Turn>,
    sleepers: Arc<Sleepers>,
    lanes: Mutex<Lanes>,
    /// Places in the queue that its queue pairs may need.
    reserved: AtomicU32,
    spin: Duration,
    /// Until when futures spin, in ns since `began`.
    spinners: [AtomicU64; SPINNERS],
    began: Instant,
    /// The device failed: what it said.
    broken: OnceLock<Broken>,
    reactor: Arc<dyn Reactor>,
    watching: Watching,
    is_watched: AtomicBool,
    manager: Once<Arc<Manager>>,
}

#[derive(Default)]
struct Turn {
    arming: Arming,
    found: Vec<Completion>,
}

type Lanes = HashMap<u32, Arc<Lane>, BuildHasherDefault<OfNumber>>;

/// Queue pair numbers are random enough; they are spread over the upper bits.
#[derive(Default)]
struct OfNumber(u64);

impl Hasher for OfNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

struct Broken {
    verb: &'static str,
    text: String,
    errno: i32,
}

impl Broken {
    fn error(&self) -> Error {
        Error::Verb {
            verb: self.verb,
            reason: self.text.clone(),
            source: std::io::Error::from_raw_os_error(self.errno),
        }
    }
}

impl Core {
    /// `entries`: as it was made for. It has at least as many (`ibv_create_cq`).
    pub(super) fn new(
        cq: CompletionQueue,
        entries: u32,
        spin: Duration,
        reactor: Arc<dyn Reactor>,
    ) -> Arc<Core> {
        let core = Arc::new(Core {
            capacity: cq.capacity().max(entries),
            cq,
            turn: Mutex::default(),
            sleepers: Arc::default(),
            lanes: Mutex::default(),
            reserved: AtomicU32::new(0),
            spin,
            spinners: Default::default(),
            began: Instant::now(),
            broken: OnceLock::new(),
            reactor,
            watching: Watching::default(),
            is_watched: AtomicBool::new(false),
            manager: Once::new(),
        });
        let futures: Weak<dyn Futures> = Arc::downgrade(&core) as _;
        core.cq.channel().raw().know_futures(futures);
        core
    }

    pub(super) fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) fn reactor(&self) -> &Arc<dyn Reactor> {
        &self.reactor
    }

    /// The connection manager's events for its queue pairs; made at first use.
    pub(super) fn manager(&self, context: &context::Context) -> Result<Arc<Manager>> {
        self.check_alive()?;
        let manager = self.manager.get_or_try_init(|| Manager::new(context, self));
        manager.cloned()
    }

    /// Whether its locks may be taken: in a forked child, the thread that has one may not exist.
    pub(super) fn check_alive(&self) -> Result<()> {
        self.cq.check_alive()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.check_alive().is_ok()
    }

    /// Places for the completions of a queue pair. A queue that overruns is broken.
    pub(super) fn reserve(&self, places: u32) -> Result<()> {
        let capacity = self.capacity;
        let fits = |used: u32| used.checked_add(places).filter(|all| *all <= capacity);
        let taken = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        match taken {
            Ok(_) => Ok(()),
            Err(used) => Err(Error::InvalidArgument(format!(
                "the completion queue has {capacity} places and {used} are taken, \
                 the queue pair needs {places} (max_send_wr and max_recv_wr together): \
                 make it larger"
            ))),
        }
    }

    pub(super) fn unreserve(&self, places: u32) {
        self.reserved.fetch_sub(places, Ordering::Relaxed);
    }

    pub(super) fn enter(&self, lane: &Arc<Lane>) {
        self.lanes.lock().insert(lane.qpn(), lane.clone());
    }

    pub(super) fn leave(&self, lane: &Arc<Lane>) {
        let mut lanes = self.lanes.lock();
        let its = |known: &Arc<Lane>| Arc::ptr_eq(known, lane);
        if lanes.get(&lane.qpn()).is_some_and(its) {
            lanes.remove(&lane.qpn());
        }
    }

    /// Takes what is there, once, and hands it out; how many.
    fn take(&self, turn: &mut Turn, news: &mut News) -> Result<usize> {
        let count = self.cq.poll_once_into(&mut turn.found)?;
        if count > 0 {
            let lanes = self.lanes.lock();
            for completion in turn.found.drain(..) {
                match lanes.get(&completion.qpn()) {
                    Some(lane) => lane.complete(completion, news),
                    // Of a queue pair that nobody holds any more.
                    None => news.keep(completion),
                }
            }
        }
        Ok(count)
    }

    fn take_all(&self, turn: &mut Turn, news: &mut News) -> Result<()> {
        while self.take(turn, news)? > 0 {}
        Ok(())
    }

    /// Looks for completions, `looks` times if there are none. Another thread that does so is not
    /// waited for.
    fn look(&self, looks: usize) -> Result<()> {
        if let Some(broken) = self.broken.get() {
            return Err(broken.error());
        }
        let mut news = News::default();
        let mut done = Ok(0);
        if let Some(mut turn) = self.turn.try_lock() {
            for _ in 0..looks {
                done = self.take(&mut turn, &mut news);
                if !matches!(done, Ok(0)) {
                    break;
                }
            }
        }
        news.tell();
        done.map(drop).map_err(|error| self.fail(error))
    }

    /// Hands out all that is there.
    pub(super) fn look_at_all(&self) {
        let mut news = News::default();
        let mut turn = self.turn.lock();
        let done = self.take_all(&mut turn, &mut news);
        drop(turn);
        news.tell();
        if let Err(error) = done {
            let _ = self.fail(error);
        }
    }

    /// A future has left its waker: from now on completions are told.
    fn arm(self: &Arc<Self>) -> Result<()> {
        self.watch()?;
        let mut news = News::default();
        let mut turn = self.turn.lock();
        let done = match turn.arming.sleeps() {
            true => {
                self.cq.arm(false);
                self.take_all(&mut turn, &mut news)
            }
            false => Ok(()),
        };
        drop(turn);
        news.tell();
        self.sleepers.are_about_to_sleep();
        done.map_err(|error| self.fail(error))
    }

    /// All futures that wait are told; the same error again.
    fn fail(&self, error: Error) -> Error {
        let errno = error.errno().unwrap_or(libc::EIO);
        let (verb, text) = match &error {
            Error::Verb { verb, reason, .. } => (*verb, reason.clone()),
            other => ("ibv_poll_cq", other.to_string()),
        };
        let broken = Broken { verb, text, errno };
        if self.is_alive() && self.broken.set(broken).is_ok() {
            let lanes: Vec<Arc<Lane>> = self.lanes.lock().values().cloned().collect();
            let mut news = News::default();
            for lane in lanes {
                lane.wake_all(&mut news);
            }
            news.tell();
        }
        error
    }

    /// Has the channel watched, once.
    fn watch(self: &Arc<Self>) -> Result<()> {
        let seen = Ordering::Relaxed;
        if self.is_watched.load(seen) || self.is_watched.swap(true, seen) {
            return Ok(());
        }
        let channel = Descriptor::Completions(self.cq.channel().clone());
        let watched = reactor::watch(&*self.reactor, channel, self);
        // Others may sleep already, and trust in it.
        watched.map_err(|error| self.fail(error))
    }

    /// A request that nobody waits for, but which has to be seen to its end, is in flight.
    pub(super) fn awaits(self: &Arc<Self>) -> Awaited {
        self.sleepers.enter();
        let awaited = Awaited(self.clone());
        // It is for what has failed already that this fails.
        let _ = self.arm();
        awaited
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl Watched for Core {
    fn on_readable(&self) -> bool {
        if !self.is_alive() {
            return false;
        }
        let mut news = News::default();
        let mut turn = self.turn.lock();
        let done = self.on_event(&mut turn, &mut news);
        drop(turn);
        news.tell();
        match done {
            Ok(()) => true,
            Err(error) => {
                let _ = self.fail(error);
                false
            }
        }
    }

    fn fail(&self, error: Error) {
        let _ = Core::fail(self, error);
    }

    fn watching(&self) -> &Watching {
        &self.watching
    }

    fn sleepers(&self) -> Option<Arc<Sleepers>> {
        Some(self.sleepers.clone())
    }
}

impl Core {
    fn on_event(&self, turn: &mut Turn, news: &mut News) -> Result<()> {
        while self.cq.channel().try_event()?.is_some() {
            turn.arming.reported();
        }
        self.take_all(turn, news)?;
        if turn.arming.taken(self.sleepers.count()) {
            self.cq.arm(false);
            self.take_all(turn, news)?;
        }
        Ok(())
    }
}

impl Futures for Core {
    fn asleep(&self) -> Vec<Asleep> {
        if !self.is_alive() {
            return Vec::new();
        }
        let lanes: Vec<Arc<Lane>> = self.lanes.lock().values().cloned().collect();
        lanes.iter().flat_map(|lane| lane.asleep()).collect()
    }
}

/// As long as it exists, completions are told.
pub(super) struct Awaited(Arc<Core>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.sleepers.leave();
    }
}

/// One wait of a future: it looks for a moment, in turns with the other tasks of its runtime, and
/// then sleeps.
#[derive(Debug, Default)]
pub(super) struct Wait {
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    New,
    /// Until then, by this of the places for those that spin, and for so many polls more: what
    /// others had of the core in between does not count.
    Spins {
        until: u64,
        place: usize,
        polls: u32,
    },
    Sleeps,
}

impl Wait {
    /// Asks `check` for the answer. It is given a waker when the future is about to sleep, and has
    /// to leave it where the answer will come from. The last time before the future sleeps it always
    /// is, as any call may take the request one step further.
    ///
    /// # Errors
    /// The device fails.
    pub(super) fn poll<T>(
        &mut self,
        core: &Arc<Core>,
        cx: &Context<'_>,
        mut check: impl FnMut(Option<&Waker>) -> Option<T>,
    ) -> Poll<Result<T>> {
        if let Err(error) = core.check_alive() {
            return Poll::Ready(Err(error));
        }
        if let Some(answer) = check(None) {
            self.end(core);
            return Poll::Ready(Ok(answer));
        }
        let spins = self.spins(core);
        if let Err(error) = core.look(if spins { LOOKS } else { 1 }) {
            self.end(core);
            return Poll::Ready(Err(error));
        }
        if let Some(answer) = check(None) {
            self.end(core);
            return Poll::Ready(Ok(answer));
        }
        if spins {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !matches!(self.phase, Phase::Sleeps) {
            self.phase = Phase::Sleeps;
            // Before the waker is left: who takes completions from now on arms the queue.
            core.sleepers.enter();
        }
        if let Some(answer) = check(Some(cx.waker())) {
            self.end(core);
            return Poll::Ready(Ok(answer));
        }
        if let Err(error) = core.arm() {
            self.end(core);
            return Poll::Ready(Err(error));
        }
        // With the waker again: a request that finds room only now waits for its completion.
        match check(Some(cx.waker())) {
            Some(answer) => {
                self.end(core);
                Poll::Ready(Ok(answer))
            }
            None => Poll::Pending,
        }
    }

    fn spins(&mut self, core: &Core) -> bool {
        match &mut self.phase {
            Phase::Sleeps => false,
            Phase::Spins { until, polls, .. } if *polls > 0 || core.now() < *until => {
                *polls = polls.saturating_sub(1);
                true
            }
            Phase::Spins { .. } => {
                self.give_back(core);
                false
            }
            Phase::New if core.spin.is_zero() => false,
            Phase::New => {
                let now = core.now();
                let until = now + core.spin.as_nanos() as u64;
                // The places of those that were not polled again become free by themselves.
                let claim = |place: &AtomicU64| {
                    let old = place.load(Ordering::Relaxed);
                    let order = Ordering::Relaxed;
                    old <= now && place.compare_exchange(old, until, order, order).is_ok()
                };
                let Some(place) = core.spinners.iter().position(claim) else {
                    return false;
                };
                // A poll takes a microsecond or so.
                let polls = core.spin.as_micros() as u32;
                self.phase = Phase::Spins {
                    until,
                    place,
                    polls,
                };
                true
            }
        }
    }

    fn give_back(&self, core: &Core) {
        if let Phase::Spins { until, place, .. } = self.phase {
            let order = Ordering::Relaxed;
            let _ = core.spinners[place].compare_exchange(until, 0, order, order);
        }
    }

    /// It is over: the answer was given, or nobody wants it.
    pub(super) fn end(&mut self, core: &Core) {
        match self.phase {
            Phase::New => {}
            Phase::Spins { .. } => self.give_back(core),
            Phase::Sleeps => {
                core.sleepers.leave();
            }
        }
        self.phase = Phase::New;
    }
}

/// Runs a future to its end on this thread, for programs and threads that have no runtime.
///
/// ```
/// assert_eq!(rnic::aio::block_on(async { 7 }), 7);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match Pin::as_mut(&mut future).poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
