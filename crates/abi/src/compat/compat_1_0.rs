//! The verbs of IBVERBS_1.0, from before libibverbs 1.1 (2007), whose structures are other ones.
//!
//! They exist so that every version of the real library is there. `ibv_get_device_list@IBVERBS_1.0`
//! says that there are no devices, so a program that old ends there in good order and never calls
//! the rest.

use core::ffi::{c_int, c_void};

use crate::export::seam::{self, Refusal};
use crate::export::symbols::export_hidden;

const ENOSYS: Refusal = Refusal::silent(libc::ENOSYS);

extern "C" fn no_object() -> *mut c_void {
    seam::pointer(|| Err(ENOSYS))
}

extern "C" fn no_status() -> c_int {
    seam::status(|| Err(ENOSYS))
}

extern "C" fn no_number() -> c_int {
    seam::number(|| Err(ENOSYS))
}

extern "C" fn no_guid() -> u64 {
    0
}

extern "C" fn no_effect() {}

/// An empty list, which `ibv_free_device_list` frees.
unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut c_void {
    if !num_devices.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *num_devices = 0 };
    }
    // SAFETY: one zeroed pointer, which ends the list.
    unsafe { libc::calloc(1, size_of::<*mut c_void>()) }.cast()
}

export_hidden! {
    ibv_get_device_list @ "IBVERBS_1.0" => get_device_list;
    ibv_ack_async_event @ "IBVERBS_1.0" => no_effect;
    ibv_ack_cq_events @ "IBVERBS_1.0" => no_effect;
    ibv_alloc_pd @ "IBVERBS_1.0" => no_object;
    ibv_attach_mcast @ "IBVERBS_1.0" => no_status;
    ibv_close_device @ "IBVERBS_1.0" => no_status;
    ibv_create_ah @ "IBVERBS_1.0" => no_object;
    ibv_create_cq @ "IBVERBS_1.0" => no_object;
    ibv_create_qp @ "IBVERBS_1.0" => no_object;
    ibv_create_srq @ "IBVERBS_1.0" => no_object;
    ibv_dealloc_pd @ "IBVERBS_1.0" => no_status;
    ibv_dereg_mr @ "IBVERBS_1.0" => no_status;
    ibv_destroy_ah @ "IBVERBS_1.0" => no_status;
    ibv_destroy_cq @ "IBVERBS_1.0" => no_status;
    ibv_destroy_qp @ "IBVERBS_1.0" => no_status;
    ibv_destroy_srq @ "IBVERBS_1.0" => no_status;
    ibv_detach_mcast @ "IBVERBS_1.0" => no_status;
    ibv_get_async_event @ "IBVERBS_1.0" => no_number;
    ibv_get_cq_event @ "IBVERBS_1.0" => no_number;
    ibv_get_device_guid @ "IBVERBS_1.0" => no_guid;
    ibv_get_device_name @ "IBVERBS_1.0" => no_object;
    ibv_modify_qp @ "IBVERBS_1.0" => no_status;
    ibv_modify_srq @ "IBVERBS_1.0" => no_status;
    ibv_open_device @ "IBVERBS_1.0" => no_object;
    ibv_query_device @ "IBVERBS_1.0" => no_status;
    ibv_query_gid @ "IBVERBS_1.0" => no_number;
    ibv_query_pkey @ "IBVERBS_1.0" => no_number;
    ibv_query_port @ "IBVERBS_1.0" => no_status;
    ibv_query_qp @ "IBVERBS_1.0" => no_status;
    ibv_query_srq @ "IBVERBS_1.0" => no_status;
    ibv_reg_mr @ "IBVERBS_1.0" => no_object;
    ibv_resize_cq @ "IBVERBS_1.0" => no_status;
}
