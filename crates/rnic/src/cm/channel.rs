//! Event channels: what happened, and to whom.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix_futex_sync::Mutex;

use super::object::Object;
use crate::context::{Context, default_is_system};
use crate::device::cm::EventChannel;
use crate::error::{Error, Result};
use crate::nic;
use crate::raw::fd;
use crate::turn::Turn;

/// Where the news of listeners and connections arrive (`rdma_create_event_channel`).
///
/// Its descriptor ([`AsFd`](std::os::fd::AsFd)) fits any event loop: when it is readable, take all
/// events by [`CmChannel::try_event`], which is also what drives connections on. Calls that wait
/// use a channel of their own and need none of this. Cheap to clone.
#[derive(Clone)]
pub struct CmChannel {
    inner: Arc<Inner>,
}

struct Inner {
    raw: EventChannel,
    objects: Mutex<HashMap<u64, Weak<Object>>>,
    /// Held by the thread that takes events for a call that waits: what it took, the next one sees
    /// before it sleeps.
    sleeper: Turn,
}

impl std::fmt::Debug for CmChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CmChannel")
            .field("fd", &self.inner.raw.fd())
            .finish_non_exhaustive()
    }
}

/// News; each carries the token that its object was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEvent {
    /// A listener has a request: [`CmListener::try_request`](super::CmListener::try_request).
    Request(u64),
    /// An attempt has succeeded: [`CmPending::finish`](super::CmPending::finish) gives the
    /// connection.
    Connected(u64),
    /// An attempt has failed: [`CmPending::finish`](super::CmPending::finish) gives the error.
    Failed(u64),
    /// A connection has ended: the peer disconnected, ended, or died. Its queue pair is in ERR,
    /// what was posted completes as flushed.
    Disconnected(u64),
}

impl CmEvent {
    /// Whose news it is.
    pub fn token(&self) -> u64 {
        match *self {
            CmEvent::Request(token)
            | CmEvent::Connected(token)
            | CmEvent::Failed(token)
            | CmEvent::Disconnected(token) => token,
        }
    }
}

impl CmChannel {
    /// Makes a channel for queue pairs of the device that [`Context::open`] opens. The first opens the
    /// software NIC, if it is that one.
    ///
    /// # Errors
    /// As [`Context::open`]; too many open files.
    pub fn new() -> Result<CmChannel> {
        CmChannel::make(default_is_system())
    }

    /// Makes a channel for queue pairs of the back end of this device: the software NIC has a
    /// connection manager of its own, devices of the system have librdmacm, which is loaded then.
    ///
    /// # Errors
    /// As [`Context::open_by_name`]; too many open files.
    pub fn of(context: &Context) -> Result<CmChannel> {
        CmChannel::make(context.raw.is_system())
    }

    pub(super) fn make(of_system: bool) -> Result<CmChannel> {
        let raw = EventChannel::new(of_system)?;
        fd::set_nonblocking(raw.fd()).map_err(|source| Error::Verb {
            verb: "rdma_create_event_channel",
            reason: "cannot make the descriptor non-blocking".to_owned(),
            source,
        })?;
        Ok(CmChannel {
            inner: Arc::new(Inner {
                raw,
                objects: Mutex::default(),
                sleeper: Turn::default(),
            }),
        })
    }

    pub(crate) fn raw(&self) -> &EventChannel {
        &self.inner.raw
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        Ok(self.inner.raw.check_alive()?)
    }

    pub(super) fn register(&self, object: &Arc<Object>) {
        let mut objects = self.inner.objects.lock();
        objects.insert(object.uid, Arc::downgrade(object));
    }

    pub(super) fn forget(&self, uid: u64) {
        // Or a thread may have the list that is not in this process.
        if self.inner.raw.check_alive().is_ok() {
            self.inner.objects.lock().remove(&uid);
        }
    }

    /// Takes the oldest news if there are any, and does what the connections under way need done.
    ///
    /// # Errors
    /// Only when the channel itself fails, as in a forked child.
    pub fn try_event(&self) -> Result<Option<CmEvent>> {
        loop {
            let event = match self.inner.raw.get() {
                Ok(event) => event,
                Err(error) if error.errno() == libc::EAGAIN => return Ok(None),
                Err(error) if error.errno() == libc::EINTR => continue,
                Err(error) => return Err(error.into()),
            };
            let whose = event.whose;
            let object = self
                .inner
                .objects
                .lock()
                .get(&whose)
                .and_then(Weak::upgrade);
            // A request that nobody can take ends here: its id goes with the event.
            let news = object.and_then(|object| object.handle(event));
            if news.is_some() {
                return Ok(news);
            }
        }
    }

    /// Waits for news; [`Error::Timeout`] if there are none in time. `None` waits for ever.
    ///
    /// # Errors
    /// As [`CmChannel::try_event`].
    pub fn wait_event(&self, timeout: Option<Duration>) -> Result<CmEvent> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.try_event()? {
                return Ok(event);
            }
            if !self.wait_readable(deadline)? {
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
        }
    }

    /// Drives the channel until `done` has an answer; `None`: the deadline passed.
    pub(super) fn drive<T>(
        &self,
        deadline: Option<Instant>,
        mut done: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        self.inner.raw.check_alive()?;
        loop {
            if let Some(answer) = done() {
                return Ok(Some(answer));
            }
            let Some(_sleeper) = self.inner.sleeper.take(deadline) else {
                return Ok(None);
            };
            if let Some(answer) = done() {
                return Ok(Some(answer));
            }
            if self.try_event()?.is_none() && !self.wait_readable(deadline)? {
                return Ok(None);
            }
        }
    }

    /// The same without waiting.
    pub(super) fn look<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<Option<T>> {
        self.inner.raw.check_alive()?;
        loop {
            if let Some(answer) = done() {
                return Ok(Some(answer));
            }
            // Else somebody waits, and takes what comes.
            let Some(_sleeper) = self.inner.sleeper.try_take() else {
                return Ok(None);
            };
            if self.try_event()?.is_none() {
                return Ok(done());
            }
        }
    }

    fn wait_readable(&self, deadline: Option<Instant>) -> Result<bool> {
        const VERB: &str = "rdma_get_cm_event";
        self.inner.raw.begin_wait(VERB);
        let readable = fd::wait_readable(self.inner.raw.fd(), deadline);
        nic::wait_over(match readable {
            Ok(true) => nic::Over::Done,
            _ => nic::Over::Idle,
        });
        readable.map_err(|source| Error::Verb {
            verb: VERB,
            reason: "cannot wait on the channel".to_owned(),
            source,
        })
    }
}

impl AsRawFd for CmChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.raw().fd()
    }
}

impl AsFd for CmChannel {
    /// Readable: [`CmChannel::try_event`] has something. Edge-triggered pollers must take all
    /// events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        fd::of_events(self.raw())
    }
}
