//! The C programs of `examples/c`, built by their Makefile against the system's headers as a reader
//! would, and run.

use rnic_programs::{Meeting, Trial, User, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds them in the trial's folder.
fn build(trial: &Trial) -> Option<PathBuf> {
    if !skip::have_programs(trial.name(), &["make", "gcc"]) {
        return None;
    }
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        skip::skipped(trial.name(), "librdmacm-dev is not installed");
        return None;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/c");
    let folder = trial.new_folder("c", User::Current, 0o755);
    for entry in fs::read_dir(sources).expect("the examples").flatten() {
        fs::copy(entry.path(), folder.join(entry.file_name())).expect("own folder");
    }
    let output = Command::new("make")
        .arg("-C")
        .arg(&folder)
        .args(["--no-print-directory", "-B", "CC=gcc -Werror"])
        .output()
        .expect("make is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make: {said}");
    Some(folder)
}

#[test]
fn c_examples() {
    let trial = Trial::start_beside_others("c_examples");
    let Some(folder) = build(&trial) else {
        return;
    };
    let path = |name: &str| folder.join(name).display().to_string();
    let (send_recv, write_read) = (path("rdma_send_recv"), path("rdma_write_read"));
    for (user, address) in [(User::Current, "127.0.0.1"), (User::Nobody, "::1")] {
        let Some(place) = trial.fresh(user) else {
            continue;
        };
        let meeting = Meeting::at(&place, address);
        let run = |program: &str, options: &[&str]| {
            let client = [&[program, "-p", "{port}"], options, &["{server}"]].concat();
            let outcome = meeting.run(&[program, "-p", "{port}"], &client);
            outcome.expect_success();
            outcome
        };

        let outcome = run(&send_recv, &[]);
        let (server, client) = (&outcome.server.stdout, &outcome.client.stdout);
        assert!(
            server.contains("received 22 bytes: \"hello from the client\""),
            "{server}"
        );
        assert!(
            client.contains("received 22 bytes: \"hello from the server\""),
            "{client}"
        );

        for (options, server_holds, client_reads) in [
            (
                &[] as &[&str],
                "what the client wrote",
                Some("what the client wrote"),
            ),
            (
                &["-r"],
                "what the server wrote",
                Some("what the server wrote"),
            ),
            (&["-w"], "what the client wrote", None),
        ] {
            let outcome = run(&write_read, options);
            let (server, client) = (&outcome.server.stdout, &outcome.client.stdout);
            let holds = format!("the region now holds \"{server_holds}\"");
            assert!(
                server.contains(&holds),
                "{options:?}\n{}",
                outcome.describe()
            );
            let reads = client
                .lines()
                .find(|line| line.starts_with("the server's region holds"));
            let expected = client_reads.map(|text| format!("the server's region holds \"{text}\""));
            assert_eq!(
                reads,
                expected.as_deref(),
                "{options:?}\n{}",
                outcome.describe()
            );
        }
    }
}
