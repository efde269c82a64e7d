//! Addresses by name, asynchronously.

use super::stub::no_number;
use crate::symbols::export;

export! {
    rdma_query_addrinfo @@ "RDMACM_1.4" => no_number;
    rdma_resolve_addrinfo @@ "RDMACM_1.4" => no_number;
    rdma_write_cm_event @@ "RDMACM_1.4" => no_number;
}
