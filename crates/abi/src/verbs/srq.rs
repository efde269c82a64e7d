//! Shared receive queues.

use core::ffi::c_int;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_nic::{Cq, Error, SrqAttr, SrqAttrMask, SrqInit, Xrcd};

use crate::c::*;
use crate::convert::wr::{POST_SRQ_RECV, receives};
use crate::export::seam::{
    self, EBUSY, EINVAL, EOPNOTSUPP, Errno, NULL, PARENTS, Refusal, Result, Verb,
};
use crate::export::symbols::export;
use crate::handles::allocator::{Resource, take_housed};
use crate::handles::context::{ContextObject, pass_async_lock};
use crate::handles::cq::CqObject;
use crate::handles::object::{ACK_ASYNC, from_c, owed, wait_for_acks};
use crate::handles::pd::PdObject;
use crate::handles::srq::SrqObject;
use crate::handles::xrcd::XrcdObject;

/// Creates a queue and writes the sizes it was given back into `attr`.
///
/// # Safety
/// `pd` is ours, or NULL.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut core::ffi::c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(Xrcd, Cq)>,
) -> Result<*mut ibv_srq> {
    // SAFETY: by contract.
    let owner = unsafe { from_c::<PdObject>(pd) }?;
    if let Some((xrcd, cq)) = &xrc
        && (!xrcd.context().is_alive() || cq.check_alive("").is_err())
    {
        return Err(PARENTS);
    }
    let domain = owner.nic()?;
    // The events of the queue carry its address, so that must be known first.
    let room = owner.room::<SrqObject>(Resource::SharedReceiveQueue)?;
    let nic = domain.create_srq(&SrqInit {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        xrc,
        cookie: room.address(),
    })?;
    let given = nic.query();
    (attr.max_wr, attr.max_sge) = (given.max_wr, given.max_sge);
    let home = room.home();
    Ok(room
        .fill(SrqObject {
            c: UnsafeCell::new(ibv_srq {
                // SAFETY: a live protection domain, whose fields nobody changes.
                context: unsafe { (*pd).context },
                srq_context,
                pd,
                handle: nic.number(),
                mutex: libc::PTHREAD_MUTEX_INITIALIZER,
                cond: libc::PTHREAD_COND_INITIALIZER,
                events_completed: 0,
            }),
            nic,
            max_sge: given.max_sge,
            async_events_delivered: AtomicU32::new(0),
            home,
        })
        .cast())
}

unsafe extern "C" fn create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    Verb("ibv_create_srq").makes(destroy_srq, || {
        // SAFETY: NULL or the caller's structure.
        let init = unsafe { init.as_mut() }.ok_or(NULL)?;
        // SAFETY: ours or NULL, by the contract of the verb.
        unsafe { create(pd, init.srq_context, &mut init.attr, None) }
    })
}

/// The `create_srq_ex` operation.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    Verb("ibv_create_srq_ex").makes(destroy_srq, || {
        // SAFETY: a context of ours, or NULL.
        unsafe { from_c::<ContextObject>(context) }?;
        if init.is_null() {
            return Err(NULL);
        }
        // SAFETY: the part up to `comp_mask` is there in every version of the structure.
        let mask = unsafe { (*init).comp_mask };
        const XRC: u32 = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        if mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | XRC) != 0 {
            return Err(EOPNOTSUPP.because(format!(
                "comp_mask is {mask:#x}: the device has basic and XRC queues"
            )));
        }
        let srq_type = match mask & IBV_SRQ_INIT_ATTR_TYPE {
            0 => IBV_SRQT_BASIC,
            // SAFETY: the mask says that this field is there.
            _ => unsafe { (*init).srq_type },
        };
        if mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(EINVAL.because("comp_mask names no protection domain"));
        }
        let xrc = match srq_type {
            IBV_SRQT_BASIC => None,
            IBV_SRQT_XRC if mask & XRC != XRC => return Err(EINVAL.because(
                "comp_mask names no XRC domain or no completion queue, which an XRC queue needs",
            )),
            // SAFETY: the mask says that these fields are there, ours or NULL.
            IBV_SRQT_XRC => unsafe {
                let xrcd = Xrcd::clone(&from_c::<XrcdObject>((*init).xrcd)?.nic);
                Some((xrcd, Cq::clone(&from_c::<CqObject>((*init).cq)?.nic)))
            },
            // Tag matching.
            kind => {
                return Err(EOPNOTSUPP.because(format!(
                    "srq_type is {kind}: the device has basic and XRC queues"
                )));
            }
        };
        // SAFETY: the mask says that `pd` is there, ours or NULL.
        unsafe { create((*init).pd, (*init).srq_context, &mut (*init).attr, xrc) }
    })
}

