//! Runs every `tests/scripts/*.pkt` against one queue pair; each is a test of its own. The language
//! is documented in `tests/scripts/README.md`.

#[path = "support/runner.rs"]
mod runner;
mod support;

use std::process::ExitCode;
use support::script;

fn main() -> ExitCode {
    runner::main(env!("CARGO_MANIFEST_DIR"), "pkt", script::run)
}
