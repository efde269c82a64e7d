//! Who has to wait for whom: short messages beside bulk, incast, receivers that do not keep up.

pub(in crate::engine) mod fairness;
pub(in crate::engine) mod incast;
pub(in crate::engine) mod local_pause;
pub(in crate::engine) mod receive_horizon;
