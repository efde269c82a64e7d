//! Refused accesses: the status each side sees is what the InfiniBand specification and hardware
//! give, nothing is written, and the next queue pair works. `c/errors.c` does the work and prints
//! what both sides see.

use rnic_programs::{Place, Trial, User, compile};
use std::path::Path;

// ibv_wc_status
const SUCCESS: u32 = 0;
const LOC_LEN_ERR: u32 = 1;
const LOC_QP_OP_ERR: u32 = 2;
const LOC_PROT_ERR: u32 = 4;
const WR_FLUSH_ERR: u32 = 5;
const REM_INV_REQ_ERR: u32 = 9;
const REM_ACCESS_ERR: u32 = 10;
const REM_OP_ERR: u32 = 11;
const RETRY_EXC_ERR: u32 = 12;
const RNR_RETRY_EXC_ERR: u32 = 13;
// ibv_qp_state
const RESET: u32 = 0;
const RTS: u32 = 3;
const ERR: u32 = 6;
// ibv_event_type
const QP_FATAL: u32 = 1;
const QP_REQ_ERR: u32 = 2;
const QP_ACCESS_ERR: u32 = 3;

/// What both sides have to see.
struct Expected {
    /// Status of A's two requests: the bad one and the good one behind it.
    requests: [u32; 2],
    /// State of A's queue pair.
    a_state: u32,
    /// State of B's queue pair.
    b_state: u32,
    /// Status of B's receives that completed.
    receives: &'static [u32],
    /// Asynchronous event at B: one of these, or none if empty.
    events: &'static [u32],
}

/// B refuses with NAK remote access error.
const REFUSED: Expected = Expected {
    requests: [REM_ACCESS_ERR, WR_FLUSH_ERR],
    a_state: ERR,
    b_state: ERR,
    receives: &[WR_FLUSH_ERR, WR_FLUSH_ERR],
    events: &[QP_ACCESS_ERR],
};

/// B refuses with NAK invalid request.
const INVALID: Expected = Expected {
    requests: [REM_INV_REQ_ERR, WR_FLUSH_ERR],
    events: &[QP_REQ_ERR],
    ..REFUSED
};

/// A's own memory access is wrong: B never hears of it.
const LOCAL: Expected = Expected {
    requests: [LOC_PROT_ERR, WR_FLUSH_ERR],
    a_state: ERR,
    b_state: RTS,
    receives: &[],
    events: &[],
};

/// B's own receive is wrong: NAK remote operational error. Whether an event comes as well differs
/// between devices: the specification has none (the completion tells), so none is expected.
const BAD_RECEIVE: Expected = Expected {
    requests: [REM_OP_ERR, WR_FLUSH_ERR],
    a_state: ERR,
    b_state: ERR,
    receives: &[LOC_PROT_ERR, WR_FLUSH_ERR],
    events: &[],
};

/// The message is longer than the receive.
const TOO_LONG: Expected = Expected {
    requests: [REM_INV_REQ_ERR, WR_FLUSH_ERR],
    a_state: ERR,
    b_state: ERR,
    receives: &[LOC_LEN_ERR, WR_FLUSH_ERR],
    events: &[],
};

/// The numbers behind a label, in order.
fn numbers(text: &str, label: &str) -> Vec<u32> {
    text.lines()
        .filter_map(|line| line.strip_prefix(label)?.trim().parse().ok())
        .collect()
}

/// Runs one case; Err says what was wrong.
fn check(
    place: &Place,
    program: &Path,
    gid: &str,
    operation: &str,
    cause: &str,
    want: &Expected,
) -> Result<(), String> {
    let finished = place.finish(program, [gid, operation, cause]);
    let text = &finished.stdout;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, good: bool| {
        if !good {
            wrong.push(what.to_owned());
        }
    };
    expect("the program failed", finished.ok());
    expect("the post was refused", numbers(text, "A post").is_empty());
    expect(
        &format!("A's statuses are not {:?}", want.requests),
        numbers(text, "A wc") == want.requests,
    );
    expect("A's state", numbers(text, "A state") == [want.a_state]);
    expect("B's state", numbers(text, "B state") == [want.b_state]);
    expect(
        &format!("B's receives are not {:?}", want.receives),
        numbers(text, "B recv") == want.receives,
    );
    let events = numbers(text, "B event");
    // That the queue pair is in error may be told, too, once the last work request is flushed.
    let told: Vec<u32> = events
        .into_iter()
        .filter(|&event| event != QP_FATAL)
        .collect();
    expect(
        &format!("B's events are not {:?}", want.events),
        told == want.events,
    );
    for line in ["A unchanged", "B unchanged", "A works", "B works"] {
        expect(
            &format!("not {line:?}"),
            text.lines().any(|printed| printed == line),
        );
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{operation}, {cause}: {}\n{}",
        wrong.join("; "),
        finished.describe()
    ))
}

