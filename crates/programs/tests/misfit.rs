//! Promise: a connection whose sides do not fit is told by its true cause: in one terminal, in two of
//! one user, and on two hosts as far as one side can know. What it cannot know is no cause.

use rnic_programs::each::each;
use rnic_programs::situations::{self, Column, causes};
use rnic_programs::{Finished, Place, Process, Trial, User, compile};
use std::path::Path;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);
/// 0x4865, for /proc/net/tcp. Each place is a network of its own.
const PORT: &str = "18533";

#[derive(Default)]
struct Case {
    name: &'static str,
    /// What the requester's side says where it can read the other's.
    says: &'static [&'static str],
    /// And where it cannot.
    alone: &'static [&'static str],
    /// What the responder's terminal says.
    there: &'static [&'static str],
}

const REFUSED: &str = "refused a request of the peer";
const CANDIDATES: [&str; 2] = ["a NAK does not say why", "maybe: wrong rkey"];
const INVALID: [&str; 2] = [
    "a NAK does not say why",
    "maybe: the message is longer than the receive",
];
const SILENT: [&str; 2] = [
    "the peer's queue pair has never answered",
    "maybe: the host is down, or a firewall drops UDP port 4791",
];
const ENDED: &str = "cause: ICMP says that nothing takes UDP port 4791 at 10.77.0.1";

const CASES: [Case; 21] = [
    Case {
        name: "fits",
        says: &[],
        alone: &[],
        there: &[],
    },
    Case {
        name: "past-end",
        says: &[
            "status 10",
            "cause: the access, ",
            "ends 1 byte past the region",
        ],
        alone: &CANDIDATES,
        there: &[REFUSED, "ends 1 byte past the region"],
    },
    Case {
        name: "no-right",
        says: &["status 10", "lacks IBV_ACCESS_REMOTE_WRITE; it has"],
        alone: &CANDIDATES,
        there: &[REFUSED, "lacks IBV_ACCESS_REMOTE_WRITE"],
    },
    Case {
        name: "bad-rkey",
        says: &["status 10", "cause: no region of that process has rkey"],
        alone: &CANDIDATES,
        there: &[REFUSED, "no region of that process has rkey"],
    },
    Case {
        name: "qp-no-right",
        says: &["status 9", "do not allow RDMA WRITE"],
        alone: &INVALID,
        there: &[REFUSED, "do not allow RDMA WRITE"],
    },
    Case {
        name: "too-long",
        says: &["status 9", "the posted receive has room for 64 bytes"],
        alone: &INVALID,
        there: &[REFUSED, "the posted receive has room for 64 bytes"],
    },
    Case {
        name: "mtu-3-5",
        says: &[
            "status 9",
            "cause: path_mtu differs",
            "1024 bytes here, 4096 bytes at the peer",
        ],
        alone: &INVALID,
        there: &[REFUSED, "path_mtu of the responder is 4096"],
    },
    Case {
        name: "mtu-5-3",
        says: &[
            "status 9",
            "cause: path_mtu differs",
            "4096 bytes here, 1024 bytes at the peer",
        ],
        alone: &INVALID,
        there: &[REFUSED, "path_mtu of the responder is 1024"],
    },
    Case {
        name: "read-3-5",
        says: &[
            "status 7",
            "cause: path_mtu differs",
            "1024 bytes here, 4096 bytes at the peer",
        ],
        alone: &[
            "status 7",
            "a packet brought 4096",
            "maybe: the peer has another path_mtu",
        ],
        there: &[
            "answered an RDMA READ of misfit",
            "(status 7): path_mtu is 4096 bytes here, and 1024 there",
        ],
    },
    Case {
        name: "read-5-3",
        says: &[
            "status 7",
            "cause: path_mtu differs",
            "4096 bytes here, 1024 bytes at the peer",
        ],
        alone: &[
            "status 7",
            "a packet brought 1024",
            "maybe: the peer has another path_mtu",
        ],
        there: &[
            "answered an RDMA READ of misfit",
            "(status 7): path_mtu is 1024 bytes here, and 4096 there",
        ],
    },
    Case {
        name: "psn",
        says: &[
            "status 12",
            "cause: the start PSNs differ: the peer expects PSN 0x64",
        ],
        alone: &[
            "status 12",
            "cause: the start PSNs differ: the peer expects PSN 0x64",
        ],
        there: &["took no request at all"],
    },
    Case {
        name: "init",
        says: &["status 12", "was in INIT: it takes packets from RTR on"],
        alone: &SILENT,
        there: &["it was in INIT, and was never moved to RTR"],
    },
    Case {
        name: "reset",
        says: &["status 12", "had moved its queue pair to RESET"],
        alone: &SILENT,
        there: &[],
    },
    Case {
        name: "err",
        says: &["status 12", "had moved its queue pair to ERR"],
        alone: &SILENT,
        there: &[],
    },
    Case {
        name: "destroyed",
        says: &["status 12", "had destroyed its queue pair"],
        alone: &SILENT,
        there: &[],
    },
    Case {
        name: "other-qp",
        says: &["status 12", "and not with this one: its dest_qp_num"],
        alone: &SILENT,
        there: &[
            "answered no request of misfit (pid ",
            "and its answers go there",
        ],
    },
    Case {
        name: "type",
        says: &[
            "status 12",
            "is of type UC (ibv_create_qp), and this one of type RC",
        ],
        alone: &SILENT,
        there: &[],
    },
    Case {
        name: "unused-qpn",
        says: &["status 12", "had no queue pair of that number"],
        alone: &SILENT,
        there: &[],
    },
    Case {
        name: "itself",
        says: &[
            "is connected with itself",
            "no region of that process has rkey",
        ],
        alone: &[
            "is connected with itself",
            "no region of that process has rkey",
        ],
        there: &[],
    },
    Case {
        name: "exits",
        says: &[
            "status 12",
            "cause: the peer process, misfit (pid ",
            "has ended",
        ],
        alone: &["status 12", ENDED],
        there: &[],
    },
    Case {
        name: "killed",
        says: &[
            "status 12",
            "cause: the peer process, misfit (pid ",
            "has ended",
        ],
        alone: &["status 12", ENDED],
        there: &[],
    },
];

