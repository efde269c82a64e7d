//! Queue pairs: create, modify, query, destroy.

use core::ffi::{c_int, c_uint};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_nic::{
    Access, AhAttr, Cq, Gid, PathMtu, Qp, QpAttr, QpAttrMask, QpCap, QpInit, QpState, QpType, Srq,
};

use crate::cq::CqObject;
use crate::device::{ContextObject, pass_async_lock};
use crate::memory::PdObject;
use crate::memory::allocator::{Home, Housed, Resource, Room, take_housed};
use crate::object::{Object, all_acknowledged, from_c, wait_for_acks};
use crate::seam::{EBUSY, EINVAL, EOPNOTSUPP, NULL, PARENTS, Refusal, Result, Verb};
use crate::srq::SrqObject;
use crate::symbols::export;
use crate::types::*;
use crate::wr::{self, Builder};
use crate::xrc;

/// A queue pair. Every one is large enough for the extended interface.
#[repr(C)]
pub struct QpObject {
    pub c: UnsafeCell<ibv_qp_ex>,
    pub nic: Qp,
    pub cap: QpCap,
    /// Asynchronous events that the program took, under the context's `async_lock`.
    pub async_events_delivered: AtomicU32,
    /// Of `ibv_wr_start`; `None`: created without `send_ops_flags`.
    pub builder: Option<Builder>,
    home: Home,
}

// SAFETY: `repr(C)`, first field, and `ibv_qp_ex` begins with `ibv_qp`.
unsafe impl Object for QpObject {
    type C = ibv_qp;
}

impl Housed for QpObject {
    fn home(&self) -> Home {
        self.home
    }
}

fn cap_from_c(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

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
    // In a forked child those of the parent are of no use, whereas of its domain the child has one of its own.
    for cq in [send_cq, recv_cq] {
        cq.nic.check_alive(VERB)?;
    }
    if let Some(srq) = &srq {
        srq.check_alive(VERB)?;
    }
    let domain = owner.nic()?;
    // The events of the queue pair carry its address, so that must be known first.
    let room = Room::<QpObject>::new(owner, Resource::QueuePair)?;
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
pub fn give(room: Room<QpObject>, nic: Qp, base: ibv_qp, builder: Option<Builder>) -> *mut ibv_qp {
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
            // SAFETY: the mask says that `xrcd` is there; up to `sq_sig_all` the structure is that of the plain verb.
            return unsafe { xrc::create_target((*attr).xrcd, &mut *attr.cast()) };
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
        // SAFETY: the mask says that `pd` is there; up to `sq_sig_all` the structure is that of the plain verb.
        unsafe { create((*attr).pd, &mut *attr.cast::<ibv_qp_init_attr>(), builder) }
    })
}

unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: a queue pair of ours, or NULL.
    match unsafe { from_c::<QpObject>(qp) } {
        Ok(object) if object.builder.is_some() => qp.cast(),
        _ => null_mut(),
    }
}

pub fn ah_from_c(ah: &ibv_ah_attr) -> AhAttr {
    AhAttr {
        dgid: Gid(ah.grh.dgid.raw),
        flow_label: ah.grh.flow_label,
        sgid_index: ah.grh.sgid_index,
        hop_limit: ah.grh.hop_limit,
        traffic_class: ah.grh.traffic_class,
        dlid: ah.dlid,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate,
        is_global: ah.is_global != 0,
        port_num: ah.port_num,
    }
}

pub fn ah_to_c(ah: &AhAttr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: ah.dgid.0 },
            flow_label: ah.flow_label,
            sgid_index: ah.sgid_index,
            hop_limit: ah.hop_limit,
            traffic_class: ah.traffic_class,
        },
        dlid: ah.dlid,
        sl: ah.sl,
        src_path_bits: ah.src_path_bits,
        static_rate: ah.static_rate,
        is_global: u8::from(ah.is_global),
        port_num: ah.port_num,
    }
}

/// The attributes that `mask` names; the others may be anything, so their enums are not looked at.
fn attr_from_c(attr: &ibv_qp_attr, mask: c_uint) -> Result<QpAttr> {
    let state = |bit: c_uint, name: &str, value: c_uint| match mask & bit {
        0 => Ok(QpState::Reset),
        _ => QpState::from_ibv(value)
            .ok_or_else(|| EINVAL.because(format!("{name} is {value}, which is no state"))),
    };
    let path_mtu = match mask & IBV_QP_PATH_MTU {
        0 => None,
        _ => Some(PathMtu::from_ibv(attr.path_mtu).ok_or_else(|| {
            EINVAL.because(format!(
                "path_mtu is {}, none of IBV_MTU_256 (1) .. IBV_MTU_4096 (5)",
                attr.path_mtu
            ))
        })?),
    };
    let path_mig_state = match mask & IBV_QP_PATH_MIG_STATE {
        0 => 0,
        _ => u8::try_from(attr.path_mig_state)
            .map_err(|_| EINVAL.because(format!("path_mig_state is {}", attr.path_mig_state)))?,
    };
    Ok(QpAttr {
        qp_state: state(IBV_QP_STATE, "qp_state", attr.qp_state)?,
        cur_qp_state: state(IBV_QP_CUR_STATE, "cur_qp_state", attr.cur_qp_state)?,
        path_mtu,
        path_mig_state,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: Access(attr.qp_access_flags),
        cap: cap_from_c(&attr.cap),
        ah: ah_from_c(&attr.ah_attr),
        alt_ah: ah_from_c(&attr.alt_ah_attr),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: attr.sq_draining != 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    })
}

pub fn attr_to_c(attr: &QpAttr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.qp_state as c_uint,
        cur_qp_state: attr.cur_qp_state as c_uint,
        path_mtu: attr.path_mtu.map_or(0, PathMtu::to_ibv),
        path_mig_state: c_uint::from(attr.path_mig_state),
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags.0,
        cap: cap_to_c(&attr.cap),
        ah_attr: ah_to_c(&attr.ah),
        alt_ah_attr: ah_to_c(&attr.alt_ah),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify),
        sq_draining: u8::from(attr.sq_draining),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
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
    // SAFETY: a plain field of a live queue pair. Also after a failure: the state may be an error's.
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
    // Revokes the events that nobody took. Who took one may use the queue pair until he acknowledges it, so the handle
    // stays.
    object.nic.retire();
    let delivered = &object.async_events_delivered;
    // SAFETY: a live queue pair of a live context. Events that were taken are counted once the lock has been free; as all
    // are acknowledged, nobody uses the queue pair any more: the program gives it up.
    unsafe {
        pass_async_lock((*qp).context)?;
        wait_for_acks(&raw mut (*qp).mutex, &raw mut (*qp).cond, || {
            all_acknowledged((*qp).events_completed, delivered.load(Ordering::Acquire))
        });
        drop(take_housed::<QpObject>(qp));
    }
    Ok(())
}

pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the contract of the verb.
    Verb("ibv_destroy_qp").status(|| unsafe { destroy(qp) })
}

/// `ibv_query_qp_data_in_order(3)`, also its later form that returns capability bits. The packets of a message are
/// written in order and the end of each last, but how the bytes within a packet become visible is the copy's business:
/// no promise.
unsafe extern "C" fn query_qp_data_in_order(_qp: *mut ibv_qp, _op: c_uint, _flags: u32) -> c_int {
    0
}

/// `ibv_query_ece(3)` and `ibv_set_ece(3)`: connection options that two devices of one vendor agree on. This one has
/// none, and says so as libibverbs does for a device without them: programs then leave ECE out.
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
