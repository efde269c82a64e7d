//! Asynchronous events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rnic_transport::QpEvent;
use rustix_futex_sync::Mutex;

use rnic_sys::EventFd;

/// An asynchronous event (`ibv_get_async_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// Of a queue pair, named by its cookie.
    Qp {
        /// [`QpInit::cookie`](crate::QpInit::cookie).
        cookie: u64,
        /// What happened.
        event: QpEvent,
    },
    /// IBV_EVENT_CQ_ERR of the completion queue with this cookie.
    Cq {
        /// [`Cq::cookie`](crate::Cq::cookie).
        cookie: u64,
    },
    /// IBV_EVENT_SRQ_LIMIT_REACHED of the shared receive queue with this cookie.
    SrqLimit {
        /// [`SrqInit::cookie`](crate::SrqInit::cookie).
        cookie: u64,
    },
    /// The port came up.
    PortActive(u8),
    /// The port went down.
    PortError(u8),
    /// The GID table changed.
    GidChange(u8),
    /// The device is gone.
    DeviceFatal,
}

/// The asynchronous events of a context that wait to be taken.
#[derive(Debug)]
pub(crate) struct AsyncEvents {
    fd: EventFd,
    queue: Mutex<VecDeque<AsyncEvent>>,
}

impl AsyncEvents {
    /// # Errors
    /// EMFILE and its like.
    pub(crate) fn new() -> io::Result<AsyncEvents> {
        Ok(AsyncEvents {
            fd: EventFd::new()?,
            queue: Mutex::new(VecDeque::new()),
        })
    }

    /// Readable while events wait.
    pub(crate) fn event(&self) -> &EventFd {
        &self.fd
    }

    /// The descriptor: one token for each event that waits.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.fd()
    }

    pub(crate) fn post(&self, event: AsyncEvent) {
        self.queue.lock().push_back(event);
        self.fd.add(1);
    }

    /// Takes a token, waiting in read(2).
    ///
    /// # Errors
    /// EAGAIN, EINTR.
    pub(crate) fn take_token(&self) -> io::Result<()> {
        self.fd.take()
    }

    /// The oldest event, after a token was taken.
    pub(crate) fn next(&self) -> Option<AsyncEvent> {
        self.queue.lock().pop_front()
    }

    /// Drops these events, with their tokens.
    pub(super) fn revoke(&self, matches: impl Fn(&AsyncEvent) -> bool) {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(|event| !matches(event));
        for _ in queue.len()..before {
            self.fd.try_take();
        }
    }
}
