//! Unmodified programs on a network that loses, doubles, reorders and corrupts packets, on both
//! sides; and a program of ours that checks every byte.

use rnic_programs::perftest::{all_sizes, expect_report};
use rnic_programs::place::{RunOptions, free_port};
use rnic_programs::process::Process;
use rnic_programs::{Pair, Trial, User, compile, full, skip};
use std::time::Duration;

/// What the network does to packets, in both directions.
#[derive(Clone, Copy)]
enum Spec {
    Mild,
    Harsh,
}

impl Spec {
    const ALL: [Spec; 2] = [Spec::Mild, Spec::Harsh];

    fn text(self) -> &'static str {
        match self {
            Spec::Mild => "drop=1%",
            Spec::Harsh => "drop=5%,reorder=5%,dup=1%,corrupt=1%",
        }
    }
}

const TIME: Duration = Duration::from_secs(120);

fn cases(program: &str, spec: Spec) -> Vec<(Vec<u64>, Vec<&'static str>)> {
    let size = match program {
        _ if program.contains("atomic") => 8,
        _ if program.ends_with("_lat") => 2,
        _ => 65536,
    };
    let mut cases = vec![(vec![size], vec!["-n", "100"])];
    // The writes have no -e. ib_send_lat -e takes it for granted that the next event after a send
    // is that of its completion: when an acknowledgement is lost, the peer's answer comes first, on
    // any NIC, and perftest then looks at a completion that it has not got (run_iter_lat_send in
    // perftest 4.5: `s_wc` after `s_ne == 0`).
    if !program.contains("write") && program != "ib_send_lat" {
        cases.push((vec![size], vec!["-e", "-n", "100"]));
    }
    if program.contains("atomic") {
        cases.push((vec![size], vec!["-A", "CMP_AND_SWAP", "-n", "100"]));
    } else {
        // Every report costs perftest half a second of finding out its clock's rate, so that all
        // sizes are tried once. A program that spins has the machine for itself meanwhile.
        let has_all = !program.ends_with("_lat") || full();
        cases.push(match spec {
            Spec::Harsh if has_all => (all_sizes(), vec!["-a", "-n", "5"]),
            _ => (vec![1_000_000], vec!["-s", "1000000", "-n", "20"]),
        });
    }
    if program == "ib_send_bw" {
        let args = vec!["--use-srq", "-q", "4", "-n", "40"];
        cases.push((vec![size], args));
    }
    if program.ends_with("_bw") {
        cases.push((vec![size], vec!["-q", "8", "-n", "20"]));
        cases.push((vec![size], vec!["-b", "-n", "50"]));
    }
    cases
}

