//! Event channels.

use super::stub::{no_effect, no_object};
use crate::symbols::export;

export! {
    rdma_create_event_channel @@ "RDMACM_1.0" => no_object;
    rdma_destroy_event_channel @@ "RDMACM_1.0" => no_effect;
}
