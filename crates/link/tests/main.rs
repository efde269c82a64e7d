//! The files beside this one, in one program, which is linked once. Each test has a process of its
//! own, by cargo-nextest.

mod common;
mod corrupted;
mod host;
mod qp1;
mod sharing;
mod traffic;
mod wire;
mod xdp;

/// The other process of tests that need one: see [`common::Agent`].
#[test]
fn agent() {
    common::agent_main();
}
