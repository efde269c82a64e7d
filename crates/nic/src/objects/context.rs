//! An opened device.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_link::Copies;
use rnic_transport::QpEvent;
use rustix_futex_sync::Mutex;

use crate::addressing::gid_table::{GidEntry, gid_table};
use crate::device::{DeviceAttr, PortAttr};
use crate::driving::Nic;
use crate::error::{Error, Result};
use crate::objects::cq::{CompChannel, Cq, CqOptions};
use crate::objects::xrcd::Xrcd;
use crate::peers::{Card, Origin};
use crate::sys::EventFd;

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
        /// [`Cq::cookie`].
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

#[derive(Debug)]
pub(crate) struct ContextShared {
    pub(crate) nic: Nic,
    id: u64,
    events: Arc<AsyncEvents>,
    card: Card,
    /// Of an import: whose it is.
    origin: Option<Origin>,
}

/// The asynchronous events of a context that wait to be taken.
#[derive(Debug)]
pub(crate) struct AsyncEvents {
    fd: EventFd,
    queue: Mutex<VecDeque<AsyncEvent>>,
}

impl AsyncEvents {
    pub(crate) fn post(&self, event: AsyncEvent) {
        self.queue.lock().push_back(event);
        self.fd.add(1);
    }
}

impl ContextShared {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn post_event(&self, event: AsyncEvent) {
        self.events.post(event);
    }

    /// Drops events that wait for a destroyed object. In a forked child they are the parent's, and so is the descriptor.
    pub(crate) fn revoke_events(&self, matches: impl Fn(&AsyncEvent) -> bool) {
        if self.nic.check_alive("").is_err() {
            return;
        }
        let mut queue = self.events.queue.lock();
        let before = queue.len();
        queue.retain(|event| !matches(event));
        for _ in queue.len()..before {
            self.events.fd.try_take();
        }
    }
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
    /// EADDRINUSE if somebody else owns UDP port 4791, ENODEV if the host has no usable address; in words.
    pub fn open() -> Result<Context> {
        Context::open_with(|_| Ok(None))
    }

    /// An import of the context whose [`Context::cmd_fd`] this is, or was sent by another process of this user on this
    /// host (`ibv_import_device(3)`). Domains, regions and device memory of that context can then be imported.
    ///
    /// # Errors
    /// As [`Context::open`]; EINVAL: no such descriptor; ENODEV: its process is gone, ETIMEDOUT: or does not answer;
    /// EACCES: it does not know that context any more; EPERM: its memory cannot be opened.
    pub fn import(cmd_fd: RawFd) -> Result<Context> {
        Context::open_with(|nic| Origin::find(nic, cmd_fd))
    }

    fn open_with(origin: impl FnOnce(&Nic) -> Result<Option<Origin>>) -> Result<Context> {
        let nic = Nic::get()?;
        let origin = origin(&nic)?;
        let fd = EventFd::new().map_err(|error| Error::os("ibv_open_device", "eventfd", &error))?;
        let events = Arc::new(AsyncEvents {
            fd,
            queue: Mutex::new(VecDeque::new()),
        });
        nic.tell_of_the_port(&events);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let card = Card::issue(&nic, id)?;
        Ok(Context {
            shared: Arc::new(ContextShared {
                nic,
                id,
                events,
                card,
                origin,
            }),
        })
    }

    /// The process that opened it is this one, and not at its end. In a forked child all calls but the destruction of
    /// handles fail, and even that touches nothing of the parent's.
    pub fn is_alive(&self) -> bool {
        self.shared.nic.check_alive("").is_ok()
    }

    /// Objects of it are left.
    pub fn has_objects(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Does what a kernel does with the objects that are left when a program closes the device: its queue pairs are gone,
    /// with them all access to memory, and their completions. The handles stay valid, and good for nothing.
    pub fn revoke(&self) {
        if self.is_alive() {
            let mut copies = Copies::default();
            let id = self.shared.id;
            self.shared
                .nic
                .each(|engine| copies.join(engine.remove_qps_of(id)));
            copies.wait();
        }
    }

    /// A number that no other context of the process has.
    pub fn id(&self) -> u64 {
        self.shared.id
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
        DeviceAttr::new()
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
        Ok(PortAttr::new(&gid_table()))
    }

    /// The GID table, read fresh.
    pub fn gid_table(&self) -> Vec<GidEntry> {
        gid_table()
    }

    /// One entry of it.
    pub fn gid(&self, index: u32) -> Option<GidEntry> {
        gid_table().into_iter().find(|entry| entry.index == index)
    }

    /// Opens an XRC domain: for a file, whose other openers share it, in whatever process of the user on this host, or for `None` alone. `create` and
    /// `exclusive` are O_CREAT and O_EXCL of `ibv_open_xrcd(3)`.
    ///
    /// # Errors
    /// EBADF: not a descriptor. EAGAIN: not open yet, without `create`. EINVAL: open already, with `exclusive`.
    pub fn open_xrcd(&self, file: Option<RawFd>, create: bool, exclusive: bool) -> Result<Xrcd> {
        Xrcd::open(self, file, create, exclusive)
    }

    /// Makes a completion channel.
    ///
    /// # Errors
    /// EMFILE and its like.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        CompChannel::new(self)
    }

    /// Makes a completion queue for at least `cqe` entries; `cookie` comes back from [`CompChannel::get_event`].
    ///
    /// # Errors
    /// EINVAL for 0 or too many entries. ENOMEM.
    pub fn create_cq(&self, cqe: u32, channel: Option<&CompChannel>, cookie: u64) -> Result<Cq> {
        Cq::new(self, cqe, channel, cookie, CqOptions::default())
    }

    /// Makes an extended completion queue (`ibv_create_cq_ex(3)`).
    ///
    /// # Errors
    /// As [`Context::create_cq`].
    pub fn create_cq_ex(
        &self,
        cqe: u32,
        channel: Option<&CompChannel>,
        cookie: u64,
        options: CqOptions,
    ) -> Result<Cq> {
        Cq::new(self, cqe, channel, cookie, options)
    }

    /// Descriptor of asynchronous events: readable while events wait; one 8-byte read takes one token.
    pub fn async_fd(&self) -> RawFd {
        self.shared.events.fd.fd()
    }

    /// Waits for the next asynchronous event (in read(2), unless the application set O_NONBLOCK).
    ///
    /// # Errors
    /// EAGAIN, EINTR, ENODEV in a forked child.
    pub fn wait_async_event(&self) -> Result<AsyncEvent> {
        self.shared.nic.check_alive("ibv_get_async_event")?;
        loop {
            self.shared
                .events
                .fd
                .take()
                .map_err(|error| Error::os("ibv_get_async_event", "async events", &error))?;
            if let Some(event) = self.next_async_event() {
                return Ok(event);
            }
        }
    }

    /// The oldest event, after a token was taken from [`Context::async_fd`].
    pub fn next_async_event(&self) -> Option<AsyncEvent> {
        self.shared.events.queue.lock().pop_front()
    }
}
