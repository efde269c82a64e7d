//! The eight RC programs of perftest, unmodified: each with what it offers, on every kind of
//! address, as root and as an unprivileged user.

use rnic_programs::perftest::{all_sizes, expect_report};
use rnic_programs::{Pair, Trial, User, full, skip};

/// One way to run a program.
struct Case {
    what: &'static str,
    args: &'static [&'static str],
    /// None: `-a`.
    size: Option<u64>,
}

const fn case(what: &'static str, size: u64, args: &'static [&'static str]) -> Case {
    Case {
        what,
        args,
        size: Some(size),
    }
}

/// What a program offers (perftest 4.5): only send, read and atomics have `-e`; only the bandwidth
/// programs have `-q` and `-b`; the atomics have a size of their own and `-A` instead of `-a`.
///
/// Everything on one network of each kind; elsewhere, where only the addresses differ, what uses
/// most at once.
fn cases(program: &str, thorough: bool) -> Vec<Case> {
    let mut cases = all_cases(program, thorough);
    if !thorough {
        let brief = [
            "default",
            "events",
            "one byte more than an MTU",
            "bidirectional, 8 QPs",
        ];
        cases.retain(|case| brief.contains(&case.what));
    }
    cases
}

fn all_cases(program: &str, thorough: bool) -> Vec<Case> {
    let atomic = program.contains("atomic");
    let latency = program.ends_with("_lat");
    // Every report costs perftest half a second, in which a program that spins has the machine for
    // itself.
    let all_sizes = thorough && (!latency || full());
    let size = match (atomic, latency) {
        (true, _) => 8,
        (false, true) => 2,
        (false, false) => 65536,
    };
    let mut cases = vec![case("default", size, &["-n", "500"])];
    if program.contains("send") {
        cases.push(case("SRQ", size, &["--use-srq", "-n", "200"]));
        cases.push(case("SRQ, events", size, &["--use-srq", "-e", "-n", "200"]));
    }
    if !program.contains("write") {
        cases.push(case("events", size, &["-e", "-n", "200"]));
    }
    if atomic {
        cases.push(case(
            "compare and swap",
            8,
            &["-A", "CMP_AND_SWAP", "-n", "500"],
        ));
        cases.push(case(
            "fetch and add",
            8,
            &["-A", "FETCH_AND_ADD", "-n", "500"],
        ));
    } else if all_sizes {
        cases.push(Case {
            what: "all sizes",
            args: &["-a", "-n", "5"],
            size: None,
        });
    } else {
        cases.push(case(
            "one byte more than an MTU",
            1025,
            &["-s", "1025", "-n", "200"],
        ));
    }
    if !latency {
        cases.push(case("8 QPs", size, &["-q", "8", "-n", "100"]));
        cases.push(case("bidirectional", size, &["-b", "-n", "200"]));
        cases.push(case(
            "bidirectional, 8 QPs",
            size,
            &["-b", "-q", "8", "-n", "100"],
        ));
    }
    if program == "ib_send_bw" {
        cases.push(case(
            "SRQ, 8 QPs",
            size,
            &["--use-srq", "-q", "8", "-n", "100"],
        ));
    }
    cases
}

/// Runs every case of a program; all that fail are in the message, not only the first.
fn run_cases(program: &str, pair: &Pair, thorough: bool) {
    let mut failures = Vec::new();
    for case in cases(program, thorough) {
        let mut args = vec!["-F"];
        args.extend(case.args);
        let result = std::panic::catch_unwind(|| {
            let outcome = pair.run(program, &args);
            println!("{program}, {}: {:?}", case.what, outcome.took);
            let sizes = case.size.map_or_else(all_sizes, |size| vec![size]);
            expect_report(program, &outcome, &sizes);
        });
        if let Err(panic) = result {
            let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            failures.push(format!("{program}, {}: {message}", case.what));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Where the two processes are.
#[derive(Clone, Copy)]
enum Path {
    /// Both on 127.0.0.1.
    Loopback,
    /// Both on another address of the same host.
    OtherAddress,
    /// Both on ::1.
    Loopback6,
    /// In two namespaces joined by veth, over IPv4.
    Veth,
    /// The same over IPv6.
    Veth6,
}

fn test(program: &str, path: Path, user: User) {
    // Those that spin on both sides need both cores all the time.
    let trial = if program.ends_with("_lat") {
        Trial::start(program)
    } else {
        Trial::start_beside_others(program)
    };
    if !skip::have_programs(program, &[program]) {
        return;
    }
    // All that it offers once per kind of network, for every report costs perftest half a second of
    // finding out its clock's rate; the other addresses differ only in how packets are addressed.
    // In the gate one program stands for all, the one that offers most.
    let thorough = match (path, user) {
        (Path::Loopback, User::Current) => full() || program == "ib_send_bw",
        (Path::Veth, User::Current) | (Path::Loopback6, User::Nobody) => full(),
        _ => false,
    };
    match path {
        Path::Loopback | Path::Loopback6 => {
            let address = if matches!(path, Path::Loopback) {
                "127.0.0.1"
            } else {
                "::1"
            };
            let Some(place) = trial.loopback(user) else {
                return;
            };
            run_cases(program, &Pair::at(&place).gid_x(address, address), thorough);
        }
        Path::OtherAddress => {
            let Some(place) = trial.fresh(user) else {
                return;
            };
            place
                .netns()
                .expect("fresh")
                .ip("addr add 10.99.1.2/32 dev lo");
            run_cases(
                program,
                &Pair::between(&place, &place, "10.99.1.2").gid_x("10.99.1.2", "10.99.1.2"),
                thorough,
            );
        }
        Path::Veth | Path::Veth6 => {
            let Some((left, right)) = trial.linked(user, 1500) else {
                return;
            };
            let pair = Pair::between(&left, &right, "10.77.0.1");
            let pair = match path {
                Path::Veth => pair.gid_x("10.77.0.1", "10.77.0.2"),
                _ => pair.gid_x("fd77::1", "fd77::2"),
            };
            run_cases(program, &pair, thorough);
        }
    }
}

/// XRC: an initiator and a target on each side for each connection, and XRC shared receive queues.
#[test]
fn xrc() {
    let programs = [
        "ib_send_lat",
        "ib_send_bw",
        "ib_write_lat",
        "ib_write_bw",
        "ib_read_lat",
        "ib_read_bw",
        "ib_atomic_lat",
        "ib_atomic_bw",
    ];
    let trial = Trial::start_beside_others("xrc");
    if !skip::have_programs("xrc", &programs) {
        return;
    }
    // perftest opens its domains for files of a fixed name in /tmp, which are in the way of any
    // other user.
    for address in ["127.0.0.1", "::1"] {
        let Some(place) = trial.loopback(User::Current) else {
            continue;
        };
        let pair = Pair::at(&place).gid_x(address, address);
        let run = |program: &str, pair: &Pair, more: &[&str]| {
            let size = match program {
                _ if program.contains("atomic") => 8,
                _ if program.ends_with("_lat") => 2,
                _ => 65536,
            };
            let args = [&["-F", "-c", "XRC", "-n", "100"], more].concat();
            expect_report(program, &pair.run(program, &args), &[size]);
        };
        for program in programs {
            run(program, &pair, &[]);
        }
        if address == "::1" {
            break;
        }
        run("ib_send_lat", &pair, &["-e"]);
        for program in ["ib_send_bw", "ib_write_bw"] {
            run(program, &pair, &["-q", "8"]);
            run(program, &pair, &["-b"]);
        }
        let lossy = pair.clone().faults("drop=2%,reorder=2%,dup=1%,seed=3");
        for program in ["ib_send_bw", "ib_read_bw"] {
            run(program, &lossy, &[]);
        }
    }
    for side in ["server", "client"] {
        let _ = std::fs::remove_file(format!("/tmp/xrc_domain_{side}"));
    }
}

macro_rules! programs {
    ($($name:ident),*) => {
        $(mod $name {
            use super::{test, Path, User};
            const PROGRAM: &str = stringify!($name);
            #[test] fn loopback() { test(PROGRAM, Path::Loopback, User::Current); }
            // The same by other addresses, or as another user.
            #[test] #[ignore = "./test full"] fn veth6_as_nobody() { test(PROGRAM, Path::Veth6, User::Nobody); }
            #[test] #[ignore = "./test full"] fn loopback6_as_nobody() { test(PROGRAM, Path::Loopback6, User::Nobody); }
            #[test] #[ignore = "./test full"] fn veth() { test(PROGRAM, Path::Veth, User::Current); }
            #[test] #[ignore = "./test full"] fn loopback_as_nobody() { test(PROGRAM, Path::Loopback, User::Nobody); }
            #[test] #[ignore = "./test full"] fn loopback6() { test(PROGRAM, Path::Loopback6, User::Current); }
            #[test] #[ignore = "./test full"] fn other_address() { test(PROGRAM, Path::OtherAddress, User::Current); }
            #[test] #[ignore = "./test full"] fn other_address_as_nobody() { test(PROGRAM, Path::OtherAddress, User::Nobody); }
            #[test] #[ignore = "./test full"] fn veth_as_nobody() { test(PROGRAM, Path::Veth, User::Nobody); }
            #[test] #[ignore = "./test full"] fn veth6() { test(PROGRAM, Path::Veth6, User::Current); }
        })*
    };
}

programs!(
    ib_send_lat,
    ib_send_bw,
    ib_write_lat,
    ib_write_bw,
    ib_read_lat,
    ib_read_bw,
    ib_atomic_lat,
    ib_atomic_bw
);

/// Over a network and as another user, a message at a time and a stream. `./test full` has all.
#[test]
fn over_a_network_as_nobody() {
    for program in ["ib_send_lat", "ib_write_bw"] {
        test(program, Path::Veth6, User::Nobody);
    }
}

/// `-W`: perftest opens counters in sysfs before its test and reads them again after it.
#[test]
fn counters_of_the_port_move() {
    const PROGRAM: &str = "ib_write_bw";
    let trial = Trial::start_beside_others("counters_of_the_port_move");
    if !skip::have_programs(trial.name(), &[PROGRAM]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let pair = Pair::at(&place).gid_x("127.0.0.1", "127.0.0.1");
    let counters = "counters/port_xmit_data,hw_counters/out_of_buffer";
    let outcome = pair.run(PROGRAM, &["-F", "-n", "50", "-W", counters]);
    expect_report(PROGRAM, &outcome, &[65536]);
    let counted = |name: &str| {
        let lines = outcome.client.stdout.lines();
        let mut values = lines.filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
        values
            .next_back()
            .and_then(|value| value.parse::<u64>().ok())
    };
    // In words of four bytes.
    let sent = counted("counters/port_xmit_data").map(|words| words * 4);
    assert!(
        sent.is_some_and(|bytes| bytes >= 50 * 65536),
        "{sent:?}\n{}",
        outcome.describe()
    );
    assert_eq!(counted("hw_counters/out_of_buffer"), Some(0));
}
