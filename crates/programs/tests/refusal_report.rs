//! What `rnic run` and `RNIC_LOG` say of calls that were refused for what their caller asked for.

use rnic_programs::{Finished, Place, Process, Trial, User, skip};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// Runs a program to its end, with `RNIC_LOG` if it is to say what is refused.
fn run(place: &Place, log: bool, program: &[&str]) -> Finished {
    let mut command = place.command(place.rnic());
    if log {
        command.env("RNIC_LOG", "1");
    }
    command.arg("run").arg("--").args(program);
    Process::spawn(command).wait(TIME)
}

/// The beginner's mistake: a GID index that the table does not have.
#[test]
fn a_gid_index_beyond_the_table() {
    let trial = Trial::start_beside_others("a_gid_index_beyond_the_table");
    if !skip::have_programs(trial.name(), &["ibv_rc_pingpong"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    for log in [false, true] {
        // It asks for its GID before it connects to anybody.
        let finished = run(&place, log, &["ibv_rc_pingpong", "-g", "99", "127.0.0.1"]);
        assert_eq!(finished.status.code(), Some(1), "{}", finished.describe());
        for part in [
            "ibv_query_gid with errno 22 EINVAL",
            "cause: GID index 99: the table has 0 to ",
            "see `rnic devices`",
            "rnic explain errno 22",
        ] {
            assert!(
                finished.stderr.contains(part),
                "no {part:?} in what was said\n{}",
                finished.describe()
            );
        }
        let logged = finished
            .stderr
            .lines()
            .filter(|line| {
                line.starts_with("rnic: ibv_query_gid: GID index 99: the table has 0 to ")
            })
            .count();
        assert_eq!(logged, usize::from(log), "{}", finished.describe());
    }
}

/// Who looks the device over is refused nothing, and ends in success: not a word, though each port
/// has rows that are empty.
#[test]
fn looking_around_is_no_mistake() {
    let trial = Trial::start_beside_others("looking_around");
    if !skip::have_programs(trial.name(), &["ibv_devinfo"]) {
        return;
    }
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let finished = run(&place, true, &["ibv_devinfo", "-v"]);
    finished.expect_success();
    for line in finished.stderr.lines().filter(|l| l.starts_with("rnic: ")) {
        // What the device lacks may be said.
        assert!(line.contains("not supported"), "{}", finished.describe());
    }
}
