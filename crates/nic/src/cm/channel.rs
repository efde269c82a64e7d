//! Event channels.

use std::os::fd::RawFd;

use super::event::Event;
use crate::error::Result;

/// A queue of events and a descriptor to wait on (`rdma_create_event_channel(3)`).
#[derive(Clone, Debug)]
pub struct EventChannel;

impl EventChannel {
    /// Makes one, starting the process's engine if it is not running.
    ///
    /// # Errors
    /// EMFILE and its like; ENODEV, EADDRINUSE as [`crate::Context::open`].
    pub fn new() -> Result<EventChannel> {
        unimplemented!()
    }

    /// The descriptor: readable exactly while an event waits. The application may poll it and set O_NONBLOCK.
    pub fn fd(&self) -> RawFd {
        unimplemented!()
    }

    /// Takes the oldest event, waiting in read(2) unless O_NONBLOCK is set. An event that was taken counts as reported
    /// ([`super::Id::destroy`]).
    ///
    /// # Errors
    /// EAGAIN when non-blocking and none waits, EINTR on a signal, ENODEV in a forked child.
    pub fn get(&self) -> Result<Event> {
        unimplemented!()
    }
}