unsafe extern "C" fn modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    Verb("ibv_modify_srq").changes(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<SrqObject>(srq) }?;
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        let wanted = SrqAttr {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            srq_limit: attr.srq_limit,
        };
        let mask = SrqAttrMask(mask as u32);
        object.nic.modify(&wanted, mask).map_err(Refusal::from)
    })
}

unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    Verb("ibv_query_srq").status(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<SrqObject>(srq) }?;
        if attr.is_null() {
            return Err(NULL);
        }
        let now = object.nic.query();
        if object.nic.is_gone() {
            return Err(EINVAL.because("the queue ended with the context that it was made in"));
        }
        // SAFETY: the caller's structure.
        unsafe {
            *attr = ibv_srq_attr {
                max_wr: now.max_wr,
                max_sge: now.max_sge,
                srq_limit: now.srq_limit,
            }
        };
        Ok(())
    })
}

/// Without words, for the connection manager, which ends what it made as far as it is not in use.
///
/// # Safety
/// Ours, or NULL; the program does not use it any more.
pub unsafe fn destroy(srq: *mut ibv_srq) -> Result<()> {
    // SAFETY: a queue of ours, or NULL.
    let object = unsafe { from_c::<SrqObject>(srq) }?;
    if object.nic.check_alive("").is_err() {
        return Ok(());
    }
    if object.nic.in_use() {
        return Err(EBUSY
            .because("queue pairs that receive from it are left")
            .consequence());
    }
    // Revokes the events that nobody took. Who took one may use the queue until he acknowledges it,
    // so the handle stays.
    object.nic.retire();
    let delivered = &object.async_events_delivered;
    // SAFETY: a live queue of a live context. Events that were taken are counted once the lock has
    // been free; as all are acknowledged, nobody uses the queue any more: the program gives it up.
    unsafe {
        pass_async_lock((*srq).context)?;
        let (mutex, cond) = (&raw mut (*srq).mutex, &raw mut (*srq).cond);
        wait_for_acks("ibv_destroy_srq", mutex, cond, || {
            let name = || format!("SRQ {}", object.nic.number());
            let taken = delivered.load(Ordering::Acquire);
            owed(name, ACK_ASYNC, (*srq).events_completed, taken)
        });
        drop(take_housed::<SrqObject>(srq));
    }
    Ok(())
}

pub unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_destroy_srq").status(|| unsafe { destroy(srq) })
}

/// The `get_srq_num` operation: the number by which peers of an XRC queue pair name the queue;
/// plain ones have one too.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    Verb("ibv_get_srq_num").status(|| {
        // SAFETY: a queue of ours, or NULL.
        let object = unsafe { from_c::<SrqObject>(srq) }?;
        if number.is_null() {
            return Err(NULL);
        }
        // SAFETY: the caller's variable.
        unsafe { *number = object.nic.number() };
        Ok(())
    })
}

/// The `post_srq_recv` operation.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    seam::data_status(|| {
        let mut last = wr;
        // SAFETY: a queue of ours, or NULL.
        let outcome = unsafe { from_c::<SrqObject>(srq) }.and_then(|object| {
            // SAFETY: the program's list of work requests.
            let mut wqes = unsafe { receives(POST_SRQ_RECV, wr, &mut last, object.max_sge) };
            let posted = object.nic.post_recv(&mut wqes);
            posted.map_err(|(_, error): (usize, Error)| Errno::from(error))
        });
        if outcome.is_err() && !bad_wr.is_null() {
            // SAFETY: the caller's variable.
            unsafe { *bad_wr = last };
        }
        outcome
    })
}

export! {
    ibv_create_srq @@ "IBVERBS_1.1" => create_srq;
    ibv_modify_srq @@ "IBVERBS_1.1" => modify_srq;
    ibv_query_srq @@ "IBVERBS_1.1" => query_srq;
    ibv_destroy_srq @@ "IBVERBS_1.1" => destroy_srq;
}
