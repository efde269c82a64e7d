//! A peer that is stopped (SIGSTOP, a debugger's breakpoint). A card goes on working for a stopped program, so its peers must not
//! fail: what needs no time of the program is done, all else waits for it.

use rnic_programs::{Finished, Place, Process, Trial, User, compile};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(120);

fn run(place: &Place, host_path: &str, program: &[&str]) -> Process {
    let mut command = place.command(place.rnic());
    command.env("RNIC_HOST_PATH", host_path);
    command.args(["run", "--"]).args(program);
    Process::spawn(command)
}

#[track_caller]
fn expect(finished: &Finished, parts: &[&str]) {
    for part in parts {
        let said = finished.stderr.contains(part);
        assert!(said, "no {part:?}\n{}", finished.describe());
    }
}

/// Seven operations, with the receiver, the sender or both stopped for three times as long as ACK timeout and retries last; and a
/// receiver that is killed while it is stopped.
#[test]
fn nothing_fails_while_a_process_is_stopped() {
    let trial = Trial::start("nothing_fails_while_a_process_is_stopped");
    let Some(program) = compile::c_program(&trial, "stopped") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let program = program.to_str().expect("a path");
    for path in ["on", "rings", "off"] {
        let finished = run(&place, path, &[program, &gid]).wait(TIME);
        let done = finished.stdout.lines().last() == Some("all done");
        assert!(done, "{path}: {}", finished.describe());
        // What was killed had been stopped before.
        expect(
            &finished,
            &["the peer process has ended after it was stopped for"],
        );
    }
}

/// Whoever ends a program that hangs learns for whom it waited; so does who sees it fail.
#[test]
fn the_words_name_a_stopped_process() {
    let trial = Trial::start("the_words_name_a_stopped_process");
    let Some(program) = compile::c_program(&trial, "stopped") else {
        return;
    };
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let program = program.to_str().expect("a path");
    for path in ["on", "off"] {
        let mut waiting = run(&place, path, &[program, &gid, "waits"]);
        let peer: u32 = waiting.wait_for("it to wait", TIME, |text| {
            text.lines()
                .find_map(|l| l.strip_prefix("waits ")?.parse().ok())
        });
        // Said after a second, by the records that the parent reads.
        std::thread::sleep(Duration::from_millis(2500));
        // The program, whose child the stopped process is, not its parent.
        signal(parent_of(peer), libc::SIGINT);
        let finished = waiting.wait(TIME);
        let is_stopped = format!(
            "the peer, stopped (pid {peer}), is stopped (SIGSTOP, a debugger's breakpoint, Ctrl-Z)"
        );
        let go_on = format!("kill -CONT {peer}");
        let waited = "had waited for a process that is stopped";
        expect(&finished, &[waited, &is_stopped, &go_on]);
        signal(peer, libc::SIGKILL);

        let finished = run(&place, path, &[program, &gid, "waits", "killed"]).wait(TIME);
        assert_eq!(finished.status.code(), Some(3), "{}", finished.describe());
        expect(
            &finished,
            &[
                "status 12",
                "the peer process has ended after it was stopped for 1.",
            ],
        );
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: takes no pointer; both are processes of this test.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"));
    parent.expect("a line").trim().parse().expect("a number")
}
