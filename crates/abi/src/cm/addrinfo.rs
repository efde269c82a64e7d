//! `rdma_getaddrinfo`.

use super::stub::{no_effect, no_number};
use crate::symbols::export;

export! {
    rdma_getaddrinfo @@ "RDMACM_1.0" => no_number;
    rdma_freeaddrinfo @@ "RDMACM_1.0" => no_effect;
}
