//! Runs every `tests/scripts/*.cm` against one endpoint; each is a test of its own. The language is
//! documented in `tests/scripts/README.md`.

#[path = "../../transport/tests/support/runner.rs"]
mod runner;
#[path = "support/script.rs"]
mod script;

use std::process::ExitCode;

fn main() -> ExitCode {
    runner::main(env!("CARGO_MANIFEST_DIR"), "cm", script::run)
}
