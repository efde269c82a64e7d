//! Programs that meet through the connection manager: rdmacm-utils, rsockets, perftest with `-R`.

use super::{Case, DIAGONAL, EVERY_WAY, OTHER_DIAGONAL};
use crate::lab::{End, Family, Lab, Way};
use crate::pair::{LONG, finish, port};
use rnic_programs::Process;
use rnic_programs::meeting::{PS_TCP, PS_UDP};
use rnic_programs::pair::Outcome;
use rnic_programs::process::GLANCE;
use std::time::{Duration, Instant};

/// A server and a client. In their words `{server}` and `{client}` stand for addresses, `{port}`
/// for the port.
#[derive(Clone, Copy)]
struct Meeting {
    server: &'static str,
    client: &'static str,
    /// The port space.
    space: u16,
    /// The port of a program that cannot be told another.
    port: Option<u16>,
    /// The server never ends by itself.
    stays: bool,
    /// What both print when all is well.
    says: &'static str,
}

const fn meeting(server: &'static str, client: &'static str, says: &'static str) -> Meeting {
    Meeting {
        server,
        client,
        space: PS_TCP,
        port: None,
        stays: false,
        says,
    }
}

impl Meeting {
    fn run(self, lab: &Lab, way: Way) -> Outcome {
        let began = Instant::now();
        let (mut server, client) = self.start(lab, way);
        if !self.stays {
            return finish(server, client, began, LONG);
        }
        let client = client.wait(LONG);
        server.kill();
        Outcome {
            server: server.wait(LONG),
            client,
            took: began.elapsed(),
        }
    }

    fn start(self, lab: &Lab, way: Way) -> (Process, Process) {
        let port = self.port.unwrap_or_else(port);
        let mut server = Process::spawn(command(lab, way, way.server(), self.server, port));
        let began = Instant::now();
        while !lab.listens(way.server(), self.space, port) {
            assert!(
                !server.ended() && began.elapsed() < LONG,
                "does not listen on port {port}\n{}",
                server.output()
            );
            std::thread::sleep(GLANCE);
        }
        let client = Process::spawn(command(lab, way, way.client, self.client, port));
        (server, client)
    }
}

fn command(lab: &Lab, way: Way, end: End, line: &str, port: u16) -> std::process::Command {
    let line = line
        .replace("{server}", way.server().address(way.family))
        .replace("{client}", way.client.address(way.family))
        .replace("{port}", &port.to_string());
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    // Ours lie in the job's folder.
    let program = match program.strip_prefix("./") {
        Some(name) => lab.path(name),
        None => program.to_owned(),
    };
    let mut command = lab.command(end, &program);
    command.args(words);
    command
}

fn case(name: &str, meeting: Meeting) -> Case {
    Case::new(name, move |lab, way| {
        let outcome = meeting.run(lab, way);
        let good = outcome.client.ok()
            && (meeting.stays || outcome.server.ok())
            && outcome.client.stdout.contains(meeting.says)
            && (meeting.stays || outcome.server.stdout.contains(meeting.says));
        assert!(good, "failed\n{}", outcome.describe());
    })
}

/// One dies; the other ends within the time that the protocol takes to find out, and the next pair
/// works.
fn killed(lab: &Lab, way: Way, who: &str) {
    let quiet = meeting(
        "./connected {port}",
        "./connected {port} {server}",
        "connected",
    );
    let (mut server, mut client) = quiet.start(lab, way);
    for process in [&mut server, &mut client] {
        process.wait_for("connected", LONG, |text| {
            text.contains("connected").then_some(())
        });
    }
    let other = if who == "server" {
        lab.kill(way.server(), &mut server);
        client
    } else {
        lab.kill(way.client, &mut client);
        server
    };
    let finished = other.wait(Duration::from_secs(60));
    assert!(
        finished.ok() && finished.stdout.contains("RDMA_CM_EVENT_DISCONNECTED"),
        "{}",
        finished.describe()
    );
    RPING.run(lab, way).expect_success();
}

/// The client sends to a group, the server is its member.
fn multicast(lab: &Lab, way: Way) {
    let began = Instant::now();
    // Else what it prints stays in its buffer.
    let line = "stdbuf -oL mckey -m 239.1.2.3 -C 10 -S 500 -b";
    let mut server = Process::spawn(command(
        lab,
        way,
        way.server(),
        &format!("{line} {{server}}"),
        0,
    ));
    server.wait_for("joined", LONG, |text| text.contains("joined").then_some(()));
    let sender = format!("{line} {{client}} -s");
    let client = Process::spawn(command(lab, way, way.client, &sender, 0));
    let outcome = finish(server, client, began, LONG);
    outcome.expect_success();
    assert!(
        outcome.server.stdout.contains("return status 0"),
        "{}",
        outcome.describe()
    );
}

