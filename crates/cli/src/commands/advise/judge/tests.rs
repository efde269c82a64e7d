//! Rules over evidence that is written down here.

use super::*;
use crate::commands::advise::evidence::{Flow, Lane, Sockets, Spread, Verbs};
use crate::commands::advise::gain::by_card;
use crate::commands::study::card::Card;

const TRIP: f64 = 25.0;

/// So many values, each of so many bits.
fn spread(bits: u32, count: u64) -> Spread {
    let mut spread = Spread::default();
    spread.add(bits, count);
    spread.sum = count.saturating_mul(1 << (bits - 1));
    spread
}

/// Calls of so many bytes, a turn for each `calls_a_turn`, and microseconds in each.
fn flow(calls: u64, bits: u32, calls_a_turn: u64, call_us: f64) -> Flow {
    let size = 1 << (bits - 1);
    Flow {
        calls,
        bytes: calls * size,
        seconds: calls as f64 * call_us / 1e6,
        sizes: spread(bits, calls),
        turns: spread(bits, calls / calls_a_turn),
    }
}

/// A lane of one connection on which each message waits for its answer.
fn lockstep(trips: u64, answer_bits: u32, think_bits: u32) -> Lane {
    Lane {
        sockets: 1,
        sent: flow(trips, 7, 1, 5.0),
        received: flow(trips, 7, 1, 2.0),
        answer: spread(answer_bits, trips),
        think: spread(think_bits, trips),
        ..Lane::default()
    }
}

fn asks(asks: Lane, seconds: f64) -> Evidence {
    Evidence {
        program: "program".to_owned(),
        seconds,
        processes: 1,
        sockets: Sockets {
            processes: 1,
            seconds,
            most_open: asks.sockets,
            asks,
            ..Sockets::default()
        },
        ..Evidence::default()
    }
}

#[track_caller]
fn verdict(evidence: &Evidence) -> (Verdict, &'static str) {
    let judgement = judge(evidence, TRIP);
    (judgement.verdict, judgement.rule.id)
}

#[test]
fn without_a_socket_there_is_nothing_to_gain() {
    let mut evidence = asks(Lane::default(), 1.0);
    assert_eq!(verdict(&evidence), (Verdict::NoGain, "share"));
    evidence.sockets.listens = 1;
    assert_eq!(
        verdict(&evidence),
        (Verdict::Unknown, "thin"),
        "nobody came"
    );
    evidence.hidden_sockets = true;
    assert_eq!(
        verdict(&evidence).0,
        Verdict::Unknown,
        "its own system calls"
    );
    evidence = asks(Lane::default(), 1.0);
    evidence.processes = 0;
    assert_eq!(verdict(&evidence).0, Verdict::Unknown, "not loaded");
    evidence.processes = 1;
    evidence.sockets.unix = lockstep(10_000, 14, 10);
    assert_eq!(verdict(&evidence), (Verdict::NoGain, "host"));
}

/// Promise: what the recorder knows that it did not see is no ground for a verdict.
#[test]
fn what_was_not_seen_is_not_judged() {
    let seen = asks(lockstep(10_000, 16, 11), 0.4);
    let mut by_stdio = seen.clone();
    by_stdio.sockets.stdio = 1;
    assert_eq!(verdict(&by_stdio), (Verdict::Unknown, "thin"));
    let why = judge(&by_stdio, TRIP).why;
    assert!(why.contains("1 socket (fdopen)"), "{why}");
    // One of many is no habit.
    by_stdio.sockets.asks.sockets = 100;
    assert_ne!(verdict(&by_stdio).0, Verdict::Unknown);
    let mut crowd = seen;
    (crowd.sockets.uncounted, crowd.sockets.processes) = (44, 300);
    let why = judge(&crowd, TRIP).why;
    assert_eq!(verdict(&crowd).0, Verdict::Unknown);
    assert!(why.starts_with("44 of 300 processes"), "{why}");
}

#[test]
fn a_thin_trace_proves_nothing() {
    // 20 trips of 50 us.
    assert_eq!(
        verdict(&asks(lockstep(20, 16, 10), 0.01)),
        (Verdict::Unknown, "thin")
    );
    // The same few in a minute: it waits for something else.
    assert_eq!(
        verdict(&asks(lockstep(20, 16, 32), 60.0)),
        (Verdict::NoGain, "share")
    );
}

#[test]
fn who_waits_for_something_else_gains_nothing() {
    // An answer comes after 30 us, and the next question half a second later.
    let evidence = asks(lockstep(1000, 15, 30), 500.0);
    assert_eq!(verdict(&evidence), (Verdict::NoGain, "share"));
    assert!(judge(&evidence, TRIP).why.contains("1.00 times"));
}

#[test]
fn trips_are_for_rsockets_or_an_rpc() {
    // 10,000 trips of 33 us and 1 us between them, on one connection.
    let one = asks(lockstep(10_000, 16, 11), 0.4);
    assert_eq!(verdict(&one), (Verdict::Rsockets, "shim"));
    let mut many = one;
    many.sockets.most_open = 50;
    many.sockets.asks.sockets = 50;
    let judgement = judge(&many, TRIP);
    assert_eq!(judgement.verdict, Verdict::Rpc);
    let named = |name: &str| judgement.advice.iter().any(|a| a.parameter == name);
    assert!(named("shared receives") && named("inline limit") && !named("queue pairs"));
    assert!(matches!(judgement.leave, Some(Move::Calls { .. })));
    // A connection for each request.
    many.sockets.asks.sockets = 10_000;
    assert_eq!(verdict(&many), (Verdict::NoGain, "connect"));
}

