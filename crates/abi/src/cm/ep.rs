//! `rdma_create_ep`: an id from an `rdma_addrinfo`, in one call.

use super::stub::{no_effect, no_number};
use crate::symbols::export;

export! {
    rdma_create_ep @@ "RDMACM_1.0" => no_number;
    rdma_destroy_ep @@ "RDMACM_1.0" => no_effect;
}
