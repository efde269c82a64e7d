//! Devices, and the open device.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix_futex_sync::Mutex;

use crate::capabilities::BackEnd;
use crate::cq::{CompletionChannel, CompletionQueueBuilder};
use crate::device;
use crate::error::{Error, Result};
use crate::nic::{self, AsyncEvent, DeviceAttr, GidEntry, PathMtu, PortAttr};
use crate::pd::ProtectionDomain;
use crate::raw::fd;

/// A device that can be opened.
#[derive(Clone, Debug)]
pub struct Device {
    name: String,
    guid: u64,
    back_end: BackEnd,
}

/// In front of the name of a device that is the system's, whatever other device has that name.
const SYSTEM: &str = "system:";

/// The devices of this host (`ibv_get_device_list`): the software NIC, and those of the system's
/// libibverbs. Listing opens none. On a machine without that library, or whose kernel has no RDMA,
/// the software NIC is the only one; [`Context::open_by_name`] says why.
pub fn devices() -> Vec<Device> {
    let software = Device {
        name: nic::DEVICE_NAME.to_owned(),
        guid: nic::device_guid(),
        back_end: BackEnd::Software,
    };
    let system = device::system_devices().unwrap_or_default();
    let system = system.into_iter().map(|(name, guid)| Device {
        name: match name == nic::DEVICE_NAME {
            true => format!("{SYSTEM}{name}"),
            false => name,
        },
        guid,
        back_end: BackEnd::System,
    });
    std::iter::once(software).chain(system).collect()
}

impl Device {
    /// Its name: `rnic0` is the software NIC. A device of the system that has the same name, which is
    /// rnic's own drop-in library, is `system:rnic0` here.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is made of.
    pub fn back_end(&self) -> BackEnd {
        self.back_end
    }

    /// Its GUID.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// Opens it (`ibv_open_device`).
    pub fn open(&self) -> Result<Context> {
        Context::open_by_name(&self.name)
    }
}

/// An open device.
#[derive(Clone)]
pub struct Context {
    pub(crate) raw: device::Context,
    /// Events that somebody took who waited for another one.
    kept: Arc<Mutex<VecDeque<AsyncEvent>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.raw.name())
            .finish()
    }
}

/// The device that [`Context::open`] opens is one of the system's.
pub(crate) fn default_is_system() -> bool {
    rnic_settings::DEVICE
        .text()
        .is_some_and(|name| name != nic::DEVICE_NAME)
}

impl Context {
    /// Opens the software NIC (`ibv_open_device`): joins UDP port 4791 of this host. If the
    /// environment variable `RNIC_DEVICE` names another device, opens that one.
    pub fn open() -> Result<Context> {
        match rnic_settings::DEVICE.text() {
            None => Context::of(device::Context::open_software()?),
            Some(name) => Context::open_by_name(&name.to_string_lossy()),
        }
    }

    /// Opens the device of this name: `rnic0` is the software NIC, any other name is a device of the
    /// system's libibverbs, which is loaded then. `system:` in front of a name says that the system's
    /// device is meant.
    ///
    /// # Errors
    /// There is no such device, or no libibverbs, or one of another ABI.
    pub fn open_by_name(name: &str) -> Result<Context> {
        let raw = match name.strip_prefix(SYSTEM) {
            Some(name) => device::Context::open_system(name)?,
            None if name == nic::DEVICE_NAME => device::Context::open_software()?,
            None => device::Context::open_system(name)?,
        };
        Context::of(raw)
    }

    fn of(raw: device::Context) -> Result<Context> {
        fd::set_nonblocking(raw.async_fd()).map_err(|source| Error::Verb {
            verb: "ibv_open_device",
            reason: "cannot make the event descriptor non-blocking".to_owned(),
            source,
        })?;
        Ok(Context {
            raw,
            kept: Arc::default(),
        })
    }

    /// The name of the device, as its driver has it.
    pub fn name(&self) -> &str {
        self.raw.name()
    }

    /// Limits of the device (`ibv_query_device`).
    pub fn device_attr(&self) -> DeviceAttr {
        self.raw.device_attr()
    }

    /// State of a port, counted from 1 (`ibv_query_port`).
    pub fn port_attr(&self, port: u8) -> Result<PortAttr> {
        Ok(self.raw.port_attr(port)?)
    }

    /// The P_Key table of port 1, index 0 first (`ibv_query_pkey`): the partitions that the port
    /// belongs to. `RNIC_PKEYS` sets it.
    pub fn pkeys(&self) -> Vec<u16> {
        self.raw.pkeys()
    }

    /// The addresses of this host (`ibv_query_gid_table`); every entry is RoCE v2.
    pub fn gid_table(&self) -> Vec<GidEntry> {
        self.raw.gid_table()
    }

    /// Entry `index` of the table (`ibv_query_gid_ex`).
    pub fn gid(&self, index: u32) -> Result<GidEntry> {
        self.raw.gid(index).ok_or_else(|| Error::UnknownGid {
            what: format!("GID index {index}"),
        })
    }

    /// The entry of a local address.
    pub fn gid_for(&self, addr: IpAddr) -> Result<GidEntry> {
        self.gid_table()
            .into_iter()
            .find(|entry| entry.addr == addr)
            .ok_or_else(|| Error::UnknownGid {
                what: format!("the address {addr}"),
            })
    }

    /// The entry that other hosts can most likely reach: IPv4 first, then global IPv6, then
    /// link-local; a loopback address only when there is nothing else.
    pub fn routable_gid(&self, port: u8) -> Result<GidEntry> {
        self.port_attr(port)?;
        let rank = |entry: &GidEntry| match entry.addr {
            addr if addr.is_loopback() => 3,
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        };
        let best = self.gid_table().into_iter().min_by_key(rank);
        best.ok_or_else(|| match self.raw.is_system() {
            false => Error::NoGid,
            true => Error::InvalidArgument(format!(
                "the device {} has no address of RoCE v2: port 1 is of InfiniBand or iWARP, or has no interface with an IP address",
                self.name()
            )),
        })
    }

