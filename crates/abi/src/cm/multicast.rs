//! Multicast groups of datagram ids.

use super::stub::no_number;
use crate::symbols::export;

export! {
    rdma_join_multicast @@ "RDMACM_1.0" => no_number;
    rdma_join_multicast_ex @@ "RDMACM_1.1" => no_number;
    rdma_leave_multicast @@ "RDMACM_1.0" => no_number;
}
