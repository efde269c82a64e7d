//! The private half of libibverbs: what provider libraries (libmlx5, libefa) import from it.
//!
//! Those libraries are linked by perftest, UCX and others for their own vendor's devices, and bind
//! all their symbols at load; their constructors register drivers. So every private symbol exists,
//! under each private version from that of rdma-core 33 (Debian 11) to that of 65, and refuses
//! quietly: no provider ever drives a device of ours.

use core::ffi::{c_int, c_uint, c_void};

use crate::export::seam::{self, EOPNOTSUPP};
use crate::export::symbols::{export, export_hidden};

/// Functions that return a pointer.
extern "C" fn no_object() -> *mut c_void {
    seam::pointer(|| Err(EOPNOTSUPP))
}

/// Functions that return an errno.
extern "C" fn no_status() -> c_int {
    seam::status(|| Err(EOPNOTSUPP))
}

/// Functions that return -1 and errno.
extern "C" fn no_number() -> c_int {
    seam::number(|| Err(EOPNOTSUPP))
}

/// Functions without a result, `__verbs_log` and the registration of drivers among them.
extern "C" fn no_effect() {}

/// `__ioctl_final_num_attrs`: a count.
extern "C" fn no_attributes() -> c_uint {
    0
}

/// Exports functions under every private version.
macro_rules! export_private {
    ($($name:ident => $function:path;)*) => {
        export! {
            $($name @@ "IBVERBS_PRIVATE_34" @ "IBVERBS_PRIVATE_33" @ "IBVERBS_PRIVATE_57" @ "IBVERBS_PRIVATE_59"
                @ "IBVERBS_PRIVATE_64" @ "IBVERBS_PRIVATE_65" => $function;)*
        }
    };
}

export_private! {
    __ioctl_final_num_attrs => no_attributes;
    __verbs_log => no_effect;
    _verbs_init_and_alloc_context => no_object;
    execute_ioctl => no_status;
    ibv_cmd_advise_mr => no_status;
    ibv_cmd_alloc_dm => no_status;
    ibv_cmd_alloc_dmah => no_status;
    ibv_cmd_alloc_mw => no_status;
    ibv_cmd_alloc_pd => no_status;
    ibv_cmd_attach_mcast => no_status;
    ibv_cmd_close_xrcd => no_status;
    ibv_cmd_create_ah => no_status;
    ibv_cmd_create_comp_cntr => no_status;
    ibv_cmd_create_counters => no_status;
    ibv_cmd_create_cq => no_status;
    ibv_cmd_create_cq_ex => no_status;
    ibv_cmd_create_cq_ex2 => no_status;
    ibv_cmd_create_flow => no_object;
    ibv_cmd_create_flow_action_esp => no_status;
    ibv_cmd_create_qp => no_status;
    ibv_cmd_create_qp_ex => no_status;
    ibv_cmd_create_qp_ex2 => no_status;
    ibv_cmd_create_rwq_ind_table => no_status;
    ibv_cmd_create_srq => no_status;
    ibv_cmd_create_srq_ex => no_status;
    ibv_cmd_create_wq => no_status;
    ibv_cmd_dealloc_mw => no_status;
    ibv_cmd_dealloc_pd => no_status;
    ibv_cmd_dereg_mr => no_status;
    ibv_cmd_destroy_ah => no_status;
    ibv_cmd_destroy_comp_cntr => no_status;
    ibv_cmd_destroy_counters => no_status;
    ibv_cmd_destroy_cq => no_status;
    ibv_cmd_destroy_flow => no_status;
    ibv_cmd_destroy_flow_action => no_status;
    ibv_cmd_destroy_qp => no_status;
    ibv_cmd_destroy_rwq_ind_table => no_status;
    ibv_cmd_destroy_srq => no_status;
    ibv_cmd_destroy_wq => no_status;
    ibv_cmd_detach_mcast => no_status;
    ibv_cmd_export_dmabuf_fd => no_status;
    ibv_cmd_free_dm => no_status;
    ibv_cmd_free_dmah => no_status;
    ibv_cmd_get_context => no_status;
    ibv_cmd_inc_comp_cntr => no_status;
    ibv_cmd_inc_err_comp_cntr => no_status;
    ibv_cmd_modify_cq => no_status;
    ibv_cmd_modify_flow_action_esp => no_status;
    ibv_cmd_modify_qp => no_status;
    ibv_cmd_modify_qp_ex => no_status;
    ibv_cmd_modify_srq => no_status;
    ibv_cmd_modify_wq => no_status;
    ibv_cmd_open_qp => no_status;
    ibv_cmd_open_xrcd => no_status;
    ibv_cmd_poll_cq => no_status;
    ibv_cmd_post_recv => no_status;
    ibv_cmd_post_send => no_status;
    ibv_cmd_post_srq_recv => no_status;
    ibv_cmd_qp_attach_comp_cntr => no_status;
    ibv_cmd_query_comp_cntr_caps => no_status;
    ibv_cmd_query_context => no_status;
    ibv_cmd_query_device_any => no_status;
    ibv_cmd_query_mr => no_status;
    ibv_cmd_query_port => no_status;
    ibv_cmd_query_port_speed => no_status;
    ibv_cmd_query_qp => no_status;
    ibv_cmd_query_srq => no_status;
    ibv_cmd_read_comp_cntr => no_status;
    ibv_cmd_read_counters => no_status;
    ibv_cmd_read_err_comp_cntr => no_status;
    ibv_cmd_reg_dm_mr => no_status;
    ibv_cmd_reg_dmabuf_mr => no_status;
    ibv_cmd_reg_mr => no_status;
    ibv_cmd_reg_mr_ex => no_status;
    ibv_cmd_req_notify_cq => no_status;
    ibv_cmd_rereg_mr => no_status;
    ibv_cmd_resize_cq => no_status;
    ibv_cmd_set_comp_cntr => no_status;
    ibv_cmd_set_err_comp_cntr => no_status;
    ibv_dmabuf_heap_alloc => no_object;
    ibv_dmabuf_heap_cc_shared_init => no_status;
    ibv_dmabuf_heap_destroy => no_effect;
    ibv_dmabuf_heap_free => no_effect;
    ibv_read_ibdev_sysfs_file => no_number;
    verbs_init_cq => no_effect;
    verbs_open_device => no_object;
    verbs_set_ops => no_effect;
    verbs_uninit_context => no_effect;
}

