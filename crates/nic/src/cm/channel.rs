//! Event channels.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use super::event::Event;
use super::id::Id;
use crate::driving::Nic;
use crate::engine::cm_service::Key;
use crate::error::{self, Result};
use crate::observe::waits::{self, Source, Wanted};
use crate::observe::{Over, wait_over};
use rnic_sys::EventFd;

const GET: &str = "rdma_get_cm_event";

/// A queue of events and a descriptor to wait on (`rdma_create_event_channel(3)`). With its last
/// handle the ids are destroyed whose events go there, as a kernel does when the file is closed.
#[derive(Clone, Debug)]
pub struct EventChannel {
    pub(super) shared: Arc<ChannelShared>,
}

#[derive(Debug)]
pub(super) struct ChannelShared {
    pub(super) nic: Nic,
    fd: Arc<EventFd>,
    pub(super) key: Key,
}

impl EventChannel {
    /// Makes one, starting the process's engine if it is not running.
    ///
    /// # Errors
    /// EMFILE and its like; ENODEV, EADDRINUSE as [`crate::Context::open`].
    pub fn new() -> Result<EventChannel> {
        EventChannel::of(Nic::get()?)
    }

    /// One of that NIC. If it is simulated, nobody waits there: without an event, EAGAIN.
    ///
    /// # Errors
    /// EMFILE and its like.
    pub(crate) fn of(nic: Nic) -> Result<EventChannel> {
        const VERB: &str = "rdma_create_event_channel";
        let fd = EventFd::new().map_err(|error| error::os(VERB, "eventfd", &error))?;
        if nic.host().is_simulated() {
            fd.unblock()
                .map_err(|error| error::os(VERB, "eventfd", &error))?;
        }
        let fd = Arc::new(fd);
        waits::know_source(|| Source::Connections(Arc::downgrade(&fd)));
        let key = nic.lock().cm.add_channel(fd.clone());
        Ok(EventChannel {
            shared: Arc::new(ChannelShared { nic, fd, key }),
        })
    }

    /// See [`crate::Cq::check_alive`].
    ///
    /// # Errors
    /// As there.
    pub fn check_alive(&self) -> Result<()> {
        self.shared.nic.check_alive(GET)
    }

    /// The descriptor: readable exactly while an event waits. The application may poll it and set
    /// O_NONBLOCK.
    pub fn fd(&self) -> RawFd {
        self.shared.fd.fd()
    }

    /// Takes the oldest event, waiting in read(2) unless O_NONBLOCK is set. An event that was taken
    /// counts as reported ([`super::Id::destroy`]).
    ///
    /// # Errors
    /// EAGAIN when non-blocking and none waits, EINTR on a signal, ENODEV in a forked child.
    pub fn get(&self) -> Result<Event> {
        self.get_in(GET)
    }

    /// The same on behalf of that call.
    ///
    /// # Errors
    /// As [`EventChannel::get`].
    pub fn get_in(&self, verb: &'static str) -> Result<Event> {
        loop {
            self.expect_event()?;
            self.begin_wait(verb);
            let taken = self.shared.fd.take();
            wait_over(match &taken {
                Ok(()) => Over::Done,
                Err(error) => Over::by_errno(error.raw_os_error().unwrap_or(0)),
            });
            taken.map_err(|error| error::os(GET, "event channel", &error))?;
            if let Some(event) = self.event_of_token()? {
                return Ok(event);
            }
        }
    }

    /// The calling thread waits for an event of it from now on, in that call, until
    /// [`wait_over`](crate::wait_over).
    pub fn begin_wait(&self, verb: &'static str) {
        waits::begin(verb, || Wanted::CmEvent(self.fd()));
    }

    /// See [`crate::CompChannel::know_futures`].
    pub fn know_futures(&self, futures: Weak<dyn waits::Futures>) {
        let source = || Source::Connections(Arc::downgrade(&self.shared.fd));
        waits::know_futures(futures, source);
    }

    /// For who reads the descriptor's tokens himself (eight bytes are one): to be called before he
    /// may sleep there.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn expect_event(&self) -> Result<()> {
        let nic = &self.shared.nic;
        nic.check_alive(GET)?;
        nic.shard(0).expect_sleep();
        Ok(())
    }

    /// The event of a token that was read. `None`: it has gone with its id meanwhile, and so has
    /// the token.
    ///
    /// # Errors
    /// ENODEV in a forked child.
    pub fn event_of_token(&self) -> Result<Option<Event>> {
        let nic = &self.shared.nic;
        nic.check_alive(GET)?;
        let mut engine = nic.lock();
        let now = nic.host().now_ns();
        let event = Id::next_event(nic, &mut engine.cm, self.shared.key, now);
        if event.is_none() {
            engine.send_cm(now);
            nic.after_drive(engine);
        }
        Ok(event)
    }
}

impl Drop for ChannelShared {
    fn drop(&mut self) {
        if let Some(mut engine) = self.nic.lock_if_alive() {
            engine.remove_cm_channel(self.key);
            self.nic.after_drive(engine);
        }
    }
}
