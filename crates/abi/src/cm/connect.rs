//! Connections: listen, connect, accept, reject, disconnect.

use super::stub::no_number;
use crate::symbols::export;

export! {
    rdma_listen @@ "RDMACM_1.0" => no_number;
    rdma_get_request @@ "RDMACM_1.0" => no_number;
    rdma_connect @@ "RDMACM_1.0" => no_number;
    rdma_accept @@ "RDMACM_1.0" => no_number;
    rdma_establish @@ "RDMACM_1.2" => no_number;
    rdma_reject @@ "RDMACM_1.0" => no_number;
    rdma_reject_ece @@ "RDMACM_1.3" => no_number;
    rdma_disconnect @@ "RDMACM_1.0" => no_number;
    rdma_notify @@ "RDMACM_1.0" => no_number;
}
