//! Memory windows and local invalidation.
//!
//! All have the contract of `ibv_wr_post(3)`: a queue pair of ours, between `ibv_wr_start` and the end of the batch.

use super::refuse;
use crate::types::*;

pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    _mw: *mut ibv_mw,
    _rkey: u32,
    _info: *const ibv_mw_bind_info,
) {
    // SAFETY: see above.
    unsafe { refuse(qp, "binding a memory window") };
}

pub unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, _rkey: u32) {
    // SAFETY: see above.
    unsafe { refuse(qp, "local invalidate") };
}
