//! Plays every `tests/scripts/*.fabric`; each is a test of its own. The language is documented in
//! `tests/scripts/README.md`.

#[path = "../../transport/tests/support/runner.rs"]
mod runner;

use std::process::ExitCode;

use rnic_fabric::{run, script};

fn main() -> ExitCode {
    runner::main(env!("CARGO_MANIFEST_DIR"), "fabric", play)
}

fn play(file: &str, text: &str) -> Result<(), String> {
    let scenario = script::parse(text).map_err(|why| format!("{file}: {why}"))?;
    let again = script::parse(&script::print(&scenario));
    if again.as_ref() != Ok(&scenario) {
        return Err(format!(
            "{file} is another one when it was printed: {again:?}"
        ));
    }
    match run(&scenario).failure {
        None => Ok(()),
        Some(failure) => Err(format!("{file}: {failure}")),
    }
}
