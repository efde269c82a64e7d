//! Devices, and open ones.

use core::ffi::{CStr, c_int};
use core::ptr::{NonNull, null_mut};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use rnic_layouts::*;
use rnic_types::{AsyncEvent, DeviceAttr, Error, GidEntry, PortAttr, Result};

use crate::convert;
use crate::errors::{absent, forked, last_errno, outcome, refused};
use crate::gids::{self, Row};
use crate::library::{Library, Process};
use crate::objects::probe::Tried;

/// The most rows of a table that are looked at, whatever a device says that it has.
const MOST_ROWS: u32 = 1024;

/// A device of the system. It is not opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    guid: u64,
}

impl Device {
    /// Its name, `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its GUID.
    pub fn guid(&self) -> u64 {
        self.guid
    }
}

/// The library's list of devices, which it takes back.
struct List {
    library: &'static Library,
    first: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn get() -> Result<List> {
        const VERB: &str = "ibv_get_device_list";
        let library = Library::get()?;
        let mut count: c_int = 0;
        // SAFETY: the count is written while the call lasts.
        let first = unsafe { (library.get_device_list)(&mut count) };
        if first.is_null() {
            let why = "the system's libibverbs finds no RDMA devices: the kernel has no ib_uverbs";
            return Err(Error::new(VERB, last_errno(), why));
        }
        Ok(List {
            library,
            first,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    /// The devices with their names. The list ends where a pointer is NULL.
    fn entries(&self) -> impl Iterator<Item = (*mut ibv_device, String)> + '_ {
        // SAFETY: the list has as many pointers as were counted.
        let all = (0..self.count).map(|index| unsafe { *self.first.add(index) });
        all.take_while(|device| !device.is_null())
            .filter_map(|device| {
                // SAFETY: a device of the list.
                let name = unsafe { (self.library.get_device_name)(device) };
                if name.is_null() {
                    return None;
                }
                // SAFETY: a text that ends with a zero, and lives as long as the device.
                let name = unsafe { CStr::from_ptr(name) };
                Some((device, name.to_string_lossy().into_owned()))
            })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the library's own list, freed once. Opened devices keep what they need.
        unsafe { (self.library.free_device_list)(self.first) };
    }
}

/// The devices of the system (`ibv_get_device_list`). None of them is opened.
///
/// # Errors
/// The library is not there or of another ABI, or the kernel knows no RDMA.
pub fn devices() -> Result<Vec<Device>> {
    let list = List::get()?;
    let devices = list.entries().map(|(device, name)| Device {
        name,
        // SAFETY: a device of the list, which is alive.
        guid: u64::from_be(unsafe { (list.library.get_device_guid)(device) }),
    });
    Ok(devices.collect())
}

/// The operations on the way of the data.
pub(crate) struct DataOps {
    pub(crate) poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub(crate) post_send:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub(crate) post_recv:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

/// An open device (`ibv_open_device`). Closed when its last handle, objects' included, is dropped.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<Opened>,
}

pub(crate) struct Opened {
    pub(crate) library: &'static Library,
    pub(crate) ptr: NonNull<ibv_context>,
    pub(crate) ops: DataOps,
    pub(crate) name: String,
    pub(crate) attr: ibv_device_attr,
    pub(crate) tried: OnceLock<Tried>,
    async_fd: RawFd,
    process: Process,
}

// SAFETY: libibverbs's functions may be called from any thread at once (its Documentation/libibverbs
// says so of all of them), and the pointer is not followed but by them and for fields that never
// change.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("device", &self.inner.name)
            .finish()
    }
}

/// The operation of this name in the part of the table that was added later; `None`: the library is
/// older, or the device has none.
macro_rules! extended {
    ($context:expr, $op:ident) => {{
        let ptr: core::ptr::NonNull<rnic_layouts::ibv_context> = $context.inner.ptr;
        let whole = ptr
            .as_ptr()
            .wrapping_byte_sub(core::mem::offset_of!(rnic_layouts::verbs_context, context))
            .cast::<rnic_layouts::verbs_context>();
        let from_here = size_of::<rnic_layouts::verbs_context>()
            - core::mem::offset_of!(rnic_layouts::verbs_context, $op);
        // SAFETY: the device was opened, so it lies within a `verbs_context` (checked then), of
        // which there is as much in front as `sz` says.
        unsafe {
            match (*whole).sz >= from_here {
                true => (*whole).$op,
                false => None,
            }
        }
    }};
}
pub(crate) use extended;

