//! Verbs of object kinds that the device does not have yet: what rdma-core added after release 44.
//!
//! Each refuses with EOPNOTSUPP in the way its kind of verb reports failure. None is reached with
//! an object, because none can be created.

use core::ffi::{c_int, c_void};

use crate::export::seam::{EOPNOTSUPP, Verb};
use crate::export::symbols::export;

/// Exports functions that refuse under their own names: `ibv_name @@ "NODE" => wrapper -> type;`.
macro_rules! refuse {
    ($($name:ident @@ $node:literal => $report:ident -> $ret:ty;)*) => {
        $(extern "C" fn $name() -> $ret {
            Verb(stringify!($name).trim_start_matches('_')).$report(|| Err(EOPNOTSUPP))
        })*
        export! { $($name @@ $node => $name;)* }
    };
}

refuse! {
    // Link-layer addresses are the kernel's business here.
    ibv_resolve_eth_l2_from_gid @@ "IBVERBS_1.1" => number -> c_int;
    ibv_alloc_dmah @@ "IBVERBS_1.15" => pointer -> *mut c_void;
    ibv_dealloc_dmah @@ "IBVERBS_1.15" => status -> c_int;
    ibv_dm_export_dmabuf_fd @@ "IBVERBS_1.16" => number -> c_int;
    _ibv_query_comp_cntr_caps @@ "IBVERBS_1.18" => status -> c_int;
    ibv_create_comp_cntr @@ "IBVERBS_1.18" => pointer -> *mut c_void;
    ibv_destroy_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_inc_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_inc_err_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_qp_attach_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_read_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_read_err_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_set_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
    ibv_set_err_comp_cntr @@ "IBVERBS_1.18" => status -> c_int;
}