/// Both directions, where IPv6 is none.
const V4: [Way; 2] = [
    super::way(End::Rnic, Family::V4),
    super::way(End::Linux, Family::V4),
];

const RPING: Meeting = meeting(
    "rping -s -a {server} -p {port} -v -V -S 1000 -C 5",
    "rping -c -a {server} -p {port} -v -V -S 1000 -C 5",
    "ping data: rdma-ping-4: ",
);

pub fn add(cases: &mut Vec<Case>) {
    cases.push(case("rping", RPING).core(&EVERY_WAY));
    let ucmatose = meeting(
        "ucmatose -p {port} -b {server} -c 3 -C 5 -S 3000",
        "ucmatose -p {port} -s {server} -b {client} -c 3 -C 5 -S 3000",
        "return status 0",
    );
    cases.push(case("ucmatose: 3 connections, then disconnected", ucmatose).core(&DIAGONAL));
    let udaddy = Meeting {
        space: PS_UDP,
        port: Some(7174),
        ..meeting(
            "udaddy -b {server} -c 2 -C 5 -S 500",
            "udaddy -s {server} -b {client} -c 2 -C 5 -S 500",
            "return status 0",
        )
    };
    cases.push(case("udaddy", udaddy).core(&OTHER_DIAGONAL));
    let rdma_server = meeting(
        "rdma_server -s {server} -p {port}",
        "rdma_client -s {server} -p {port}",
        "end 0",
    );
    cases.push(case("rdma_server, rdma_client", rdma_server));
    let long = meeting(
        "rping -s -a {server} -p {port} -v -V -S 60000 -C 20",
        "rping -c -a {server} -p {port} -v -V -S 60000 -C 20",
        "ping data: rdma-ping-19: ",
    );
    cases.push(case("rping, 60000 B", long));
    let reconnect = meeting(
        "./reconnect {port}",
        "./reconnect {port} {server}",
        "verified",
    );
    cases.push(case(
        "connected, disconnected by either side, refused, and again",
        reconnect,
    ));
    cases.push(Case::new("mckey: a multicast group", multicast).only(&V4));
    let cmtime = Meeting {
        stays: true,
        ..meeting(
            "cmtime -b {server} -p {port}",
            "cmtime -b {client} -s {server} -p {port} -c 20",
            "disconnect",
        )
    };
    cases.push(case("cmtime: 20 connects and disconnects", cmtime));
    for (server, client) in [
        (
            "rstream -b {server} -p {port} -S 3000 -I 20 -C 5 -T v",
            "rstream -s {server} -b {client} -p {port} -S 3000 -I 20 -C 5 -T v",
        ),
        (
            "riostream -b {server} -p {port} -S 65536 -I 5 -C 5 -T v",
            "riostream -s {server} -b {client} -p {port} -S 65536 -I 5 -C 5 -T v",
        ),
    ] {
        let name = server.split_whitespace().next().expect("a program");
        cases.push(case(name, meeting(server, client, "custom")));
    }
    for line in [
        "ib_send_lat -F -R -n 100",
        "ib_send_bw -F -R -n 100 -s 65536",
        "ib_write_lat -F -R -n 100",
        "ib_write_bw -F -R -n 100 -s 65536 -q 4",
        "ib_read_lat -F -R -n 100 -o 16",
        "ib_read_bw -F -R -n 100 -s 65536 -o 16",
        "ib_atomic_lat -F -R -n 100 -o 16",
        "ib_atomic_bw -F -R -n 100 -o 16",
        "ib_send_bw -F -R -n 100 -s 4096 -e",
        "ib_send_lat -F -R -n 100 -c UD",
    ] {
        let server: &'static str = format!("{line} -p {{port}}").leak();
        let client: &'static str = format!("{line} -p {{port}} {{server}}").leak();
        // It listens among connections for UD, too. The server of a READ or an atomic prints no
        // table.
        let perftest = meeting(server, client, " Test");
        // perftest 4.5 resolves no IPv6 address with -R.
        cases.push(case(line, perftest).only(&V4));
    }
    for who in ["server", "client"] {
        let name = format!("the {who} of a connection is killed");
        cases.push(Case::new(name, move |lab, way| killed(lab, way, who)));
    }
}
