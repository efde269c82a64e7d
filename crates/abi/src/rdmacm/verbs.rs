//! The crate's own verbs, for the connection manager: results instead of NULL or a status. What
//! ends an object does not tell that it failed: an object of the id's that is still in use is the
//! program's from then on.

use core::ffi::{c_int, c_void};

use crate::c::*;
use crate::export::seam::{Refusal, Result};
use crate::verbs::{ah, cq, pd, qp, srq, xrcd};

/// A pointer that a verb returned.
fn made<T>(object: *mut T) -> Result<*mut T> {
    match object.is_null() {
        // The verb has told of it.
        true => Err(Refusal::silent(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )),
        false => Ok(object),
    }
}

/// A status that a verb returned, and of which it has told.
fn done(status: c_int) -> Result<()> {
    match status {
        0 => Ok(()),
        errno => Err(Refusal::silent(errno)),
    }
}

/// # Safety
/// A context of ours, or NULL.
pub unsafe fn alloc_pd(context: *mut ibv_context) -> Result<*mut ibv_pd> {
    // SAFETY: by contract.
    made(unsafe { pd::alloc_pd(context) })
}

/// # Safety
/// A protection domain of ours, or NULL, that the program does not use any more.
pub unsafe fn dealloc_pd(pd: *mut ibv_pd) -> Result<()> {
    // SAFETY: by contract.
    unsafe { pd::dealloc(pd) }
}

/// # Safety
/// A context of ours, or NULL.
pub unsafe fn open_xrcd(context: *mut ibv_context) -> Result<*mut ibv_xrcd> {
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    // SAFETY: by contract; a structure of our own.
    made(unsafe { xrcd::open_xrcd(context, &raw mut attr) })
}

/// # Safety
/// A domain of ours, or NULL, that the program does not use any more.
pub unsafe fn close_xrcd(xrcd: *mut ibv_xrcd) -> Result<()> {
    // SAFETY: by contract.
    unsafe { xrcd::close(xrcd) }
}

/// # Safety
/// A context of ours, or NULL.
pub unsafe fn create_comp_channel(context: *mut ibv_context) -> Result<*mut ibv_comp_channel> {
    // SAFETY: by contract.
    made(unsafe { cq::create_comp_channel(context) })
}

/// # Safety
/// A channel of ours, or NULL, that the program does not use any more.
pub unsafe fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> Result<()> {
    // SAFETY: by contract.
    unsafe { cq::destroy_channel(channel) }
}

/// # Safety
/// Ours, or NULL.
pub unsafe fn create_cq(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> Result<*mut ibv_cq> {
    // SAFETY: by contract. More than fits is negative, and refused.
    made(unsafe { cq::create_cq(context, cqe as c_int, cq_context, channel, 0) })
}

/// # Safety
/// A queue of ours, or NULL, that the program does not use any more.
pub unsafe fn destroy_cq(queue: *mut ibv_cq) -> Result<()> {
    // SAFETY: by contract.
    unsafe { cq::destroy(queue) }
}

/// # Safety
/// The verb's.
pub unsafe fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq> {
    // SAFETY: by contract.
    made(unsafe { srq::create_srq_ex(context, init) })
}

/// # Safety
/// A queue of ours, or NULL, that the program does not use any more.
pub unsafe fn destroy_srq(queue: *mut ibv_srq) -> Result<()> {
    // SAFETY: by contract.
    unsafe { srq::destroy(queue) }
}

/// # Safety
/// The verb's.
pub unsafe fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    // SAFETY: by contract.
    made(unsafe { qp::create_qp_ex(context, init) })
}

/// # Safety
/// A queue pair of ours, or NULL, that the program does not use any more.
pub unsafe fn destroy_qp(pair: *mut ibv_qp) -> Result<()> {
    // SAFETY: by contract.
    unsafe { qp::destroy(pair) }
}

/// # Safety
/// A queue pair of ours, or NULL.
pub unsafe fn attach_mcast(pair: *mut ibv_qp, group: &ibv_gid) -> Result<()> {
    // SAFETY: by contract.
    done(unsafe { ah::attach_mcast(pair, group, 0) })
}

/// # Safety
/// A queue pair of ours, or NULL.
pub unsafe fn detach_mcast(pair: *mut ibv_qp, group: &ibv_gid) -> Result<()> {
    // SAFETY: by contract.
    done(unsafe { ah::detach_mcast(pair, group, 0) })
}
