//! Queue pairs: create, modify, query, destroy.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_nic::{Cq, Qp, QpAttr, QpAttrMask, QpInit, QpState, QpType, Srq};

use super::wr;
use crate::c::*;
use crate::convert::qp_attr::{attr_from_c, attr_to_c, cap_from_c, cap_to_c};
use crate::export::seam::{EBUSY, EINVAL, EOPNOTSUPP, NULL, PARENTS, Refusal, Result, Verb};
use crate::export::symbols::export;
use crate::handles::allocator::{Resource, Room, take_housed};
use crate::handles::context::{ContextObject, nic, pass_async_lock};
use crate::handles::cq::CqObject;
use crate::handles::object::{ACK_ASYNC, from_c, owed, wait_for_acks};
use crate::handles::pd::PdObject;
use crate::handles::qp::{Builder, QpObject};
use crate::handles::srq::SrqObject;
use crate::handles::xrcd::XrcdObject;

/// Creates a queue pair and writes the sizes it was given back into `attr`.
///
/// # Safety
/// `pd` and the objects in `attr` are ours, or NULL.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    builder: Option<Builder>,
) -> Result<*mut ibv_qp> {
    const VERB: &str = "ibv_create_qp";
    // SAFETY: by contract.
    let owner = unsafe { from_c::<PdObject>(pd) }?;
    let qp_type = match attr.qp_type {
        IBV_QPT_RC => QpType::Rc,
        IBV_QPT_UC => QpType::Uc,
        IBV_QPT_UD => QpType::Ud,
        IBV_QPT_XRC_SEND => QpType::XrcSend,
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => {
            return Err(EOPNOTSUPP.because("there are no queue pairs of raw Ethernet frames"));
        }
        // XRC_RECV, too, which takes a domain instead of a protection domain.
        other => {
            return Err(EINVAL.because(format!(
                "qp_type is {other}: there are RC, UC, UD, XRC_SEND, and XRC_RECV in ibv_create_qp_ex"
            )));
        }
    };
    let srq = match attr.srq.is_null() {
        true => None,
        // SAFETY: by contract.
        false => Some(Srq::clone(&unsafe { from_c::<SrqObject>(attr.srq) }?.nic)),
    };
    // SAFETY: by contract.
    let (send_cq, recv_cq) = unsafe {
        (
            from_c::<CqObject>(attr.send_cq)?,
            match qp_type {
                // It has no receive side, and what the program says of one does not matter.
                QpType::XrcSend => from_c::<CqObject>(attr.send_cq)?,
                _ => from_c::<CqObject>(attr.recv_cq)?,
            },
        )
    };
    // In a forked child those of the parent are of no use, whereas of its domain the child has one
    // of its own.
    for cq in [send_cq, recv_cq] {
        cq.nic.check_alive(VERB)?;
    }
    if let Some(srq) = &srq {
        srq.check_alive(VERB)?;
    }
    let domain = owner.nic()?;
    // The events of the queue pair carry its address, so that must be known first.
    let room = owner.room::<QpObject>(Resource::QueuePair)?;
    let nic = domain.create_qp(&QpInit {
        qp_type,
        send_cq: Cq::clone(&send_cq.nic),
        recv_cq: Cq::clone(&recv_cq.nic),
        srq,
        cap: cap_from_c(&attr.cap),
        sq_sig_all: attr.sq_sig_all != 0,
        cookie: room.address(),
    })?;
    let c = ibv_qp {
        // SAFETY: a live protection domain, whose fields nobody changes.
        context: unsafe { (*pd).context },
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: nic.qpn(),
        qp_num: nic.qpn(),
        state: IBV_QPS_RESET,
        qp_type: attr.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let mut builder = builder;
    if let Some(builder) = &mut builder {
        builder.take_memory(nic.cap().max_send_wr)?;
    }
    attr.cap = cap_to_c(&nic.cap());
    Ok(give(room, nic, c, builder))
}

/// Gives a new queue pair to the program; its events carry the address of `room`.
fn give(room: Room<QpObject>, nic: Qp, base: ibv_qp, builder: Option<Builder>) -> *mut ibv_qp {
    // SAFETY: integers, pointers, optional functions, pthread objects.
    let mut c: ibv_qp_ex = unsafe { std::mem::zeroed() };
    c.qp_base = base;
    wr::fill(&mut c);
    let cap = nic.cap();
    let home = room.home();
    room.fill(QpObject {
        c: UnsafeCell::new(c),
        nic,
        cap,
        async_events_delivered: AtomicU32::new(0),
        builder,
        home,
    })
    .cast()
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    Verb("ibv_create_qp").makes(destroy_qp, || {
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_mut() }.ok_or(NULL)?;
        // SAFETY: ours or NULL, by the contract of the verb.
        unsafe { create(pd, attr, None) }
    })
}

