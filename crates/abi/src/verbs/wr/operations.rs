//! Calls that begin a work request.
//!
//! All have the contract of `ibv_wr_post(3)`: a queue pair of ours, between `ibv_wr_start` and the
//! end of the batch.

use core::ffi::c_void;

use rnic_nic::{Flush, Placement, SendOp};

use super::{amend, begin, fail, refuse};
use crate::c::*;
use crate::convert::wr::copy_inline;

pub unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: see above.
    unsafe { begin(qp, IBV_QP_EX_WITH_SEND, SendOp::Send) };
}

pub unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_SEND_WITH_IMM,
            SendOp::SendImm(imm_data.to_ne_bytes()),
        )
    };
}

pub unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) {
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_SEND_WITH_INV,
            SendOp::SendInvalidate(invalidate_rkey),
        )
    };
}

pub unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_RDMA_WRITE,
            SendOp::Write { remote_addr, rkey },
        )
    };
}

pub unsafe extern "C" fn rdma_write_imm(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    imm_data: u32,
) {
    let imm = imm_data.to_ne_bytes();
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
        )
    };
}

pub unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_RDMA_READ,
            SendOp::Read { remote_addr, rkey },
        )
    };
}

pub unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
            SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare,
                swap,
            },
        )
    };
}

pub unsafe extern "C" fn atomic_fetch_add(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    add: u64,
) {
    // SAFETY: see above.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add,
            },
        )
    };
}

/// Its eight bytes come at once: there is no setter for them.
pub unsafe extern "C" fn atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    value: *const c_void,
) {
    // SAFETY: see above; the program asks to copy its value.
    unsafe {
        begin(
            qp,
            IBV_QP_EX_WITH_ATOMIC_WRITE,
            SendOp::AtomicWrite { remote_addr, rkey },
        );
        amend(qp, |_, wqe| {
            wqe.data = copy_inline(std::iter::once((value.cast(), 8)), 8)?;
            Ok(())
        });
    }
}

/// Of no bytes: setters of data after it have no effect.
pub unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let known = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT;
    let kind = u32::from(placement);
    let op = SendOp::Flush(Flush {
        remote_addr,
        rkey,
        length: length as u64,
        whole_region: u32::from(level) == IBV_FLUSH_MR,
        placement: Placement {
            global: kind & IBV_FLUSH_GLOBAL != 0,
            persistent: kind & IBV_FLUSH_PERSISTENT != 0,
        },
    });
    // SAFETY: see above.
    unsafe {
        if kind == 0 || kind & !known != 0 || u32::from(level) > IBV_FLUSH_MR {
            fail(
                qp,
                format!("FLUSH of placement type {placement}, level {level}"),
            );
        } else {
            begin(qp, IBV_QP_EX_WITH_FLUSH, op);
        }
    }
}

pub unsafe extern "C" fn send_tso(qp: *mut ibv_qp_ex, _hdr: *mut c_void, _hdr_sz: u16, _mss: u16) {
    // SAFETY: see above.
    unsafe { refuse(qp, "segmentation offload") };
}

pub unsafe extern "C" fn later(qp: *mut ibv_qp_ex) {
    // SAFETY: see above.
    unsafe { refuse(qp, "this operation of a newer rdma-core") };
}
