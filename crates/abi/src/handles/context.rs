//! Opened devices, and why one could not be opened.

use std::cell::UnsafeCell;

use rnic_nic::{Context, DEVICE_NAME};
use rustix_futex_sync::Mutex;

use super::object::{Object, from_c};
use super::open::lock_open;
use super::per_process::{OfProcess, PerProcess};
use crate::c::*;
use crate::export::seam::{Errno, PARENTS, Result};

/// A context as one process has it open.
pub struct Opened {
    pub nic: Context,
    /// Held while an asynchronous event is taken and counted for its object, see `verbs/event.rs`.
    pub async_lock: Mutex<()>,
}

impl Opened {
    pub fn new(nic: Context) -> Opened {
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
    pub opened: PerProcess<Opened>,
    /// Its `cmd_fd` is a descriptor of its own, which is closed with it.
    pub imported: bool,
}

// SAFETY: `context` is the last field of `verbs_context`, at this offset.
unsafe impl Object for ContextObject {
    type C = ibv_context;
    const OFFSET: usize = std::mem::offset_of!(verbs_context, context);
}

/// One line on stderr: what failed, why, and what to do next where the reason does not say so
/// itself. Programs report no more than "failed to open device".
pub fn explain(error: &rnic_nic::Error) {
    if rnic_settings::QUIET.is_on() {
        return;
    }
    rnic_host::log(format_args!(
        "cannot open {DEVICE_NAME}: {}{}",
        error.reason(),
        next(error)
    ));
}

/// What to do, by what failed: the errno alone does not tell the runtime folder from another file
/// that is not there.
pub fn next(error: &rnic_nic::Error) -> &'static str {
    let reason = error.reason();
    // It names the variable that is wrong, or the one that helps.
    if reason.contains("RNIC_") {
        return "";
    }
    let folder = rnic_host::registry::runtime_dir();
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

/// The context as this process has it open, to make objects of it. A forked child that goes on with
/// its parent's context opens the device by this.
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
pub unsafe fn open_in_child(context: *mut ibv_context, object: &ContextObject) -> Result<&Opened> {
    let mut open = lock_open();
    // Another thread may have been first.
    if let Some(here) = object.opened.here() {
        return Ok(here);
    }
    let nic = Context::open().map_err(|error| {
        explain(&error);
        Errno(error.errno())
    })?;
    // SAFETY: plain fields, which are this child's own from now on. Those of the parent's stay
    // open: they may be the parent's no more, if the program closed all that it had inherited.
    unsafe {
        (*context).cmd_fd = nic.cmd_fd();
        (*context).async_fd = nic.async_fd();
        open.push((*context).cmd_fd);
    }
    Ok(object.opened.add(&open, Opened::new(nic)))
}

/// Waits until nobody takes an asynchronous event of the context in between: a thread that took one
/// has counted it then.
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

#[cfg(test)]
mod tests {
    use rnic_nic::Error;

    #[test]
    fn what_to_do_depends_on_what_failed() {
        let next = |errno, reason: &str| {
            super::next(&Error::new("ibv_open_device", errno, reason.to_owned()))
        };
        let folder = rnic_host::registry::runtime_dir();
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
