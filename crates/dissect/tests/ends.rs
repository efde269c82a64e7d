//! What is said of requests without an answer: "given up" only where the capture shows it, not
//! because it ends.

use crate::support::made::*;
use crate::support::{Owned, begin, dissect, found, frames, only, silence};
use rnic_dissect::{Outcome, Severity, What};

/// What is said of the message without an answer.
fn last_word(frames: &[Owned]) -> Option<What> {
    let (finished, _) = dissect(frames);
    let findings = &only(&finished.capture).findings;
    let mut all = findings.iter().map(|finding| finding.what.clone());
    all.find(|what| matches!(what, What::GaveUp { .. } | What::Unanswered { .. }))
}

/// In truth each of these succeeds later: the status may not be claimed.
#[test]
fn a_capture_that_ends_between_two_attempts_does_not_say_given_up() {
    for (name, count, sent, told_to_wait, was_answered) in [
        ("drop_read_req_v4", 2, 2, false, false),
        ("rc_rnr_v4", 4, 2, true, false),
        ("drop_atomic_ack_v4", 3, 2, false, true),
        ("rc_timeout_exc_v4", 4, 2, false, false),
    ] {
        let what = last_word(&begin(name, count)).expect(name);
        let What::Unanswered {
            times,
            rnr,
            answered,
            ..
        } = what
        else {
            panic!("{name}: {what:?}")
        };
        assert_eq!(
            (times, rnr, answered),
            (sent, told_to_wait, was_answered),
            "{name}"
        );
        assert_eq!(what.severity(), Severity::Open);
    }
}

/// A capture that goes on for longer than twice the longest wait shows that no further attempt
/// comes.
#[test]
fn silence_long_enough_is_giving_up() {
    const MS: u64 = 1_000_000;
    for (name, longest_ms, told_to_wait) in [
        ("rc_timeout_exc_v4", 21, false),
        ("rc_rnr_exc_v6", 15, true),
    ] {
        let what = last_word(&silence(frames(name), longest_ms * MS));
        assert!(matches!(what, Some(What::Unanswered { .. })), "{what:?}");
        let what = last_word(&silence(frames(name), 3 * longest_ms * MS));
        let Some(What::GaveUp { rnr, .. }) = what else {
            panic!("{name}: {what:?}")
        };
        assert_eq!(rnr, told_to_wait);
        assert_eq!(what.map(|what| what.severity()), Some(Severity::Failed));
    }
    // Answers that were seen are not "never answered".
    let what = last_word(&silence(begin("drop_atomic_ack_v4", 3), 1000 * MS));
    assert!(
        matches!(what, Some(What::GaveUp { answered: true, .. })),
        "{what:?}"
    );
}

/// Told to wait once, and never seen to send again: how long it takes is not known, but not for
/// ever.
#[test]
fn one_rnr_nak_and_silence() {
    const MS: u64 = 1_000_000;
    let unanswered = begin("rc_rnr_v4", 2);
    for (silent_ms, given_up) in [(25, false), (90, false), (180, true)] {
        let what = last_word(&silence(unanswered.clone(), silent_ms * MS)).expect("a finding");
        let (What::GaveUp { times, rnr, .. } | What::Unanswered { times, rnr, .. }) = what else {
            panic!("{what:?}")
        };
        assert_eq!((times, rnr), (1, true));
        let expected = match given_up {
            true => Severity::Failed,
            false => Severity::Open,
        };
        assert_eq!(what.severity(), expected, "{silent_ms} ms: {what:?}");
    }
}

/// It did wait and was sent again: what then is missing is an answer, for which no timer is known.
/// The peer is there, for it had answered that it was not ready.
#[test]
fn silence_after_a_wait_that_was_obeyed_is_no_giving_up() {
    // Soft-RoCE's NAK behind the RNR NAK, obeyed before the wait is over.
    let mut by_nak = Made::default();
    by_nak.a(SEND_FIRST, 0, &[], 1024);
    by_nak.b(ACKNOWLEDGE, 0, &aeth(NOT_READY), 0);
    by_nak.a(SEND_LAST, 1, &[], 8);
    by_nak.b(ACKNOWLEDGE, 0, &aeth(SEQUENCE_ERROR), 0);
    by_nak.a(SEND_FIRST, 0, &[], 1024);
    by_nak.a(SEND_LAST, 1, &[], 8);
    let recorded = |count| begin("rc_rnr_v4", count);
    for (frames, sent) in [(recorded(3), 2), (recorded(5), 3), (by_nak.frames, 2)] {
        let what = last_word(&silence(frames, 1_000_000_000));
        let Some(What::Unanswered {
            times,
            rnr,
            ever_answered,
            ..
        }) = what
        else {
            panic!("sent {sent} times: {what:?}")
        };
        assert_eq!((times, rnr, ever_answered), (sent, false, true));
    }
}