fn column(name: &'static str) -> Column {
    Column::new("sides", name, "misfit")
}

/// All of that stands there; and a cause, or what may be one, but not both.
#[track_caller]
fn expect(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let (cause, maybe) = (said.contains("  cause:"), said.contains("  maybe:"));
    assert!(!(cause && maybe), "{said}");
    if parts.iter().any(|part| part.starts_with("maybe:")) {
        assert!(!cause, "a guess as a cause\n{said}");
    } else if !parts.is_empty() {
        assert!(!maybe, "it is known\n{said}");
    }
}

fn run(place: &Place, host_path: &str, words: &[&str]) -> Process {
    let mut command = place.command(place.rnic());
    command.env("RNIC_HOST_PATH", host_path);
    command.args(["run", "--"]).args(words);
    Process::spawn(command)
}

/// The two sides, each in a run and a place of its own: what they said.
pub fn in_two(
    program: &Path,
    case: &str,
    host_path: &str,
    server: (&Place, &str),
    client: (&Place, &str),
) -> [Finished; 2] {
    let program = program.to_str().expect("a path");
    let gid = |(place, address): (&Place, &str)| place.gid(address).index.to_string();
    let mut there = run(server.0, host_path, &[program, &gid(server), case, PORT]);
    there.wait_for_listener(PORT.parse().expect("a port"), TIME);
    let words = [program, &gid(client), case, PORT, server.1];
    let here = run(client.0, host_path, &words).wait(TIME);
    [here, there.wait(TIME)]
}

#[test]
fn in_one_terminal() {
    let trial = Trial::start_beside_others("in_one_terminal");
    let Some(program) = compile::c_program(&trial, "misfit") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = program.to_str().expect("a path");
    let gid = place.gid("127.0.0.1").index.to_string();
    let (nic, here) = (column(situations::NIC), column(situations::ONE_TERMINAL));
    each(
        &CASES,
        |case| case.name,
        |case| {
            let both = format!(
                "{program} {gid} {0} {PORT} & \
             until grep -q ':4865 .* 0A ' /proc/net/tcp; do sleep 0.02; done; \
             {program} {gid} {0} {PORT} 127.0.0.1; wait",
                case.name
            );
            let finished = run(&place, "on", &["sh", "-c", &both]).wait(TIME);
            expect(&finished.stderr, case.says);
            nic.add(case.name, &situations::statuses(&finished.stdout));
            here.add(case.name, &causes(&finished.stderr));
            assert_eq!(
                case.says.is_empty(),
                finished.stderr.is_empty(),
                "{}",
                finished.describe()
            );
        },
    );
    nic.check();
    here.check();
}

