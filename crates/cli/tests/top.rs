//! `rnic top`: what processes do is seen from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{Scratch, expect_success, rnic, run, stderr, stdout, terminal};
use crate::fields;

/// Two processes that write to each other's memory until this is dropped.
struct Traffic {
    folder: Scratch,
    bench: Child,
}

impl Traffic {
    fn new(name: &str, path: &str) -> Traffic {
        let folder = Scratch::new(name);
        let mut command = rnic();
        command.args([
            "bench",
            "--what",
            "bandwidth",
            "--op",
            "send",
            "--size",
            "all",
        ]);
        command.args(["--seconds", "20", "--addr", "127.0.0.1"]);
        command.env("RNIC_RUNTIME_DIR", folder.0.join("runtime"));
        command.env("RNIC_HOST_PATH", path);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let bench = command.spawn().expect("rnic starts");
        Traffic { folder, bench }
    }

    fn top(&self, args: &[&str]) -> Command {
        let mut command = rnic();
        command.arg("top").args(args);
        command.env("RNIC_RUNTIME_DIR", self.folder.0.join("runtime"));
        command
    }

    /// Looks until what it shows is `right`: the processes may not have met yet.
    fn until(&self, right: impl Fn(&Value) -> bool) -> Value {
        let mut command = self.top(&["--json", "--interval", "0.2"]);
        let mut top = command.stdout(Stdio::piped()).spawn().expect("rnic starts");
        let lines = BufReader::new(top.stdout.take().expect("a pipe")).lines();
        let frames = lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"));
        let found = frames.take(300).find(right);
        top.kill().expect("it runs on");
        top.wait().expect("its end");
        found.expect("it was never so")
    }

    fn until_measured(&self) -> Value {
        self.until(|frame| {
            let processes = frame["processes"].as_array().expect("a list");
            let measured = |it: &&Value| it["latency"]["count"].as_u64() > Some(0);
            // On a loaded machine one side may have had no turn in that interval.
            let moved = |rate: &str| {
                let mut rates = processes.iter().map(|it| it["rates"][rate].as_f64());
                rates.any(|rate| rate > Some(0.0))
            };
            processes.len() == 2
                && processes.iter().any(|it| measured(&it))
                && moved("bytes_in")
                && moved("bytes_out")
        })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.bench.kill();
        let _ = self.bench.wait();
    }
}

/// Promise: both ends are shown with their rates, latencies and each other, through memory and over UDP,
/// and docs/json.md has every field.
#[test]
fn both_ends_of_a_transfer_are_seen() {
    for (host_path, path) in [("on", "memory"), ("off", "host")] {
        let traffic = Traffic::new(&format!("top-{path}"), host_path);
        let frame = traffic.until_measured();
        assert_eq!(frame["version"], 1);
        let known = fields::documented("`rnic top --json`");
        assert_eq!(fields::of(&frame), known);
        let sender = u64::from(traffic.bench.id());
        let processes = frame["processes"].as_array().expect("a list");
        let of = |pid: u64| processes.iter().find(|it| it["pid"] == pid).expect("it");
        let sent = of(sender)["rates"]["bytes_out"].as_f64().expect("a number");
        assert!(sent > 0.0, "{frame}");
        let talks = frame["talks"].as_array().expect("a list");
        let talk = talks
            .iter()
            .find(|it| it["pid"] == sender)
            .expect("it talks");
        let peer = talk["peer_pid"].as_u64().expect("on this host");
        assert_ne!(peer, sender);
        let came = of(peer)["rates"]["bytes_in"].as_f64().expect("a number");
        assert!(came > 0.0, "{frame}");
        for qp in frame["queue_pairs"].as_array().expect("a list") {
            assert_eq!(qp["path"], path, "{qp}");
        }
    }
}

