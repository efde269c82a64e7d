//! perftest with `-R` and qperf with `-cm 1`: both connect, and get their queue pairs, through the
//! connection manager. Over IPv4 only: with `-R`, perftest 4.5 resolves names and addresses as IPv4
//! alone.

use rnic_programs::each::each;
use rnic_programs::meeting::{PS_TCP, Path, Ready};
use rnic_programs::perftest::expect_report;
use rnic_programs::{Meeting, Outcome, Trial, User, skip};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU16, Ordering};

const PERFTEST: &[&str] = &[
    "ib_send_lat",
    "ib_send_bw",
    "ib_write_lat",
    "ib_write_bw",
    "ib_read_lat",
    "ib_read_bw",
    "ib_atomic_lat",
    "ib_atomic_bw",
];

/// One way to run a program.
struct Case {
    name: String,
    program: &'static str,
    args: &'static [&'static str],
    size: u64,
}

fn usual() -> Vec<Case> {
    let case = |&program: &&'static str| Case {
        name: program.to_owned(),
        program,
        args: &["-n", "100"],
        size: match program {
            _ if program.contains("atomic") => 8,
            _ if program.ends_with("_lat") => 2,
            _ => 65536,
        },
    };
    PERFTEST.iter().map(case).collect()
}

fn modes() -> Vec<Case> {
    let case = |program, args: &'static [&'static str], size| Case {
        name: format!("{program} {}", args.join(" ")),
        program,
        args,
        size,
    };
    vec![
        case("ib_send_lat", &["-n", "100", "-c", "UD"], 2),
        case("ib_send_bw", &["-n", "100", "-c", "UD", "-s", "1024"], 1024),
        case("ib_write_bw", &["-n", "50", "-q", "4"], 65536),
        case("ib_send_bw", &["-n", "50", "-q", "4", "-b"], 65536),
        case("ib_send_bw", &["-n", "50", "-e", "--use-srq"], 65536),
        case("ib_read_bw", &["-n", "50", "-T", "96"], 65536),
    ]
}

/// Runs both. perftest's server listens a second time on its port, for the queue pairs, and its
/// client does not wait for that: on a busy machine it may come too early, is told that nobody
/// listens, and gives up. Then they meet again.
fn meet(meeting: Meeting, server: &[&str], client: &[&str]) -> Outcome {
    const ATTEMPTS: u16 = 4;
    for attempt in 1..ATTEMPTS {
        // What a server leaves that was killed looks like a listener.
        let meeting = meeting.clone().port(meeting.port + attempt);
        match catch_unwind(AssertUnwindSafe(|| meeting.run(server, client))) {
            Ok(outcome) => return outcome,
            Err(panic) => {
                let message = panic.downcast_ref::<String>();
                if !message.is_some_and(|text| text.contains("RDMA_CM_EVENT_REJECTED; error: 8")) {
                    resume_unwind(panic);
                }
            }
        }
    }
    meeting.run(server, client)
}

fn run(meeting: &Meeting, case: &Case) {
    static NEXT: AtomicU16 = AtomicU16::new(7471);
    let port = NEXT.fetch_add(10, Ordering::Relaxed);
    let meeting = meeting.clone().ready(Ready::Listens(PS_TCP)).port(port);
    let mut server = vec![case.program, "-F", "-R", "-p", "{port}"];
    server.extend(case.args);
    let mut client = server.clone();
    client.push("{server}");
    let outcome = meet(meeting, &server, &client);
    println!("{}: {:?}", case.name, outcome.took);
    expect_report(case.program, &outcome, &[case.size]);
}

fn test(name: &str, path: Path, user: User, cases: &[Case]) {
    let trial = Trial::start_beside_others(name);
    if !skip::have_programs(name, PERFTEST) {
        return;
    }
    if let Some(meeting) = Meeting::on(&trial, path, user) {
        each(cases, |case| &case.name, |case| run(&meeting, case));
    }
}

#[test]
fn loopback() {
    let cases: Vec<_> = usual().into_iter().chain(modes()).collect();
    test("loopback", Path::Loopback, User::Current, &cases);
}

#[test]
fn veth_as_nobody() {
    test("veth_as_nobody", Path::Veth, User::Nobody, &usual());
}

/// qperf measures for a second each, and all its tests with one server. (Over UD it makes address
/// handles without a GRH, which are refused here as on other RoCE devices.)
#[test]
fn qperf() {
    const TESTS: &[&str] = &[
        "rc_lat",
        "rc_rdma_write_bw",
        "rc_rdma_read_lat",
        "rc_compare_swap_mr",
    ];
    let trial = Trial::start_beside_others("qperf");
    if !skip::have_programs(trial.name(), &["qperf"]) {
        return;
    }
    let Some(place) = trial.fresh(User::Current) else {
        return;
    };
    let meeting = Meeting::at(&place, "127.0.0.1").ready(Ready::ListensByTcp);
    let mut client = vec!["qperf", "{server}", "-lp", "{port}", "-cm", "1", "-t", "1"];
    client.extend(TESTS);
    let outcome = meeting.visit(&["qperf", "-lp", "{port}"], &client);
    assert!(outcome.client.ok(), "{}", outcome.describe());
    for test in TESTS {
        let reported = format!("{test}:");
        assert!(
            outcome.client.stdout.contains(&reported),
            "{test}\n{}",
            outcome.describe()
        );
    }
}
