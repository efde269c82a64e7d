//! When the end of a program is told with what its threads waited for, and when a cause is named.

use std::os::unix::process::ExitStatusExt;

use super::record::{Poster, Queue};
use super::*;

const EXIT_1: i32 = 0x100;

fn report(waits: &[Wait], interrupted: bool) -> Report {
    Report {
        processes: vec![Process {
            id: 1,
            pid: 11,
            program: "server".into(),
            opened: true,
        }],
        waits: waits.to_vec(),
        read_at: 5_000_000_000,
        interrupted,
        ..Report::default()
    }
}

fn of(wanted: &str) -> Wait {
    Wait {
        process: 1,
        wanted: wanted.to_owned(),
        verb: "the_call".to_owned(),
        ..Wait::default()
    }
}

fn told(waits: &[Wait], interrupted: bool, status: i32) -> String {
    let report = report(waits, interrupted);
    why::tell(&report, "server", ExitStatus::from_raw(status), false)
        .map(|story| story.to_string())
        .unwrap_or_default()
}

/// Threads of helpers wait in every program: that is its end's reason only if somebody had enough of
/// waiting.
#[test]
fn only_an_interrupted_program_is_told_what_it_waited_for() {
    let waits = [of("async event")];
    for (status, interrupted, is_told) in [
        (libc::SIGINT, true, true),
        (libc::SIGKILL, false, true),
        // A handler of the program's own, a shell, timeout(1).
        (EXIT_1, true, true),
        (130 << 8, false, true),
        (124 << 8, false, true),
        (EXIT_1, false, false),
        (0, true, false),
        (libc::SIGSEGV, false, false),
        (libc::SIGABRT, true, false),
    ] {
        let said = told(&waits, interrupted, status);
        assert_eq!(
            said.contains("the_call waited 5.0 s"),
            is_told,
            "{status}: {said}"
        );
    }
    for (over, is_told) in [
        ("interrupted", true),
        ("end", true),
        ("done", false),
        ("idle", false),
    ] {
        let wait = Wait {
            over: Some(over.to_owned()),
            ..of("async event")
        };
        let said = told(&[wait], true, EXIT_1);
        assert_eq!(said.contains("the_call waited"), is_told, "{over}: {said}");
    }
}

#[test]
fn what_only_the_program_can_end_is_told_first() {
    let acks = Wait {
        object: Some("CQ 7".to_owned()),
        taken: 3,
        acknowledged: 1,
        remedy: Some("ibv_ack_cq_events".to_owned()),
        ..of("acks")
    };
    let said = told(
        &[of("async event"), of("cm event"), acks],
        true,
        libc::SIGINT,
    );
    let first = said.lines().next().unwrap_or_default();
    assert!(
        first.contains("for 2 events of CQ 7 that the program took"),
        "{said}"
    );
    assert!(said.contains("for an asynchronous event"), "{said}");
    assert!(
        said.contains("3 events taken so far, 1 acknowledged"),
        "{said}"
    );
}

fn queue(armed: &str, waiting: u64) -> Queue {
    Queue {
        cq: 1,
        armed: armed.to_owned(),
        waiting,
        completions: waiting,
        ..Queue::default()
    }
}

fn poster(state: &str, sends: (u64, u64, u64), receives: u64) -> Poster {
    Poster {
        qp_type: "RC".to_owned(),
        state: state.to_owned(),
        sends_here: true,
        receives_here: true,
        sends: sends.0,
        signaled: sends.1,
        unsignaled: sends.2,
        receives,
        ..Poster::default()
    }
}

/// A cause is what keeps the program waiting whatever others do; what is not known of all objects
/// is none.
#[test]
fn a_cause_is_named_only_if_it_is_certain() {
    let wait = |queues: &[Queue], posters: &[Poster]| Wait {
        channels: 1,
        cqs: queues.to_vec(),
        all_cqs: queues.len() as u64,
        queue_pairs: posters.to_vec(),
        all_queue_pairs: posters.len() as u64,
        ..of("cq event")
    };
    let idle = poster("RTS", (0, 0, 0), 0);
    let never = wait(&[queue("never", 1), queue("no longer", 0)], &[]);
    let one_armed = wait(
        &[queue("never", 1), queue("next", 0)],
        &[poster("RTS", (0, 0, 0), 1)],
    );
    let hidden = Wait {
        all_cqs: 9,
        ..never.clone()
    };
    let more = Wait {
        all_queue_pairs: 9,
        ..wait(&[queue("next", 0)], std::slice::from_ref(&idle))
    };
    let xrc = Wait {
        xrc_srqs: 1,
        ..wait(&[queue("next", 0)], std::slice::from_ref(&idle))
    };
    let others = Wait {
        others: true,
        wanted: "descriptors".to_owned(),
        ..never.clone()
    };
    let next = |poster: Poster| wait(&[queue("next", 0)], &[poster]);
    for (wait, cause) in [
        (never, Some("is armed")),
        (one_armed, None),
        (hidden, None),
        (
            wait(&[queue("solicited", 2)], &[]),
            Some("the 2 completions in it"),
        ),
        (more, None),
        (xrc, None),
        (others, None),
        (next(idle), Some("nothing is posted")),
        (next(poster("RTS", (2, 0, 2), 0)), Some("only unsignaled")),
        (next(poster("RTS", (0, 0, 3), 0)), Some("only unsignaled")),
        (next(poster("RTS", (2, 1, 1), 0)), None),
        (next(poster("RTS", (0, 0, 3), 1)), None),
        (next(poster("INIT", (0, 0, 0), 4)), Some("before RTR")),
        (next(poster("RTR", (0, 0, 0), 4)), None),
        (next(poster("ERR", (0, 0, 0), 0)), Some("nothing is posted")),
    ] {
        let said = told(&[wait], true, libc::SIGINT);
        match cause {
            Some(cause) => assert!(
                said.contains("cause:") && said.contains(cause),
                "{cause}: {said}"
            ),
            None => assert!(!said.contains("cause:"), "{said}"),
        }
    }
}
