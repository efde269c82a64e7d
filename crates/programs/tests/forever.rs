//! Programs that wait for ever, as they would on any NIC: `rnic run` says what they waited for once
//! they are interrupted, and with `--watch` while they still hang. It names as a cause only what
//! keeps them waiting whatever the peer does.

use rnic_programs::situations::{self, Column, causes};
use rnic_programs::{Finished, Place, Process, Trial, User, compile};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(60);

struct Case {
    name: &'static str,
    /// What is said of the wait, in both ways.
    says: &'static [&'static str],
    /// A cause is known.
    cause: bool,
}

const fn case(name: &'static str, cause: bool, says: &'static [&'static str]) -> Case {
    Case { name, says, cause }
}

const UNARMED: &str = "none of the channel's completion queues is armed";

const CASES: [Case; 30] = [
    case(
        "ack-cq",
        true,
        &[
            "ibv_destroy_cq",
            "for 1 event of CQ 2 that the program took and did not acknowledge",
            "call ibv_ack_cq_events",
        ],
    ),
    case(
        "ack-qp",
        true,
        &[
            "ibv_destroy_qp",
            "for 1 event of QP 0x",
            "call ibv_ack_async_event",
        ],
    ),
    case(
        "ack-srq",
        true,
        &[
            "ibv_destroy_srq",
            "for 1 event of SRQ ",
            "call ibv_ack_async_event",
        ],
    ),
    case(
        "ack-id",
        true,
        &[
            "rdma_destroy_id",
            "(RDMA_CM_EVENT_ADDR_RESOLVED) that the program took",
            "call rdma_ack_cm_event",
        ],
    ),
    case(
        "ack-ep",
        true,
        &["rdma_destroy_ep", "for 1 event of the id"],
    ),
    case(
        "never-armed",
        true,
        &[
            "ibv_get_cq_event",
            "CQ 2 was never armed (ibv_req_notify_cq); it holds 1 completion, of 1",
            UNARMED,
        ],
    ),
    case(
        "disarmed",
        true,
        &[
            "CQ 2 is not armed: it was, and each event disarms it; it holds 2 completions, of 2",
            UNARMED,
        ],
    ),
    case(
        "solicited",
        true,
        &[
            "CQ 2 is armed for solicited completions and errors only",
            "the 1 completion in it brought no event",
            "IBV_SEND_SOLICITED",
        ],
    ),
    case(
        "no-queue",
        true,
        &["a channel that no completion queue reports to"],
    ),
    case(
        "nothing-posted",
        true,
        &[
            "CQ 2 is armed; it holds 0 completions",
            "(RC, RTS): no send is under way; no receive is posted, no message has come",
            "nothing is posted that would complete into it",
        ],
    ),
    case(
        "unsignaled",
        true,
        &[
            "no send is under way; since the last completion 1 send ended that was not signaled",
            "only unsignaled work requests were posted",
        ],
    ),
    case(
        "unreceived",
        true,
        &[
            "1 send under way, all unsignaled",
            "only unsignaled work requests were posted",
        ],
    ),
    case(
        "init",
        true,
        &[
            "(RC, INIT)",
            "1 receive posted",
            "receives nothing before RTR",
        ],
    ),
    // Whether the peer will send is for nobody here to know.
    case(
        "message",
        false,
        &["(RC, RTS)", "1 receive posted, no message has come"],
    ),
    case(
        "poll-nothing",
        true,
        &[
            "ibv_poll_cq",
            "found nothing in CQ 2",
            "nothing is posted that would complete into it",
        ],
    ),
    case(
        "poll-other",
        true,
        &[
            "found nothing in CQ 1",
            "nothing is posted that would complete into it",
            "compare send_cq and recv_cq",
        ],
    ),
    case(
        "poll-ex",
        true,
        &["found nothing in CQ 3", "no queue pair completes into it"],
    ),
    case(
        "listen",
        false,
        &[
            "rdma_get_cm_event",
            "listens at 127.0.0.1:7471 (RDMA_PS_TCP port 7471), and nobody asked",
        ],
    ),
    case(
        "request",
        false,
        &["rdma_get_request", "listens at 127.0.0.1:7471"],
    ),
    case(
        "idle",
        true,
        &[
            "an id is new: it has no address",
            "nothing was asked of the ids",
        ],
    ),
    case("no-id", true, &["no id reports to the channel"]),
    case(
        "async",
        false,
        &["ibv_get_async_event", "for an asynchronous event"],
    ),
    case(
        "fd-poll",
        true,
        &[
            "on the descriptors of the completion channel of CQ 2",
            "CQ 2 was never armed",
            UNARMED,
        ],
    ),
    case(
        "fd-epoll",
        true,
        &[
            "on the descriptors of the completion channel of CQ 2",
            "CQ 2 is armed",
            "nothing is posted that would complete into it",
        ],
    ),
    case(
        "fd-select",
        true,
        &[
            "on the descriptors of the completion channel of CQ 2",
            UNARMED,
        ],
    ),
    case("fd-read", true, &["slept", " in read on", UNARMED]),
    case(
        "fd-async",
        false,
        &["on the descriptors of asynchronous events"],
    ),
    case(
        "fd-timeouts",
        true,
        &[
            "on the descriptors of the completion channel of CQ 2",
            UNARMED,
        ],
    ),
    case(
        "fd-listen",
        false,
        &[
            "1 channel of the connection manager",
            "listens at 127.0.0.1:7471",
        ],
    ),
    // Anything of these may be what it waits for.
    case(
        "fd-mixed",
        false,
        &[
            "of CQ 2, the event channel of the connection manager and others, which are not the NIC's",
            "listens at 127.0.0.1:7471",
            "CQ 2 is armed",
        ],
    ),
];

/// Runs it until it is said that it waits, and ends it by that signal.
fn interrupt(place: &Place, program: &[&str], signal: i32) -> (String, Finished) {
    let mut command = place.command(place.rnic());
    command.args(["run", "--watch", "0.3", "--"]).args(program);
    let mut run = Process::spawn(command);
    let watched = run.wait_for_words("what it waits for", TIME, |said| {
        // Whole stories end with an end of a line; the sentences of one come in one piece.
        let story = said.split("rnic: still waiting").nth(1)?;
        story.ends_with('\n').then(|| story.to_owned())
    });
    let pid = i32::try_from(run.pid()).expect("a process number");
    // SAFETY: kill takes no pointers; the process is a child that was not waited for.
    unsafe { libc::kill(pid, signal) };
    (watched, run.wait(TIME))
}

#[track_caller]
fn expect(said: &str, case: &Case) {
    for part in case.says {
        assert!(said.contains(part), "{}: no {part:?} in\n{said}", case.name);
    }
    assert_eq!(said.contains("cause:"), case.cause, "{}: {said}", case.name);
}

#[test]
fn a_program_that_waits_for_ever_is_told_for_what() {
    let trial = Trial::start_beside_others("a_program_that_waits_for_ever_is_told_for_what");
    let Some(program) = compile::c_program_with(&trial, "forever", &["-lrdmacm"]) else {
        return;
    };
    let program = program.to_str().expect("a path");
    let Some(place) = trial.loopback(User::Current) else {
        return;
    };
    let gid = place.gid("127.0.0.1").index.to_string();
    let says = Column::new("forever", situations::ONE_TERMINAL, "forever");
    for case in &CASES {
        let (watched, finished) = interrupt(&place, &[program, &gid, case.name], libc::SIGINT);
        assert!(watched.contains("has "), "{watched}");
        expect(&watched, case);
        let closing = finished.stderr.split("was ended by signal 2").nth(1);
        expect(closing.unwrap_or_default(), case);
        says.add(case.name, &causes(closing.unwrap_or_default()));
        // Each wait is told once.
        let times = finished.stderr.matches("still waiting").count();
        assert_eq!(times, 1, "{}", finished.stderr);
    }
    says.check();
}
