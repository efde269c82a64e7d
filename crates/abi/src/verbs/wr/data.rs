//! Setters of a work request's bytes.
//!
//! All have the contract of `ibv_wr_post(3)`: a queue pair of ours, between `ibv_wr_start` and the
//! end of the batch.

use core::ffi::{c_int, c_void};

use rnic_nic::{Error, SendData, SgList, Sge};

use super::{VERB, amend};
use crate::c::*;
use crate::convert::wr::{copy_inline, elements, gather};
use crate::handles::qp::QpObject;

/// Gives the work request begun last its data.
///
/// # Safety
/// As [`amend`].
unsafe fn set_data(qp: *mut ibv_qp_ex, data: impl FnOnce(&QpObject) -> rnic_nic::Result<SendData>) {
    // SAFETY: by contract.
    unsafe {
        amend(qp, |object, wqe| {
            wqe.data = data(object)?;
            Ok(())
        });
    }
}

pub unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey };
    // SAFETY: see above.
    unsafe { set_data(qp, |_| Ok(SendData::Gather(SgList::from_slice(&[sge])))) };
}

pub unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: see above.
    unsafe {
        set_data(qp, |object| {
            let count = c_int::try_from(count).unwrap_or(c_int::MAX);
            elements(VERB, list, count, object.cap.max_send_sge)
                .and_then(|list| gather(VERB, list))
                .map(SendData::Gather)
        });
    }
}

pub unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: see above; the program asks to copy its buffer.
    unsafe {
        set_data(qp, |object| {
            copy_inline(
                std::iter::once((addr.cast_const().cast(), length)),
                object.cap.max_inline_data,
            )
        });
    }
}

pub unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: see above; the program asks to copy its buffers.
    unsafe {
        set_data(qp, |object| {
            let buffers = match count {
                0 => &[],
                _ if list.is_null() => {
                    return Err(Error::invalid(VERB, "the list of inline buffers is NULL"));
                }
                _ => std::slice::from_raw_parts(list, count),
            };
            let buffers = buffers
                .iter()
                .map(|b| (b.addr.cast_const().cast(), b.length));
            copy_inline(buffers, object.cap.max_inline_data)
        });
    }
}