fn perftest(program: &str, user: User, address: &str) {
    // Those that spin on both sides need both cores all the time.
    let trial = if program.ends_with("_lat") {
        Trial::start(program)
    } else {
        Trial::start_beside_others(program)
    };
    if !skip::have_programs(program, &[program]) {
        return;
    }
    let Some(place) = trial.loopback(user) else {
        return;
    };
    let mut failures = Vec::new();
    for (number, spec) in Spec::ALL.into_iter().enumerate() {
        let text = spec.text();
        for (sizes, args) in cases(program, spec) {
            let pair = Pair::at(&place)
                .gid_x(address, address)
                .faults(&format!("{text},seed={number}"))
                .within(TIME);
            let args: Vec<&str> = ["-F"].into_iter().chain(args).collect();
            let result = std::panic::catch_unwind(|| {
                let outcome = pair.run(program, &args);
                println!("{program} {args:?} with {text}: {:?}", outcome.took);
                expect_report(program, &outcome, &sizes);
            });
            if let Err(panic) = result {
                let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                failures.push(format!("{program} {args:?} with {text}: {message}"));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

macro_rules! programs {
    ($($(#[$full:meta])? $name:ident: $user:expr, $address:expr;)*) => {
        $(#[test] $(#[$full])? fn $name() { perftest(stringify!($name), $user, $address); })*
    };
}

programs! {
    ib_send_lat: User::Current, "127.0.0.1";
    #[ignore = "./test full"]
    ib_send_bw: User::Nobody, "::1";
    #[ignore = "./test full"]
    ib_write_lat: User::Nobody, "::1";
    ib_write_bw: User::Current, "127.0.0.1";
    #[ignore = "./test full"]
    ib_read_lat: User::Current, "::1";
    ib_read_bw: User::Nobody, "127.0.0.1";
    #[ignore = "./test full"]
    ib_atomic_lat: User::Nobody, "127.0.0.1";
    #[ignore = "./test full"]
    ib_atomic_bw: User::Current, "::1";
}

/// A client writes and reads back the memory of a server that sleeps, and both check every byte.
///
/// `ibv_rc_pingpong` is not among these tests: whoever gets the last message ends at once, and when
/// its acknowledgement was lost nobody is left to repeat it, on any NIC.
#[test]
fn memory_of_a_sleeping_process() {
    let trial = Trial::start_beside_others("memory_of_a_sleeping_process");
    let Some(program) = compile::c_program(&trial, "stream") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    for spec in Spec::ALL.map(Spec::text) {
        let options = RunOptions::faults(spec);
        let port = free_port();
        let port_text = port.to_string();
        let mut server =
            Process::spawn(place.rnic_run(&options, &program, ["server", &port_text, &gid]));
        server.wait_for_listener(port, TIME);
        let args = ["client", &port_text, &gid, "127.0.0.1"];
        let mut client = Process::spawn(place.rnic_run(&options, &program, args));
        client.wait_for("some rounds", TIME, |text| {
            text.contains("round ").then_some(())
        });
        client.close_stdin();
        for side in [client.wait(TIME), server.wait(TIME)] {
            side.expect_success();
            assert!(side.stdout.contains("verified "), "{}", side.describe());
        }
    }
}

/// Across a veth link, where packets are also segmented and merged by the kernel.
#[test]
fn faults_across_namespaces() {
    let trial = Trial::start_beside_others("faults_across_namespaces");
    if !skip::have_programs(trial.name(), &["ib_write_bw", "ib_read_bw", "ib_send_bw"]) {
        return;
    }
    let Some((left, right)) = trial.linked(User::Current, 1500) else {
        return;
    };
    for spec in Spec::ALL.map(Spec::text) {
        for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
            let pair = Pair::between(&left, &right, "10.77.0.1")
                .gid_x("10.77.0.1", "10.77.0.2")
                .faults(spec)
                .within(TIME);
            let outcome = pair.run(program, &["-F", "-n", "100", "-b"]);
            expect_report(program, &outcome, &[65536]);
        }
    }
}

/// `rnic verify` checks every byte of sends, writes and reads, here under the same faults on both
/// sides.
#[test]
fn every_byte_verified() {
    let trial = Trial::start_beside_others("every_byte_verified");
    for user in [User::Current, User::Nobody] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        for spec in [
            "",
            Spec::Mild.text(),
            Spec::Harsh.text(),
            "delay=1ms",
            "drop=10%,dup=10%,reorder=10%,corrupt=10%",
        ] {
            let options = RunOptions {
                faults: (!spec.is_empty()).then(|| spec.to_owned()),
                pcap: None,
            };
            let args = ["verify", "--qps", "4", "--iterations", "40"];
            let finished = Process::spawn(place.rnic_run(&options, place.rnic(), args)).wait(TIME);
            finished.expect_success();
            assert!(finished.stdout.contains("verif"), "{}", finished.describe());
        }
    }
}

/// What the library says (here the seed that was drawn) may find a full disk where standard error
/// goes. The device opens all the same.
#[test]
fn standard_error_may_be_full() {
    let trial = Trial::start_beside_others("standard_error_may_be_full");
    let Some(program) = compile::c_program(&trial, "scale") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let line = format!(
        "RNIC_FAULTS=drop=0% exec {} 10 2>/dev/full",
        program.display()
    );
    let finished = place.finish("sh", ["-c", &line]);
    finished.expect_success();
    assert!(
        finished.stdout.ends_with("done\n"),
        "{}",
        finished.describe()
    );
}
