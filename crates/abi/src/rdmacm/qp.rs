//! Queue pairs and shared receive queues of ids, with the protection domain and the completion
//! queues that the program did not bring.

use core::ffi::c_int;
use std::ptr::null_mut;

use super::{devices, ece, id, states, verbs};
use crate::c::cm::rdma_cm_id;
use crate::c::*;
use crate::export::seam::{self, EINVAL, NULL, Refusal, Result, Verb};
use crate::export::symbols::export;

/// EINVAL for an id that is on no device.
const NO_DEVICE: Refusal = Refusal::with(
    libc::EINVAL,
    "the id is not on the device yet: rdma_bind_addr or rdma_resolve_addr comes first",
);

/// The queue pair structure without what the plain verb does not have.
fn extended(plain: &ibv_qp_init_attr) -> ibv_qp_init_attr_ex {
    // SAFETY: integers and pointers.
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.qp_context = plain.qp_context;
    attr.send_cq = plain.send_cq;
    attr.recv_cq = plain.recv_cq;
    attr.srq = plain.srq;
    attr.cap = plain.cap;
    attr.qp_type = plain.qp_type;
    attr.sq_sig_all = plain.sq_sig_all;
    attr
}

/// Completion queues for so many work requests, each with a channel of its own; 0: none is missing.
///
/// # Safety
/// A live id.
unsafe fn create_cqs(id: *mut rdma_cm_id, sends: u32, receives: u32) -> Result<()> {
    // SAFETY: plain fields of a live id, and what is made here.
    let made = unsafe {
        (|| {
            let context = (*id).verbs;
            if receives > 0 {
                (*id).recv_cq_channel = verbs::create_comp_channel(context)?;
                (*id).recv_cq =
                    verbs::create_cq(context, receives, id.cast(), (*id).recv_cq_channel)?;
            }
            if sends > 0 {
                (*id).send_cq_channel = verbs::create_comp_channel(context)?;
                (*id).send_cq = verbs::create_cq(context, sends, id.cast(), (*id).send_cq_channel)?;
            }
            Ok(())
        })()
    };
    if made.is_err() {
        // SAFETY: as above.
        unsafe { destroy_cqs(id) };
    }
    made
}

/// Ends the completion queues and channels that lie in the id: also those that the program put
/// there, as stock rsockets do, who count on it.
///
/// # Safety
/// A live id.
unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    // SAFETY: plain fields of a live id; by contract of librdmacm nobody uses what lies there after
    // its queue pair.
    unsafe {
        let c = &mut *id;
        // A queue of XRC keeps what came with it.
        if c.qp_type == IBV_QPT_XRC_RECV && !c.srq.is_null() {
            return;
        }
        if !c.recv_cq.is_null() {
            let _ = verbs::destroy_cq(c.recv_cq);
            if c.send_cq != c.recv_cq && !c.send_cq.is_null() {
                let _ = verbs::destroy_cq(c.send_cq);
            }
        } else if !c.send_cq.is_null() {
            let _ = verbs::destroy_cq(c.send_cq);
        }
        (c.recv_cq, c.send_cq) = (null_mut(), null_mut());
        if !c.recv_cq_channel.is_null() {
            let _ = verbs::destroy_comp_channel(c.recv_cq_channel);
        }
        if c.send_cq_channel != c.recv_cq_channel && !c.send_cq_channel.is_null() {
            let _ = verbs::destroy_comp_channel(c.send_cq_channel);
        }
        (c.recv_cq_channel, c.send_cq_channel) = (null_mut(), null_mut());
    }
}

/// Both are there, and not the same.
fn differ<T>(one: *mut T, other: *mut T) -> bool {
    !one.is_null() && !other.is_null() && one != other
}

