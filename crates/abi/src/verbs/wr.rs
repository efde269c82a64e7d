//! The `ibv_wr_*` interface (`ibv_wr_post(3)`): work requests are built by calls and posted
//! together.
//!
//! Between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort` the builder's lock is held.
//! Nothing is posted before `ibv_wr_complete`, which posts the whole batch or, at the first error
//! in it, nothing.
//!
//! * [`operations`]: calls that begin a work request.
//! * [`memory`]: those of memory windows and invalidation.
//! * [`data`]: setters of its bytes.
//! * [`address`]: setters of its destination.

mod address;
mod data;
mod memory;
mod operations;

use core::ffi::c_int;

use rnic_nic::{Address, Error, QpType, SendData, SendOp, SendWqe, SgList};
use rustix_futex_sync::lock_api::RawMutex as _;

use crate::c::*;
use crate::export::seam::{self, DataResult, Errno};
use crate::handles::object::from_c;
use crate::handles::qp::{Builder, QpObject};

const VERB: &str = "ibv_wr_complete";

/// Puts the functions into a queue pair. Later members than those known here fail the batch instead
/// of crashing.
pub fn fill(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(operations::atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(operations::atomic_fetch_add);
    c.wr_bind_mw = Some(memory::bind_mw);
    c.wr_local_inv = Some(memory::local_inv);
    c.wr_rdma_read = Some(operations::rdma_read);
    c.wr_rdma_write = Some(operations::rdma_write);
    c.wr_rdma_write_imm = Some(operations::rdma_write_imm);
    c.wr_send = Some(operations::send);
    c.wr_send_imm = Some(operations::send_imm);
    c.wr_send_inv = Some(operations::send_inv);
    c.wr_send_tso = Some(operations::send_tso);
    c.wr_set_ud_addr = Some(address::set_ud_addr);
    c.wr_set_xrc_srqn = Some(address::set_xrc_srqn);
    c.wr_set_inline_data = Some(data::set_inline_data);
    c.wr_set_inline_data_list = Some(data::set_inline_data_list);
    c.wr_set_sge = Some(data::set_sge);
    c.wr_set_sge_list = Some(data::set_sge_list);
    c.wr_start = Some(start);
    c.wr_complete = Some(complete);
    c.wr_abort = Some(abort);
    c.wr_atomic_write = Some(operations::atomic_write);
    c.wr_flush = Some(operations::flush);
    c.wr_later = [Some(operations::later); 19];
}

/// The queue pair and its builder; EINVAL if it was created without `send_ops_flags`.
///
/// # Safety
/// A queue pair of ours, or NULL.
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> DataResult<(&'a QpObject, &'a Builder)> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<QpObject>(qp.cast()) }?;
    // In a forked child a thread of the parent may have it locked, and have left the batch half
    // written.
    object.nic.check_alive(VERB)?;
    Ok((object, object.builder.as_ref().ok_or(Errno(libc::EINVAL))?))
}

/// Works on the batch of a queue pair that is between start and completion. An error fails the
/// batch.
///
/// # Safety
/// A queue pair of ours, or NULL; `ibv_wr_start` was called.
unsafe fn with_batch(
    qp: *mut ibv_qp_ex,
    work: impl FnOnce(&QpObject, &Builder, &mut Vec<SendWqe>) -> rnic_nic::Result<()>,
) {
    seam::data_quiet(|| {
        // SAFETY: by contract; the lock that `ibv_wr_start` took makes the batch ours.
        let (object, builder, batch) = unsafe {
            let (object, builder) = builder(qp)?;
            (object, builder, &mut *builder.batch.get())
        };
        if let Err(error) = work(object, builder, &mut batch.wqes) {
            batch.fail(error);
        }
        Ok(())
    });
}

