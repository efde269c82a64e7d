//! Events: waiting for them, and acknowledging them.

use super::stub::no_number;
use crate::symbols::export;

export! {
    rdma_get_cm_event @@ "RDMACM_1.0" => no_number;
    rdma_ack_cm_event @@ "RDMACM_1.0" => no_number;
    rdma_write_cm_event @@ "RDMACM_1.4" => no_number;
}
