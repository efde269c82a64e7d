//! Asynchronous events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rnic_types::AsyncEvent;
use rustix_futex_sync::Mutex;

use rnic_sys::EventFd;

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