impl Context {
    /// Opens the device of this name (`ibv_open_device`).
    ///
    /// # Errors
    /// As [`devices`]; there is no such device; its driver refuses; its table of operations is of
    /// another ABI or lacks one.
    pub fn open(name: &str) -> Result<Context> {
        const VERB: &str = "ibv_open_device";
        let list = List::get()?;
        let found = list.entries().find(|(_, other)| other == name);
        let Some((device, _)) = found else {
            let names: Vec<String> = list.entries().map(|(_, name)| name).collect();
            let there = match names.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", names.join(", ")),
            };
            let why = format!("the system has no device {name:?}; {there}");
            return Err(Error::new(VERB, libc::ENODEV, why));
        };
        let library = list.library;
        // SAFETY: a device of the list, which is alive.
        let ptr = unsafe { (library.open_device)(device) };
        let ptr = NonNull::new(ptr).ok_or_else(|| refused(VERB, name, last_errno()))?;
        let close = || {
            // SAFETY: opened above, and nobody has it yet.
            unsafe { (library.close_device)(ptr.as_ptr()) };
        };
        let opened = data_ops(ptr, name).and_then(|ops| Ok((ops, attributes(library, ptr, name)?)));
        match opened {
            Ok((ops, attr)) => Ok(Context {
                inner: Arc::new(Opened {
                    library,
                    ptr,
                    ops,
                    attr,
                    name: name.to_owned(),
                    tried: OnceLock::new(),
                    // SAFETY: an open device; the field never changes.
                    async_fd: unsafe { (*ptr.as_ptr()).async_fd },
                    process: Process::this(),
                }),
            }),
            Err(error) => {
                close();
                Err(error)
            }
        }
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.inner.library
    }

    /// The library's object, alive as long as the handle.
    pub fn as_ptr(&self) -> *mut core::ffi::c_void {
        self.ptr().cast()
    }

    pub(crate) fn ptr(&self) -> *mut ibv_context {
        self.inner.ptr.as_ptr()
    }

    /// ENODEV in a forked child.
    #[inline]
    pub fn check_alive(&self, verb: &'static str) -> Result<()> {
        match self.is_alive() {
            true => Ok(()),
            false => Err(forked(verb)),
        }
    }

    /// False in a forked child.
    #[inline]
    pub fn is_alive(&self) -> bool {
        self.inner.process == Process::this()
    }

    pub(crate) fn refused(&self, verb: &'static str) -> Error {
        refused(verb, self.name(), last_errno())
    }

    pub(crate) fn outcome(&self, verb: &'static str, given: c_int) -> Result<()> {
        outcome(verb, self.name(), given)
    }

    pub(crate) fn absent(&self, verb: &'static str) -> Error {
        absent(verb, self.name())
    }

    /// What came of a call that makes something.
    pub(crate) fn made<T>(&self, verb: &'static str, made: *mut T) -> Result<NonNull<T>> {
        NonNull::new(made).ok_or_else(|| self.refused(verb))
    }

    /// What the library refused, with the limit that was passed, if one was: what was asked for, how
    /// many of it, and the most that the device has (ibv_query_device(3)).
    pub(crate) fn beyond(&self, error: Error, asked: &[(&str, u32, c_int)]) -> Error {
        let over = asked.iter().find(|(_, count, most)| {
            u32::try_from(*most).is_ok_and(|most| most > 0 && *count > most)
        });
        match over {
            Some((what, count, most)) => {
                let why = format!("the device {} has {what} {most}, not {count}", self.name());
                Error::new(error.verb(), error.errno(), why)
            }
            None => error,
        }
    }

    /// Limits (`ibv_query_device`), as they were when it was opened. `max_inline_data` is 0: see
    /// [`Abilities`](crate::Abilities).
    pub fn device_attr(&self) -> DeviceAttr {
        convert::device_attr(&self.inner.attr)
    }

    /// A port, counted from 1 (`ibv_query_port`).
    ///
    /// # Errors
    /// There is no such port; the device does not answer.
    pub fn port_attr(&self, port: u8) -> Result<PortAttr> {
        const VERB: &str = "ibv_query_port";
        self.check_alive(VERB)?;
        // SAFETY: numbers only.
        let mut attr: ibv_port_attr = unsafe { core::mem::zeroed() };
        let given = match extended!(self, query_port) {
            // SAFETY: an open device, and the structure that the call fills, with its length.
            Some(query) => unsafe { query(self.ptr(), port, &mut attr, size_of_val(&attr)) },
            // SAFETY: as above; without a length the call fills the first part of it.
            None => unsafe { (self.library().query_port)(self.ptr(), port, &mut attr) },
        };
        self.outcome(VERB, given)?;
        Ok(convert::port_attr(&attr))
    }

    /// The P_Key table of port 1 up to its last entry.
    pub fn pkeys(&self) -> Vec<u16> {
        let rows = self.port_attr(1).map_or(0, |port| port.pkey_tbl_len);
        let pkey = |index: u16| {
            let mut pkey = 0u16;
            // SAFETY: an open device, and where the call writes.
            let given =
                unsafe { (self.library().query_pkey)(self.ptr(), 1, index.into(), &mut pkey) };
            if given == 0 { u16::from_be(pkey) } else { 0 }
        };
        let mut all: Vec<u16> = (0..rows.min(MOST_ROWS as u16)).map(pkey).collect();
        let used = all.iter().rposition(|pkey| *pkey != 0).map_or(0, |i| i + 1);
        all.truncate(used);
        all
    }

    /// The GID table of port 1: what is RoCE v2 in it.
    pub fn gid_table(&self) -> Vec<GidEntry> {
        let Ok(port) = self.port_attr(1) else {
            return Vec::new();
        };
        let rows = port.gid_tbl_len.min(MOST_ROWS);
        let rows = self
            .rows_at_once(rows)
            .unwrap_or_else(|| self.rows_by_one(rows));
        let is_up = port.state == rnic_types::PortState::Active;
        gids::table(rows, port.active_mtu.bytes() as u32, is_up)
    }

    /// `None`: the library has no such call, or the device does not take it.
    fn rows_at_once(&self, rows: u32) -> Option<Vec<Row>> {
        let query = self.library().query_gid_table?;
        let size = size_of::<ibv_gid_entry>();
        let mut entries = vec![ibv_gid_entry::default(); rows as usize * 2];
        // SAFETY: an open device, and as many entries of that size as are said.
        let given = unsafe { query(self.ptr(), entries.as_mut_ptr(), entries.len(), 0, size) };
        entries.truncate(usize::try_from(given).ok()?);
        entries.retain(|row| row.port_num == 1 && row.gid_type == IBV_GID_TYPE_ROCE_V2);
        let row = |entry: ibv_gid_entry| Row {
            index: entry.gid_index,
            gid: entry.gid.raw,
            ifindex: entry.ndev_ifindex,
        };
        Some(entries.into_iter().map(row).collect())
    }

    fn rows_by_one(&self, rows: u32) -> Vec<Row> {
        let row = |index: u32| {
            let mut gid = ibv_gid::default();
            // SAFETY: an open device, and where the call writes.
            let given =
                unsafe { (self.library().query_gid)(self.ptr(), 1, index as c_int, &mut gid) };
            if given != 0 || gid.raw == [0; 16] {
                return None;
            }
            let ifindex = gids::roce_v2_interface(self.name(), 1, index)?;
            Some(Row {
                index,
                gid: gid.raw,
                ifindex,
            })
        };
        (0..rows).filter_map(row).collect()
    }

    /// The address that a GID of this device stands for, if it has one of it.
    pub fn gid_of(&self, addr: IpAddr) -> Option<GidEntry> {
        self.gid_table().into_iter().find(|row| row.addr == addr)
    }

    /// Readable: [`Context::wait_async_event`] has something.
    pub fn async_fd(&self) -> RawFd {
        self.inner.async_fd
    }

    /// Takes the oldest event, and waits for it unless the descriptor does not block. What the
    /// software NIC has no event for is left out.
    ///
    /// # Errors
    /// EAGAIN, EINTR; ENODEV in a forked child.
    pub fn wait_async_event(&self) -> Result<AsyncEvent> {
        const VERB: &str = "ibv_get_async_event";
        loop {
            self.check_alive(VERB)?;
            let mut event = ibv_async_event {
                element: ibv_async_element { object: null_mut() },
                event_type: !0,
            };
            // SAFETY: an open device, and where the call writes.
            if unsafe { (self.library().get_async_event)(self.ptr(), &mut event) } != 0 {
                return Err(self.refused(VERB));
            }
            // SAFETY: just taken; what it is of lives until it is acknowledged.
            let known = unsafe { known_event(&event) };
            // SAFETY: taken above, and acknowledged once.
            unsafe { (self.library().ack_async_event)(&mut event) };
            if let Some(known) = known {
                return Ok(known);
            }
        }
    }
}

