//! What `rnic run` takes, and what it refuses.

use crate::common::{Scratch, expect_success, run_here, stderr, stdout};

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

/// Guards: whoever starts programs without `rnic run` gets all that they need from `--print-env`,
/// in each format, and nothing else on standard output.
#[test]
fn the_environment_is_printed_for_others() {
    let scratch = Scratch::new("print-env");
    let report = scratch.0.join("report");
    let print = |format: &str| {
        let mut command = run_here(&scratch);
        command.arg(format).arg("--report").arg(&report);
        command.args(["--faults", "drop=1%,seed=3"]);
        let output = command.output().expect("rnic starts");
        expect_success(&output);
        stdout(&output)
    };
    let json: serde_json::Value =
        serde_json::from_str(&print("--print-env=json")).expect("one object");
    let preload = json["LD_PRELOAD"].as_str().expect("a variable");
    assert!(std::path::Path::new(preload).exists(), "{preload}");
    assert_eq!(json["RNIC_FAULTS"], "drop=0.01,seed=3");
    assert_eq!(json["RNIC_REPORT"], report.to_str().expect("a path"));
    assert!(report.exists(), "the NIC writes to a file that is there");
    let lines = print("--print-env=github");
    assert!(
        lines.contains(&format!("LD_PRELOAD={preload}\n")),
        "{lines}"
    );
    let shell = print("--print-env");
    let mut command = std::process::Command::new("sh");
    let script = format!(
        "eval \"{}\"; echo \"$LD_PRELOAD $RNIC_FAULTS\"",
        "$ENVIRONMENT"
    );
    let output = command
        .args(["-c", &script])
        .env("ENVIRONMENT", &shell)
        .output()
        .expect("a shell");
    assert_eq!(stdout(&output), format!("{preload} drop=0.01,seed=3\n"));
}

/// Guards: nothing is printed for a shell to take in when there is no library, or a program was
/// given as well.
#[test]
fn the_environment_is_refused_as_a_run_would_be() {
    let scratch = Scratch::new("print-env-refused");
    for (arguments, lib) in [
        (&["--print-env"][..], "/nonexistent.so"),
        (&["--print-env", "--", "true"], ""),
        (&["--print-env=xml"], ""),
        (&["--print-env", "--report", "/no/such/folder/x"], ""),
        (&["--report", "x", "--", "true"], ""),
    ] {
        let mut command = run_here(&scratch);
        if !lib.is_empty() {
            command.env("RNIC_LIB", lib);
        }
        let output = command.args(arguments).output().expect("rnic starts");
        assert!(!output.status.success(), "{arguments:?}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
}

/// Promise: `cargo install` copies the program alone; `rnic run` then works with the library
/// inside, or says in one line what to type.
#[test]
fn a_program_that_was_copied_alone_says_what_to_type() {
    let scratch = Scratch::new("alone");
    // It also looks into the folder above, which is not to be the machine's.
    let folder = scratch.0.join("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let alone = folder.join("rnic");
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
