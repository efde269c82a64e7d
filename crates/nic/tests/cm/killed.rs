//! Peers that die without a word.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rnic_nic::cm::{ConnParam, EventKind};

use super::tools::{HOST, channel, expect, here, next, resolve, tcp};

const PORT: &str = "RNIC_TEST_CM_PORT";

/// A process that is killed when the test is over.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this test program again, with only that test.
fn start(test: &str, port: u16) -> Killed {
    let program = std::env::current_exe().expect("a path");
    let child = Command::new(program)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(PORT, port.to_string())
        .stdout(Stdio::piped())
        .spawn();
    Killed(child.expect("it starts"))
}

/// The peer that is killed: it connects, says so, and waits for its end.
#[test]
#[ignore = "started by the other tests"]
fn peer() {
    let port = std::env::var(PORT)
        .expect("a port")
        .parse()
        .expect("a number");
    let channel = channel();
    let id = tcp(&channel);
    resolve(&id, &channel, here(port));
    let param = ConnParam {
        qp_num: std::process::id() & 0xff_ffff,
        ..ConnParam::default()
    };
    id.connect(&param).expect("asked");
    expect(&channel, EventKind::ConnectResponse);
    id.establish().expect("established");
    println!("\nconnected");
    let _ = next(&channel);
}

/// The listener that is killed.
#[test]
#[ignore = "started by the other tests"]
fn listener() {
    let channel = channel();
    let id = tcp(&channel);
    id.bind(here(0)).expect("bound");
    id.listen(1).expect("it listens");
    let local = id.route().expect("a route").local;
    println!("\nlistening at {}", local.expect("an address").port());
    let _ = next(&channel);
}

/// The line that has the word.
fn wait_for(child: &mut Killed, word: &str) -> String {
    let output = child.0.stdout.take().expect("its output");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.find(|line| line.contains(word)).expect("it ended")
}

#[test]
fn the_peers_of_a_killed_process_are_disconnected() {
    let _alone = HOST.write();
    let channel = channel();
    let id = tcp(&channel);
    id.bind(here(0)).expect("bound");
    id.listen(1).expect("it listens");
    let port = id
        .route()
        .expect("a route")
        .local
        .expect("an address")
        .port();
    let mut child = start("cm::killed::peer", port);
    let server = expect(&channel, EventKind::ConnectRequest).id;
    let param = ConnParam {
        qp_num: 0x70_0001,
        ..ConnParam::default()
    };
    server.accept(Some(&param), 2).expect("accepted");
    expect(&channel, EventKind::Established);
    wait_for(&mut child, "connected");
    drop(child);
    expect(&channel, EventKind::Disconnected);
}

#[test]
fn the_port_of_a_killed_listener_is_free_and_nobody_answers_for_it() {
    let _alone = HOST.write();
    let channel = channel();
    let mut child = start("cm::killed::listener", 0);
    let said = wait_for(&mut child, "listening");
    drop(child);
    let port = said.rsplit(' ').next().map(str::parse);
    let addr = here(port.expect("a word").expect("a port"));
    let client = tcp(&channel);
    resolve(&client, &channel, addr);
    client.connect(&ConnParam::default()).expect("asked");
    let event = next(&channel);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 8));
    tcp(&channel).bind(addr).expect("free");
}