/// The event if it is one of those that programs are told.
///
/// # Safety
/// It was taken, and is not acknowledged yet.
unsafe fn known_event(event: &ibv_async_event) -> Option<AsyncEvent> {
    let kind = event.event_type;
    if let Some(of_qp) = convert::qp_event(kind) {
        // SAFETY: by contract; an event of a queue pair names it.
        let qp = unsafe { event.element.object.cast::<ibv_qp>().as_ref() }?;
        let cookie = qp.qp_context as u64;
        let event = of_qp;
        return Some(AsyncEvent::Qp { cookie, event });
    }
    // SAFETY: numbers; an event of a port has one.
    let port = unsafe { event.element.port_num } as u8;
    match kind {
        IBV_EVENT_CQ_ERR => {
            // SAFETY: by contract; an event of a completion queue names it.
            let cq = unsafe { event.element.object.cast::<ibv_cq>().as_ref() }?;
            let cookie = cq.cq_context as u64;
            Some(AsyncEvent::Cq { cookie })
        }
        IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: by contract; an event of a shared receive queue names it.
            let srq = unsafe { event.element.object.cast::<ibv_srq>().as_ref() }?;
            let cookie = srq.srq_context as u64;
            Some(AsyncEvent::SrqLimit { cookie })
        }
        IBV_EVENT_PORT_ACTIVE => Some(AsyncEvent::PortActive(port)),
        IBV_EVENT_PORT_ERR => Some(AsyncEvent::PortError(port)),
        IBV_EVENT_GID_CHANGE => Some(AsyncEvent::GidChange(port)),
        IBV_EVENT_DEVICE_FATAL => Some(AsyncEvent::DeviceFatal),
        _ => None,
    }
}

