//! Memory that a program unmaps, or makes read-only, while it is registered: the request fails with
//! an error, `rnic run` names it and the region, and the process goes on. A fault of the program's
//! own is its own handler's, as without rnic.

use rnic_programs::{Finished, Place, Process, Trial, User, compile};
use std::path::Path;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// What the NIC does with the memory, the status where it cannot be reached, and where it cannot be
/// written.
const CASES: [(&str, u32, u32); 8] = [
    ("send", 4, 0),
    ("receive", 11, 11),
    ("write-from", 4, 0),
    ("write-to", 10, 10),
    ("read-from", 10, 0),
    ("read-to", 4, 4),
    ("fetch-add", 10, 10),
    ("compare-swap", 10, 10),
];

/// Short messages, packets of an MTU, and long ones that go by reference.
const LENGTHS: [&str; 3] = ["48", "1000", "60000"];

fn run(place: &Place, variables: &[(&str, &str)], program: &Path, args: &[&str]) -> Finished {
    let gid = place.gid("127.0.0.1").index.to_string();
    let mut command = place.command(place.rnic());
    command.envs(variables.iter().copied());
    command
        .args(["run", "--"])
        .arg(program)
        .arg(&gid)
        .args(args);
    Process::spawn(command).wait(TIME)
}

fn check(finished: &Finished, status: u32, lacks: &str) {
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let expected = format!("status {status}");
    assert_eq!(
        lines,
        [expected.as_str(), "then 0"],
        "{}",
        finished.describe()
    );
    assert_eq!(finished.status.code(), Some(3), "{}", finished.describe());
    if status == 0 {
        return;
    }
    for part in [lacks, "key 0x", "ibv_dereg_mr"] {
        assert!(
            finished.stderr.contains(part),
            "no {part:?}\n{}",
            finished.describe()
        );
    }
}

/// Over shared memory, over its rings alone, and over UDP.
#[test]
fn memory_that_is_gone_is_an_error() {
    let trial = Trial::start_beside_others("memory_that_is_gone_is_an_error");
    let Some(program) = compile::c_program(&trial, "gone") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    for path in ["on", "rings", "off"] {
        for (what, unmapped, read_only) in CASES {
            for length in LENGTHS {
                let variables = [("RNIC_HOST_PATH", path)];
                let args = |how| [how, what, length];
                check(
                    &run(&place, &variables, &program, &args("unmapped")),
                    unmapped,
                    "is not mapped any more",
                );
                check(
                    &run(&place, &variables, &program, &args("read-only")),
                    read_only,
                    "has become read-only",
                );
            }
        }
    }
}

/// The handler that was there first gets the faults that are not ours; with `off` it gets all.
#[test]
fn other_faults_are_the_programs() {
    let trial = Trial::start_beside_others("other_faults_are_the_programs");
    let Some(program) = compile::c_program(&trial, "gone") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    for (guarded, what) in [("handler", "own"), ("off", "own"), ("off", "receive")] {
        let variables = [("RNIC_GUARDED_MEMORY", guarded)];
        let finished = run(&place, &variables, &program, &["unmapped", what]);
        assert_eq!(finished.stdout, "caught\n", "{}", finished.describe());
        assert_eq!(finished.status.code(), Some(7), "{}", finished.describe());
    }
}