/// EOPNOTSUPP for what only an Ethernet NIC can mean, EINVAL for bits that mean nothing.
fn refuse_offloads(mask: c_uint, create_flags: u32) -> Result<()> {
    const SUPPORTED: c_uint = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const OFFLOADS: c_uint =
        IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    const FLAGS: u32 = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
        | IBV_QP_CREATE_SCATTER_FCS
        | IBV_QP_CREATE_CVLAN_STRIPPING
        | IBV_QP_CREATE_SOURCE_QPN
        | IBV_QP_CREATE_PCI_WRITE_END_PADDING;
    if mask & !(SUPPORTED | OFFLOADS) != 0 || create_flags & !FLAGS != 0 {
        return Err(EINVAL.because(format!(
            "comp_mask is {mask:#x}, create_flags are {create_flags:#x}: some bits mean nothing"
        )));
    }
    match mask & OFFLOADS != 0 || create_flags != 0 {
        true => Err(EOPNOTSUPP.because(format!(
            "comp_mask is {mask:#x}, create_flags are {create_flags:#x}: Ethernet frames have no offloads"
        ))),
        false => Ok(()),
    }
}

/// The `create_qp_ex` operation.
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    Verb("ibv_create_qp_ex").makes(destroy_qp, || {
        // SAFETY: a context of ours, or NULL.
        unsafe { from_c::<ContextObject>(context) }?;
        if attr.is_null() {
            return Err(NULL);
        }
        // SAFETY: the part up to `comp_mask` is there in every version of the structure.
        let mask = unsafe { (*attr).comp_mask };
        let create_flags = match mask & IBV_QP_INIT_ATTR_CREATE_FLAGS {
            0 => 0,
            // SAFETY: the mask says that this field is there.
            _ => unsafe { (*attr).create_flags },
        };
        refuse_offloads(mask, create_flags)?;
        // SAFETY: this field is there in every version of the structure.
        if unsafe { (*attr).qp_type } == IBV_QPT_XRC_RECV {
            if mask & IBV_QP_INIT_ATTR_XRCD == 0 {
                return Err(EINVAL.because("comp_mask names no XRC domain (IBV_QP_INIT_ATTR_XRCD)"));
            }
            // SAFETY: the mask says that `xrcd` is there; up to `sq_sig_all` the structure is that
            // of the plain verb.
            return unsafe { create_target((*attr).xrcd, &mut *attr.cast()) };
        }
        if mask & IBV_QP_INIT_ATTR_PD == 0 {
            return Err(
                EINVAL.because("comp_mask names no protection domain (IBV_QP_INIT_ATTR_PD)")
            );
        }
        let builder = match mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS {
            0 => None,
            // SAFETY: the mask says that this field is there.
            _ => Some(unsafe { Builder::new((*attr).qp_type, (*attr).send_ops_flags) }?),
        };
        // SAFETY: the mask says that `pd` is there; up to `sq_sig_all` the structure is that of the
        // plain verb.
        unsafe { create((*attr).pd, &mut *attr.cast::<ibv_qp_init_attr>(), builder) }
    })
}

/// What a queue pair of type XRC_RECV is to the program: it has neither protection domain nor
/// completion queues.
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
unsafe fn create_target(xrcd: *mut ibv_xrcd, attr: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp> {
    // SAFETY: by contract.
    let owner = unsafe { from_c::<XrcdObject>(xrcd) }?;
    let room = Room::<QpObject>::ours();
    let nic = owner.nic.create_qp(room.address())?;
    // SAFETY: a live domain, whose field nobody changes.
    let context = unsafe { (*xrcd).context };
    attr.cap = ibv_qp_cap::default();
    let c = target(context, attr.qp_context, nic.qpn(), QpState::Reset);
    Ok(give(room, nic, c, None))
}

/// The `open_qp` operation: one more handle to a queue pair of type XRC_RECV, of this process.
pub unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    Verb("ibv_open_qp").makes(destroy_qp, || {
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
        let qp = give(room, nic, c, None);
        // SAFETY: just made; the program does not know of it yet.
        unsafe { from_c::<QpObject>(qp) }?.nic.listen();
        Ok(qp)
    })
}

unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: a queue pair of ours, or NULL.
    match unsafe { from_c::<QpObject>(qp) } {
        Ok(object) if object.builder.is_some() => qp.cast(),
        _ => null_mut(),
    }
}

/// Modifies a queue pair and notes its state for the program.
///
/// # Safety
/// A queue pair of ours, or NULL.
pub unsafe fn modify(qp: *mut ibv_qp, attr: &QpAttr, mask: QpAttrMask) -> Result<()> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<QpObject>(qp) }?;
    let outcome = object.nic.modify(attr, mask);
    // SAFETY: a plain field of a live queue pair. Also after a failure: the state may be an
    // error's.
    unsafe { (*qp).state = object.nic.state() as c_uint };
    outcome.map_err(Refusal::from)
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    Verb("ibv_modify_qp").changes(|| {
        // SAFETY: a queue pair of ours, or NULL.
        unsafe { from_c::<QpObject>(qp) }?;
        // SAFETY: NULL or the caller's structure.
        let attr = unsafe { attr.as_ref() }.ok_or(NULL)?;
        let mask = mask as c_uint;
        // SAFETY: as above.
        unsafe { modify(qp, &attr_from_c(attr, mask)?, QpAttrMask(mask)) }
    })
}

