//! XRC domains, and the queue pairs that are made and opened by them.

use core::ffi::c_int;
use std::cell::UnsafeCell;

use crate::c::*;
use crate::export::seam::{EBUSY, EINVAL, EOPNOTSUPP, NULL, Result, Verb};
use crate::handles::context::opened;
use crate::handles::object::{from_c, into_c, take_c};
use crate::handles::xrcd::XrcdObject;

/// The `open_xrcd` operation.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    Verb("ibv_open_xrcd").makes(close_xrcd, || {
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & !NEEDED != 0 {
            return Err(EOPNOTSUPP.because(format!("comp_mask is {:#x}", attr.comp_mask)));
        }
        if attr.comp_mask & NEEDED != NEEDED || attr.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
            return Err(EINVAL.because(format!(
                "comp_mask is {:#x}, oflags are {:#x}: a descriptor is needed, O_CREAT and O_EXCL are known",
                attr.comp_mask, attr.oflags
            )));
        }
        let file = (attr.fd != -1).then_some(attr.fd);
        let (create, exclusive) = (
            attr.oflags & libc::O_CREAT != 0,
            attr.oflags & libc::O_EXCL != 0,
        );
        // SAFETY: a context of ours, or NULL.
        let owner = unsafe { opened(context) }?;
        let nic = owner.nic.open_xrcd(file, create, exclusive)?;
        let c = UnsafeCell::new(ibv_xrcd { context });
        Ok(into_c(Box::new(XrcdObject { c, nic })))
    })
}

/// Without words, for the connection manager, which ends what it made as far as it is not in use.
///
/// # Safety
/// Ours, or NULL; the program does not use it any more.
pub unsafe fn close(xrcd: *mut ibv_xrcd) -> Result<()> {
    // SAFETY: a domain of ours, or NULL.
    let object = unsafe { from_c::<XrcdObject>(xrcd) }?;
    if !object.nic.context().is_alive() {
        return Ok(());
    }
    if object.nic.in_use() {
        return Err(EBUSY
            .because("queue pairs or shared receive queues of it are left")
            .consequence());
    }
    // SAFETY: checked for NULL, and the program gives it up.
    drop(unsafe { take_c::<XrcdObject>(xrcd) });
    Ok(())
}

/// The `close_xrcd` operation.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_close_xrcd").status(|| unsafe { close(xrcd) })
}