#[test]
fn bulk_is_one_sided_and_a_stream_is_two_sided() {
    let bulk = Lane {
        sockets: 1,
        sent: flow(10_000, 18, 10_000, 30.0),
        ..Lane::default()
    };
    assert_eq!(verdict(&asks(bulk, 0.5)), (Verdict::OneSided, "bulk"));
    let stream = Lane {
        sockets: 1,
        sent: flow(100_000, 7, 100_000, 3.0),
        ..Lane::default()
    };
    assert_eq!(verdict(&asks(stream, 0.5)), (Verdict::TwoSided, "stream"));
    let mut datagrams = asks(Lane::default(), 0.5);
    datagrams.sockets.datagrams = Lane {
        sockets: 1,
        sent: flow(10_000, 7, 1, 3.0),
        ..Lane::default()
    };
    assert_eq!(verdict(&datagrams), (Verdict::TwoSided, "stream"));
}

/// A stream of short SENDs, 64 under way, as it should be.
fn stream() -> Verbs {
    let mut verbs = Verbs {
        processes: 1,
        queue_pairs: 1,
        requested_bytes: 64 * 100_000,
        posts: 100_000 / 16,
        inline: 100_000,
        signaled: 100_000 / 32,
        max_send_wr: 128,
        deepest: 100,
        mean_depth: 64.0,
        polls: 4000,
        path_mtu: 4096,
        seconds: 0.1,
        ..Verbs::default()
    };
    verbs.requests.send = spread(7, 100_000);
    verbs
}

fn of(verbs: Verbs) -> Evidence {
    Evidence {
        seconds: 0.1,
        processes: 1,
        verbs: Some(verbs),
        ..Evidence::default()
    }
}

/// What is objected to a program that differs from a good one by one habit.
#[track_caller]
fn objections(change: impl FnOnce(&mut Verbs)) -> Vec<&'static str> {
    let mut verbs = stream();
    change(&mut verbs);
    let judgement = judge(&of(verbs), TRIP);
    let card = Card::read(None).expect("the card that is built in");
    for advice in &judgement.advice {
        if let Some(change) = advice.change {
            assert!(
                change.before.check().is_ok() && change.after.check().is_ok(),
                "{advice:?}"
            );
            let gain = by_card(&card, &change).expect("a gain");
            assert!(gain.factor >= 0.99, "{advice:?}: {gain:?}");
        }
    }
    judgement
        .advice
        .iter()
        .map(|advice| advice.parameter)
        .collect()
}

#[test]
fn each_habit_has_its_advice() {
    assert_eq!(objections(|_| ()), [""; 0], "nothing to say");
    assert_eq!(objections(|v| v.inline = 0), ["inline limit"]);
    assert_eq!(objections(|v| v.signaled = 100_000), ["signal interval"]);
    assert_eq!(objections(|v| v.posts = 100_000), ["post lists"]);
    assert_eq!(
        objections(|v| (v.deepest, v.mean_depth) = (1, 1.0)),
        ["depth"]
    );
    assert_eq!(
        objections(|v| v.registrations = 100_000),
        ["pool", "regions"]
    );
    assert_eq!(objections(|v| v.rnr_naks = 1000), ["receives"]);
    assert_eq!(objections(|v| v.queue_pairs = 256), ["queue pairs"]);
    assert_eq!(
        objections(|v| {
            v.path_mtu = 1024;
            v.requests.send = spread(15, 100_000);
            v.requested_bytes = 16384 * 100_000;
            v.inline = 0;
        }),
        ["path MTU"]
    );
    assert_eq!(
        objections(|v| {
            v.requests.send = Spread::default();
            v.requests.atomic = spread(4, 100_000);
            v.inline = 0;
        }),
        ["atomics"]
    );
    // One message each way after the other, and an event for each.
    let events = |v: &mut Verbs| {
        (v.deepest, v.mean_depth, v.served_sends) = (1, 1.0, 100_000);
        v.both_ways = 1.0;
        (v.polls, v.arms) = (200_000, 150_000);
    };
    assert_eq!(objections(events), ["waiting"]);
}

#[test]
fn operations_tell_the_verdict() {
    assert_eq!(verdict(&of(stream())), (Verdict::TwoSided, "stream"));
    let mut verbs = stream();
    verbs.requests.write = std::mem::take(&mut verbs.requests.send);
    assert_eq!(
        verdict(&of(verbs.clone())),
        (Verdict::OneSided, "one-sided")
    );
    verbs.served_sends = 100_000;
    assert_eq!(verdict(&of(verbs)), (Verdict::Rpc, "lockstep"));
    let mut few = stream();
    few.requests.send = spread(7, 10);
    few.requested_bytes = 640;
    assert_eq!(verdict(&of(few)), (Verdict::Unknown, "thin"));
    assert_eq!(verdict(&of(Verbs::default())), (Verdict::Unknown, "thin"));
}

/// A program that failed before it did anything is not one that has no use for RDMA.
#[test]
fn a_program_that_failed_tells_nothing_by_doing_nothing() {
    let nothing = || judge(&asks(Lane::default(), 1.0), TRIP);
    assert_eq!(nothing().of_run(None).verdict, Verdict::NoGain);
    let failed = nothing().of_run(Some("it failed (exit status: 7)".to_owned()));
    assert_eq!(failed.verdict, Verdict::Unknown);
    assert!(
        failed.why.starts_with("it failed (exit status: 7); "),
        "{}",
        failed.why
    );
}