#[test]
fn in_two_terminals() {
    let trial = Trial::start_beside_others("in_two_terminals");
    let Some(program) = compile::c_program(&trial, "misfit") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    for host_path in ["on", "off"] {
        let client = column(situations::TWO_TERMINALS);
        let server = column(situations::PEER);
        each(
            &CASES,
            |case| case.name,
            |case| {
                let at = (&place, "127.0.0.1");
                let [here, there] = in_two(&program, case.name, host_path, at, at);
                expect(&here.stderr, case.says);
                expect(&there.stderr, case.there);
                client.add(case.name, &causes(&here.stderr));
                server.add(case.name, &causes(&there.stderr));
                assert_eq!(
                    case.says.is_empty(),
                    here.stderr.is_empty(),
                    "{}",
                    here.describe()
                );
                if case.there.contains(&REFUSED) {
                    expect(&there.stderr, &["of the peer, misfit (pid "]);
                }
            },
        );
        client.check();
        server.check();
    }
}

/// However often it was asked lately: Linux sends one ICMP message in a second to each host.
fn says_what_nobody_takes(place: &Place) {
    let say = "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit";
    let mut shell = place.netns().expect("a namespace").enter("sh");
    let status = shell.args(["-c", say]).status().expect("a shell");
    assert!(status.success(), "{say}");
}

#[test]
fn on_two_hosts() {
    let trial = Trial::start_beside_others("on_two_hosts");
    let Some(program) = compile::c_program(&trial, "misfit") else {
        return;
    };
    let Some((left, right)) = trial.linked(User::Current, 9000) else {
        return;
    };
    let (server, client) = ((&left, "10.77.0.1"), (&right.apart(&trial), "10.77.0.2"));
    says_what_nobody_takes(&left);
    let client_says = column(situations::TWO_HOSTS);
    each(
        &CASES,
        |case| case.name,
        |case| {
            let [here, there] = in_two(&program, case.name, "on", server, client);
            expect(&here.stderr, case.alone);
            // Who sent a packet of RC, and what a requester made of an answer, is told by the file of its run.
            let there_alone = match case.name {
                "other-qp" | "read-3-5" | "read-5-3" => &[],
                _ => case.there,
            };
            expect(&there.stderr, there_alone);
            client_says.add(case.name, &causes(&here.stderr));
            assert_eq!(
                case.alone.is_empty(),
                here.stderr.is_empty(),
                "{}",
                here.describe()
            );
            if case.there.contains(&REFUSED) {
                expect(&there.stderr, &[": 10.77.0.1 QP 0x", " -> 10.77.0.2 QP 0x"]);
            }
        },
    );
    client_says.check();
}

/// A number that no process of this user has is known as such.
#[test]
fn a_number_that_nobody_has() {
    let trial = Trial::start_beside_others("a_number_that_nobody_has");
    let Some(program) = compile::c_program(&trial, "misfit") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let at = (&place, "127.0.0.1");
    let [here, _] = in_two(&program, "nobodys-qpn", "on", at, at);
    let parts = [
        "status 12",
        "and no process of this user here has QP 0x",
        "maybe: ",
        "a wrong QPN",
    ];
    expect(&here.stderr, &parts);
}

/// The file of another run may be damaged, or claim anything: the run ends as its program, and
/// nothing of it is taken for a cause.
#[test]
fn a_damaged_file_of_the_peer() {
    let trial = Trial::start_beside_others("a_damaged_file_of_the_peer");
    let Some(program) = compile::c_program(&trial, "misfit") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let program = program.to_str().expect("a path");
    let gid = place.gid("127.0.0.1").index.to_string();
    // The server's own program cuts the file of its run in the middle of each line.
    let spoiled = format!(
        "{program} {gid} past-end {PORT}; sed -i 's/\"key\":.*//' $RNIC_REPORT; \
         printf '\\377\\000{{' >>$RNIC_REPORT; echo spoiled; cat"
    );
    let mut there = run(&place, "on", &["sh", "-c", &spoiled]);
    there.wait_for_listener(PORT.parse().expect("a port"), TIME);
    // It reports once its shell has ended, after the server's file was spoiled.
    let waits = format!("{program} {gid} past-end {PORT} 127.0.0.1; cat");
    let mut here = run(&place, "on", &["sh", "-c", &waits]);
    there.wait_for("spoiled", TIME, |text| {
        text.contains("spoiled").then_some(())
    });
    here.close_stdin();
    let here = here.wait(TIME);
    expect(&here.stderr, &CANDIDATES);
    there.close_stdin();
    there.wait(TIME);
}

