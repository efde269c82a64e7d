//! Who waits for descriptors: a thread of this process, or the program's own runtime.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix_futex_sync::Mutex;

use super::driving::Driven;
use crate::cm::CmChannel;
use crate::context::Context;
use crate::cq::CompletionChannel;
use crate::error::{Error, Result};
use crate::nic::CompChannel;
use crate::raw::per_process::PerProcess;

/// Waits until descriptors are readable, and tells.
///
/// The default is a thread, one for the process, which starts at its first use. While futures sleep
/// it takes in the packets of the software NIC itself, so that a message wakes this thread, and
/// this thread the task. A runtime that waits for descriptors anyway can do it instead of the
/// thread, but then the device's own thread takes packets in. `Tokio` is such a reactor with the
/// feature `tokio`. This is one for smol:
///
/// ```
/// use rnic::aio::{Reactor, Source, Watch};
///
/// struct Smol;
///
/// impl Reactor for Smol {
///     fn watch(&self, source: Source) -> std::io::Result<Watch> {
///         let source = smol::Async::new_nonblocking(source)?;
///         let task = smol::spawn(async move {
///             while source.readable().await.is_ok() && source.get_ref().readable() {}
///         });
///         Ok(Watch::new(task))
///     }
/// }
/// ```
pub trait Reactor: Send + Sync + 'static {
    /// Calls [`Source::readable`] whenever the source's descriptor is readable, from any thread,
    /// until that returns false or the [`Watch`] is dropped.
    ///
    /// # Errors
    /// What the system says. Nothing is watched then, and the operation that needed it fails.
    fn watch(&self, source: Source) -> io::Result<Watch>;
}

/// A descriptor is watched as long as this exists.
pub struct Watch {
    _guard: Box<dyn Send + Sync>,
}

impl Watch {
    /// Dropping `guard` ends it.
    pub fn new(guard: impl Send + Sync + 'static) -> Watch {
        Watch {
            _guard: Box::new(guard),
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// What has a descriptor. It stays open as long as this exists.
pub(super) enum Descriptor {
    Completions(CompletionChannel),
    Connections(CmChannel),
    Device(Context),
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Descriptor::Completions(channel) => channel.as_fd(),
            Descriptor::Connections(channel) => channel.as_fd(),
            Descriptor::Device(context) => context.as_fd(),
        }
    }
}

/// Whose descriptor is watched.
pub(super) trait Watched: Send + Sync + 'static {
    /// Takes what there is; false: nothing more will come.
    fn on_readable(&self) -> bool;
    /// Its descriptor is watched no longer: nothing will be told.
    fn fail(&self, error: Error);
    /// Its watch.
    fn watching(&self) -> &Watching;
    /// Those who sleep until completions come, if it has any.
    fn sleepers(&self) -> Option<Arc<Sleepers>> {
        None
    }
}

/// Futures of one completion queue that sleep, and requests that nobody waits for but whose end is
/// awaited.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    count: AtomicUsize,
    /// The default reactor watches the queue's channel,
    watched: AtomicBool,
    /// and its thread takes in packets for it as long as somebody sleeps, or is about to.
    driven: AtomicBool,
}

impl Sleepers {
    pub(super) fn enter(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Somebody has entered, and the queue is armed. A reactor that lay down while nobody slept is
    /// told. It need not be for the completion to be seen: it costs a wake-up less.
    pub(super) fn are_about_to_sleep(&self) {
        let watched = self.watched.load(Ordering::Relaxed);
        if watched
            && !self.driven.load(Ordering::SeqCst)
            && !self.driven.swap(true, Ordering::SeqCst)
            && let Ok(epoll) = Epoll::of_process()
        {
            epoll.ring();
        }
    }

    pub(super) fn watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    pub(super) fn driven(&self, driven: bool) {
        self.driven.store(driven, Ordering::SeqCst);
    }
}

/// The one watch of a descriptor that counts. Another one, which comes late or is replaced, ends.
#[derive(Default)]
pub(super) struct Watching {
    current: Mutex<(u64, Option<Watch>)>,
}

impl Watching {
    fn begin(&self) -> u64 {
        let mut current = self.current.lock();
        current.0 += 1;
        current.0
    }

