//! What waits to be done in a batch, and for how long: posts, ACKs, WRITEs without packets.

pub(in crate::engine) mod ack_coalescing;
pub(in crate::engine) mod ack_piggyback;
pub(in crate::engine) mod doorbell;
pub(in crate::engine) mod one_sided_batch;
pub(in crate::engine) mod uc_writes;
