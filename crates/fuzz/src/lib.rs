//! Fuzz targets: each takes any bytes, as they could come from outside, and panics if what must
//! hold does not.
//!
//! They are plain functions, so that they serve twice. `tests/replay.rs` gives them the inputs in
//! `seeds` and many changed ones, with any toolchain, in `./test unit`. `fuzz` holds a program for
//! each, in which libFuzzer looks for inputs that reach new code: `./test fuzz` does so for some
//! seconds, and by hand it is `cd crates/fuzz && cargo +nightly fuzz run packet fuzz/corpus/packet
//! seeds/packet`.
//!
//! What only a crate itself can reach (rings, tables and files that other processes write,
//! rtnetlink's answers, records of reports) has property tests there instead.

mod capture;
mod cm;
mod input;
mod link;
mod transport;
mod wire;

/// The name of a target, which is that of its folder of seeds and of its program, and what it does
/// with any bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 8] = [
    ("packet", wire::packet),
    ("icrc", wire::icrc),
    ("mad", wire::mad),
    ("connections", cm::connections),
    ("queue_pair", transport::queue_pair),
    ("capture", capture::file),
    ("handover", link::handover),
    ("settings", link::settings),
];

/// Runs the target of that name.
///
/// # Panics
/// If there is none, or if it finds something.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(it, _)| *it == name);
    let (_, run) = target.unwrap_or_else(|| panic!("there is no target {name}"));
    run(bytes);
}
