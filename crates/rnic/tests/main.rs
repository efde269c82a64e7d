//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod abilities;
mod cm;
mod cm_events;
mod connection_report;
mod datagrams;
mod devices;
#[path = "../../nic/tests/environment.rs"]
mod environment;
mod examples;
mod fork;
mod futures;
mod futures_connect;
mod futures_dropped;
mod futures_fork;
mod futures_shared;
mod futures_stream;
mod futures_tokio;
#[cfg(feature = "raw")]
mod handles;
mod libibverbs;
mod lists;
mod loopback;
mod manual;
mod memory;
mod shared_receives;
mod stopped_peer;
mod surface;
mod two_processes;
mod waiting;
mod xrc;
mod xrc_target;

/// What the device can do that the tests run on: `RNIC_DEVICE` names it.
fn device() -> rnic::Capabilities {
    let context = rnic::Context::open().expect("the device opens");
    context.capabilities()
}
