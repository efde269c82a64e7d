//! The `ibv_wr_*` interface (`ibv_wr_post(3)`): work requests are built by calls and posted together.
//!
//! Between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort` the builder's lock is held. Nothing is posted before
//! `ibv_wr_complete`, which reports the first error of the whole batch.

use core::ffi::{c_int, c_void};
use std::cell::UnsafeCell;

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use rnic_nic::{Error, SendData, SendOp, SendWqe, SgList, Sge};

use crate::object::from_c;
use crate::post::copy_inline;
use crate::qp::QpObject;
use crate::seam::{self, EINVAL, Errno, Result};
use crate::types::*;

/// Operations that `send_ops_flags` may ask for.
pub const SUPPORTED_OPS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV) as u64;

const VERB: &str = "ibv_wr_complete";

/// The batch under construction.
pub struct Builder {
    lock: RawMutex,
    batch: UnsafeCell<Batch>,
}

#[derive(Default)]
struct Batch {
    wqes: Vec<SendWqe>,
    error: Option<Error>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            lock: RawMutex::INIT,
            batch: UnsafeCell::default(),
        }
    }
}

impl Batch {
    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    fn reset(&mut self) {
        self.wqes.clear();
        self.error = None;
    }
}

/// Puts the functions into a queue pair. Later members than those known here fail the batch instead of crashing.
pub fn fill(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(atomic_fetch_add);
    c.wr_bind_mw = Some(bind_mw);
    c.wr_local_inv = Some(local_inv);
    c.wr_rdma_read = Some(rdma_read);
    c.wr_rdma_write = Some(rdma_write);
    c.wr_rdma_write_imm = Some(rdma_write_imm);
    c.wr_send = Some(send);
    c.wr_send_imm = Some(send_imm);
    c.wr_send_inv = Some(send_inv);
    c.wr_send_tso = Some(send_tso);
    c.wr_set_ud_addr = Some(set_ud_addr);
    c.wr_set_xrc_srqn = Some(set_xrc_srqn);
    c.wr_set_inline_data = Some(set_inline_data);
    c.wr_set_inline_data_list = Some(set_inline_data_list);
    c.wr_set_sge = Some(set_sge);
    c.wr_set_sge_list = Some(set_sge_list);
    c.wr_start = Some(start);
    c.wr_complete = Some(complete);
    c.wr_abort = Some(abort);
    c.wr_atomic_write = Some(atomic_write);
    c.wr_flush = Some(flush);
    c.wr_later = [Some(later); 19];
}

/// The queue pair and its builder; EINVAL if it was created without `send_ops_flags`.
///
/// # Safety
/// A queue pair of ours, or NULL.
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> Result<(&'a QpObject, &'a Builder)> {
    // SAFETY: by contract.
    let object = unsafe { from_c::<QpObject>(qp.cast()) }?;
    Ok((object, object.builder.as_ref().ok_or(EINVAL)?))
}

/// Works on the batch of a queue pair that is between start and completion.
///
/// # Safety
/// A queue pair of ours, or NULL; `ibv_wr_start` was called.
unsafe fn with_batch(qp: *mut ibv_qp_ex, work: impl FnOnce(&QpObject, &mut Batch)) {
    seam::quiet(|| {
        // SAFETY: by contract; the lock that `ibv_wr_start` took makes the batch ours.
        unsafe {
            let (object, builder) = builder(qp)?;
            work(object, &mut *builder.batch.get());
        }
        Ok(())
    });
}

/// Begins a work request with the `wr_id` and `wr_flags` of this moment.
///
/// # Safety
/// As [`with_batch`].
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: by contract.
    unsafe {
        with_batch(qp, |object, batch| {
            let c = object.c.get();
            let flags = (*c).wr_flags;
            batch.wqes.push(SendWqe {
                wr_id: (*c).wr_id,
                op,
                data: SendData::Gather(SgList::new()),
                signaled: flags & IBV_SEND_SIGNALED != 0,
                solicited: flags & IBV_SEND_SOLICITED != 0,
                fence: flags & IBV_SEND_FENCE != 0,
            });
        });
    }
}

/// Gives the work request begun last its data.
///
/// # Safety
/// As [`with_batch`].
unsafe fn set_data(qp: *mut ibv_qp_ex, data: impl FnOnce(&QpObject) -> rnic_nic::Result<SendData>) {
    // SAFETY: by contract.
    unsafe {
        with_batch(qp, |object, batch| {
            match (data(object), batch.wqes.last_mut()) {
                (Ok(data), Some(wqe)) => wqe.data = data,
                (Ok(_), None) => {
                    batch.fail(Error::invalid(VERB, "data set before any work request"))
                }
                (Err(error), _) => batch.fail(error),
            }
        });
    }
}