/// What this host's kernel and ICMP know of the way.
#[test]
fn ways_to_the_peer() {
    let trial = Trial::start_beside_others("ways_to_the_peer");
    let Some(program) = compile::c_program(&trial, "misfit") else {
        return;
    };
    let Some((left, right)) = trial.linked(User::Current, 1500) else {
        return;
    };
    let words = program.to_str().expect("a path");
    let (server, client) = ((&left, "10.77.0.1"), (&right, "10.77.0.2"));
    let netns = right.netns().expect("a namespace");
    says_what_nobody_takes(&left);
    let column = |name| Column::new("ways", name, "misfit");
    let (nic, hosts) = (column(situations::NIC), column(situations::TWO_HOSTS));
    let tell = |situation: &str, finished: &Finished| {
        nic.tell(situation, &situations::statuses(&finished.stdout));
        hosts.tell(situation, &causes(&finished.stderr));
    };
    let nobody = |situation: &str, own: &str, peer: &str| {
        let gid = right.gid(own).index.to_string();
        let finished = run(&right, "on", &[words, &gid, "nobody", PORT, peer]).wait(TIME);
        tell(situation, &finished);
        finished.stderr
    };
    expect(
        &nobody(
            "no process of the peer's host uses RDMA",
            "10.77.0.2",
            "10.77.0.1",
        ),
        &["10.77.0.2 QP 0x", ENDED],
    );
    expect(
        &nobody(
            "this side's GID is that of loopback, and the peer is on another host",
            "127.0.0.1",
            "10.77.0.1",
        ),
        &[
            "cause: this side's GID is 127.0.0.1, a loopback address, and 10.77.0.1 is not of this host",
        ],
    );
    // Silence is another thing: nobody there says that there is nobody.
    let there = left.netns().expect("a namespace");
    there.ip("addr del 10.77.0.1/24 dev rn0");
    netns.ip("neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 dev rn0 nud permanent");
    let silence = "the peer's host is down, or a firewall drops what is for it";
    expect(&nobody(silence, "10.77.0.2", "10.77.0.1"), &SILENT);
    netns.ip("neigh del 10.77.0.1 dev rn0");
    there.ip("addr add 10.77.0.1/24 dev rn0");

    // The interface shrinks once the two are connected.
    let gid = |(place, address): (&Place, &str)| place.gid(address).index.to_string();
    let mut far = run(&left, "on", &[words, &gid(server), "late", PORT]);
    far.wait_for_listener(PORT.parse().expect("a port"), TIME);
    let mut near = run(
        &right,
        "on",
        &[words, &gid(client), "late", PORT, "10.77.0.1"],
    );
    near.wait_for("connected", TIME, |text| {
        text.contains("connected").then_some(())
    });
    netns.ip("link set rn0 mtu 1000");
    near.tell("go");
    let near = near.wait(TIME);
    tell(
        "the interface's MTU became smaller than the path MTU, after both were connected",
        &near,
    );
    expect(
        &near.stderr,
        &[
            "status 12",
            "cause: interface or route here takes IP packets of 1000 bytes, and those of this request have 1068",
            "(EMSGSIZE)",
        ],
    );
    far.wait(TIME);
    netns.ip("link set rn0 mtu 1500");

    // Another namespace is another host, but its processes can be seen.
    let mut far = run(&left, "on", &[words, &gid(server), "stopped", PORT]);
    far.wait_for_listener(PORT.parse().expect("a port"), TIME);
    let near = run(
        &right,
        "on",
        &[words, &gid(client), "stopped", PORT, "10.77.0.1"],
    )
    .wait(TIME);
    expect(
        &near.stderr,
        &[
            "status 12",
            "cause: the peer, misfit (pid ",
            "is stopped (SIGSTOP",
        ],
    );
    tell("the peer's process is stopped (SIGSTOP, a debugger)", &near);
    nic.check();
    hosts.check();
    far.kill();
    far.wait(TIME);
}
