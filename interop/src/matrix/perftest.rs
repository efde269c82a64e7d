//! perftest, which says how many bytes arrived in what time.

use super::{Case, DIAGONAL, LOSSY, OTHER_DIAGONAL, REORDERING};
use crate::lab::{End, Lab, Way};
use crate::pair::{Pair, Select};
use rnic_programs::pair::Outcome;
use rnic_programs::perftest::{all_sizes, expect_report};

/// Both sides end well, and the client reports these sizes. `options` are those of `rnic run`.
fn try_it(
    lab: &Lab,
    way: Way,
    options: &[&str],
    program: &str,
    args: &[&str],
    sizes: &[u64],
) -> Outcome {
    // 1 s until something is sent again: an emulated processor on a busy machine takes 15 ms for a
    // packet, and a queue pair may have to wait for 250 packets of the others.
    let pair = Pair {
        program,
        args: ["-F", "-u", "18"]
            .iter()
            .chain(args)
            .map(|&arg| arg.to_owned())
            .collect(),
        select: Select::Perftest,
        options,
    };
    let outcome = pair.run(lab, way);
    expect_report(program, &outcome, sizes);
    outcome
}

fn case(program: &'static str, args: &str, sizes: Vec<u64>) -> Case {
    let mut args = args.to_owned();
    if program.contains("read") || program.contains("atomic") {
        // perftest asks its own device for as many READs at once as the peer's says it can: 128 for
        // Soft-RoCE, while rnic, as a ConnectX, has 16.
        args.push_str(" -o 16");
    }
    Case::new(format!("{program} {args}"), move |lab, way| {
        let args: Vec<&str> = args.split_whitespace().collect();
        try_it(lab, way, &[], program, &args, &sizes);
    })
}

/// What is lost on the way to the server it asks for by NAK 0, and the client hears that: by the
/// counters of both.
fn sequence_naks(lab: &Lab, way: Way) {
    lab.disturb(&[way.client], LOSSY);
    let linux = match way.server() {
        End::Linux => "out_of_seq_request",
        End::Rnic => "rcvd_seq_err",
    };
    let before = lab.linux_counter(linux);
    let args = ["-u", "15", "-m", "1024", "-s", "8192", "-n", "200"];
    let outcome = try_it(lab, way, &["--stats=json"], "ib_write_bw", &args, &[8192]);
    let (said, rnic) = match way.server() {
        End::Linux => (&outcome.client.stderr, "sequence_naks_received"),
        End::Rnic => (&outcome.server.stderr, "sequence_naks_sent"),
    };
    let stats: serde_json::Value = serde_json::from_str(said.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said}"));
    let counted = &stats["stats"]["total"]["counters"][rnic];
    let more = lab.linux_counter(linux) - before;
    assert!(
        counted.as_u64() > Some(0) && more > 0,
        "rnic's {rnic} {counted}, Linux's {linux} {more}"
    );
}

/// Up to the largest path MTU, which is UD's largest message.
fn datagram_sizes() -> Vec<u64> {
    all_sizes()
        .into_iter()
        .filter(|&size| size <= 4096)
        .collect()
}