fn run(name: &str, cases: &[(&[&str], &[&str], &Expected)]) {
    let trial = Trial::start_beside_others(name);
    let Some(program) = compile::c_program(&trial, "errors") else {
        return;
    };
    let mut failures = Vec::new();
    for (user, address) in [(User::Current, "127.0.0.1"), (User::Nobody, "::1")] {
        let Some(place) = trial.loopback(user) else {
            continue;
        };
        let gid = place.gid(address).index.to_string();
        for (operations, causes, expected) in cases {
            for operation in *operations {
                for cause in *causes {
                    if let Err(why) = check(&place, &program, &gid, operation, cause, expected) {
                        failures.push(why);
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

const ONE_SIDED: &[&str] = &["write", "write-imm", "read", "cas", "fadd"];

#[test]
fn wrong_rkey() {
    run(
        "wrong_rkey",
        &[(ONE_SIDED, &["bad-rkey", "near-rkey", "far-rkey"], &REFUSED)],
    );
}

#[test]
fn remote_range() {
    run(
        "remote_range",
        &[
            (
                ONE_SIDED,
                &["past-end", "before-start", "far-away"],
                &REFUSED,
            ),
            // An atomic at the last aligned address does not wrap; it is only far away, which the
            // line above has.
            (
                &["write", "write-imm", "read"],
                &["wraps", "long-past-end"],
                &REFUSED,
            ),
        ],
    );
}

#[test]
fn right_not_granted() {
    run(
        "right_not_granted",
        &[
            (ONE_SIDED, &["no-right"], &REFUSED),
            // A queue pair that does not do the operation at all: invalid request (IBTA 9.7.5.2.4;
            // Linux rxe alike).
            (ONE_SIDED, &["qp-no-right"], &INVALID),
        ],
    );
}

#[test]
fn other_protection_domain() {
    run(
        "other_protection_domain",
        &[(ONE_SIDED, &["other-pd"], &REFUSED)],
    );
}

#[test]
fn deregistered_region() {
    run(
        "deregistered_region",
        &[(ONE_SIDED, &["dereg", "stale"], &REFUSED)],
    );
}

#[test]
fn unaligned_atomic() {
    run(
        "unaligned_atomic",
        &[(&["cas", "fadd"], &["unaligned"], &INVALID)],
    );
}

#[test]
fn local_memory() {
    run(
        "local_memory",
        &[
            (
                &["send", "write", "write-imm", "read", "cas", "fadd"],
                &[
                    "local-bad-lkey",
                    "local-near-lkey",
                    "local-past-end",
                    "local-before-start",
                    "local-other-pd",
                    "local-dereg",
                ],
                &LOCAL,
            ),
            // Reading local memory is always allowed; writing it is not.
            (&["read", "cas", "fadd"], &["local-no-right"], &LOCAL),
        ],
    );
}

#[test]
fn receive_memory() {
    run(
        "receive_memory",
        &[(
            &["send"],
            &[
                "receive-bad-lkey",
                "receive-past-end",
                "receive-no-right",
                "receive-other-pd",
            ],
            &BAD_RECEIVE,
        )],
    );
}

#[test]
fn message_longer_than_receive() {
    run(
        "message_longer_than_receive",
        &[(&["send"], &["too-long", "far-too-long"], &TOO_LONG)],
    );
}

#[test]
fn no_receive_posted() {
    let expected = Expected {
        requests: [RNR_RETRY_EXC_ERR, WR_FLUSH_ERR],
        a_state: ERR,
        b_state: RTS,
        receives: &[],
        events: &[],
    };
    run(
        "no_receive_posted",
        &[(
            &["send", "write-imm"],
            &["no-receive", "no-receive-no-retry"],
            &expected,
        )],
    );
}

/// A transfer of no bytes accesses nothing: key and address are not looked at.
#[test]
fn empty_transfer_needs_no_key() {
    let expected = Expected {
        requests: [SUCCESS, SUCCESS],
        a_state: RTS,
        b_state: RTS,
        receives: &[SUCCESS],
        events: &[],
    };
    run(
        "empty_transfer_needs_no_key",
        &[(&["write", "read"], &["empty-bad-rkey"], &expected)],
    );
}

/// A request that A's own queue pair cannot do: B never hears of it.
#[test]
fn request_that_cannot_be() {
    let too_long = Expected {
        requests: [LOC_LEN_ERR, WR_FLUSH_ERR],
        ..LOCAL
    };
    let not_possible = Expected {
        requests: [LOC_QP_OP_ERR, WR_FLUSH_ERR],
        ..LOCAL
    };
    run(
        "request_that_cannot_be",
        &[
            // Shorter than the eight bytes of an atomic, longer than 2 GiB.
            (&["cas", "fadd"], &["short"], &too_long),
            (&["send", "write"], &["longer-than-any"], &too_long),
            (&["read", "cas", "fadd"], &["no-rd-atomic"], &not_possible),
        ],
    );
}

/// A asks for READs or atomics of a peer that agreed to none.
#[test]
fn more_reads_than_agreed() {
    run(
        "more_reads_than_agreed",
        &[(&["read", "cas", "fadd"], &["peer-no-rd-atomic"], &INVALID)],
    );
}

/// The peer's queue pair does not listen any more.
#[test]
fn no_answer() {
    let reset = Expected {
        requests: [RETRY_EXC_ERR, WR_FLUSH_ERR],
        a_state: ERR,
        b_state: RESET,
        receives: &[],
        events: &[],
    };
    let broken = Expected {
        b_state: ERR,
        receives: &[WR_FLUSH_ERR, WR_FLUSH_ERR],
        ..reset
    };
    run(
        "no_answer",
        &[
            (&["send", "read"], &["peer-reset"], &reset),
            (&["write"], &["peer-error"], &broken),
        ],
    );
}