/// `ibv_query_qp(3)`: all attributes, whatever the mask asks for.
unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    Verb("ibv_query_qp").status(|| {
        // SAFETY: a queue pair of ours, or NULL.
        let object = unsafe { from_c::<QpObject>(qp) }?;
        if attr.is_null() || init_attr.is_null() {
            return Err(NULL);
        }
        if object.nic.check_alive("").is_err() {
            return Err(PARENTS);
        }
        let now = attr_to_c(&object.nic.query());
        if object.nic.is_gone() {
            return Err(EINVAL.because("the queue pair ended with the context that it was made in"));
        }
        // SAFETY: plain fields of a live queue pair; the structures are the caller's.
        unsafe {
            (*qp).state = now.qp_state;
            *attr = now;
            *init_attr = ibv_qp_init_attr {
                qp_context: (*qp).qp_context,
                send_cq: (*qp).send_cq,
                recv_cq: (*qp).recv_cq,
                srq: (*qp).srq,
                cap: cap_to_c(&object.cap),
                qp_type: (*qp).qp_type,
                sq_sig_all: c_int::from(object.nic.sq_sig_all()),
            };
        }
        Ok(())
    })
}

/// Without words, for the connection manager, which ends what it made as far as it is not in use.
///
/// # Safety
/// Ours, or NULL; the program does not use it any more.
pub unsafe fn destroy(qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: a queue pair of ours, or NULL.
    let object = unsafe { from_c::<QpObject>(qp) }?;
    if object.nic.check_alive("").is_err() {
        return Ok(());
    }
    // As Linux has it: groups are left first.
    if object.nic.is_attached() {
        return Err(EBUSY
            .because("it is attached to a multicast group")
            .consequence());
    }
    // Revokes the events that nobody took. Who took one may use the queue pair until he
    // acknowledges it, so the handle stays.
    object.nic.retire();
    let delivered = &object.async_events_delivered;
    // SAFETY: a live queue pair of a live context. Events that were taken are counted once the lock
    // has been free; as all are acknowledged, nobody uses the queue pair any more: the program
    // gives it up.
    unsafe {
        pass_async_lock((*qp).context)?;
        let (mutex, cond) = (&raw mut (*qp).mutex, &raw mut (*qp).cond);
        wait_for_acks("ibv_destroy_qp", mutex, cond, || {
            let name = || format!("QP {:#x}", (*qp).qp_num);
            let taken = delivered.load(Ordering::Acquire);
            owed(name, ACK_ASYNC, (*qp).events_completed, taken)
        });
        drop(take_housed::<QpObject>(qp));
    }
    Ok(())
}

pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_destroy_qp").status(|| unsafe { destroy(qp) })
}

/// `ibv_query_qp_data_in_order(3)`, also its later form that returns capability bits. The packets
/// of a message are written in order and the end of each last, but how the bytes within a packet
/// become visible is the copy's business: no promise.
unsafe extern "C" fn query_qp_data_in_order(_qp: *mut ibv_qp, _op: c_uint, _flags: u32) -> c_int {
    0
}

/// `ibv_query_ece(3)` and `ibv_set_ece(3)`: connection options that two devices of one vendor agree
/// on. This one has none, and says so as libibverbs does for a device without them: programs then
/// leave ECE out.
///
/// # Safety
/// A queue pair of ours, or NULL.
unsafe fn no_ece(qp: *mut ibv_qp, verb: &'static str) -> c_int {
    Verb(verb).status(|| {
        // SAFETY: a queue pair of ours, or NULL.
        unsafe { from_c::<QpObject>(qp) }?;
        Err(EOPNOTSUPP
            .because("the device has no options of any vendor")
            .consequence())
    })
}

unsafe extern "C" fn query_ece(qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { no_ece(qp, "ibv_query_ece") }
}

unsafe extern "C" fn set_ece(qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { no_ece(qp, "ibv_set_ece") }
}

export! {
    ibv_create_qp @@ "IBVERBS_1.1" => create_qp;
    ibv_qp_to_qp_ex @@ "IBVERBS_1.6" => qp_to_qp_ex;
    ibv_modify_qp @@ "IBVERBS_1.1" => modify_qp;
    ibv_query_qp @@ "IBVERBS_1.1" => query_qp;
    ibv_destroy_qp @@ "IBVERBS_1.1" => destroy_qp;
    ibv_query_qp_data_in_order @@ "IBVERBS_1.14" => query_qp_data_in_order;
    ibv_query_ece @@ "IBVERBS_1.10" => query_ece;
    ibv_set_ece @@ "IBVERBS_1.10" => set_ece;
}
