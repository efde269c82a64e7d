//! The device list, opening and closing.

use core::ffi::{c_char, c_int};
use std::cell::UnsafeCell;
use std::sync::OnceLock;

use rnic_nic::{Context, DEVICE_NAME, device_guid};
use rustix_futex_sync::{Mutex, MutexGuard};

use crate::memory::{dm, mr, mw, pd};
use crate::object::{Object, from_c, into_c, take_c, to_end, zeroed};
use crate::per_process::{OfProcess, PerProcess};
use crate::seam::{self, EINVAL, ENOMEM, Errno, PARENTS, Result, Verb};
use crate::symbols::export;
use crate::types::*;
use crate::{cq, cq_ex, fork, post, qp, query, srq, xrc};

/// Name of the character device in `/dev/infiniband`.
pub const UVERBS_NAME: &str = "uverbs0";
/// Its number, major and minor: the first of the kernel's.
pub const UVERBS_DEV: (u32, u32) = (231, 192);

/// The device and, behind it, zeroes: mlx5dv and efadv look for their provider's data right behind `ibv_device` (at
/// byte 664) before they decide that a device is not theirs.
#[repr(C)]
struct Device {
    c: ibv_device,
    provider_data: [u8; 1024],
}

struct DevicePointer(*mut ibv_device);
// SAFETY: points to a leaked allocation, written once before it is shared.
unsafe impl Send for DevicePointer {}
// SAFETY: as above.
unsafe impl Sync for DevicePointer {}

/// The one device: programs compare its address across lists, so it lives as long as the process.
pub fn the_device() -> *mut ibv_device {
    static DEVICE: OnceLock<DevicePointer> = OnceLock::new();
    DEVICE
        .get_or_init(|| {
            // SAFETY: integers, raw pointers and bytes may all be zero.
            let mut device: Box<Device> = Box::new(unsafe { std::mem::zeroed() });
            device.c.node_type = IBV_NODE_CA as c_int;
            device.c.transport_type = IBV_TRANSPORT_IB as c_int;
            set_text(&mut device.c.name, DEVICE_NAME);
            set_text(&mut device.c.dev_name, UVERBS_NAME);
            set_text(
                &mut device.c.dev_path,
                "/sys/class/infiniband_verbs/uverbs0",
            );
            set_text(&mut device.c.ibdev_path, "/sys/class/infiniband/rnic0");
            DevicePointer(Box::into_raw(device).cast())
        })
        .0
}

/// Copies text into a C array of chars, cut to leave room for the NUL.
pub fn set_text(field: &mut [c_char], text: &str) {
    field.fill(0);
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    Verb("ibv_get_device_list").makes(free_device_list, || {
        // SAFETY: two zeroed pointers, from the allocator that programs expect the list to come from.
        let list =
            unsafe { libc::calloc(2, size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: room for two; the second stays NULL and ends the list.
        unsafe { *list = the_device() };
        if !num_devices.is_null() {
            // SAFETY: the caller's variable.
            unsafe { *num_devices = 1 };
        }
        Ok(list)
    })
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: from `get_device_list`, or NULL.
    unsafe { libc::free(list.cast()) };
}

unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return std::ptr::null();
    }
    // SAFETY: a device from the list.
    unsafe { (&raw const (*device).name).cast() }
}

extern "C" fn get_device_guid(_device: *mut ibv_device) -> u64 {
    // By way of the seam: the GUID is read from the system's interfaces.
    let mut guid = 0;
    seam::quiet(|| {
        guid = device_guid().to_be();
        Ok(())
    });
    guid
}

extern "C" fn get_device_index(device: *mut ibv_device) -> c_int {
    seam::number(|| if device.is_null() { Err(EINVAL) } else { Ok(0) })
}

/// A context as one process has it open.
pub struct Opened {
    pub nic: Context,
    /// Held while an asynchronous event is taken and counted for its object, see [`crate::event`].
    pub async_lock: Mutex<()>,
}

impl Opened {
    fn new(nic: Context) -> Opened {
        Opened {
            nic,
            async_lock: Mutex::new(()),
        }
    }
}

impl OfProcess for Opened {
    fn is_here(&self) -> bool {
        self.nic.is_alive()
    }
}

/// An opened device: `verbs_context` with `ibv_context` at its end, and the handle.
#[repr(C)]
pub struct ContextObject {
    pub c: UnsafeCell<verbs_context>,
    opened: PerProcess<Opened>,
    /// Its `cmd_fd` is a descriptor of its own, which is closed with it.
    imported: bool,
}

// SAFETY: `context` is the last field of `verbs_context`, at this offset.
unsafe impl Object for ContextObject {
    type C = ibv_context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
}

/// The `cmd_fd` of all contexts that are open.
static OPEN: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

/// The list of open contexts, locked.
pub type OpenGuard = MutexGuard<'static, Vec<c_int>>;

/// Held across fork(2), so that the child finds it free.
pub fn lock_open() -> OpenGuard {
    OPEN.lock()
}

