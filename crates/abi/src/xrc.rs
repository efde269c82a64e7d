//! XRC domains, and the queue pairs that are made and opened by them.

use core::ffi::{c_int, c_void};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use rnic_nic::{QpState, Xrcd};

use crate::device::{nic, opened};
use crate::memory::allocator::Room;
use crate::object::{Object, from_c, into_c, take_c};
use crate::qp::{self, QpObject};
use crate::seam::{EBUSY, EINVAL, EOPNOTSUPP, NULL, Result, Verb};
use crate::types::*;

/// An XRC domain.
#[repr(C)]
pub struct XrcdObject {
    c: UnsafeCell<ibv_xrcd>,
    pub nic: Xrcd,
}

// SAFETY: `repr(C)`, first field.
unsafe impl Object for XrcdObject {
    type C = ibv_xrcd;
}

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

/// What a queue pair of type XRC_RECV is to the program: it has neither protection domain nor completion queues.
fn target(context: *mut ibv_context, qp_context: *mut c_void, qpn: u32, state: QpState) -> ibv_qp {
    ibv_qp {
        context,
        qp_context,
        pd: null_mut(),
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        handle: qpn,
        qp_num: qpn,
        state: state as u32,
        qp_type: IBV_QPT_XRC_RECV,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    }
}

/// Creates a queue pair of type XRC_RECV.
///
/// # Safety
/// `xrcd` is ours, or NULL.
pub unsafe fn create_target(
    xrcd: *mut ibv_xrcd,
    attr: &mut ibv_qp_init_attr,
) -> Result<*mut ibv_qp> {
    // SAFETY: by contract.
    let owner = unsafe { from_c::<XrcdObject>(xrcd) }?;
    let room = Room::<QpObject>::ours();
    let nic = owner.nic.create_qp(room.address())?;
    // SAFETY: a live domain, whose field nobody changes.
    let context = unsafe { (*xrcd).context };
    attr.cap = ibv_qp_cap::default();
    let c = target(context, attr.qp_context, nic.qpn(), QpState::Reset);
    Ok(qp::give(room, nic, c, None))
}

/// The `open_qp` operation: one more handle to a queue pair of type XRC_RECV, of this process.
pub unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    Verb("ibv_open_qp").makes(qp::destroy_qp, || {
        // SAFETY: a context of ours, or NULL.
        unsafe { nic(context) }?;
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        const NEEDED: u32 = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & !(NEEDED | IBV_QP_OPEN_ATTR_CONTEXT) != 0 {
            return Err(EOPNOTSUPP.because(format!("comp_mask is {:#x}", attr.comp_mask)));
        }
        if attr.comp_mask & NEEDED != NEEDED || attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(EINVAL.because(format!(
                "comp_mask is {:#x}, qp_type {}: number and domain of an XRC_RECV queue pair are needed",
                attr.comp_mask, attr.qp_type
            )));
        }
        // SAFETY: a domain of ours, or NULL.
        let owner = unsafe { from_c::<XrcdObject>(attr.xrcd) }?;
        let room = Room::<QpObject>::ours();
        let nic = owner.nic.open_qp(attr.qp_num, room.address())?;
        let qp_context = match attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT {
            0 => null_mut(),
            _ => attr.qp_context,
        };
        // SAFETY: a live domain, whose field nobody changes.
        let context = unsafe { (*attr.xrcd).context };
        let c = target(context, qp_context, nic.qpn(), nic.state());
        let qp = qp::give(room, nic, c, None);
        // SAFETY: just made; the program does not know of it yet.
        unsafe { from_c::<QpObject>(qp) }?.nic.listen();
        Ok(qp)
    })
}
