//! What `rnic run` says when a program has ended: why it failed, what it moved.

use rnic_programs::{Finished, Place, Process, Trial, User, compile, skip};
use std::path::Path;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// Starts `rnic run OPTIONS -- PROGRAM ARGS`.
fn run(place: &Place, options: &[&str], program: &[&str]) -> Process {
    let mut command = place.command(place.rnic());
    command.arg("run").args(options).arg("--").args(program);
    Process::spawn(command)
}

#[track_caller]
fn expect(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(
            finished.stderr.contains(part),
            "no {part:?} in what was said\n{}",
            finished.describe()
        );
    }
}

/// The JSON that is the last line of standard error.
fn document(finished: &Finished) -> serde_json::Value {
    let last = finished.stderr.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}\n{}", finished.describe()))
}

/// Both sides of a perftest program in one run.
fn both_sides(program: &str, gid: &str) -> String {
    let port = "-p 18533";
    format!(
        "{program} -x {gid} {port} >server.out & \
         until grep -q ':4865 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done; \
         {program} -x {gid} {port} 127.0.0.1 >client.out && wait $!"
    )
}

#[test]
fn a_killed_peer() {
    let trial = Trial::start_beside_others("a_killed_peer");
    if !skip::have_programs("a_killed_peer", &["ib_write_bw", "stdbuf"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let line = [
        "stdbuf",
        "-oL",
        "ib_write_bw",
        "-x",
        &gid,
        "-D",
        "60",
        "-p",
        "18534",
    ];
    let mut server = run(&place, &["--stats"], &line);
    server.wait_for_listener(18534, TIME);
    let mut client = run(&place, &["--stats"], &[&line[..], &["127.0.0.1"]].concat());
    // Printed once both sides have connected.
    client.wait_for("the head of the table", TIME, |text| {
        text.contains("#bytes").then_some(())
    });
    server.kill();
    let client = client.wait(TIME);
    assert_eq!(client.status.code(), Some(1), "{}", client.describe());
    let said = format!("{}{}", client.stdout, client.stderr);
    assert!(
        said.contains("Failed status 12"),
        "perftest's own words stay: {said}"
    );
    expect(
        &client,
        &[
            "rnic: ib_write_bw (pid ",
            "(RDMA WRITE) completed with status 12 (transport retry counter exceeded), vendor_err 0x80",
            "was sent 8 times",
            "cause: the peer process, ib_write_bw (pid ",
            ", has ended: no process of this user",
            "next:",
            "rnic explain 12",
            "counters of ib_write_bw",
            "over rnic0 in 1 QP",
        ],
    );
}

#[test]
fn refusals_in_words() {
    let trial = Trial::start_beside_others("refusals_in_words");
    let Some(program) = compile::c_program(&trial, "errors") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let cases: [(&str, &str, &[&str]); 12] = [
        (
            "write",
            "bad-rkey",
            &["status 10", "no region of that process has rkey"],
        ),
        (
            "read",
            "past-end",
            &["status 10", "ends 1 byte past the region"],
        ),
        (
            "cas",
            "before-start",
            &["status 10", "lies outside the region"],
        ),
        (
            "write",
            "no-right",
            &["status 10", "lacks IBV_ACCESS_REMOTE_WRITE"],
        ),
        (
            "write",
            "other-pd",
            &["status 10", "another protection domain"],
        ),
        ("read", "dereg", &["status 10", "was deregistered"]),
        (
            "read",
            "qp-no-right",
            &["status 9", "do not allow RDMA READ"],
        ),
        ("fadd", "unaligned", &["status 9", "multiple of 8"]),
        (
            "send",
            "too-long",
            &["status 9", "room for 64 bytes", "128 bytes or more"],
        ),
        (
            "send",
            "receive-no-right",
            &["status 11", "lacks IBV_ACCESS_LOCAL_WRITE"],
        ),
        (
            "write",
            "local-past-end",
            &["status 4", "ends 1 byte past the region of lkey"],
        ),
        (
            "send",
            "no-receive",
            &["status 13", "no receive posted", "rnr_retry"],
        ),
    ];
    for (operation, cause, parts) in cases {
        let program = program.to_str().expect("a path");
        let finished = run(&place, &[], &[program, &gid, operation, cause]).wait(TIME);
        finished.expect_success();
        expect(&finished, parts);
        expect(
            &finished,
            &["rnic: errors (pid ", "work request 1", "next:"],
        );
    }
}

/// A card drops such packets, too, and the sender only ever knows that nobody answers.
#[test]
fn two_partitions_in_words() {
    let trial = Trial::start_beside_others("two_partitions_in_words");
    if !skip::have_programs("two_partitions_in_words", &["ib_send_lat"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let common = format!("-x {gid} -n 5 -p 18533 --pkey_index");
    let both = format!(
        "timeout 30 ib_send_lat {common} 1 >server.out & \
         until grep -q ':4865 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done; \
         ib_send_lat {common} 0 127.0.0.1 >client.out; code=$?; kill $!; exit $code"
    );
    let mut command = place.command(place.rnic());
    command.env("RNIC_PKEYS", "0xffff,0x8001");
    command.args(["run", "--", "sh", "-c", &both]);
    let finished = Process::spawn(command).wait(TIME);
    expect(
        &finished,
        &[
            "completed with status 12",
            "cause: the peer, ib_send_lat",
            "the P_Keys 0xffff of this side and 0x8001 of the peer are of two partitions",
            "RNIC_PKEYS",
        ],
    );
}

#[test]
fn a_refused_verb_is_the_reason_of_a_failure() {
    let trial = Trial::start_beside_others("a_refused_verb");
    if !skip::have_programs("a_refused_verb", &["ibv_rc_pingpong"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    // Without -g it tries to connect by LID, which RoCE has not.
    let mut server = run(&place, &[], &["ibv_rc_pingpong", "-p", "18535"]);
    server.wait_for_listener(18535, TIME);
    let client = run(
        &place,
        &["--quiet"],
        &["ibv_rc_pingpong", "-p", "18535", "127.0.0.1"],
    )
    .wait(TIME);
    assert!(!client.stderr.contains("rnic:"), "{}", client.describe());
    // The server learns the peer's address first, and fails on it.
    let server = server.wait(TIME);
    assert_eq!(server.status.code(), Some(1), "{}", server.describe());
    expect(
        &server,
        &[
            "Failed to modify QP to RTR",
            "ibv_modify_qp with errno 22 EINVAL",
            "is_global is 0",
        ],
    );
}

#[test]
fn success_is_silent() {
    let trial = Trial::start_beside_others("success_is_silent");
    if !skip::have_programs("success_is_silent", &["ib_send_lat"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let script = format!(
        "cd {}; {}",
        trial.folder().display(),
        both_sides("ib_send_lat -n 50", &gid)
    );
    let finished = run(&place, &[], &["sh", "-c", &script]).wait(TIME);
    finished.expect_success();
    assert!(
        !finished.stderr.contains("rnic:"),
        "{}",
        finished.describe()
    );
}

#[test]
fn counters_add_up() {
    let trial = Trial::start_beside_others("counters_add_up");
    let needed = ["ib_send_bw", "ib_read_bw", "ib_atomic_bw"];
    if !skip::have_programs("counters_add_up", &needed) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    // By rings a message of 5000 bytes is one packet; what answers a SEND may speak for several.
    for (program, operation, size, least_packets) in [
        ("ib_send_bw -n 300 -s 5000", "send", 5000, 301),
        ("ib_read_bw -n 300 -s 5000", "read", 5000, 600),
        ("ib_atomic_bw -n 300", "atomic", 8, 600),
    ] {
        // What takes no packets is counted by who asks alone.
        let script = format!(
            "cd {}; export RNIC_HOST_PATH=rings; {}",
            trial.folder().display(),
            both_sides(program, &gid)
        );
        let finished = run(&place, &["--stats=json"], &["sh", "-c", &script]).wait(TIME);
        finished.expect_success();
        let document = document(&finished);
        assert_eq!(document["exit_status"], 0);
        assert!(document["failure"].is_null(), "{document}");
        let total = &document["stats"]["total"];
        let context = || format!("{program}\n{document}");
        assert_eq!(total["queue_pairs"], 2, "{}", context());
        // perftest makes 300 of them, and for the atomics not one byte more.
        for side in ["requested", "served"] {
            let traffic = &total["counters"][side][operation];
            assert_eq!(traffic["messages"], 300, "{side} {}", context());
            assert_eq!(traffic["bytes"], 300 * size, "{side} {}", context());
        }
        assert_eq!(total["bytes_moved"], 300 * size, "{}", context());
        let packets = |name: &str| total["counters"][name].as_u64().unwrap_or(0);
        assert!(packets("packets_sent") >= least_packets, "{}", context());
        assert_eq!(
            document["stats"]["processes"].as_array().map(Vec::len),
            Some(2),
            "{}",
            context()
        );
    }
}

/// Without acknowledgements, and without a peer.
#[test]
fn datagrams_are_counted() {
    let trial = Trial::start_beside_others("datagrams_are_counted");
    if !skip::have_programs("datagrams_are_counted", &["ib_send_bw"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    for service in ["UC", "UD"] {
        // As many as there are receives: none is lost.
        let script = format!(
            "cd {}; {}",
            trial.folder().display(),
            both_sides(&format!("ib_send_bw -c {service} -n 100 -s 1000"), &gid)
        );
        let finished = run(&place, &["--stats=json"], &["sh", "-c", &script]).wait(TIME);
        finished.expect_success();
        let document = document(&finished);
        let total = &document["stats"]["total"];
        for side in ["requested", "served"] {
            let traffic = &total["counters"][side]["send"];
            assert_eq!(traffic["messages"], 100, "{service} {side} {document}");
            assert_eq!(traffic["bytes"], 100_000, "{service} {side} {document}");
        }
        let queue_pair = &document["stats"]["processes"][0]["queue_pairs"][0];
        assert_eq!(queue_pair["qp_type"], service, "{document}");
    }
}

/// What a program has done is known although it had no chance to say so.
#[test]
fn a_killed_program_has_counted() {
    let trial = Trial::start_beside_others("a_killed_program");
    if !skip::have_programs("a_killed_program", &["ib_write_bw"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    // The shell is what `rnic run` waits for; the programs die without a word.
    let script = format!(
        "ib_write_bw -x {gid} -p 18533 -D 60 >/dev/null & a=$!; \
         until grep -q ':4865 .* 0A ' /proc/net/tcp; do sleep 0.02; done; \
         ib_write_bw -x {gid} -p 18533 -D 60 127.0.0.1 >/dev/null & b=$!; \
         until grep -q '\"write\":{{\"messages\":[1-9]' $RNIC_REPORT; do sleep 0.02; done; \
         kill -9 $a $b; wait"
    );
    let finished = run(&place, &["--stats=json"], &["sh", "-c", &script]).wait(TIME);
    let document = document(&finished);
    let moved = document["stats"]["total"]["bytes_moved"].as_u64();
    assert!(moved > Some(0), "{document}");
}

/// A child that is forked while the parent works finds nothing open that is the report's.
#[test]
fn the_report_stays_out_of_the_way() {
    let trial = Trial::start_beside_others("the_report_stays_out");
    if !skip::have_programs("the_report_stays_out", &["ibv_devinfo"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    // The environment has the name of this test, too.
    for (script, never) in [
        ("ibv_devinfo >/dev/null; ls -l /proc/self/fd", "report"),
        ("ibv_devinfo >/dev/null; env", "RNIC_REPORT"),
    ] {
        let finished = run(&place, &["--quiet"], &["sh", "-c", script]).wait(TIME);
        finished.expect_success();
        let said = &finished.stdout;
        assert!(!said.contains(never), "{}", finished.describe());
    }

    let script = "test -s $RNIC_REPORT && exit 1; ibv_devinfo >/dev/null; test -s $RNIC_REPORT; echo $RNIC_REPORT";
    let finished = run(&place, &[], &["sh", "-c", script]).wait(TIME);
    finished.expect_success();
    assert_eq!(finished.stderr, "");
    let file = Path::new(finished.stdout.trim());
    assert!(!file.exists(), "{} is left behind", file.display());
}

/// A client of rdma_cm that nobody waits for.
#[test]
fn connections_in_words() {
    let trial = Trial::start_beside_others("connections_in_words");
    if !skip::have_programs("connections_in_words", &["rping"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let line = ["rping", "-c", "-a", "127.0.0.1", "-p", "7302", "-C", "1"];
    expect(
        &run(&place, &[], &line).wait(TIME),
        &[
            "no connection 127.0.0.1:",
            "-> 127.0.0.1:7302 (RDMA_PS_TCP)",
            "reason 8 (invalid service ID)",
            "on this host nobody listens on any port of rdma_cm",
            "nobody listens on RDMA_PS_TCP port 7302 at 127.0.0.1",
            "rnic explain rej 8",
        ],
    );
}