/// Opens the device, or with `cmd_fd` imports that context; the descriptor belongs to the new one from now on.
pub fn open_as(cmd_fd: Option<c_int>) -> Result<*mut ibv_context> {
    fork::register()?;
    let nic = cmd_fd.map_or_else(Context::open, Context::import);
    let nic = nic.map_err(|error| {
        explain(&error);
        Errno(error.errno())
    })?;
    // SAFETY: integers, pointers, optional functions and a pthread mutex.
    let c: UnsafeCell<verbs_context> = unsafe { zeroed() };
    let mut object = Box::new(ContextObject {
        c,
        opened: PerProcess::new(Opened::new(nic)),
        imported: cmd_fd.is_some(),
    });
    let ContextObject { c, opened, .. } = &mut *object;
    let c = c.get_mut();
    fill(c, the_device(), &opened.nearest().nic);
    if let Some(cmd_fd) = cmd_fd {
        c.context.cmd_fd = cmd_fd;
    }
    lock_open().push(c.context.cmd_fd);
    Ok(into_c(object))
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // What cannot be opened is explained by `open_as`.
    let close = |context| {
        // SAFETY: just opened, and the program does not know of it.
        unsafe { close_device(context) };
    };
    seam::pointer(|| match device.is_null() {
        true => Err(EINVAL),
        false => seam::make("ibv_open_device", || open_as(None), close),
    })
}

fn fill(c: &mut verbs_context, device: *mut ibv_device, nic: &Context) {
    c.query_port = Some(query::query_port);
    c.modify_cq = Some(cq::modify_cq);
    c.advise_mr = Some(mr::advise_mr);
    c.alloc_parent_domain = Some(pd::alloc_parent_domain);
    c.alloc_td = Some(pd::alloc_td);
    c.dealloc_td = Some(pd::dealloc_td);
    c.alloc_null_mr = Some(mr::alloc_null_mr);
    c.reg_dm_mr = Some(dm::reg_dm_mr);
    c.alloc_dm = Some(dm::alloc_dm);
    c.free_dm = Some(dm::free_dm);
    c.query_rt_values = Some(query::query_rt_values);
    c.create_cq_ex = Some(cq_ex::create_cq_ex);
    c.query_device_ex = Some(query::query_device_ex);
    c.create_qp_ex = Some(qp::create_qp_ex);
    c.get_srq_num = Some(srq::get_srq_num);
    c.create_srq_ex = Some(srq::create_srq_ex);
    c.open_xrcd = Some(xrc::open_xrcd);
    c.close_xrcd = Some(xrc::close_xrcd);
    c.open_qp = Some(xrc::open_qp);
    c.sz = size_of::<verbs_context>();
    let context = &mut c.context;
    context.device = device;
    context.ops.alloc_mw = Some(mw::alloc_mw);
    context.ops.bind_mw = Some(mw::bind_mw);
    context.ops.dealloc_mw = Some(mw::dealloc_mw);
    context.ops.poll_cq = Some(cq::poll_cq);
    context.ops.req_notify_cq = Some(cq::req_notify_cq);
    context.ops.post_srq_recv = Some(srq::post_srq_recv);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    // Nothing is ever sent to it; programs dup it, and send it to others.
    context.cmd_fd = nic.cmd_fd();
    context.async_fd = nic.async_fd();
    context.num_comp_vectors = 1;
    context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    context.abi_compat = usize::MAX;
}

/// One line on stderr: what failed, why, and what to do next where the reason does not say so itself. Programs report
/// no more than "failed to open device".
pub fn explain(error: &rnic_nic::Error) {
    if rnic_settings::QUIET.is_on() {
        return;
    }
    rnic_link::tell(format_args!(
        "cannot open {DEVICE_NAME}: {}{}",
        error.reason(),
        next(error)
    ));
}

/// What to do, by what failed: the errno alone does not tell the runtime folder from another file that is not there.
fn next(error: &rnic_nic::Error) -> &'static str {
    let reason = error.reason();
    // It names the variable that is wrong, or the one that helps.
    if reason.contains("RNIC_") {
        return "";
    }
    let folder = rnic_link::registry::runtime_dir();
    let of_folder = reason.contains(&*folder.to_string_lossy());
    match error.errno() {
        libc::EADDRINUSE => "",
        libc::ENODEV | libc::EADDRNOTAVAIL => "; `ip address` shows the addresses of this host",
        libc::ENOENT | libc::EACCES | libc::EPERM | libc::ENOTDIR | libc::EROFS | libc::ENOSPC
            if of_folder =>
        {
            "; set RNIC_RUNTIME_DIR to a folder of yours"
        }
        _ => "; `rnic devices` tries the same and says more",
    }
}

