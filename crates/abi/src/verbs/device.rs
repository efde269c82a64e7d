//! The device list, opening and closing.

use core::ffi::{c_char, c_int};
use std::cell::UnsafeCell;
use std::sync::OnceLock;

use rnic_nic::{Context, DEVICE_NAME, device_guid};
use rnic_sys::Fd;

use super::ops;
use crate::c::*;
use crate::convert::strings::set_text;
use crate::export::seam::{self, EINVAL, ENOMEM, Errno, Result, Verb};
use crate::export::symbols::export;
use crate::handles::context::{ContextObject, Opened, explain};
use crate::handles::object::{from_c, into_c, take_c, to_end, zeroed};
use crate::handles::open::{guard_forks, lock_open};
use crate::handles::per_process::PerProcess;
use crate::system::sysfs::UVERBS_NAME;

/// The device and, behind it, zeroes: mlx5dv and efadv look for their provider's data right behind
/// `ibv_device` (at byte 664) before they decide that a device is not theirs.
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

unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    Verb("ibv_get_device_list").makes(free_device_list, || {
        // SAFETY: two zeroed pointers, from the allocator that programs expect the list to come
        // from.
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

/// Opens the device, or with `cmd_fd` imports that context; the descriptor belongs to the new one
/// from now on.
pub fn open_as(cmd_fd: Option<c_int>) -> Result<*mut ibv_context> {
    guard_forks()?;
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
    ops::fill(c, the_device(), &opened.nearest().nic);
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

pub unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    seam::status(|| {
        // SAFETY: a context of ours, or NULL.
        let object = unsafe { from_c::<ContextObject>(context) }?;
        // Objects that are left end as the kernel ends those of a closed device file; their memory,
        // and the context's, to which they point, is kept. So it is in a forked child, whose copy
        // of the parent's device is not closed: only what the child itself opened is.
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
            drop(unsafe { Fd::take(cmd_fd) });
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

export! {
    ibv_get_device_list @@ "IBVERBS_1.1" => get_device_list;
    ibv_free_device_list @@ "IBVERBS_1.1" @ "IBVERBS_1.0" => free_device_list;
    ibv_get_device_name @@ "IBVERBS_1.1" => get_device_name;
    ibv_get_device_guid @@ "IBVERBS_1.1" => get_device_guid;
    ibv_get_device_index @@ "IBVERBS_1.9" => get_device_index;
    ibv_open_device @@ "IBVERBS_1.1" => open_device;
    ibv_close_device @@ "IBVERBS_1.1" => close_device;
}
