//! Whom packets and work requests are for: queue pairs, shared receive queues, address handles.

pub(in crate::engine) mod ah_table;
pub(in crate::engine) mod common;
pub(in crate::engine) mod fast_path;
pub(in crate::engine) mod multicast;
pub(in crate::engine) mod qp_entry;
pub(in crate::engine) mod qp_table;
pub(in crate::engine) mod remote_srq;
pub(in crate::engine) mod srq_table;
