//! Verbs of object kinds that the device does not have yet: what rdma-core added after release 44.
//!
//! Each refuses with EOPNOTSUPP in the way its kind of verb reports failure. None is reached with an object, because
//! none can be created.

use core::ffi::{c_int, c_void};

use crate::seam::{self, EOPNOTSUPP, Errno};
use crate::symbols::export;

/// Verbs that return a pointer.
extern "C" fn no_object() -> *mut c_void {
    seam::pointer(|| Err(EOPNOTSUPP))
}

/// Verbs that return an errno.
extern "C" fn no_status() -> c_int {
    seam::status(|| Err(EOPNOTSUPP))
}

/// Verbs that return -1 and errno.
extern "C" fn no_number() -> c_int {
    seam::number(|| Err(EOPNOTSUPP))
}

extern "C" fn no_effect() {}

/// The private `ibv_resolve_eth_l2_from_gid(3)`: link-layer addresses are the kernel's business here.
extern "C" fn no_link_layer() -> c_int {
    seam::number(|| Err(Errno(libc::EOPNOTSUPP)))
}

export! {
    ibv_resolve_eth_l2_from_gid @@ "IBVERBS_1.1" => no_link_layer;

    ibv_alloc_dmah @@ "IBVERBS_1.15" => no_object;
    ibv_dealloc_dmah @@ "IBVERBS_1.15" => no_status;
    ibv_reg_mr_ex @@ "IBVERBS_1.15" => no_object;
    ibv_dm_export_dmabuf_fd @@ "IBVERBS_1.16" => no_number;
    ibv_alloc_buf @@ "IBVERBS_1.17" => no_object;
    ibv_free_buf @@ "IBVERBS_1.17" => no_effect;
    ibv_reg_buf_mr @@ "IBVERBS_1.17" => no_object;
    _ibv_query_comp_cntr_caps @@ "IBVERBS_1.18" => no_status;
    ibv_create_comp_cntr @@ "IBVERBS_1.18" => no_object;
    ibv_destroy_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_export_buf_dmabuf_fd @@ "IBVERBS_1.18" => no_number;
    ibv_inc_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_inc_err_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_qp_attach_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_read_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_read_err_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_set_comp_cntr @@ "IBVERBS_1.18" => no_status;
    ibv_set_err_comp_cntr @@ "IBVERBS_1.18" => no_status;
}
