//! Enhanced connection establishment: options that the two devices' providers exchange in the messages of a connection.

use core::ffi::c_int;

use rnic_nic::cm::Ece;

use super::id::{self, IdObject};
use super::{states, verbs};
use crate::seam::{EINVAL, EOPNOTSUPP, NULL, Result, Verb};
use crate::symbols::export;
use crate::types::cm::rdma_cm_id;
use crate::types::{ibv_ece, ibv_qp};

/// A device without options says EOPNOTSUPP, which is no failure.
fn if_supported(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(refusal) if refusal.errno() == libc::EOPNOTSUPP => Ok(()),
        other => other,
    }
}

fn set(qp: *mut ibv_qp, ece: Ece) -> Result<()> {
    let ece = ibv_ece {
        vendor_id: ece.vendor_id,
        options: ece.options,
        comp_mask: 0,
    };
    // SAFETY: a queue pair of ours, by the contract of the callers.
    if_supported(unsafe { verbs::set_ece(qp, ece) })
}

/// A queue pair was created for an id: what it has goes into the request or answer. That of a request is told what the
/// peer said, if that is of the same vendor.
///
/// # Safety
/// A queue pair of ours.
pub unsafe fn of_new_pair(id: &IdObject, qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: by contract.
    let own = unsafe { verbs::query_ece(qp) }?;
    let mut state = id.state();
    state.local_ece = Ece {
        vendor_id: own.vendor_id,
        options: own.options,
    };
    let remote = state.remote_ece;
    drop(state);
    match remote.vendor_id {
        0 => Ok(()),
        vendor if vendor == own.vendor_id => set(qp, remote),
        _ => set(
            qp,
            Ece {
                vendor_id: own.vendor_id,
                options: 0,
            },
        ),
    }
}

/// The peer answered a request. An answer without options clears ours; one of another vendor is an answer to somebody
/// else.
///
/// # Safety
/// The queue pair of the id is ours.
pub unsafe fn of_response(id: &IdObject, remote: Ece) -> Result<()> {
    let local = id.state().local_ece;
    let agreed = match remote.vendor_id {
        0 => Ece {
            vendor_id: local.vendor_id,
            options: 0,
        },
        vendor if vendor == local.vendor_id => remote,
        _ => {
            // SAFETY: by contract.
            unsafe { states::to_err(id.c()) }?;
            return Err(EINVAL.because("the peer answered with options of another vendor"));
        }
    };
    id.state().remote_ece.vendor_id = remote.vendor_id;
    // SAFETY: a plain field of a live id.
    set(unsafe { (*id.c()).qp }, agreed)
}

unsafe extern "C" fn set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    Verb("rdma_set_local_ece").number(|| {
        let id = id::from_c(id)?;
        // SAFETY: NULL or the caller's structure; a plain field of a live id.
        let (ece, qp) = unsafe { (ece.as_ref().ok_or(NULL)?, (*id.c()).qp) };
        if !qp.is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return Err(
                EINVAL.because("the id has a queue pair, or vendor_id is 0, or comp_mask is not")
            );
        }
        // The device has no options to exchange, and what it has not it does not announce.
        Err(EOPNOTSUPP.because("the device has no options of any vendor"))
    })
}

unsafe extern "C" fn get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    Verb("rdma_get_remote_ece").number(|| {
        let id = id::from_c(id)?;
        // SAFETY: a plain field of a live id.
        if ece.is_null() || !unsafe { (*id.c()).qp }.is_null() {
            return Err(EINVAL.because("the id has a queue pair already, or ece is NULL"));
        }
        let remote = id.state().remote_ece;
        // SAFETY: the caller's structure.
        unsafe {
            *ece = ibv_ece {
                vendor_id: remote.vendor_id,
                options: remote.options,
                comp_mask: 0,
            }
        };
        Ok(0)
    })
}

export! {
    rdma_set_local_ece @@ "RDMACM_1.3" => set_local_ece;
    rdma_get_remote_ece @@ "RDMACM_1.3" => get_remote_ece;
}
