//! The examples as two processes each, over loopback.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Cargo builds examples before it runs integration tests, beside their folder.
fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("own path");
    path.pop();
    path.pop();
    let path = path.join("examples").join(name);
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

/// A started server and its output.
struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(name: &str, args: &[&str]) -> Server {
        let mut child = Command::new(example(name))
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Server { child, lines }
    }

    /// What follows `words` in the next line.
    fn after(&mut self, words: &str) -> String {
        let line = self.lines.next().expect("a line").expect("text");
        line.strip_prefix(words).expect(words).to_owned()
    }

    /// The rest of its output, after a good end.
    fn end(mut self) -> String {
        let rest: Vec<_> = self.lines.by_ref().map_while(Result::ok).collect();
        let status = self.child.wait().expect("the server ends");
        assert!(status.success(), "{rest:?}");
        rest.join("\n")
    }
}

impl Drop for Server {
    /// Of a test that failed: it would wait for its client.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This host's address, of the device under test.
fn host() -> String {
    let context = rnic::Context::open().expect("the device opens");
    context.loopback_gid().expect("an address").addr.to_string()
}

/// The client's output, after a good end.
fn client(name: &str, args: &[&str]) -> String {
    let output = Command::new(example(name)).args(args).output();
    let output = output.expect("the client runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

#[test]
fn example_ping_pong() {
    let mut server = Server::start("ping_pong", &["server", "127.0.0.1:0"]);
    let addr = server.after("waiting on ");
    let text = client("ping_pong", &["client", &addr]);
    assert!(text.contains("1000 round trips"), "{text}");
    server.end();
}

#[test]
fn example_rdma_send_recv() {
    let mut server = Server::start("rdma_send_recv", &["-p", "0"]);
    let port = server.after("listening on port ");
    let text = client("rdma_send_recv", &["-p", &port, &host()]);
    assert!(
        text.contains("received 22 bytes: \"hello from the server\""),
        "{text}"
    );
    let text = server.end();
    assert!(
        text.contains("received 22 bytes: \"hello from the client\""),
        "{text}"
    );
    assert!(text.ends_with("the client has disconnected"), "{text}");
}

#[test]
fn example_rdma_write_read() {
    let host = host();
    for (options, region, read) in [
        (
            &[][..],
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
        let mut server = Server::start("rdma_write_read", &["-p", "0"]);
        let port = server.after("listening on port ");
        let args = [&["-p", &port][..], options, &[&host]].concat();
        let text = client("rdma_write_read", &args);
        let held = read.map(|read| format!("the server's region holds \"{read}\""));
        assert_eq!(text.contains("region holds"), held.is_some(), "{text}");
        assert!(held.is_none_or(|held| text.contains(&held)), "{text}");
        let text = server.end();
        let held = format!("the region now holds \"{region}\"");
        assert!(text.contains(&held), "{text}");
    }
}

#[test]
fn example_tokio_echo() {
    let mut server = Server::start("tokio_echo", &["server", &format!("{}:0", host()), "2"]);
    let addr = server.after("listening on ");
    for words in [["hello", "tokio"], ["once", "more"]] {
        let text = client("tokio_echo", &["client", &addr, words[0], words[1]]);
        assert_eq!(text, format!("{}\n", words.join(" ")));
    }
    assert_eq!(server.end(), "Ok(11)\nOk(9)");
}

#[test]
fn example_smol_echo() {
    let mut server = Server::start("smol_echo", &["server", &format!("{}:0", host()), "1"]);
    let addr = server.after("listening on ");
    let text = client("smol_echo", &["client", &addr, "hello", "smol"]);
    assert_eq!(text, "hello\nsmol\n");
    assert_eq!(server.end(), "2 messages");
}

#[test]
fn example_futures_cost() {
    let text = client("futures_cost", &["1", "20"]);
    assert!(text.contains("futures, tokio"), "{text}");
}

/// It compares what it says it does; how they compare, an idle machine and a release build tell.
#[test]
fn example_owned_against_raw() {
    // It is about the software NIC, whose port Soft-RoCE has.
    if !crate::device().exact_failures {
        return;
    }
    let text = client("owned_against_raw", &["3"]);
    for kind in ["SEND", "WRITE"] {
        for size in [64, 1024, 16384] {
            let row = format!("{kind:5} of {size:5} bytes: owned");
            assert!(text.contains(&row), "{row:?} in {text}");
        }
    }
    assert_eq!(text.matches("ratio").count(), 6, "{text}");
}
