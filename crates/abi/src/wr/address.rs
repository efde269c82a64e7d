//! Setters of a work request's destination.
//!
//! All have the contract of `ibv_wr_post(3)`: a queue pair of ours, between `ibv_wr_start` and the end of the batch.

use rnic_nic::{Error, QpType};

use super::{VERB, amend, refuse};
use crate::types::*;

pub unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, _ah: *mut ibv_ah, _qpn: u32, _qkey: u32) {
    // SAFETY: see above.
    unsafe { refuse(qp, "a datagram address on a connected queue pair") };
}

pub unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: see above.
    unsafe {
        amend(qp, |object, wqe| {
            if object.nic.qp_type() != QpType::XrcSend {
                let reason = "the number of an SRQ on a queue pair that is none of XRC";
                return Err(Error::invalid(VERB, reason));
            }
            wqe.srqn = srqn;
            Ok(())
        });
    }
}
