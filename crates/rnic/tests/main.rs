//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod cm;
mod cm_events;
mod connection_report;
mod datagrams;
#[path = "../../nic/tests/environment.rs"]
mod environment;
mod fork;
mod loopback;
mod stopped_peer;
mod surface;
mod two_processes;
mod xrc;
mod xrc_target;
