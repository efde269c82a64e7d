//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod arming;
mod carried;
mod cm;
mod crowded;
mod environment;
mod fair;
mod flushed;
mod forked;
mod gathered;
mod grown;
mod handles;
mod lists;
mod lists_by_udp;
mod neighbours;
mod numbers;
mod ordered;
mod pair;
mod partitions;
mod paths_alike;
mod region;
mod rows;
mod shards;
mod staged;
mod stranger;
mod strangers;
mod stress;
mod strict;
mod turned_away;
mod uc_writes;
