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

const CASES: [Case; 33] = [
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
        &["rdma_get_cm_event", "(RDMA_PS_TCP port "],
    ),
    case(
        "request",
        false,
        &[
            "rdma_get_request",
            "and nobody asked for a connection meanwhile",
        ],
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
            "the event channel of the connection manager",
            "and nobody asked for a connection meanwhile",
        ],
    ),
    // Anything of these may be what it waits for.
    case(
        "fd-mixed",
        false,
        &[
            "of CQ 2, the event channel of the connection manager and others, which are not the NIC's",
            "and nobody asked for a connection meanwhile",
            "CQ 2 is armed",
        ],
    ),
    case(
        "sock-accept",
        false,
        &[
            ": raccept ",
            "(RDMA_PS_TCP port 7501), and nobody asked for a connection meanwhile",
        ],
    ),
    case(
        "sock-poll",
        false,
        &[
            ": rpoll ",
            "(RDMA_PS_TCP port 7502), and nobody asked for a connection meanwhile",
        ],
    ),
    case(
        "sock-receive",
        false,
        &[
            ": rrecv ",
            "no send is under way; 384 receives posted, no message has come",
        ],
    ),
];

/// Cases that run at a time: they do little but wait.
const AT_A_TIME: usize = 6;

fn start(place: &Place, program: &[&str]) -> Process {
    let mut command = place.command(place.rnic());
    command.args(["run", "--watch", "0.3", "--"]).args(program);
    Process::spawn(command)
}

/// Waits until it is said that it waits.
fn await_watch(run: &mut Process) {
    run.wait_for_words("that it waits", TIME, |said| {
        said.contains("rnic: still waiting").then_some(())
    });
}

fn send(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("a process number");
    // SAFETY: kill takes no pointers; the process was not waited for.
    unsafe { libc::kill(pid, signal) };
}

/// What was said while it went on, and at its end.
fn parts(finished: &Finished) -> (&str, &str) {
    let end = "rnic: forever ";
    let (watched, closing) = finished
        .stderr
        .split_once(end)
        .unwrap_or_else(|| panic!("nothing was said\n{}", finished.describe()));
    (watched, closing)
}

#[track_caller]
fn expect(said: &str, case: &Case) {
    for part in case.says {
        assert!(said.contains(part), "{}: no {part:?} in\n{said}", case.name);
    }
    assert_eq!(said.contains("cause:"), case.cause, "{}: {said}", case.name);
}

/// Where it runs, the program, and the index of its GID.
fn set_up(trial: &Trial) -> Option<(Place, String, String)> {
    let program = compile::c_program_with(trial, "forever", &["-lrdmacm"])?;
    let place = trial.loopback(User::Current)?;
    let gid = place.gid("127.0.0.1").index.to_string();
    let program = program.to_str().expect("a path").to_owned();
    Some((place, program, gid))
}

#[test]
fn a_program_that_waits_for_ever_is_told_for_what() {
    let trial = Trial::start_beside_others("a_program_that_waits_for_ever_is_told_for_what");
    let Some((place, program, gid)) = set_up(&trial) else {
        return;
    };
    let (program, gid) = (program.as_str(), gid.as_str());
    let ports: Vec<_> = (7471..).take(CASES.len()).map(|p| p.to_string()).collect();
    let cases: Vec<_> = CASES.iter().zip(&ports).collect();
    let says = Column::new("forever", situations::ONE_TERMINAL, "forever");
    for some in cases.chunks(AT_A_TIME) {
        let run = |(case, port): &(&Case, &String)| start(&place, &[program, gid, case.name, port]);
        let runs: Vec<_> = some.iter().map(run).collect();
        for ((case, _), mut run) in some.iter().zip(runs) {
            await_watch(&mut run);
            send(run.pid(), libc::SIGINT);
            let finished = run.wait(TIME);
            let (watched, closing) = parts(&finished);
            assert!(watched.contains(" has "), "{watched}");
            expect(watched, case);
            assert!(closing.starts_with("was ended by signal 2; "), "{closing}");
            expect(closing, case);
            let named = causes(closing);
            let whole = closing
                .lines()
                .next()
                .and_then(|line| line.split_once("; "));
            let whole = whole.map(|(_, words)| situations::plain(words));
            says.add(
                case.name,
                &if named.is_empty() {
                    whole.unwrap_or_default()
                } else {
                    named
                },
            );
            // Each wait is told once.
            let times = watched.matches("still waiting").count();
            assert_eq!(times, 1, "{}: {watched}", case.name);
        }
    }
    says.check();
}

/// The program is killed, or a handler of its own ends the wait; another thread than the first waits.
#[test]
fn however_the_program_ends_it_is_told_what_it_waited_for() {
    let trial = Trial::start_beside_others("however_the_program_ends");
    let Some((place, program, gid)) = set_up(&trial) else {
        return;
    };
    let (program, gid) = (program.as_str(), gid.as_str());
    for (how, signal, ends) in [
        ("handled", libc::SIGINT, "ended with exit status 1; "),
        ("thread", libc::SIGTERM, "was ended by signal 15; "),
        ("killed", libc::SIGKILL, "was ended by signal 9; "),
    ] {
        for case in ["never-armed", "listen", "async"] {
            let mut run = start(&place, &[program, gid, case, "7471", how]);
            await_watch(&mut run);
            match how {
                "killed" => {
                    let pid = run.wait_for_words("a process", TIME, |said| {
                        let (_, pid) = said.split_once("forever (pid ")?;
                        pid.split_once(')')?.0.parse().ok()
                    });
                    send(pid, signal);
                }
                _ => send(run.pid(), signal),
            }
            let finished = run.wait(TIME);
            let (_, closing) = parts(&finished);
            assert!(
                closing.starts_with(ends),
                "{how} {case}: {}",
                finished.stderr
            );
            assert!(
                closing.contains(" waited "),
                "{how} {case}: {}",
                finished.stderr
            );
        }
    }
}
