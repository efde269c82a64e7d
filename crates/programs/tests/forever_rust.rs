//! Programs of the Rust API that wait for ever: those in blocking calls, and those whose futures
//! sleep, are told what they waited for as C programs are.

use rnic_programs::{Finished, Place, Process, Trial, User};
use std::fs;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

/// A way of `sleeper`, what is said of it, and its cause, if there is one.
const WAYS: [(&str, &[&str], Option<&str>); 6] = [
    (
        "queue",
        &["ibv_get_cq_event", "for an event of CQ 1"],
        Some("no queue pair completes into it"),
    ),
    (
        "request",
        &[
            "for an event of the connection manager",
            "an id listens at 127.0.0.1:7520 (RDMA_PS_TCP port 7520), and nobody asked",
        ],
        None,
    ),
    (
        "message",
        &[
            "a future of QP 0x",
            "for a message",
            "4 receives posted, no message has come",
        ],
        None,
    ),
    (
        "held",
        &[
            "a future of QP 0x",
            "for a message",
            "no receive is posted, 1 message came so far",
        ],
        Some("the program holds messages, whose buffers are the next receives"),
    ),
    (
        "completion",
        &["a future of QP 0x", "for the completion of a request"],
        None,
    ),
    (
        "listener",
        &[
            "a future",
            "for an event of the connection manager",
            "an id listens at 127.0.0.1:7521 (RDMA_PS_TCP port 7521), and nobody asked",
        ],
        None,
    ),
];

fn start(place: &Place, options: &[&str], program: &str, way: &str) -> Process {
    let mut command = place.command(place.rnic());
    command.arg("run").args(options).args(["--", program, way]);
    let mut run = Process::spawn(command);
    run.wait_for("that it waits", TIME, |said| {
        said.contains("waits").then_some(())
    });
    run
}

fn interrupt(run: Process) -> Finished {
    let pid = i32::try_from(run.pid()).expect("a process number");
    // SAFETY: kill takes no pointers; the process was not waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    run.wait(TIME)
}

#[track_caller]
fn expect(said: &str, way: &str, says: &[&str], cause: Option<&str>) {
    for part in says.iter().copied().chain(cause) {
        assert!(said.contains(part), "{way}: no {part:?} in\n{said}");
    }
    // That the peer has no receive is told as the cause as soon as it lasts.
    if way != "completion" {
        assert_eq!(said.contains("cause:"), cause.is_some(), "{way}: {said}");
    }
}

fn set_up(trial: &Trial) -> Option<(Place, String)> {
    let folder = trial.new_folder("program", User::Current, 0o755);
    let program = folder.join("sleeper");
    fs::copy(env!("CARGO_BIN_EXE_sleeper"), &program).expect("own folder");
    let place = trial.loopback(User::Current)?;
    Some((place, program.display().to_string()))
}

/// While it hangs, and once it is interrupted. The thread that sleeps for futures is not told as one
/// that waits itself.
#[test]
fn what_calls_and_futures_wait_for_is_told() {
    let trial = Trial::start_beside_others("what_calls_and_futures_wait_for_is_told");
    let Some((place, program)) = set_up(&trial) else {
        return;
    };
    for (way, says, cause) in WAYS {
        let mut run = start(&place, &["--watch", "0.3"], &program, way);
        run.wait_for_words("that it waits", TIME, |said| {
            said.contains("rnic: still waiting").then_some(())
        });
        let finished = interrupt(run);
        let (watched, closing) = finished
            .stderr
            .split_once("rnic: sleeper was ended by signal 2; ")
            .unwrap_or_else(|| panic!("nothing was said\n{}", finished.describe()));
        expect(watched, way, says, cause);
        expect(closing, way, says, cause);
        assert_eq!(watched.matches("still waiting").count(), 1, "{watched}");
    }
}

/// Without `--watch`, too: the device looks at who waits a few times per second. How long that
/// takes on a loaded machine nobody knows, so the program is given more time as long as it does not
/// do.
#[test]
fn futures_are_told_without_watch() {
    let trial = Trial::start_beside_others("futures_are_told_without_watch");
    let Some((place, program)) = set_up(&trial) else {
        return;
    };
    for (way, says, cause) in WAYS {
        let mut patience = Duration::from_secs(1);
        let finished = loop {
            let run = start(&place, &[], &program, way);
            std::thread::sleep(patience);
            let finished = interrupt(run);
            if finished.stderr.contains(" waited ") || patience > TIME {
                break finished;
            }
            patience *= 2;
        };
        expect(&finished.stderr, way, says, cause);
    }
}