export! {
    verbs_register_driver_33 @@ "IBVERBS_PRIVATE_33" => no_effect;
    verbs_register_driver_34 @@ "IBVERBS_PRIVATE_34" => no_effect;
    verbs_register_driver_57 @@ "IBVERBS_PRIVATE_57" => no_effect;
    verbs_register_driver_59 @@ "IBVERBS_PRIVATE_59" => no_effect;
    verbs_register_driver_64 @@ "IBVERBS_PRIVATE_64" => no_effect;
    verbs_register_driver_65 @@ "IBVERBS_PRIVATE_65" => no_effect;
}

export_hidden! {
    ibv_register_driver @ "IBVERBS_1.1" => no_effect;
}

// `bool verbs_allow_disassociate_destroy`, which providers set: the one data object.
#[cfg(not(test))]
core::arch::global_asm!(
    ".pushsection .bss.rnic_allow_disassociate_destroy,\"aw\",@nobits",
    ".globl rnic_allow_disassociate_destroy",
    ".type rnic_allow_disassociate_destroy,@object",
    "rnic_allow_disassociate_destroy:",
    ".zero 1",
    ".size rnic_allow_disassociate_destroy, 1",
    ".symver rnic_allow_disassociate_destroy, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34",
    ".symver rnic_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_33",
    ".symver rnic_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_57",
    ".symver rnic_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_59",
    ".symver rnic_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_64",
    ".symver rnic_allow_disassociate_destroy, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_65",
    ".popsection",
);

/// Conversions from the kernel's structures, for a librdmacm that talks to the kernel's connection
/// manager. Ours does not, so there is never such a structure to convert.
extern "C" fn copy_from_kernel(_to: *mut c_void, _from: *mut c_void) {}

export! {
    ibv_copy_ah_attr_from_kern @@ "IBVERBS_1.1" => copy_from_kernel;
    ibv_copy_path_rec_from_kern @@ "IBVERBS_1.0" => copy_from_kernel;
    ibv_copy_path_rec_to_kern @@ "IBVERBS_1.0" => copy_from_kernel;
    ibv_copy_qp_attr_from_kern @@ "IBVERBS_1.0" => copy_from_kernel;
}
