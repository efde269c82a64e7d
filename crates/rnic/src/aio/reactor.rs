//! Who waits for descriptors: a thread of this process, or the program's own runtime.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix_futex_sync::Mutex;

use crate::cm::CmChannel;
use crate::context::Context;
use crate::cq::CompletionChannel;
use crate::error::{Error, Result};
use crate::raw::per_process::PerProcess;

/// Waits until descriptors are readable, and tells.
///
/// The default is a thread, one for the process, which starts at its first use. A program whose
/// runtime waits for descriptors anyway saves that thread and a switch to it by a reactor of its
/// own; `Tokio` is one with the feature `tokio`. This is one for smol:
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
    /// Its watch.
    fn watching(&self) -> &Watching;
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

struct Epoll {
    /// The process that has the thread: a forked child has not.
    process: u32,
    set: OwnedFd,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
    next: AtomicU64,
    started: AtomicBool,
}

impl Epoll {
    fn of_process() -> io::Result<&'static Epoll> {
        static EPOLL: PerProcess<Epoll> = PerProcess::new();
        let epoll = EPOLL.get_or_make(|| -> io::Result<Epoll> {
            Ok(Epoll {
                process: std::process::id(),
                set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                sources: Mutex::default(),
                next: AtomicU64::new(0),
                started: AtomicBool::new(false),
            })
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

    fn add(&'static self, source: Source) -> io::Result<Registered> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let source = Arc::new(source);
        self.sources.lock().insert(id, source.clone());
        let data = epoll::EventData::new_u64(id);
        let added = epoll::add(&self.set, source.as_fd(), data, epoll::EventFlags::IN);
        if let Err(error) = added {
            self.sources.lock().remove(&id);
            // There is no other reactor to turn to.
            if let Some(source) = Arc::into_inner(source) {
                source.forget();
            }
            return Err(error.into());
        }
        Ok(Registered { epoll: self, id })
    }

    fn remove(&self, id: u64) {
        let source = self.sources.lock().remove(&id);
        if let Some(source) = source {
            // It fails if the descriptor has left by itself.
            let _ = epoll::delete(&self.set, source.as_fd());
        }
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.set, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The set is this process's own: it cannot fail.
                Err(error) => unreachable!("epoll_wait: {error}"),
            }
            for event in &events {
                let id = event.data.u64();
                let source = self.sources.lock().get(&id).cloned();
                if source.is_some_and(|source| !source.readable()) {
                    self.remove(id);
                }
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
