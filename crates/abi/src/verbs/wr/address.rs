//! Setters of a work request's destination.
//!
//! All have the contract of `ibv_wr_post(3)`: a queue pair of ours, between `ibv_wr_start` and the
//! end of the batch.

use rnic_nic::{Error, QpType};

use super::{VERB, amend};
use crate::c::*;
use crate::convert::wr::datagram;

pub unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: see above.
    unsafe {
        amend(qp, |object, wqe| {
            if object.nic.qp_type() != QpType::Ud {
                return Err(Error::invalid(
                    VERB,
                    "a datagram address on a connected queue pair",
                ));
            }
            wqe.op = datagram(VERB, wqe.op, ah, qpn, qkey)?;
            Ok(())
        });
    }
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