    fn is_current(&self, number: u64) -> bool {
        self.current.lock().0 == number
    }

    fn keep(&self, number: u64, watch: Watch) {
        let mut current = self.current.lock();
        let old = match current.0 == number {
            true => current.1.replace(watch),
            false => Some(watch),
        };
        drop(current);
        drop(old);
    }
}

/// Has a descriptor watched.
///
/// # Errors
/// What the reactor says.
pub(super) fn watch<W: Watched>(
    reactor: &dyn Reactor,
    fd: Descriptor,
    whose: &Arc<W>,
) -> Result<()> {
    let number = whose.watching().begin();
    let its: Weak<W> = Arc::downgrade(whose);
    let watch = reactor
        .watch(Source {
            fd: Some(fd),
            whose: its,
            number,
        })
        .map_err(|source| Error::Verb {
            verb: "ibv_get_cq_event",
            reason: "the reactor cannot watch the channel".to_owned(),
            source,
        })?;
    whose.watching().keep(number, watch);
    Ok(())
}

/// What a [`Reactor`] watches: a descriptor, and what is to be done when it is readable.
///
/// If it is dropped while futures may still wait for it, because a runtime is shut down, the
/// default reactor takes its place: no future is forgotten.
pub struct Source {
    fd: Option<Descriptor>,
    whose: Weak<dyn Watched>,
    number: u64,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("fd", &self.as_raw_fd())
            .finish_non_exhaustive()
    }
}

impl Source {
    /// The descriptor is readable: takes all that it has, so that it is not readable any more, and
    /// wakes those that waited. Never waits. False: it need not be watched any longer.
    pub fn readable(&self) -> bool {
        let whose = self.whose.upgrade();
        whose.is_some_and(|whose| whose.on_readable())
    }
}

impl Source {
    /// Drops it without a successor.
    fn forget(mut self) {
        self.fd = None;
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("it is taken out when this is dropped"),
        }
    }
}

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let (Some(fd), Some(whose)) = (self.fd.take(), self.whose.upgrade()) else {
            return;
        };
        // In a forked child, or of a device that is gone, there is nothing to be told.
        if !whose.on_readable() || !whose.watching().is_current(self.number) {
            return;
        }
        let number = whose.watching().begin();
        let again = Source {
            fd: Some(fd),
            whose: Arc::downgrade(&whose),
            number,
        };
        if let Ok(watch) = Shared.watch(again) {
            whose.watching().keep(number, watch);
        }
    }
}

/// The default: one thread for the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared;

impl Reactor for Shared {
    fn watch(&self, source: Source) -> io::Result<Watch> {
        Ok(Watch::new(Epoll::of_process()?.add(source)?))
    }
}

/// The bell among the sources.
const BELL: u64 = u64::MAX;

pub(super) struct Epoll {
    /// The process that has the thread: a forked child has not.
    process: u32,
    set: OwnedFd,
    /// Ends a wait of the thread.
    bell: OwnedFd,
    sources: Mutex<Sources>,
    pub(super) driven: Driven,
    next: AtomicU64,
    started: AtomicBool,
}

#[derive(Default)]
struct Sources {
    all: HashMap<u64, Arc<Source>>,
    /// The thread has ended: the system refuses to wait, and why.
    broken: Option<rustix::io::Errno>,
}

