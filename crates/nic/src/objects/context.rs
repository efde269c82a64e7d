//! An opened device.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_link::Copies;

use crate::addressing::gid_table::GidEntry;
use crate::addressing::pkey_table::PkeyTable;
use crate::driving::Nic;
use crate::error::{self, Error, Result};
use crate::objects::import::{Card, Origin};
use crate::observe::waits::{self, Source, Wanted};
use crate::observe::{Over, wait_over};
use crate::queues::{AsyncEvent, AsyncEvents, Owner};
use rnic_types::{DeviceAttr, PortAttr};

#[derive(Debug)]
pub(crate) struct ContextShared {
    pub(crate) nic: Nic,
    pub(crate) owner: Arc<Owner>,
    card: Card,
    /// Of an import: whose it is.
    origin: Option<Origin>,
}

/// The opened device (`ibv_open_device(3)`). All contexts of a process share one engine.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) shared: Arc<ContextShared>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Context {
    /// Opens the device, starting the process's engine if it is the first.
    ///
    /// # Errors
    /// EADDRINUSE if somebody else owns UDP port 4791, ENODEV if the host has no usable address; in
    /// words.
    pub fn open() -> Result<Context> {
        Context::open_with(|_| Ok(None))
    }

    /// An import of the context whose [`Context::cmd_fd`] this is, or was sent by another process
    /// of this user on this host (`ibv_import_device(3)`). Domains, regions and device memory of
    /// that context can then be imported.
    ///
    /// # Errors
    /// As [`Context::open`]; EINVAL: no such descriptor; ENODEV: its process is gone, ETIMEDOUT: or
    /// does not answer; EACCES: it does not know that context any more; EPERM: its memory cannot be
    /// opened.
    pub fn import(cmd_fd: RawFd) -> Result<Context> {
        Context::open_with(|nic| Origin::find(nic, cmd_fd))
    }

    fn open_with(origin: impl FnOnce(&Nic) -> Result<Option<Origin>>) -> Result<Context> {
        let nic = Nic::get()?;
        let origin = origin(&nic)?;
        Context::open_on(nic, origin)
    }

    pub(crate) fn open_on(nic: Nic, origin: Option<Origin>) -> Result<Context> {
        let events = AsyncEvents::new();
        let events = events.map_err(|error| error::os("ibv_open_device", "eventfd", &error))?;
        let events = Arc::new(events);
        waits::know_source(|| Source::Asynchronous(Arc::downgrade(&events)));
        nic.tell_of_the_port(&events);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let card = Card::issue(&nic, id)?;
        Ok(Context {
            shared: Arc::new(ContextShared {
                owner: Arc::new(Owner {
                    id,
                    events,
                    host: nic.host().clone(),
                    device: Arc::new(nic.clone()),
                }),
                nic,
                card,
                origin,
            }),
        })
    }

    /// The process that opened it is this one, and not at its end. In a forked child all calls but
    /// the destruction of handles fail, and even that touches nothing of the parent's.
    pub fn is_alive(&self) -> bool {
        self.shared.nic.check_alive("").is_ok()
    }

    /// Objects of it are left.
    pub fn has_objects(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Does what a kernel does with the objects that are left when a program closes the device: its
    /// queue pairs are gone, with them all access to memory, and their completions. The handles
    /// stay valid, and good for nothing.
    pub fn revoke(&self) {
        if self.is_alive() {
            let mut copies = Copies::default();
            let id = self.shared.owner.id;
            self.shared
                .nic
                .each(|engine| copies.join(engine.remove_qps_of(id)));
            copies.wait();
        }
    }

    /// A number that no other context of the process has.
    pub fn id(&self) -> u64 {
        self.shared.owner.id
    }

    /// The descriptor that proves the right to use this context: who is sent it may import from it.
    pub fn cmd_fd(&self) -> RawFd {
        self.shared.card.fd()
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.shared.origin.as_ref()
    }

    /// Device attributes.
    pub fn device_attr(&self) -> DeviceAttr {
        crate::device::device_attr_with(self.pkeys())
    }

    /// Attributes of port 1.
    ///
    /// # Errors
    /// EINVAL for any other port.
    pub fn port_attr(&self, port: u8) -> Result<PortAttr> {
        if port != 1 {
            return Err(Error::invalid(
                "ibv_query_port",
                format!("port {port} does not exist, the device has port 1"),
            ));
        }
        Ok(crate::device::port_attr(&self.gid_table(), self.pkeys()))
    }

    /// The P_Key table of port 1.
    pub fn pkeys(&self) -> &PkeyTable {
        self.shared.nic.host().pkeys()
    }

    /// The GID table, read fresh.
    pub fn gid_table(&self) -> Vec<GidEntry> {
        self.shared.nic.host().gid_table()
    }

    /// One entry of it.
    pub fn gid(&self, index: u32) -> Option<GidEntry> {
        self.gid_table()
            .into_iter()
            .find(|entry| entry.index == index)
    }

    /// Whether calls on it can work.
    ///
    /// # Errors
    /// ENODEV, of that verb, in a forked child and after [`crate::shutdown`].
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        self.shared.nic.check_alive(verb)
    }

    /// The device's clock, which completions are stamped by: nanoseconds (`ibv_query_rt_values_ex(3)`).
    pub fn clock_ns(&self) -> u64 {
        self.shared.nic.host().now_ns()
    }

    /// Descriptor of asynchronous events: readable while events wait; one 8-byte read takes one
    /// token.
    pub fn async_fd(&self) -> RawFd {
        self.shared.owner.events.fd()
    }

    /// Waits for the next asynchronous event (in read(2), unless the application set O_NONBLOCK).
    ///
    /// # Errors
    /// EAGAIN, EINTR, ENODEV in a forked child.
    pub fn wait_async_event(&self) -> Result<AsyncEvent> {
        self.shared.nic.check_alive("ibv_get_async_event")?;
        loop {
            self.begin_wait("ibv_get_async_event");
            let taken = self.shared.owner.events.take_token();
            wait_over(match &taken {
                Ok(()) => Over::Done,
                Err(error) => Over::by_errno(error.raw_os_error().unwrap_or(0)),
            });
            taken.map_err(|error| error::os("ibv_get_async_event", "async events", &error))?;
            if let Some(event) = self.next_async_event() {
                return Ok(event);
            }
        }
    }

    /// The calling thread waits for an asynchronous event from now on, in that call, until
    /// [`wait_over`](crate::wait_over).
    pub fn begin_wait(&self, verb: &'static str) {
        waits::begin(verb, || Wanted::AsyncEvent);
    }

    /// The oldest event, after a token was taken from [`Context::async_fd`].
    pub fn next_async_event(&self) -> Option<AsyncEvent> {
        self.shared.owner.events.next()
    }
}
