//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod batched_packets;
mod batched_requests;
mod cm;
mod cq_arming;
mod environment;
mod fairness;
mod flush_in_error;
mod fork;
mod hostile_peer_process;
mod incast;
mod multi_psn_messages;
mod one_sided_batch;
mod pair;
mod paths_alike;
mod pkey;
mod qp_handles;
mod region;
mod shard_growth;
mod shards;
mod simulated;
mod spoofing;
mod stopped_registry_holder;
mod stranger;
mod stress;
mod strict;
mod uc_writes;
mod wr_lists;
mod wr_lists_by_memory;
mod wr_lists_by_udp;
mod writes_without_polling;
