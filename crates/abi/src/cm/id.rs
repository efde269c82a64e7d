//! Ids: making, moving, ending them, and their options.

use super::stub::{no_number, no_port};
use crate::symbols::export;

export! {
    rdma_create_id @@ "RDMACM_1.0" => no_number;
    rdma_destroy_id @@ "RDMACM_1.0" => no_number;
    rdma_migrate_id @@ "RDMACM_1.0" => no_number;
    rdma_set_option @@ "RDMACM_1.0" => no_number;
    rdma_get_src_port @@ "RDMACM_1.0" => no_port;
    rdma_get_dst_port @@ "RDMACM_1.0" => no_port;
    rdma_set_local_ece @@ "RDMACM_1.3" => no_number;
    rdma_get_remote_ece @@ "RDMACM_1.3" => no_number;
}
