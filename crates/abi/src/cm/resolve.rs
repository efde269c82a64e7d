//! Addresses and routes.

use super::stub::no_number;
use crate::symbols::export;

export! {
    rdma_bind_addr @@ "RDMACM_1.0" => no_number;
    rdma_resolve_addr @@ "RDMACM_1.0" => no_number;
    rdma_resolve_route @@ "RDMACM_1.0" => no_number;
    rdma_query_addrinfo @@ "RDMACM_1.4" => no_number;
    rdma_resolve_addrinfo @@ "RDMACM_1.4" => no_number;
}