/// A PSN that the capture lacks: it came again, or nobody knows.
#[test]
fn a_gap_is_repaired_only_if_it_was_filled() {
    for (fills, expected) in [(true, Severity::Repaired), (false, Severity::Open)] {
        let mut made = Made::default();
        made.a(SEND_ONLY, 0, &[], 8);
        made.a(SEND_ONLY, 2, &[], 8);
        made.wait(20_000_000);
        if fills {
            made.a(SEND_ONLY, 1, &[], 8);
        }
        made.a(SEND_ONLY, 3, &[], 8);
        made.b(ACKNOWLEDGE, 3, &aeth(ACK), 0);
        let (finished, _) = dissect(&made.frames);
        let findings = &only(&finished.capture).findings;
        let mut gaps = findings.iter().filter(|one| one.what.name() == "gap");
        let severity = gaps.next().map(|gap| gap.what.severity());
        assert_eq!((severity, gaps.count()), (Some(expected), 0));
    }
}

/// The REP asks for one RNR retry (as changed here): the second RNR NAK is the end, however soon
/// the capture ends.
#[test]
fn retries_that_the_connection_manager_named_are_counted() {
    let rnr_retries = |limit: u8| {
        let mut all = frames("cm_rping_v4");
        // REQ, REP, RTU, and A's first SEND, which is not answered.
        all.truncate(4);
        // Behind Ethernet, IPv4, UDP, BTH, DETH and MAD headers: byte 27 of the REP, its upper 3
        // bits.
        let at = 14 + 20 + 8 + 12 + 8 + 24 + 27;
        all[1].bytes[at] = all[1].bytes[at] & 0x1f | limit << 5;
        all[1].bytes.pop();
        // An ACK of B's, made an RNR NAK, and the SEND again.
        let mut nak = frames("cm_rping_v4").swap_remove(4);
        let aeth = 14 + 20 + 8 + 12;
        nak.bytes[aeth] = 0x20 | 1;
        nak.bytes.pop();
        let mut again = all[3].clone();
        again.time_ns = nak.time_ns + 1_000_000;
        let mut second = nak.clone();
        second.time_ns = again.time_ns + 10_000;
        all.extend([nak, again, second]);
        last_word(&all)
    };
    let what = rnr_retries(1);
    assert!(
        matches!(
            what,
            Some(What::GaveUp {
                rnr: true,
                times: 2,
                ..
            })
        ),
        "{what:?}"
    );
    let what = rnr_retries(2);
    assert!(matches!(what, Some(What::Unanswered { .. })), "{what:?}");
}

/// A UC message of which nothing but the end is missing when the capture ends: whether it was lost
/// nobody knows.
#[test]
fn a_capture_that_ends_within_a_uc_message_says_so() {
    for (begin, lost) in [(0, None), (1, None), (0, Some(1))] {
        let mut made = Made::default();
        for psn in begin..3u32 {
            let opcode = if psn == 0 { SEND_FIRST } else { SEND_MIDDLE };
            if lost != Some(psn) {
                made.a(UC + opcode, psn, &[], 1024);
            }
        }
        let frames = silence(made.frames, 5000);
        let (finished, _) = dissect(&frames);
        let conversation = only(&finished.capture);
        let outcome = conversation.sides[0].messages[0].outcome;
        if lost.is_some() {
            assert_eq!(outcome, Outcome::Lost);
            assert_eq!(found(conversation), ["uc-lost"]);
            continue;
        }
        assert_eq!(outcome, Outcome::Cut);
        let what = &conversation.findings.last().expect("a finding").what;
        let within = What::EndsWithin {
            message: 1,
            ns_to_end: 5000,
        };
        assert_eq!((what, what.severity()), (&within, Severity::Open));
    }
}

/// A READ of which some responses came: how many, and the last one.
#[test]
fn a_read_that_is_answered_in_part_says_how_far() {
    let mut made = Made::default();
    made.a(READ, 0, &reth(1 << 20), 0);
    made.b(RESPONSE_FIRST, 0, &aeth(ACK), 1024);
    (1..700).for_each(|psn| made.b(RESPONSE_MIDDLE, psn, &[], 1024));
    let (finished, _) = dissect(&made.frames);
    let message = &only(&finished.capture).sides[0].messages[0];
    assert_eq!(
        (message.answered, message.span, message.last_response),
        (700, 1024, Some(701))
    );
    assert_eq!(message.answered_bytes, 700 * 1024);
}