    /// The loopback entry, 127.0.0.1 if it is there: reaches every process of this host, and only
    /// those.
    pub fn loopback_gid(&self) -> Result<GidEntry> {
        let loopback = self
            .gid_table()
            .into_iter()
            .filter(|e| e.addr.is_loopback());
        match loopback.min_by_key(|e| e.addr.is_ipv6()) {
            Some(entry) => Ok(entry),
            None => self.routable_gid(1),
        }
    }

    /// Allocates a protection domain (`ibv_alloc_pd`).
    pub fn alloc_pd(&self) -> Result<ProtectionDomain> {
        let raw = self.raw.alloc_pd()?;
        Ok(ProtectionDomain::new(self.clone(), raw))
    }

    /// Builds a completion queue for at least `entries` completions (`ibv_create_cq`). A queue that
    /// overruns is broken: make it as deep as all queues that complete into it together.
    pub fn create_cq(&self, entries: u32) -> CompletionQueueBuilder {
        CompletionQueueBuilder::new(self.clone(), entries)
    }

    /// Creates a channel on which several completion queues can report (`ibv_create_comp_channel`).
    pub fn create_comp_channel(&self) -> Result<CompletionChannel> {
        CompletionChannel::new(self.raw.create_comp_channel()?)
    }

    /// The clock by which completions are stamped (`ibv_query_rt_values_ex`, and `hca_core_clock` of
    /// `ibv_query_device_ex`). The software NIC's is CLOCK_MONOTONIC, in nanoseconds.
    ///
    /// # Errors
    /// The device has none.
    pub fn device_clock(&self) -> Result<DeviceClock> {
        let clock = self.raw.clock()?;
        Ok(DeviceClock {
            now: clock.now,
            khz: clock.khz,
            mask: clock.mask,
        })
    }

    /// Takes one asynchronous event if there is one (`ibv_get_async_event`). A queue pair is named
    /// by [`QueuePair::event_cookie`](crate::QueuePair::event_cookie), a completion queue by its
    /// builder's id.
    pub fn try_async_event(&self) -> Result<Option<AsyncEvent>> {
        self.raw.check_alive("ibv_get_async_event")?;
        if let Some(event) = self.kept.lock().pop_front() {
            return Ok(Some(event));
        }
        self.take_event()
    }

    fn take_event(&self) -> Result<Option<AsyncEvent>> {
        match self.raw.wait_async_event() {
            Ok(event) => Ok(Some(event)),
            Err(error) if error.errno() == libc::EAGAIN || error.errno() == libc::EINTR => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for an asynchronous event; [`Error::Timeout`] if there is none in time. `None` waits
    /// for ever.
    pub fn wait_async_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            if let Some(event) = self.try_async_event()? {
                return Ok(event);
            }
            if !self.sleep_for_event(deadline)? {
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
        }
    }

    /// Waits for this event; others are kept for [`Context::try_async_event`].
    pub(crate) fn wait_for_event(&self, wanted: &AsyncEvent, timeout: Duration) -> Result<()> {
        self.raw.check_alive("ibv_get_async_event")?;
        let mut kept = self.kept.lock();
        if let Some(place) = kept.iter().position(|event| event == wanted) {
            kept.remove(place);
            return Ok(());
        }
        drop(kept);
        let deadline = Instant::now().checked_add(timeout);
        loop {
            match self.take_event()? {
                Some(event) if event == *wanted => return Ok(()),
                Some(event) => self.kept.lock().push_back(event),
                None if !self.sleep_for_event(deadline)? => return Err(Error::Timeout(timeout)),
                None => {}
            }
        }
    }

    /// Sleeps until the device has an event; false: the deadline passed.
    fn sleep_for_event(&self, deadline: Option<Instant>) -> Result<bool> {
        const VERB: &str = "ibv_get_async_event";
        self.raw.begin_wait(VERB);
        let readable = fd::wait_readable(self.raw.async_fd(), deadline);
        nic::wait_over(match readable {
            Ok(true) => nic::Over::Done,
            _ => nic::Over::Idle,
        });
        readable.map_err(|source| Error::Verb {
            verb: VERB,
            reason: "cannot wait for events".to_owned(),
            source,
        })
    }
}

/// The largest path MTU that packets from this address can have.
pub(crate) fn path_mtu_of(entry: &GidEntry) -> PathMtu {
    PathMtu::largest_for_netdev(entry.netdev_mtu)
}

/// The clock of a device at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceClock {
    /// What it shows, in ticks.
    pub now: u64,
    /// Ticks in a millisecond; 0: the device does not tell.
    pub khz: u64,
    /// The bits of [`Timestamp::ticks`](crate::Timestamp::ticks) that count.
    pub mask: u64,
}

impl DeviceClock {
    /// How long before this the clock showed `ticks`; `None`: the frequency is unknown. The clock
    /// begins anew at the end of its bits: what was longer ago looks as if it were later.
    pub fn since(&self, ticks: u64) -> Option<Duration> {
        let passed = u128::from(self.now.wrapping_sub(ticks) & self.mask);
        let nanos = (passed * 1_000_000).checked_div(u128::from(self.khz))?;
        Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
    }
}

impl AsFd for Context {
    /// Readable: [`Context::try_async_event`] has something. It may have more than that, after a
    /// [`QueuePair::drain`](crate::QueuePair::drain) that met other events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        fd::of_context(&self.raw)
    }
}