/// The table of a device that was just opened, if it is one of the ABI that this crate knows.
fn data_ops(ptr: NonNull<ibv_context>, name: &str) -> Result<DataOps> {
    const VERB: &str = "ibv_open_device";
    let other_abi = |why: &str| {
        let why = format!("the device {name} has another ABI than rdma-core 15 to 64: {why}");
        Error::new(VERB, libc::ENOSYS, why)
    };
    // SAFETY: an open device.
    let context = unsafe { ptr.as_ref() };
    if context.abi_compat != usize::MAX {
        return Err(other_abi("its context is no verbs_context"));
    }
    if context.async_fd < 0 {
        return Err(other_abi("its context has no descriptor of events"));
    }
    let ops = &context.ops;
    let lacks = |op: &str| other_abi(&format!("its table has no {op}"));
    Ok(DataOps {
        poll_cq: ops.poll_cq.ok_or_else(|| lacks("poll_cq"))?,
        req_notify_cq: ops.req_notify_cq.ok_or_else(|| lacks("req_notify_cq"))?,
        post_send: ops.post_send.ok_or_else(|| lacks("post_send"))?,
        post_recv: ops.post_recv.ok_or_else(|| lacks("post_recv"))?,
    })
}

/// Limits of a device that was just opened.
fn attributes(library: &Library, ptr: NonNull<ibv_context>, name: &str) -> Result<ibv_device_attr> {
    // SAFETY: numbers and bytes only; zeros are values of all of them.
    let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
    // SAFETY: an open device, and the structure that the call fills.
    let given = unsafe { (library.query_device)(ptr.as_ptr(), &mut attr) };
    outcome("ibv_query_device", name, given)?;
    Ok(attr)
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.process == Process::this() {
            // SAFETY: opened in this process, and nothing that was made of it is left.
            unsafe { (self.library.close_device)(self.ptr.as_ptr()) };
        }
    }
}
