//! The states of an id's queue pair: in user space the connection manager says what to set, and
//! librdmacm sets it.

use rnic_nic::cm;
use rnic_nic::{QpAttr, QpAttrMask, QpState};

use crate::c::cm::rdma_cm_id;
use crate::c::ibv_qp;
use crate::export::seam::Result;
use crate::verbs::qp;

/// The queue pair of an id; NULL is none.
fn pair(id: *mut rdma_cm_id) -> *mut ibv_qp {
    // SAFETY: a plain field of a live id.
    unsafe { (*id).qp }
}

/// To `state`, as the connection says, after `change` had a look at it.
///
/// # Safety
/// A queue pair of ours.
unsafe fn follow(
    nic: &cm::Id,
    qp: *mut ibv_qp,
    state: QpState,
    change: impl FnOnce(&mut QpAttr),
) -> Result<()> {
    let (mut attr, mask) = nic.init_qp_attr(state)?;
    change(&mut attr);
    // SAFETY: by contract.
    unsafe { qp::modify(qp, &attr, mask) }
}

/// To RTR by way of INIT. `responder_resources`: RDMA READs and atomics that it serves at a time,
/// instead of what the connection says.
///
/// # Safety
/// The queue pair of the id is ours, if it has one.
pub unsafe fn to_rtr(
    id: *mut rdma_cm_id,
    nic: &cm::Id,
    responder_resources: Option<u8>,
) -> Result<()> {
    let qp = pair(id);
    if qp.is_null() {
        return Ok(());
    }
    // SAFETY: by contract.
    unsafe {
        follow(nic, qp, QpState::Init, |_| ())?;
        follow(nic, qp, QpState::Rtr, |attr| {
            if let Some(resources) = responder_resources {
                attr.max_dest_rd_atomic = resources;
            }
        })
    }
}

/// To RTS. `initiator_depth`: RDMA READs and atomics that it has outstanding, instead of what the
/// connection says.
///
/// # Safety
/// As [`to_rtr`].
pub unsafe fn to_rts(id: *mut rdma_cm_id, nic: &cm::Id, initiator_depth: Option<u8>) -> Result<()> {
    let qp = pair(id);
    if qp.is_null() {
        return Ok(());
    }
    // SAFETY: by contract.
    unsafe {
        follow(nic, qp, QpState::Rts, |attr| {
            if let Some(depth) = initiator_depth {
                attr.max_rd_atomic = depth;
            }
        })
    }
}

/// To ERR: what is posted is flushed.
///
/// # Safety
/// As [`to_rtr`].
pub unsafe fn to_err(id: *mut rdma_cm_id) -> Result<()> {
    let qp = pair(id);
    if qp.is_null() {
        return Ok(());
    }
    let attr = QpAttr {
        qp_state: QpState::Err,
        ..QpAttr::default()
    };
    // SAFETY: by contract.
    unsafe { qp::modify(qp, &attr, QpAttrMask::STATE) }
}

/// A new queue pair of a connected service: to INIT, so that receives can be posted.
///
/// # Safety
/// A queue pair of ours.
pub unsafe fn init_connected(nic: &cm::Id, qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: by contract.
    unsafe { follow(nic, qp, QpState::Init, |_| ()) }
}

/// A new queue pair of a datagram service: to RTS, as it has no peer to wait for.
///
/// # Safety
/// A queue pair of ours.
pub unsafe fn init_datagrams(nic: &cm::Id, qp: *mut ibv_qp) -> Result<()> {
    let rtr = QpAttr {
        qp_state: QpState::Rtr,
        ..QpAttr::default()
    };
    let rts = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    // SAFETY: by contract.
    unsafe {
        follow(nic, qp, QpState::Init, |_| ())?;
        qp::modify(qp, &rtr, QpAttrMask::STATE)?;
        qp::modify(qp, &rts, QpAttrMask::STATE | QpAttrMask::SQ_PSN)
    }
}