/// Begins a work request with the `wr_id` and `wr_flags` of this moment. `operation` is its bit in
/// `send_ops_flags`.
///
/// # Safety
/// As [`with_batch`].
unsafe fn begin(qp: *mut ibv_qp_ex, operation: u32, op: SendOp) {
    // SAFETY: by contract.
    unsafe {
        with_batch(qp, |object, builder, wqes| {
            if builder.operations & operation == 0 {
                return Err(Error::new(
                    VERB,
                    libc::EOPNOTSUPP,
                    format!(
                        "{op:?} was not asked for in send_ops_flags when the queue pair was created"
                    ),
                ));
            }
            if wqes.len() >= object.cap.max_send_wr as usize {
                return Err(Error::new(
                    VERB,
                    libc::ENOMEM,
                    format!("more than the send queue's {} work requests", wqes.len()),
                ));
            }
            let op = match op {
                // Where to, `ibv_wr_set_ud_addr` says; without it the device refuses the work
                // request.
                SendOp::Send if object.nic.qp_type() == QpType::Ud => nowhere(None),
                SendOp::SendImm(imm) if object.nic.qp_type() == QpType::Ud => nowhere(Some(imm)),
                op => op,
            };
            let c = object.c.get();
            let flags = (*c).wr_flags;
            wqes.push(SendWqe {
                wr_id: (*c).wr_id,
                op,
                data: SendData::Gather(SgList::new()),
                signaled: flags & IBV_SEND_SIGNALED != 0,
                solicited: flags & IBV_SEND_SOLICITED != 0,
                fence: flags & IBV_SEND_FENCE != 0,
                srqn: 0,
            });
            Ok(())
        });
    }
}

/// A datagram whose address is still to come.
fn nowhere(imm: Option<[u8; 4]>) -> SendOp {
    let to = Address {
        path: u32::MAX,
        qpn: 0,
        qkey: 0,
    };
    SendOp::Datagram { to, imm }
}

/// Changes the work request begun last.
///
/// # Safety
/// As [`with_batch`].
unsafe fn amend(
    qp: *mut ibv_qp_ex,
    change: impl FnOnce(&QpObject, &mut SendWqe) -> rnic_nic::Result<()>,
) {
    // SAFETY: by contract.
    unsafe {
        with_batch(qp, |object, _, wqes| match wqes.last_mut() {
            Some(wqe) => change(object, wqe),
            None => Err(Error::invalid(VERB, "a setter before any work request")),
        });
    }
}

/// Fails the batch for arguments that mean nothing.
///
/// # Safety
/// As [`with_batch`].
unsafe fn fail(qp: *mut ibv_qp_ex, why: String) {
    // SAFETY: by contract.
    unsafe { with_batch(qp, |_, _, _| Err(Error::invalid(VERB, why))) };
}

/// Fails the batch for an operation that the device does not have.
///
/// # Safety
/// As [`with_batch`].
unsafe fn refuse(qp: *mut ibv_qp_ex, what: &'static str) {
    // SAFETY: by contract.
    unsafe {
        with_batch(qp, |_, _, _| {
            Err(Error::new(
                VERB,
                libc::EOPNOTSUPP,
                format!("{what} is not supported"),
            ))
        });
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    seam::data_quiet(|| {
        // SAFETY: a queue pair of ours, or NULL.
        let (_, builder) = unsafe { builder(qp) }?;
        builder.lock.lock();
        // SAFETY: just locked.
        unsafe { (*builder.batch.get()).reset() };
        Ok(())
    });
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    seam::data_status(|| {
        // SAFETY: a queue pair of ours, or NULL.
        let (object, builder) = unsafe { builder(qp) }?;
        if !builder.lock.is_locked() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: locked by `start`.
        let batch = unsafe { &mut *builder.batch.get() };
        let outcome = match batch.error.take() {
            Some(error) => Err(error),
            None => object.nic.post_send_batch(&mut batch.wqes),
        };
        batch.reset();
        // SAFETY: locked by `start`.
        unsafe { builder.lock.unlock() };
        outcome.map_err(Errno::from)
    })
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    seam::data_quiet(|| {
        // SAFETY: a queue pair of ours, or NULL.
        let (_, builder) = unsafe { builder(qp) }?;
        if builder.lock.is_locked() {
            // SAFETY: locked by `start`.
            unsafe {
                (*builder.batch.get()).reset();
                builder.lock.unlock();
            }
        }
        Ok(())
    });
}