/// `rdma_create_qp_ex(3)`.
///
/// # Safety
/// The id is one; the structure has what its `comp_mask` names, ours or NULL.
pub unsafe fn create(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> Result<()> {
    let object = id::from_c(id)?;
    if attr.is_null() {
        return Err(NULL);
    }
    // SAFETY: a live id, and of the caller's structure only what is there.
    unsafe {
        let c = &mut *id;
        if !c.qp.is_null() {
            return Err(EINVAL.because("the id has a queue pair already"));
        }
        if c.verbs.is_null() {
            return Err(NO_DEVICE);
        }
        if (*attr).comp_mask & IBV_QP_INIT_ATTR_PD == 0 || (*attr).pd.is_null() {
            (*attr).comp_mask |= IBV_QP_INIT_ATTR_PD;
            (*attr).pd = c.pd;
        } else if (*(*attr).pd).context != c.verbs {
            return Err(EINVAL.because("the protection domain is of another context than the id"));
        }
        if differ(c.recv_cq, (*attr).recv_cq) || differ(c.send_cq, (*attr).send_cq) {
            return Err(EINVAL.because("the id has other completion queues than those given"));
        }
        if c.qp_type == IBV_QPT_XRC_RECV
            && ((*attr).comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || (*attr).xrcd.is_null())
        {
            (*attr).xrcd = devices::xrcd()?;
            (*attr).comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        }
        let missing = |given: *mut ibv_cq, own: *mut ibv_cq, size: u32| match given.is_null()
            && own.is_null()
        {
            true => size,
            false => 0,
        };
        create_cqs(
            id,
            missing((*attr).send_cq, c.send_cq, (*attr).cap.max_send_wr),
            missing((*attr).recv_cq, c.recv_cq, (*attr).cap.max_recv_wr),
        )?;
        if (*attr).send_cq.is_null() {
            (*attr).send_cq = (*id).send_cq;
        }
        if (*attr).recv_cq.is_null() {
            (*attr).recv_cq = (*id).recv_cq;
        }
        if (*attr).srq.is_null() {
            (*attr).srq = (*id).srq;
        }
        let made = verbs::create_qp_ex((*id).verbs, attr).and_then(|qp| {
            ece::of_new_pair(&object);
            let ready = match (*id).qp_type {
                IBV_QPT_UD => states::init_datagrams(object.nic(), qp),
                _ => states::init_connected(object.nic(), qp),
            };
            match ready {
                Ok(()) => Ok(qp),
                Err(error) => {
                    let _ = verbs::destroy_qp(qp);
                    Err(error)
                }
            }
        });
        match made {
            Ok(qp) => {
                // The target side of XRC has none; what is made for its shared receive queue needs
                // one.
                if !(*qp).pd.is_null() {
                    (*id).pd = (*qp).pd;
                }
                (*id).qp = qp;
                Ok(())
            }
            Err(error) => {
                destroy_cqs(id);
                Err(error)
            }
        }
    }
}

/// `rdma_create_qp(3)`: what was made and granted is in `plain` afterwards.
///
/// # Safety
/// The id is one; ours or NULL.
pub unsafe fn create_plain(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    plain: &mut ibv_qp_init_attr,
) -> Result<()> {
    let mut attr = extended(plain);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd;
    // SAFETY: by contract; a whole structure.
    let outcome = unsafe { create(id, &raw mut attr) };
    *plain = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    outcome
}

/// Ends the queue pair of an id, and its completion queues.
///
/// # Safety
/// A live id.
pub unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: a live id; the program gives its queue pair up.
    unsafe {
        if !(*id).qp.is_null() {
            let _ = verbs::destroy_qp((*id).qp);
            (*id).qp = null_mut();
        }
        destroy_cqs(id);
    }
}