impl Epoll {
    pub(super) fn of_process() -> io::Result<&'static Epoll> {
        static EPOLL: PerProcess<Epoll> = PerProcess::new();
        let epoll = EPOLL.get_or_make(|| -> io::Result<Epoll> {
            Epoll::with(epoll::create(epoll::CreateFlags::CLOEXEC)?)
        })?;
        if !epoll.started.swap(true, Ordering::AcqRel) {
            let thread = std::thread::Builder::new().name("rnic-reactor".to_owned());
            if let Err(error) = thread.spawn(|| epoll.run()) {
                epoll.started.store(false, Ordering::Release);
                return Err(error);
            }
        }
        Ok(epoll)
    }

    fn with(set: OwnedFd) -> io::Result<Epoll> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Epoll {
            process: std::process::id(),
            set,
            bell,
            sources: Mutex::default(),
            driven: Driven::default(),
            next: AtomicU64::new(0),
            started: AtomicBool::new(false),
        })
    }

    fn add(&'static self, source: Source) -> io::Result<Registered> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let source = Arc::new(source);
        let mut sources = self.sources.lock();
        let broken = sources.broken.map_or(Ok(()), Err);
        sources.all.insert(id, source.clone());
        drop(sources);
        let data = epoll::EventData::new_u64(id);
        let add = || epoll::add(&self.set, source.as_fd(), data, epoll::EventFlags::IN);
        if let Err(error) = broken.and_then(|()| add()) {
            self.sources.lock().all.remove(&id);
            // There is no other reactor to turn to.
            if let Some(source) = Arc::into_inner(source) {
                source.forget();
            }
            return Err(error.into());
        }
        if let Some(Descriptor::Completions(channel)) = &source.fd
            && let Some(sleepers) = source.whose.upgrade().and_then(|whose| whose.sleepers())
        {
            self.driven.add(id, channel, sleepers);
        }
        Ok(Registered { epoll: self, id })
    }

    fn remove(&self, id: u64) {
        self.driven.remove(id, || self.ring());
        let source = self.sources.lock().all.remove(&id);
        if let Some(source) = source {
            // It fails if the descriptor has left by itself.
            let _ = epoll::delete(&self.set, source.as_fd());
        }
    }

    /// The thread looks anew what it waits for.
    pub(super) fn ring(&self) {
        // It fails if it has been rung so often that it is heard anyway.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn run(&self) {
        let data = epoll::EventData::new_u64(BELL);
        let mut done = epoll::add(&self.set, &self.bell, data, epoll::EventFlags::IN);
        let mut events = Vec::with_capacity(64);
        while done.is_ok() {
            let seen = CompChannel::events_so_far();
            // It may have waited already: then it takes what is there.
            let driven = self.driven.wait(self.set.as_fd(), seen);
            let timeout = driven.then_some(
                const {
                    &Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    }
                },
            );
            events.clear();
            done = match epoll::wait(&self.set, spare_capacity(&mut events), timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
                Err(error) => Err(error),
            };
            for event in &events {
                match event.data.u64() {
                    BELL => {
                        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
                    }
                    id => self.tell(id),
                }
            }
        }
        if let Err(error) = done {
            self.break_with(error);
        }
    }

    fn tell(&self, id: u64) {
        let source = self.sources.lock().all.get(&id).cloned();
        if source.is_some_and(|source| !source.readable()) {
            self.remove(id);
        }
    }

    /// The system does not let the thread wait, as where the program has closed descriptors that
    /// are not its own. Nobody is to wait for news that will not come.
    fn break_with(&self, errno: rustix::io::Errno) {
        let mut sources = self.sources.lock();
        sources.broken = Some(errno);
        let all: Vec<_> = sources.all.drain().collect();
        drop(sources);
        for (id, source) in all {
            self.driven.remove(id, || {});
            if let Some(whose) = source.whose.upgrade() {
                whose.fail(Error::Verb {
                    verb: "epoll_wait",
                    reason: "the thread that waits for completions cannot go on; perhaps the \
                             program has closed descriptors that are not its own"
                        .to_owned(),
                    source: errno.into(),
                });
            }
            if let Some(source) = Arc::into_inner(source) {
                source.forget();
            }
        }
    }
}