pub fn add(cases: &mut Vec<Case>) {
    // Few of each size: every report costs perftest half a second of finding out its clock's rate,
    // and more here.
    cases.push(case("ib_send_lat", "-a -n 5", all_sizes()));
    cases.push(case("ib_send_bw", "-a -n 5", all_sizes()));
    cases.push(case("ib_write_lat", "-a -n 5", all_sizes()));
    cases.push(case("ib_write_bw", "-a -n 5", all_sizes()));
    cases.push(case("ib_read_lat", "-a -n 5", all_sizes()));
    cases.push(case("ib_read_bw", "-a -n 5", all_sizes()));
    for program in ["ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw"] {
        // Five messages of 8 MiB at once.
        cases.push(case(program, "-c UC -a -n 5", all_sizes()).paced());
    }
    for program in ["ib_send_lat", "ib_send_bw"] {
        cases.push(case(program, "-c UD -a -n 5", datagram_sizes()));
    }
    for program in ["ib_atomic_lat", "ib_atomic_bw"] {
        for kind in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
            let wanted = case(program, &format!("-A {kind} -n 200"), vec![8]);
            cases.push(wanted);
        }
    }

    // What the core subset has of it: each verb, each service, both directions, both families, many
    // packets a message.
    cases.push(case("ib_send_lat", "-n 500", vec![2]).core(&DIAGONAL));
    cases.push(case("ib_send_bw", "-s 65536 -n 100", vec![65536]).core(&OTHER_DIAGONAL));
    cases.push(case("ib_write_bw", "-s 65536 -n 100", vec![65536]).core(&DIAGONAL));
    cases.push(case("ib_read_bw", "-s 65536 -n 100", vec![65536]).core(&OTHER_DIAGONAL));

    // A completion for every hundred: few of the messages ask for an acknowledge.
    cases.push(case("ib_send_bw", "-s 8 -n 3000", vec![8]).core(&DIAGONAL));
    cases.push(case("ib_write_bw", "-s 2000 -n 3000", vec![2000]).core(&OTHER_DIAGONAL));

    // One message is 20 packets of MTU 1024 and one of 96 bytes.
    for mtu in ["256", "512", "1024", "2048", "4096"] {
        for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
            let args = format!("-m {mtu} -s 20576 -n 50");
            cases.push(case(program, &args, vec![20576]));
        }
        for program in ["ib_send_bw", "ib_write_bw"] {
            let args = format!("-c UC -m {mtu} -s 20576 -n 50");
            cases.push(case(program, &args, vec![20576]));
        }
        let args = format!("-c UD -m {mtu} -s {mtu} -n 50");
        let size = mtu.parse().expect("a number");
        cases.push(case("ib_send_bw", &args, vec![size]));
    }
    for (program, service) in [
        ("ib_send_lat", ""),
        ("ib_write_lat", ""),
        ("ib_read_lat", ""),
        ("ib_send_lat", "-c UC "),
        ("ib_write_lat", "-c UC "),
    ] {
        let args = format!("{service}-m 256 -s 20576 -n 50");
        cases.push(case(program, &args, vec![20576]));
    }

    for (program, args, size) in [
        ("ib_send_lat", "-e -s 4096 -n 50", 4096),
        ("ib_send_bw", "-e -s 4096 -n 50", 4096),
        ("ib_read_lat", "-e -s 4096 -n 50", 4096),
        ("ib_read_bw", "-e -s 4096 -n 50", 4096),
        ("ib_atomic_lat", "-e -n 50", 8),
        ("ib_atomic_bw", "-e -n 50", 8),
        ("ib_send_lat", "-c UC -e -s 4096 -n 50", 4096),
        ("ib_send_lat", "-c UD -e -s 1024 -n 50", 1024),
        ("ib_send_bw", "-c UC -e -s 4096 -n 50", 4096),
        ("ib_send_bw", "-c UD -e -s 1024 -n 50", 1024),
    ] {
        cases.push(case(program, args, vec![size]));
    }
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        cases.push(case(program, "-q 8 -s 8192 -n 100", vec![8192]));
        cases.push(case(program, "-b -s 8192 -n 100", vec![8192]));
    }
    cases.push(case("ib_atomic_bw", "-q 8 -n 100", vec![8]));
    for program in ["ib_send_bw", "ib_write_bw"] {
        cases.push(case(program, "-c UC -q 8 -s 8192 -n 100", vec![8192]));
    }
    cases.push(case("ib_send_bw", "-c UD -q 8 -s 1024 -n 100", vec![1024]));
    cases.push(case(
        "ib_send_bw",
        "--use-srq -q 4 -s 8192 -n 100",
        vec![8192],
    ));
    cases.push(case("ib_send_bw", "-l 8 -s 8192 -n 104", vec![8192]));
    cases.push(case("ib_write_bw", "-l 8 -s 8192 -n 104", vec![8192]));
    cases.push(case("ib_write_bw", "-Q 1 -t 1 -s 8192 -n 100", vec![8192]));
    // At once and as a copy: as much as is sent, more than that, less.
    for (inline, size) in [(1, 1), (64, 64), (200, 200), (200, 64), (64, 200)] {
        for program in ["ib_send_lat", "ib_write_lat"] {
            let args = format!("-I {inline} -s {size} -n 100");
            cases.push(case(program, &args, vec![size]));
        }
        for service in ["UC", "UD"] {
            let args = format!("-c {service} -I {inline} -s {size} -n 100");
            cases.push(case("ib_send_lat", &args, vec![size]));
        }
    }
    for (what, netem) in [("1% lost", LOSSY), ("a quarter reordered", REORDERING)] {
        for (program, args, size) in [
            ("ib_send_bw", "-s 8192 -n 200", 8192),
            ("ib_write_bw", "-s 8192 -n 200", 8192),
            ("ib_read_bw", "-s 8192 -n 200 -o 16", 8192),
            ("ib_atomic_bw", "-n 200 -o 16", 8),
        ] {
            let name = format!("{program} {args}, {what}");
            cases.push(Case::new(name, move |lab, way| {
                lab.disturb(&End::BOTH, netem);
                let args: Vec<&str> = ["-u", "15"]
                    .into_iter()
                    .chain(args.split_whitespace())
                    .collect();
                try_it(lab, way, &[], program, &args, &[size]);
            }));
        }
    }
    cases.push(Case::new(
        "ib_write_bw -m 1024 -s 8192 -n 200, 1% lost on the way there, NAK 0 counted by both",
        sequence_naks,
    ));
}
