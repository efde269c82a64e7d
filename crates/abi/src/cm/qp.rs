//! Queue pairs and shared receive queues of ids.

use super::stub::{no_effect, no_number};
use crate::symbols::export;

export! {
    rdma_create_qp @@ "RDMACM_1.0" => no_number;
    rdma_create_qp_ex @@ "RDMACM_1.0" => no_number;
    rdma_destroy_qp @@ "RDMACM_1.0" => no_effect;
    rdma_create_srq @@ "RDMACM_1.0" => no_number;
    rdma_create_srq_ex @@ "RDMACM_1.0" => no_number;
    rdma_destroy_srq @@ "RDMACM_1.0" => no_effect;
    rdma_init_qp_attr @@ "RDMACM_1.2" => no_number;
}
