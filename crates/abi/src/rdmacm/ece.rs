//! Enhanced connection establishment: options that the two devices' providers exchange in the
//! messages of a connection.

use core::ffi::c_int;

use rnic_nic::cm::Ece;

use super::id::{self, IdObject};
use super::states;
use crate::c::cm::rdma_cm_id;
use crate::c::ibv_ece;
use crate::export::seam::{EINVAL, EOPNOTSUPP, NULL, Result, Verb};
use crate::export::symbols::export;

/// A queue pair was created for an id: what its device has goes into the request or answer, which
/// is nothing.
pub fn of_new_pair(id: &IdObject) {
    id.state().local_ece = Ece::default();
}

/// The peer answered a request. What it says is of the vendor that the request named, or of none;
/// else it is an answer to somebody else.
///
/// # Safety
/// The queue pair of the id is ours.
pub unsafe fn of_response(id: &IdObject, remote: Ece) -> Result<()> {
    let mut state = id.state();
    if remote.vendor_id != 0 && remote.vendor_id != state.local_ece.vendor_id {
        drop(state);
        // SAFETY: by contract.
        unsafe { states::to_err(id.c()) }?;
        return Err(EINVAL.because("the peer answered with options of another vendor"));
    }
    state.remote_ece.vendor_id = remote.vendor_id;
    state.local_ece.options = 0;
    Ok(())
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
        // The device has no options to exchange, and what it has not it does not announce:
        // librdmacm would, whatever the device has. Who asks the queue pair first (`ibv_query_ece`)
        // does not come here.
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
