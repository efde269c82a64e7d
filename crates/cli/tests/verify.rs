//! `rnic verify` as its users run it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::common::{expect_success, rnic, run, stderr, stdout};

#[test]
fn verify_with_and_without_faults() {
    for extra in [
        &[][..],
        &["--faults", "drop=2%,dup=1%,reorder=2%,corrupt=1%,seed=5"],
    ] {
        let mut args = vec![
            "verify",
            "--qps",
            "3",
            "--iterations",
            "40",
            "--max-size",
            "100000",
        ];
        args.extend_from_slice(extra);
        let output = run(&args);
        expect_success(&output);
        assert!(
            stdout(&output).contains("verified 120 operations"),
            "{}",
            stdout(&output)
        );
    }
}

/// So much loss that connections give up, which they have to: that is counted and said, and is no
/// failure. What was done is right all the same. The corrupted packets are over IPv4, too.
#[test]
fn connections_that_give_up_under_faults_are_no_failure() {
    for (faults, must_lose) in [
        ("drop=20%,dup=5%,reorder=5%,corrupt=10%,seed=3", false),
        ("drop=50%,corrupt=5%,seed=4", true),
    ] {
        let output = run(&[
            "verify",
            "--qps",
            "6",
            "--iterations",
            "60",
            "--max-size",
            "3000",
            "--timeout",
            "11",
            "--addr",
            "127.0.0.1",
            "--faults",
            faults,
        ]);
        expect_success(&output);
        let text = stdout(&output);
        assert!(text.contains("all right"), "{text}");
        let lost = text.contains("gave up") && text.contains("status 12");
        assert!(lost || !must_lose, "{text}");
    }
}

#[test]
fn verify_over_tcp_exchange() {
    let mut server = rnic()
        .args(["verify", "--server", "127.0.0.1:0", "--addr", "127.0.0.1"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rnic starts");
    let mut errors = BufReader::new(server.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    let addr = line.trim().rsplit(' ').next().expect("an address");
    let output = run(&[
        "verify",
        "--client",
        addr,
        "--addr",
        "127.0.0.1",
        "--iterations",
        "30",
        "--ops",
        "write,read",
    ]);
    let status = server.wait().expect("it ends");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("text");
    expect_success(&output);
    assert!(status.success(), "{line}{rest}");
}

#[test]
fn verify_without_a_server_is_an_error_in_words() {
    let output = run(&["verify", "--client", "nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nonsense"), "{}", stderr(&output));
}

/// A process whose standard error is read line by line.
struct Told {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Told {
    fn start(command: &mut Command) -> Told {
        command.stderr(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("rnic starts");
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        Told { child, errors }
    }

    fn server(addr: &str) -> Told {
        let args = ["verify", "--server", addr, "--addr", "127.0.0.1"];
        Told::start(rnic().args(args))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("a line");
        line
    }

    fn end(mut self) -> Output {
        let mut rest = Vec::new();
        self.errors.read_to_end(&mut rest).expect("bytes");
        let mut output = self.child.wait_with_output().expect("its end");
        output.stderr = rest;
        output
    }
}

/// What a server says last of itself: how to call it.
fn address(line: &str) -> &str {
    line.trim().rsplit(' ').next().expect("an address")
}

/// As `rnic bench` has them.
#[test]
fn either_spelling_of_options() {
    let mut server = Told::server("127.0.0.1:0");
    let line = server.line();
    let connect = ["verify", "--connect", address(&line), "--addr", "127.0.0.1"];
    let rest = [
        "--op",
        "send,read",
        "--milliseconds",
        "50",
        "--max-size",
        "64K",
    ];
    expect_success(&run(&[&connect[..], &rest].concat()));
    expect_success(&server.end());
}

/// Of READs the server sees nothing.
#[test]
fn a_server_that_checked_nothing_does_not_say_that_all_is_right() {
    let mut server = Told::server("127.0.0.1:0");
    let line = server.line();
    let args = ["--addr", "127.0.0.1", "--ops", "read", "--iterations", "5"];
    let client = run(&[&["verify", "--connect", address(&line)], &args[..]].concat());
    expect_success(&client);
    assert!(stdout(&client).contains("verified 20 operations"));
    let output = server.end();
    expect_success(&output);
    let said = stdout(&output);
    assert!(
        said.contains("nothing to verify") && !said.contains("all right"),
        "{said}"
    );
}

#[test]
fn nothing_is_not_verified() {
    for args in [
        ["--seconds", "0"],
        ["--seconds", "-1"],
        ["--milliseconds", "0"],
        ["--iterations", "0"],
    ] {
        let output = run(&[&["verify"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{}", stdout(&output));
    }
}

#[test]
fn a_client_that_has_to_wait_says_for_what() {
    // A port that was free a moment ago, at an address from which nobody calls: no other connection
    // gets it meanwhile.
    let listener = std::net::TcpListener::bind("127.0.77.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let args = [
        "verify",
        "--client",
        &addr,
        "--addr",
        "127.0.0.1",
        "--iterations",
        "5",
    ];
    let mut client = Told::start(rnic().args(args));
    let line = client.line();
    assert!(
        line.contains(&format!("waiting for a server at {addr}")),
        "{line}"
    );
    let mut server = Told::server(&addr);
    let line = server.line();
    assert!(line.contains("rnic verify --connect"), "{line}");
    expect_success(&client.end());
    expect_success(&server.end());
}

#[test]
fn addresses_that_are_none_are_explained() {
    let output = run(&["verify", "--server", "a:b:c"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("ADDRESS:PORT"),
        "{}",
        stderr(&output)
    );
    // In the documentation's range, which no host has.
    let output = run(&["verify", "--server", "203.0.113.77"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("listening on 203.0.113.77"),
        "{}",
        stderr(&output)
    );
}