/// A source of the set.
struct Registered {
    epoll: &'static Epoll,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A child shares the set with its parent, whose it is.
        if self.epoll.process == std::process::id() {
            self.epoll.remove(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context as Task, Poll, Wake, Waker};
    use std::time::Duration;

    use futures_core::Stream;

    use super::super::{CompletionQueue, DeviceEvents, Listener};
    use super::*;
    use crate::Rc;

    /// A set that the system refuses to wait for.
    struct Refused(&'static Epoll);

    impl Reactor for Refused {
        fn watch(&self, source: Source) -> io::Result<Watch> {
            let epoll = self.0;
            let id = epoll.next.fetch_add(1, Ordering::Relaxed);
            epoll.sources.lock().all.insert(id, Arc::new(source));
            Ok(Watch::new(Registered { epoll, id }))
        }
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_why<T>(outcome: Poll<Result<T>>) -> bool {
        let Poll::Ready(Err(error)) = outcome else {
            return false;
        };
        assert_eq!(error.errno(), Some(libc::EINVAL));
        error.to_string().contains("cannot go on")
    }

    /// A program that closes descriptors which are not its own takes the set of the thread away:
    /// every future is woken and says so, and so does what begins afterwards.
    #[test]
    fn a_thread_that_cannot_wait_tells_all_futures() {
        // No set at all: epoll_wait(2) gives EINVAL.
        let set = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let epoll: &'static Epoll = Box::leak(Box::new(Epoll::with(set).expect("a bell")));
        let context = Context::open_by_name("rnic0").expect("the device opens");
        let cq = CompletionQueue::builder(&context, 256).spin(Duration::ZERO);
        let cq = cq.reactor(Refused(epoll)).build().expect("a queue");
        let (gid, pd) = (context.loopback_gid(), context.alloc_pd());
        let (gid, pd) = (gid.expect("an address"), pd.expect("pd"));
        let builder = || cq.create_qp::<Rc>(&pd).gid(&gid).receives(1, 64);
        let (left, right) = (builder().build(), builder().build());
        let (left, right) = (left.expect("qp"), right.expect("qp"));
        let (to_left, to_right) = (left.endpoint(), right.endpoint());
        let left = left.handshake(to_right).expect("handshake");
        let _right = right.handshake(to_left).expect("handshake");
        let listener = Listener::<Rc>::bind(&cq, (gid.addr, 0)).expect("listens");
        let mut events =
            pin!(DeviceEvents::with_reactor(&context, &Refused(epoll)).expect("watched"));

        let counts = [(); 3].map(|()| Arc::new(Count::default()));
        let wakers = counts.clone().map(Waker::from);
        let mut tasks = wakers.each_ref().map(Task::from_waker);
        let (mut receive, mut accept) = (pin!(left.recv()), pin!(listener.accept()));
        assert!(receive.as_mut().poll(&mut tasks[0]).is_pending());
        assert!(accept.as_mut().poll(&mut tasks[1]).is_pending());
        assert!(events.as_mut().poll_next(&mut tasks[2]).is_pending());
        epoll.run();
        for count in &counts {
            assert!(count.0.load(Ordering::SeqCst) > 0, "nobody sleeps for ever");
        }
        assert!(is_why(receive.as_mut().poll(&mut tasks[0])));
        assert!(is_why(accept.as_mut().poll(&mut tasks[1]).map_ok(drop)));
        let Poll::Ready(Some(told)) = events.as_mut().poll_next(&mut tasks[2]) else {
            panic!("the stream ends with an error");
        };
        assert!(is_why(Poll::Ready(told)));
        assert!(matches!(
            events.as_mut().poll_next(&mut tasks[2]),
            Poll::Ready(None)
        ));
        assert!(
            is_why(pin!(left.recv()).poll(&mut tasks[0])),
            "also what begins later"
        );
        let late = Source {
            fd: Some(Descriptor::Device(context.clone())),
            whose: Arc::downgrade(&cq.core) as Weak<dyn Watched>,
            number: 0,
        };
        let late = epoll.add(late).map(drop).expect_err("there is no thread");
        assert_eq!(late.raw_os_error(), Some(libc::EINVAL));
    }
}
