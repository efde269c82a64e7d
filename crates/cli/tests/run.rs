//! What `rnic run` takes, and what it refuses.

mod common;
use common::{Scratch, expect_success, run_here, stderr, stdout};

#[test]
fn a_file_that_is_no_capture_is_not_replaced() {
    let scratch = Scratch::new("replaced");
    let source = scratch.0.join("main.c");
    let text = "int main(void) { return 0; }\n";
    std::fs::write(&source, text).expect("a file");
    let capture_in = |file: &std::path::Path| {
        let mut command = run_here(&scratch);
        command.arg("--pcap").arg(file);
        command.args(["--", "sh", "-c", "echo ran"]);
        command.output().expect("rnic starts")
    };
    let output = capture_in(&source);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("main.c is not a capture"), "{said}");
    assert_eq!(stdout(&output), "", "the program was not started");
    assert_eq!(std::fs::read_to_string(&source).expect("still there"), text);

    let captures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/captures");
    let capture = scratch.0.join("old.pcap");
    std::fs::copy(captures.join("rc_read_v4.pcap"), &capture).expect("a copy");
    for _ in 0..2 {
        expect_success(&capture_in(&capture));
        assert_eq!(std::fs::metadata(&capture).expect("a file").len(), 0);
    }
}

/// `--` may be left out; what is behind the program is the program's.
#[test]
fn a_program_without_dashes_in_front() {
    let scratch = Scratch::new("dashes");
    for dashes in [&[][..], &["--"]] {
        let mut command = run_here(&scratch);
        command.arg("--quiet").args(dashes);
        let output = command.args(["echo", "--lint", "-q", "--", "x"]).output();
        let output = output.expect("rnic starts");
        expect_success(&output);
        assert_eq!(stdout(&output), "--lint -q -- x\n");
        assert_eq!(stderr(&output), "");
    }
    let output = run_here(&scratch)
        .args(["--lnit", "true"])
        .output()
        .expect("rnic starts");
    assert_eq!(
        output.status.code(),
        Some(2),
        "an option that rnic does not have"
    );
}

#[test]
fn empty_specifications_are_refused() {
    let scratch = Scratch::new("empty");
    for option in ["--faults", "--xdp"] {
        let mut command = run_here(&scratch);
        let output = command.args([option, "", "--", "echo", "ran"]).output();
        let output = output.expect("rnic starts");
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(stderr(&output).contains(option), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

/// Promise: `cargo install` copies the program alone; `rnic run` then works with the library inside, or says in one line what
/// to type.
#[test]
fn a_program_that_was_copied_alone_says_what_to_type() {
    let scratch = Scratch::new("alone");
    let alone = scratch.0.join("rnic");
    std::fs::copy(env!("CARGO_BIN_EXE_rnic"), &alone).expect("a copy");
    let output = std::process::Command::new(&alone)
        .args(["run", "--", "echo", "ran"])
        .env_remove("RNIC_LIB")
        .env("RNIC_RUNTIME_DIR", scratch.0.join("runtime"))
        .output()
        .expect("rnic starts");
    if option_env!("RNIC_EMBED_LIBRARY").is_some_and(|path| !path.is_empty()) {
        expect_success(&output);
        assert_eq!(stdout(&output), "ran\n");
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    let next = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("next:"));
    let next = next.expect("what to do next");
    for word in [
        "cargo build --release -p rnic-abi",
        "RNIC_EMBED_LIBRARY=",
        "cargo install",
    ] {
        assert!(next.contains(word), "{said}");
    }
}