/// Fails the batch for an operation that the device does not have.
///
/// # Safety
/// As [`with_batch`].
unsafe fn refuse(qp: *mut ibv_qp_ex, what: &'static str) {
    // SAFETY: by contract.
    unsafe {
        with_batch(qp, |_, batch| {
            batch.fail(Error::new(
                VERB,
                libc::EOPNOTSUPP,
                format!("{what} is not supported"),
            ));
        });
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    seam::quiet(|| {
        // SAFETY: a queue pair of ours, or NULL.
        let (_, builder) = unsafe { builder(qp) }?;
        builder.lock.lock();
        // SAFETY: just locked.
        unsafe { (*builder.batch.get()).reset() };
        Ok(())
    });
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    seam::status(|| {
        // SAFETY: a queue pair of ours, or NULL.
        let (object, builder) = unsafe { builder(qp) }?;
        if !builder.lock.is_locked() {
            return Err(EINVAL);
        }
        // SAFETY: locked by `start`.
        let batch = unsafe { &mut *builder.batch.get() };
        let outcome = match batch.error.take() {
            Some(error) => Err(error),
            // All or nothing (`ibv_wr_post(3)`).
            None if batch.wqes.len() > object.nic.send_room() as usize => Err(Error::new(
                VERB,
                libc::ENOMEM,
                format!(
                    "{} work requests, the send queue has room for {}",
                    batch.wqes.len(),
                    object.nic.send_room()
                ),
            )),
            None => object
                .nic
                .post_send(&mut batch.wqes.drain(..).map(Ok))
                .map_err(|(_, error)| error),
        };
        batch.reset();
        // SAFETY: locked by `start`.
        unsafe { builder.lock.unlock() };
        outcome.map_err(Errno::from)
    })
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    seam::quiet(|| {
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

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: the contract of `ibv_wr_post(3)`, as for all functions below.
    unsafe {
        begin(
            qp,
            SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare,
                swap,
            },
        )
    };
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) {
    // SAFETY: as above.
    unsafe {
        begin(
            qp,
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add,
            },
        )
    };
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Read { remote_addr, rkey }) };
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Write { remote_addr, rkey }) };
}

unsafe extern "C" fn rdma_write_imm(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    imm_data: u32,
) {
    let imm = imm_data.to_ne_bytes();
    // SAFETY: as above.
    unsafe {
        begin(
            qp,
            SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
        )
    };
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::Send) };
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::SendImm(imm_data.to_ne_bytes())) };
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) {
    // SAFETY: as above.
    unsafe { begin(qp, SendOp::SendInvalidate(invalidate_rkey)) };
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: as above; the program asks to copy its buffer.
    unsafe {
        set_data(qp, |object| {
            copy_inline(
                std::iter::once((addr.cast_const().cast(), length)),
                object.cap.max_inline_data,
            )
        });
    }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: as above; the program asks to copy its buffers.
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

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey };
    // SAFETY: as above.
    unsafe { set_data(qp, |_| Ok(SendData::Gather(SgList::from_slice(&[sge])))) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: as above.
    unsafe {
        set_data(qp, |object| {
            let count = c_int::try_from(count).unwrap_or(c_int::MAX);
            crate::post::elements(VERB, list, count, object.cap.max_send_sge)
                .map(|list| SendData::Gather(crate::post::gather(list)))
        });
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    _mw: *mut ibv_mw,
    _rkey: u32,
    _info: *const ibv_mw_bind_info,
) {
    // SAFETY: as above.
    unsafe { refuse(qp, "binding a memory window") };
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, _rkey: u32) {
    // SAFETY: as above.
    unsafe { refuse(qp, "local invalidate") };
}

unsafe extern "C" fn send_tso(qp: *mut ibv_qp_ex, _hdr: *mut c_void, _hdr_sz: u16, _mss: u16) {
    // SAFETY: as above.
    unsafe { refuse(qp, "segmentation offload") };
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, _ah: *mut ibv_ah, _qpn: u32, _qkey: u32) {
    // SAFETY: as above.
    unsafe { refuse(qp, "a datagram address on a connected queue pair") };
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, _srqn: u32) {
    // SAFETY: as above.
    unsafe { refuse(qp, "XRC") };
}

unsafe extern "C" fn atomic_write(
    qp: *mut ibv_qp_ex,
    _rkey: u32,
    _addr: u64,
    _value: *const c_void,
) {
    // SAFETY: as above.
    unsafe { refuse(qp, "atomic write") };
}

unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    _rkey: u32,
    _addr: u64,
    _len: usize,
    _kind: u8,
    _level: u8,
) {
    // SAFETY: as above.
    unsafe { refuse(qp, "flush") };
}

unsafe extern "C" fn later(qp: *mut ibv_qp_ex) {
    // SAFETY: as above.
    unsafe { refuse(qp, "this operation of a newer rdma-core") };
}
