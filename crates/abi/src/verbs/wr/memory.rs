//! Memory windows and local invalidation.
//!
//! All have the contract of `ibv_wr_post(3)`: a queue pair of ours, between `ibv_wr_start` and the
//! end of the batch.

use rnic_nic::{Error, SendOp};

use super::{VERB, begin, with_batch};
use crate::c::*;
use crate::convert::bind::bind_type_2;

pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: see above; window and region are ours or NULL, the structure is the caller's.
    unsafe {
        let op = match info.as_ref() {
            Some(info) => bind_type_2(VERB, mw, rkey, info),
            None => Err(Error::invalid(VERB, "bind_info is NULL")),
        };
        match op {
            Ok(op) => begin(qp, IBV_QP_EX_WITH_BIND_MW, op),
            Err(error) => with_batch(qp, |_, _, _| Err(error)),
        }
    }
}

pub unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    // SAFETY: see above.
    unsafe { begin(qp, IBV_QP_EX_WITH_LOCAL_INV, SendOp::LocalInvalidate(rkey)) };
}
