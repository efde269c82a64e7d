//! What a status, an errno or an event leaves open, and rnic knows: each situation is told by its one
//! cause. `c/causes.c` makes requests go wrong, `c/requests.c` connections.

use rnic_programs::situations::{self, Column, causes};
use rnic_programs::{Finished, Place, Process, Trial, User, compile};
use std::path::Path;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// A case, what the program prints of it, and what is said.
type Case = (&'static str, &'static str, &'static str);

const REQUESTS: [Case; 21] = [
    ("atomic-short", "status 1", "an atomic has 8 bytes"),
    (
        "no-reads",
        "status 2",
        "max_rd_atomic of the queue pair is 0",
    ),
    ("bind-right", "status 6", "lacks IBV_ACCESS_MW_BIND"),
    ("bind-range", "status 6", "leaves the region"),
    ("bind-write", "status 6", "lacks IBV_ACCESS_LOCAL_WRITE"),
    (
        "bind-pd",
        "status 6",
        "the memory window belongs to another protection domain",
    ),
    (
        "invalidate-region",
        "status 6",
        "is that of a region of ibv_reg_mr",
    ),
    ("send-invalidate-region", "status 10", "can be invalidated"),
    ("window-unbound", "status 10", "opens no memory now"),
    ("window-closed", "status 10", "opens no memory now"),
    ("window-right", "status 10", "lacks IBV_ACCESS_REMOTE_READ"),
    ("grh", "status 0", "the datagram needs 140: 40 for the GRH"),
    ("overrun", "status 0", "the completion queue has 1 entry"),
    ("shared", "errno 22", "use ibv_post_srq_recv"),
    (
        "datagrams",
        "status 12",
        "is of type UD, and this one of type RC",
    ),
    ("services", "status 0", "both ends need the same qp_type"),
    ("unmapped", "status 10", "is not mapped any more"),
    ("read-only", "status 10", "has become read-only"),
    ("no-access", "status 10", "may not be read any more"),
    ("shortened", "status 10", "behind the end of its file"),
    ("receive-unmapped", "status 11", "is not mapped any more"),
];

/// What learners get wrong.
const MISTAKES: [Case; 37] = [
    (
        "no-receive",
        "status 13",
        "the peer posts its receives too late",
    ),
    (
        "imm-no-receive",
        "status 13",
        "(RDMA WRITE with immediate) completed",
    ),
    (
        "imm-too-long",
        "status 9",
        "(SEND with immediate) completed",
    ),
    (
        "swapped-rkey",
        "status 10",
        "is that of a region in the other byte order",
    ),
    (
        "swapped-qpn",
        "errno 22",
        "; in the other byte order it is 0x",
    ),
    ("swapped-address", "status 10", "which lies in it"),
    (
        "local-variable",
        "status 10",
        "lies outside the region of rkey",
    ),
    ("unaligned", "status 9", "must be a multiple of 8"),
    ("no-atomics", "status 10", "lacks IBV_ACCESS_REMOTE_ATOMIC"),
    ("no-reads", "status 10", "lacks IBV_ACCESS_REMOTE_READ"),
    ("qp-no-atomics", "status 9", "do not allow fetch-and-add"),
    (
        "many-reads",
        "status 9",
        "max_dest_rd_atomic of the responder is 0",
    ),
    (
        "other-pd",
        "status 4",
        "belongs to another protection domain",
    ),
    (
        "other-pd-peer",
        "status 10",
        "belongs to another protection domain",
    ),
    ("deregistered", "status 4", "was deregistered"),
    ("bad-lkey", "status 4", "no region of that process has lkey"),
    ("outside", "status 4", "ends 16 bytes past the region"),
    (
        "read-into-const",
        "status 4",
        "lacks IBV_ACCESS_LOCAL_WRITE",
    ),
    (
        "receive-const",
        "status 11",
        "register the receive's region",
    ),
    (
        "inline-long",
        "errno 12",
        "more inline data than the 16 bytes",
    ),
    ("many-sges", "errno 12", "num_sge is 100"),
    ("queue-full", "errno 12", "send queue full"),
    ("receive-full", "errno 12", "receive queue full"),
    ("no-rts", "errno 22", "is in RTR, sending needs RTS"),
    (
        "receive-early",
        "errno 22",
        "is in RESET, receiving needs INIT",
    ),
    ("no-rtr", "errno 22", "cannot go from INIT to RTS"),
    ("bad-port", "errno 22", "port_num is 2"),
    ("bad-gid", "errno 22", "sgid_index 77"),
    (
        "other-family",
        "errno 22",
        "choose on both sides a GID of the same kind",
    ),
    ("not-global", "errno 22", "is_global is 0"),
    ("big-mtu", "errno 22", "path_mtu is 7"),
    ("cq-in-use", "errno 16", "that complete to it are left"),
    ("pd-in-use", "errno 16", "other objects of it are left"),
    ("write-const", "errno 22", "need LOCAL_WRITE as well"),
    ("unmapped-memory", "errno 14", "is not all mapped"),
    (
        "read-only-memory",
        "errno 14",
        "is mapped read-only in part",
    ),
    ("large-cq", "errno 22", "entries asked for"),
];

const CONNECTIONS: [Case; 15] = [
    (
        "nobody",
        "RDMA_CM_EVENT_REJECTED",
        "nobody listens on RDMA_PS_TCP port",
    ),
    ("rejected", "RDMA_CM_EVENT_REJECTED", "called rdma_reject"),
    (
        "destroyed",
        "RDMA_CM_EVENT_REJECTED",
        "called rdma_destroy_id for the request",
    ),
    (
        "unanswered",
        "",
        "had called neither rdma_accept nor rdma_reject",
    ),
    ("too-much", "errno 22", "bytes of private data"),
    (
        "accept-long",
        "errno 22",
        "responder_resources is 100, the device has",
    ),
    ("twice", "errno 22", "has been accepted before"),
    ("listener", "errno 22", "there is nothing to accept"),
    ("early", "errno 22", "the id has no address yet"),
    ("again", "errno 22", "has been connected, or is about to be"),
    ("taken", "errno 98", "it is taken: RDMA_PS_TCP port"),
    (
        "foreign",
        "errno 99",
        "192.0.2.77 is no address of this host",
    ),
    ("no-route", "errno 101", "no way to 192.0.2.77"),
    (
        "name",
        "Name or service not known",
        "says \"Name or service not known\" of node \"localhost\"",
    ),
    (
        "service",
        "Servname not supported for ai_socktype",
        "service \"no-such-service\"",
    ),
];

fn run(place: &Place, host_path: &str, program: &Path, args: &[&str]) -> Finished {
    let mut command = place.command(place.rnic());
    command.env("RNIC_HOST_PATH", host_path);
    command.args(["run", "--"]).arg(program).args(args);
    Process::spawn(command).wait(TIME)
}

/// It has printed that, and the one cause is told: no list of what may be.
fn check(case: &Case, finished: &Finished) {
    let (name, prints, says) = case;
    let first = finished.stdout.lines().next().unwrap_or_default();
    assert_eq!(first, *prints, "{name}\n{}", finished.describe());
    assert_eq!(
        finished.status.code(),
        Some(3),
        "{name}\n{}",
        finished.describe()
    );
    for (part, is_there) in [(*says, true), ("maybe:", false)] {
        assert_eq!(
            finished.stderr.contains(part),
            is_there,
            "{name}: {part:?}\n{}",
            finished.describe()
        );
    }
}

/// The cases of a program for one GID, whichever way the packets went.
fn each_by_its_cause(
    section: &'static str,
    name: &'static str,
    cases: &[Case],
    (place, program, gid): (&Place, &Path, &str),
) {
    for host_path in ["on", "off"] {
        let column = |column| Column::new(section, column, name);
        let (nic, here) = (column(situations::NIC), column(situations::ONE_TERMINAL));
        for case in cases {
            let finished = run(place, host_path, program, &[gid, case.0]);
            check(case, &finished);
            // By its own name, at both ends.
            if case.0 == "send-invalidate-region" {
                let times = finished.stderr.matches("SEND with invalidate").count();
                assert!(times >= 1, "{}", finished.describe());
            }
            let seen: Vec<String> = finished
                .stdout
                .lines()
                .map(|line| match line.contains("status") {
                    true => situations::statuses(line),
                    false => line.to_owned(),
                })
                .collect();
            nic.add(case.0, &seen.join("; the receive: "));
            here.add(case.0, &causes(&finished.stderr));
        }
        nic.check();
        here.check();
    }
}

/// Promise: what learners of RDMA get wrong is told by its one cause, byte orders included.
#[test]
fn mistakes_by_their_one_cause() {
    let trial = Trial::start_beside_others("mistakes_by_their_one_cause");
    let Some(program) = compile::c_program(&trial, "mistakes") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    each_by_its_cause("mistakes", "mistakes", &MISTAKES, (&place, &program, &gid));
}

/// Promise: rnic names the cause where a status has several, whichever way the packets went.
#[test]
fn requests_by_their_one_cause() {
    let trial = Trial::start_beside_others("requests_by_their_one_cause");
    let Some(program) = compile::c_program(&trial, "causes") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    each_by_its_cause("causes", "causes", &REQUESTS, (&place, &program, &gid));
    // Of two services only that is said of their settings.
    let mut command = place.command(place.rnic());
    command.args(["run", "--lint", "--"]).arg(&program);
    command.args([&gid, "services"]);
    let linted = Process::spawn(command).wait(TIME).stderr;
    assert!(linted.contains("is of type RC and the peer UC"), "{linted}");
    assert!(!linted.contains("max_rd_atomic"), "{linted}");
}

/// Promise: the same of connections. A call that was refused is told before a connection that the
/// program did not wait for.
#[test]
fn connections_by_their_one_cause() {
    let trial = Trial::start_beside_others("connections_by_their_one_cause");
    let Some(program) = compile::c_program_with(&trial, "requests", &["-lrdmacm"]) else {
        return;
    };
    let Some(place) = trial.fresh(User::Current) else {
        return;
    };
    let column = |name| Column::new("requests", name, "requests");
    let (nic, here) = (column(situations::NIC), column(situations::ONE_TERMINAL));
    for case in &CONNECTIONS {
        let finished = run(&place, "on", &program, &[case.0, "7611"]);
        check(case, &finished);
        nic.add(case.0, finished.stdout.trim());
        here.add(case.0, &causes(&finished.stderr));
    }
    nic.check();
    here.check();
}