/// `rdma_create_srq_ex(3)`.
///
/// # Safety
/// The id is one; the structure has what its `comp_mask` names, ours or NULL.
unsafe fn create_queue(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> Result<()> {
    id::from_c(id)?;
    if attr.is_null() {
        return Err(NULL);
    }
    // SAFETY: a live id, and of the caller's structure only what is there.
    unsafe {
        let mask = (*attr).comp_mask;
        if (*id).verbs.is_null() {
            return Err(NO_DEVICE);
        }
        if !(*id).srq.is_null() {
            return Err(EINVAL.because("the id has a shared receive queue already"));
        }
        if mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
            return Err(EINVAL.because("comp_mask names no type (IBV_SRQ_INIT_ATTR_TYPE)"));
        }
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 || (*attr).pd.is_null() {
            (*attr).pd = (*id).pd;
            (*attr).comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        }
        if (*attr).srq_type == IBV_SRQT_XRC {
            if mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || (*attr).xrcd.is_null() {
                (*attr).xrcd = devices::xrcd()?;
            }
            if mask & IBV_SRQ_INIT_ATTR_CQ == 0 || (*attr).cq.is_null() {
                create_cqs(id, 0, (*attr).attr.max_wr)?;
                (*attr).cq = (*id).recv_cq;
            }
            (*attr).comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        }
        match verbs::create_srq_ex((*id).verbs, attr) {
            Ok(srq) => {
                if (*id).pd.is_null() {
                    (*id).pd = (*attr).pd;
                }
                (*id).srq = srq;
                Ok(())
            }
            Err(error) => {
                destroy_cqs(id);
                Err(error)
            }
        }
    }
}

/// Ends the shared receive queue of an id.
///
/// # Safety
/// A live id.
pub unsafe fn destroy_queue(id: *mut rdma_cm_id) {
    // SAFETY: a live id; the program gives its queue up.
    unsafe {
        if !(*id).srq.is_null() {
            let _ = verbs::destroy_srq((*id).srq);
            (*id).srq = null_mut();
        }
        destroy_cqs(id);
    }
}

unsafe extern "C" fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    Verb("rdma_create_qp").makes_also(
        || {
            // SAFETY: NULL or the caller's structure.
            let attr = unsafe { attr.as_mut() }.ok_or(NULL)?;
            // SAFETY: ours or NULL, by the contract of the function.
            unsafe { create_plain(id, pd, attr) }?;
            Ok(0)
        },
        || destroy_qp(id),
    )
}

unsafe extern "C" fn create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    Verb("rdma_create_qp_ex").makes_also(
        || {
            // SAFETY: by the contract of the function.
            unsafe { create(id, attr) }?;
            Ok(0)
        },
        || destroy_qp(id),
    )
}

extern "C" fn destroy_qp(id: *mut rdma_cm_id) {
    seam::quiet(|| {
        id::find(id)?;
        // SAFETY: a live id.
        unsafe { destroy(id) };
        Ok(())
    });
}

unsafe extern "C" fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    Verb("rdma_create_srq").makes_also(
        || {
            let object = id::from_c(id)?;
            // SAFETY: NULL or the caller's structure.
            let plain = unsafe { attr.as_mut() }.ok_or(NULL)?;
            // SAFETY: integers and pointers.
            let mut attr: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
            attr.srq_context = plain.srq_context;
            attr.attr = plain.attr;
            attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
            // SAFETY: a plain field of a live id.
            attr.srq_type = match unsafe { (*object.c()).qp_type } {
                IBV_QPT_XRC_RECV => IBV_SRQT_XRC,
                _ => IBV_SRQT_BASIC,
            };
            attr.pd = pd;
            // SAFETY: ours or NULL; a whole structure.
            let outcome = unsafe { create_queue(id, &raw mut attr) };
            plain.attr = attr.attr;
            outcome?;
            Ok(0)
        },
        || destroy_srq(id),
    )
}

unsafe extern "C" fn create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    Verb("rdma_create_srq_ex").makes_also(
        || {
            // SAFETY: by the contract of the function.
            unsafe { create_queue(id, attr) }?;
            Ok(0)
        },
        || destroy_srq(id),
    )
}

extern "C" fn destroy_srq(id: *mut rdma_cm_id) {
    seam::quiet(|| {
        id::find(id)?;
        // SAFETY: a live id.
        unsafe { destroy_queue(id) };
        Ok(())
    });
}

export! {
    rdma_create_qp @@ "RDMACM_1.0" => create_qp;
    rdma_create_qp_ex @@ "RDMACM_1.0" => create_qp_ex;
    rdma_destroy_qp @@ "RDMACM_1.0" => destroy_qp;
    rdma_create_srq @@ "RDMACM_1.0" => create_srq;
    rdma_create_srq_ex @@ "RDMACM_1.0" => create_srq_ex;
    rdma_destroy_srq @@ "RDMACM_1.0" => destroy_srq;
}
