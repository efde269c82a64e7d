//! Messages that are lost without a word on the wire, and sides that never fit: `rnic run` says
//! which, how often and why, over shared memory and over UDP alike.

use rnic_programs::situations::{self, Column, causes};
use rnic_programs::{Place, Process, Trial, User, compile};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

struct Case {
    name: &'static str,
    /// What the program prints of both sides.
    prints: [&'static str; 2],
    /// What `rnic run` says.
    says: &'static [&'static str],
}

const CASES: [Case; 11] = [
    Case {
        name: "psn-ahead",
        prints: ["status 12", "got 0"],
        says: &[
            "no request of this connection was ever acknowledged",
            "the peer expects PSN 0x1000, this side began at 0x3e7",
            "took no request at all",
        ],
    },
    Case {
        name: "psn-behind",
        prints: ["status 12", "got 0"],
        says: &[
            "the peer expects PSN 0x64, this side began at 0x3e7: rq_psn there must be sq_psn here",
            "(0x3e7 instead of 0x64)",
        ],
    },
    Case {
        name: "uc-psn",
        prints: ["status 0", "got 0"],
        says: &["took no request at all", "(0x3e7 instead of 0x400)"],
    },
    Case {
        name: "uc-no-receive",
        prints: ["status 0", "got 0"],
        says: &["dropped 1 message without a word", "no receive was posted"],
    },
    Case {
        name: "uc-too-long",
        prints: ["status 0", "got 0"],
        says: &[
            "dropped 1 message without",
            "the receive has room for 64 bytes",
        ],
    },
    Case {
        name: "uc-access",
        prints: ["status 0", "got 0"],
        says: &["dropped 1 message without", "do not allow the RDMA WRITE"],
    },
    Case {
        name: "uc-mtu",
        prints: ["status 0", "got 0"],
        says: &["a packet of 1024 bytes of payload came, and path_mtu here is 256"],
    },
    Case {
        name: "ud-qkey",
        prints: ["status 0", "got 0"],
        says: &[
            "dropped 2 datagrams without a word",
            "Q_Key 0x22222222 of QP 0x",
            "is not the queue pair's, 0x11111111",
        ],
    },
    Case {
        name: "ud-no-receive",
        prints: ["status 0", "got 0"],
        says: &["dropped 1 message without", "no receive was posted"],
    },
    Case {
        name: "ud-mtu",
        prints: ["status 1", "got 0"],
        says: &[
            "a UD message is one packet, of ",
            "(the MTU of the port), and this one has ",
        ],
    },
    Case {
        name: "fits",
        prints: ["status 0", "got 1"],
        says: &[],
    },
];

fn run(place: &Place, host_path: &str, options: &[&str], program: &[&str]) -> (String, String) {
    let mut command = place.command(place.rnic());
    command.env("RNIC_HOST_PATH", host_path);
    command.arg("run").args(options).arg("--").args(program);
    let finished = Process::spawn(command).wait(TIME);
    (finished.stdout, finished.stderr)
}

#[test]
fn what_is_lost_silently_is_told() {
    let trial = Trial::start_beside_others("what_is_lost_silently_is_told");
    let Some(program) = compile::c_program(&trial, "silent") else {
        return;
    };
    let program = program.to_str().expect("a path");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    for host_path in ["on", "off"] {
        let column = |name| Column::new("silent", name, "silent");
        let (nic, here) = (column(situations::NIC), column(situations::ONE_TERMINAL));
        for case in &CASES {
            let (printed, said) = run(&place, host_path, &[], &[program, &gid, case.name]);
            let got = if case.prints[1] == "got 0" {
                "nothing"
            } else {
                "the message"
            };
            let statuses = situations::statuses(&printed);
            nic.add(case.name, &format!("{statuses}; the receiver gets {got}"));
            here.add(case.name, &causes(&said));
            let lines: Vec<_> = printed.lines().collect();
            assert_eq!(lines, case.prints, "{} {host_path}: {said}", case.name);
            for part in case.says {
                assert!(
                    said.contains(part),
                    "{} {host_path}: no {part:?} in\n{said}",
                    case.name
                );
            }
            assert!(
                !said.contains("lost on the way there"),
                "{}: {said}",
                case.name
            );
            if case.says.is_empty() {
                assert_eq!(said, "", "{}", case.name);
            }
        }
        nic.check();
        here.check();
        // Without a failed call there is a cause all the same.
        let (_, said) = run(&place, host_path, &[], &[program, &gid, "ud-qkey"]);
        assert!(!said.contains("saw no refused call"), "{said}");
    }
    // UD has neither rnr_retry nor status 13.
    let (printed, said) = run(&place, "on", &["--lint"], &[program, &gid, "ud-late"]);
    assert_eq!(printed, "status 0\ngot 1\n", "{said}");
    assert!(
        said.contains("(UD): the first receive was posted after RTS"),
        "{said}"
    );
    assert!(
        said.contains("is lost") && !said.contains("status 13"),
        "{said}"
    );
    let (_, said) = run(
        &place,
        "on",
        &["--stats"],
        &[program, &gid, "uc-no-receive"],
    );
    assert!(
        said.contains("1 message without a receive (UC, UD)"),
        "{said}"
    );
}