pub unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    seam::status(|| {
        // SAFETY: a context of ours, or NULL.
        let object = unsafe { from_c::<ContextObject>(context) }?;
        // Objects that are left end as the kernel ends those of a closed device file; their memory, and the context's, to
        // which they point, is kept. So it is in a forked child, whose copy of the parent's device is not closed: only
        // what the child itself opened is.
        let Some(Opened { nic, .. }) = object.opened.here() else {
            return Ok(());
        };
        let is_own = object.opened.is_own_here();
        // SAFETY: as above; a field that nobody changes.
        let cmd_fd = unsafe { (*context).cmd_fd };
        let mut open = lock_open();
        if let Some(index) = open.iter().position(|fd| *fd == cmd_fd) {
            open.swap_remove(index);
        }
        drop(open);
        if object.imported {
            // SAFETY: a descriptor that `ibv_import_device` was given to keep.
            unsafe { libc::close(cmd_fd) };
        }
        if nic.has_objects() {
            nic.revoke();
        } else if is_own {
            // SAFETY: from `open_device`, and the program gives it up.
            drop(unsafe { take_c::<ContextObject>(context) });
        } else {
            // SAFETY: as above; nobody else uses it any more.
            unsafe { to_end::<ContextObject>(context) }
                .opened
                .end_here();
        }
        Ok(())
    })
}

/// Who opened the context was forked, and this is the child, whatever it made of it since.
///
/// # Safety
/// As [`from_c`].
pub unsafe fn is_parents(context: *mut ibv_context) -> Result<bool> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<ContextObject>(context) }?;
    Ok(!object.opened.is_own_here())
}

/// The handle behind a context, for questions; in a forked child it may be the parent's.
///
/// # Safety
/// As [`from_c`].
pub unsafe fn nic<'a>(context: *mut ibv_context) -> Result<&'a Context> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<ContextObject>(context) }?;
    Ok(&object.opened.nearest().nic)
}

/// The context as this process has it open, to make objects of it. A forked child that goes on with its parent's context
/// opens the device by this.
///
/// # Errors
/// ENODEV in a forked child whose parent imported it; those of opening the device.
///
/// # Safety
/// As [`from_c`].
pub unsafe fn opened<'a>(context: *mut ibv_context) -> Result<&'a Opened> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<ContextObject>(context) }?;
    match object.opened.here() {
        Some(here) => Ok(here),
        None if object.imported => Err(PARENTS),
        // SAFETY: by contract.
        None => unsafe { open_in_child(context, object) },
    }
}

/// # Safety
/// `object` is that of the context.
#[cold]
unsafe fn open_in_child(context: *mut ibv_context, object: &ContextObject) -> Result<&Opened> {
    let mut open = lock_open();
    // Another thread may have been first.
    if let Some(here) = object.opened.here() {
        return Ok(here);
    }
    let nic = Context::open().map_err(|error| {
        explain(&error);
        Errno(error.errno())
    })?;
    // SAFETY: plain fields, which are this child's own from now on. Those of the parent's stay open: they may be the
    // parent's no more, if the program closed all that it had inherited.
    unsafe {
        (*context).cmd_fd = nic.cmd_fd();
        (*context).async_fd = nic.async_fd();
        open.push((*context).cmd_fd);
    }
    Ok(object.opened.add(&open, Opened::new(nic)))
}

/// Waits until nobody takes an asynchronous event of the context in between: whoever took one has counted it then.
///
/// # Safety
/// As [`from_c`].
pub unsafe fn pass_async_lock(context: *mut ibv_context) -> Result<()> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<ContextObject>(context) }?;
    if let Some(here) = object.opened.here() {
        drop(here.async_lock.lock());
    }
    Ok(())
}

export! {
    ibv_get_device_list @@ "IBVERBS_1.1" => get_device_list;
    ibv_free_device_list @@ "IBVERBS_1.1" @ "IBVERBS_1.0" => free_device_list;
    ibv_get_device_name @@ "IBVERBS_1.1" => get_device_name;
    ibv_get_device_guid @@ "IBVERBS_1.1" => get_device_guid;
    ibv_get_device_index @@ "IBVERBS_1.9" => get_device_index;
    ibv_open_device @@ "IBVERBS_1.1" => open_device;
    ibv_close_device @@ "IBVERBS_1.1" => close_device;
}

#[cfg(test)]
mod tests {
    use rnic_nic::Error;

    #[test]
    fn what_to_do_depends_on_what_failed() {
        let next = |errno, reason: &str| {
            super::next(&Error::new("ibv_open_device", errno, reason.to_owned()))
        };
        let folder = rnic_link::registry::runtime_dir();
        let in_folder = format!("cannot use the runtime folder {}: why", folder.display());
        assert!(next(libc::ENOENT, &in_folder).contains("set RNIC_RUNTIME_DIR"));
        // Another folder would not help.
        assert!(!next(libc::EMFILE, &in_folder).contains(rnic_settings::RUNTIME_DIR.name));
        assert!(!next(libc::EACCES, "a UDP socket: why").contains(rnic_settings::RUNTIME_DIR.name));
        let pcap = "RNIC_PCAP: cannot open the capture file /nowhere/x: why";
        assert_eq!(next(libc::EINVAL, pcap), "");
        assert_eq!(next(libc::ENOENT, pcap), "");
    }
}
