//! Queue pairs, and the batch of work requests that `ibv_wr_start` begins.

use core::ffi::c_uint;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;

use rnic_nic::{Error, Qp, QpCap, SendWqe};
use rustix_futex_sync::RawMutex;
use rustix_futex_sync::lock_api::RawMutex as _;

use super::allocator::{Home, Housed};
use super::object::Object;
use crate::c::*;
use crate::export::seam::{ENOMEM, EOPNOTSUPP, Result};

/// A queue pair. Every one is large enough for the extended interface.
#[repr(C)]
pub struct QpObject {
    pub c: UnsafeCell<ibv_qp_ex>,
    pub nic: Qp,
    pub cap: QpCap,
    /// Asynchronous events that the program took, under the context's `async_lock`.
    pub async_events_delivered: AtomicU32,
    /// Of `ibv_wr_start`; `None`: created without `send_ops_flags`.
    pub builder: Option<Builder>,
    pub home: Home,
}

// SAFETY: `repr(C)`, first field, and `ibv_qp_ex` begins with `ibv_qp`.
unsafe impl Object for QpObject {
    type C = ibv_qp;
}

impl Housed for QpObject {
    fn home(&self) -> Home {
        self.home
    }
}

/// Operations that `send_ops_flags` may ask for, by the type of the queue pair (IBTA vol. 1, 9.4).
pub fn operations_of(qp_type: c_uint) -> u32 {
    const SEND: u32 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const WRITE: u32 = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    const WINDOWS: u32 = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
    const RELIABLE: u32 = IBV_QP_EX_WITH_SEND_WITH_INV
        | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_FLUSH
        | IBV_QP_EX_WITH_ATOMIC_WRITE;
    match qp_type {
        IBV_QPT_RC | IBV_QPT_XRC_SEND => SEND | WRITE | WINDOWS | RELIABLE,
        IBV_QPT_UC => SEND | WRITE | WINDOWS,
        IBV_QPT_UD => SEND,
        _ => 0,
    }
}

/// The batch under construction.
pub struct Builder {
    /// `send_ops_flags` of the queue pair's creation.
    pub operations: u32,
    pub lock: RawMutex,
    pub batch: UnsafeCell<Batch>,
}

#[derive(Default)]
pub struct Batch {
    pub wqes: Vec<SendWqe>,
    pub error: Option<Error>,
}

impl Builder {
    /// For a queue pair created with these `send_ops_flags`; EOPNOTSUPP if its type lacks one of
    /// them.
    pub fn new(qp_type: c_uint, send_ops_flags: u64) -> Result<Builder> {
        let operations = u32::try_from(send_ops_flags)
            .map_err(|_| EOPNOTSUPP.because(format!("send_ops_flags are {send_ops_flags:#x}")))?;
        if operations & !operations_of(qp_type) != 0 {
            return Err(EOPNOTSUPP.because(format!(
                "send_ops_flags are {operations:#x}, a queue pair of type {qp_type} has {:#x}",
                operations_of(qp_type)
            )));
        }
        Ok(Builder {
            operations,
            lock: RawMutex::INIT,
            batch: UnsafeCell::default(),
        })
    }

    /// Takes memory for a batch of so many work requests; ENOMEM if there is none.
    pub fn take_memory(&mut self, most: u32) -> Result<()> {
        let wqes = &mut self.batch.get_mut().wqes;
        wqes.try_reserve_exact(most as usize).map_err(|_| ENOMEM)
    }
}

impl Batch {
    /// The first error counts.
    pub fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    pub fn reset(&mut self) {
        self.wqes.clear();
        self.error = None;
    }
}
