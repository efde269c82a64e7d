//! The example as two processes, over TCP for the exchange and RoCEv2 on loopback for the rest.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Cargo builds examples before it runs integration tests, beside their folder.
fn example() -> PathBuf {
    let mut path = std::env::current_exe().expect("own path");
    path.pop();
    path.pop();
    path.join("examples/ping_pong")
}

#[test]
fn ping_pong() {
    let program = example();
    assert!(
        program.exists(),
        "{} is built with the tests",
        program.display()
    );
    let mut server = Command::new(&program)
        .args(["server", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("text");
    let addr = first
        .strip_prefix("waiting on ")
        .expect("the address")
        .to_owned();
    let client = Command::new(&program)
        .args(["client", &addr])
        .output()
        .expect("the client runs");
    let text = String::from_utf8_lossy(&client.stdout).into_owned();
    assert!(
        client.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&client.stderr)
    );
    assert!(text.contains("1000 round trips"), "{text}");
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    assert!(
        server.wait().expect("the server ends").success(),
        "{rest:?}"
    );
}