#[test]
fn tables_and_metrics_show_the_same_processes() {
    let traffic = Traffic::new("top-tables", "on");
    traffic.until_measured();
    let pid = traffic.bench.id().to_string();
    let output = traffic.top(&["--once", "--interval", "0.1"]).output();
    let output = output.expect("rnic starts");
    expect_success(&output);
    let tables = stdout(&output);
    for title in ["2 processes", "who talks to whom", "2 queue pairs"] {
        assert!(tables.contains(title), "{tables}");
    }
    assert!(tables.contains(&pid), "{tables}");
    let output = traffic
        .top(&["--prometheus"])
        .output()
        .expect("rnic starts");
    expect_success(&output);
    let sample = format!("rnic_requested_bytes_total{{pid=\"{pid}\",program=\"rnic\"");
    assert!(stdout(&output).contains(&sample), "{}", stdout(&output));
}

/// Promise: it says so where there is nothing to see, and an interval that makes no sense is
/// refused.
#[test]
fn nobody_is_there() {
    let folder = Scratch::new("top-empty");
    let mut command = rnic();
    command.args(["top", "--once", "--interval", "0.1"]);
    let output = command
        .env("RNIC_RUNTIME_DIR", folder.0.join("runtime"))
        .output();
    let output = output.expect("rnic starts");
    expect_success(&output);
    assert!(stdout(&output).contains("No process of this user has a queue pair"));
    for interval in ["0", "0.01", "nan", "3601", "x"] {
        let output = run(&["top", "--interval", interval]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{interval}: {}",
            stderr(&output)
        );
    }
}

fn get(address: &str, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Promise: the page, its data and the metrics are there, and for nobody who comes by another name
/// (DNS rebinding).
#[test]
fn the_page_is_for_this_host_alone() {
    let folder = Scratch::new("top-web");
    let mut command = rnic();
    command.args(["top", "--web", "0", "--interval", "0.1"]);
    command.env("RNIC_RUNTIME_DIR", folder.0.join("runtime"));
    let mut top = command.stdout(Stdio::piped()).spawn().expect("rnic starts");
    let mut line = String::new();
    let mut said = BufReader::new(top.stdout.take().expect("a pipe"));
    said.read_line(&mut line).expect("a line");
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    let address = address.expect("an address").to_owned();
    assert!(address.starts_with("127.0.0.1:"));
    for (path, kind, part) in [
        ("/", "text/html", "<title>rnic top</title>"),
        ("/frame.json", "application/json", "\"processes\":[]"),
        ("/metrics", "version=0.0.4", "rnic_silent_processes 0"),
    ] {
        let answer = get(&address, &address, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(kind) && answer.contains(part), "{answer}");
    }
    assert!(get(&address, "evil.example", "/metrics").starts_with("HTTP/1.1 403"));
    assert!(get(&address, &address, "/../etc/passwd").starts_with("HTTP/1.1 404"));
    top.kill().expect("it runs on");
    top.wait().expect("its end");
}

/// Promise: q ends it, and the terminal is as it was.
#[test]
fn a_terminal_is_left_as_it_was() {
    let folder = Scratch::new("top-screen");
    let (mut ours, theirs) = terminal(100, 24);
    let before = rustix::termios::tcgetattr(&ours)
        .expect("its settings")
        .local_modes;
    let mut command = rnic();
    command.args(["top", "--interval", "0.1"]);
    command.env("RNIC_RUNTIME_DIR", folder.0.join("runtime"));
    command.stdin(theirs.try_clone().expect("a copy"));
    let mut top = command.stdout(theirs).spawn().expect("rnic starts");
    drop(command);
    let mut shown = String::new();
    let mut piece = [0; 4096];
    while !shown.contains("0 processes, 0 queue pairs") {
        let n = ours.read(&mut piece).expect("it draws");
        shown += &String::from_utf8_lossy(&piece[..n]);
    }
    ours.write_all(b"q").expect("it reads");
    // An error is the end: nobody has the other end any more.
    while let Ok(n @ 1..) = ours.read(&mut piece) {
        shown += &String::from_utf8_lossy(&piece[..n]);
    }
    assert!(top.wait().expect("its end").success());
    let (entered, left) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
    assert!(shown.contains(entered) && shown.contains(left), "{shown:?}");
    let after = rustix::termios::tcgetattr(&ours)
        .expect("its settings")
        .local_modes;
    assert_eq!(after, before);
}
