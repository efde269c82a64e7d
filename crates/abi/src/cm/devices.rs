//! The devices that ids can be on.

use super::stub::{no_effect, no_object};
use crate::symbols::export;

export! {
    rdma_get_devices @@ "RDMACM_1.0" => no_object;
    rdma_free_devices @@ "RDMACM_1.0" => no_effect;
}
