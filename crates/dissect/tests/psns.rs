//! PSNs far apart: READs take many of them at once, and after 2^24 they begin anew.

use crate::support::made::*;
use crate::support::{dissect, found, only};
use rnic_dissect::{Cause, Mark, Outcome, What};

const MTU: u16 = 1024;

/// A READ of 1 GiB takes 2^20 PSNs at once. Asked for again from its middle, it lies that far
/// behind the next one.
#[test]
fn a_long_read_asked_for_again_is_no_reset() {
    const LEN: u32 = 1 << 30;
    let mut made = Made::default();
    made.a(READ, 0, &reth(LEN), 0);
    made.b(RESPONSE_FIRST, 0, &aeth(ACK), MTU);
    made.b(RESPONSE_MIDDLE, 1, &[], MTU);
    // The third one is lost.
    made.b(RESPONSE_MIDDLE, 3, &[], MTU);
    made.a(READ, 2, &reth(LEN - 2 * u32::from(MTU)), 0);
    made.b(RESPONSE_FIRST, 2, &aeth(ACK), MTU);
    let (finished, packets) = dissect(&made.frames);
    let conversation = only(&finished.capture);
    assert_eq!(
        found(conversation),
        ["read-again", "unanswered", "response-gap"]
    );
    assert_eq!(conversation.sides[0].message_count, 1);
    let mark = packets[4].1.map(|place| place.mark);
    assert!(
        matches!(mark, Some(Mark::Repeated { index: 3, .. })),
        "{mark:?}"
    );
}

/// The oldest of ten READs of 16 MiB, which are all answered: its last response was lost behind the
/// capture.
#[test]
fn the_oldest_of_many_reads_may_be_asked_for_again() {
    const PSNS: u32 = 1 << 14;
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], MTU);
    made.a(SEND_LAST, 1, &[], 100);
    made.b(ACKNOWLEDGE, 1, &aeth(ACK), 0);
    for n in 0..10 {
        made.a(READ, 2 + n * PSNS, &reth(PSNS * u32::from(MTU)), 0);
    }
    for n in 0..10 {
        let first = 2 + n * PSNS;
        made.b(RESPONSE_FIRST, first, &aeth(ACK), MTU);
        for at in 1..PSNS - 1 {
            made.b(RESPONSE_MIDDLE, first + at, &[], MTU);
        }
        made.b(RESPONSE_LAST, first + PSNS - 1, &aeth(ACK), MTU);
    }
    made.wait(100_000_000);
    made.a(READ, 2 + PSNS - 1, &reth(u32::from(MTU)), 0);
    let (finished, _) = dissect(&made.frames);
    let conversation = only(&finished.capture);
    assert_eq!(found(conversation), ["read-again", "unanswered"]);
    let causes = conversation.sides[0].repeats.iter().map(|r| r.cause);
    assert_eq!(causes.collect::<Vec<_>>(), [Cause::Timeout]);
}

/// What was answered long ago is not sent again: the queue pair has begun anew.
#[test]
fn a_jump_to_what_is_done_is_a_reset() {
    const COUNT: u32 = 1500;
    let mut made = Made::default();
    let mut write = |psn: u32| {
        made.a(SEND_FIRST, psn, &[], MTU);
        for at in 1..99 {
            made.a(SEND_MIDDLE, psn + at, &[], MTU);
        }
        made.a(SEND_LAST, psn + 99, &[], 100);
        made.b(ACKNOWLEDGE, psn + 99, &aeth(ACK), 0);
    };
    (0..COUNT).for_each(|n| write(n * 100));
    write(0);
    let (finished, _) = dissect(&made.frames);
    let conversation = only(&finished.capture);
    assert_eq!(found(conversation), ["restart"]);
    assert_eq!(conversation.sides[0].message_count, u64::from(COUNT) + 1);
}

/// READs of 64 MiB, more than go round once: what comes then finds its messages, an answered one
/// and one refused.
#[test]
fn messages_are_found_after_half_of_all_psns() {
    const PSNS: u32 = 1 << 16;
    for (count, unanswered) in [(100, false), (300, false), (300, true)] {
        let mut made = Made::default();
        made.a(SEND_FIRST, 0, &[], MTU);
        made.a(SEND_LAST, 1, &[], 100);
        made.b(ACKNOWLEDGE, 1, &aeth(ACK), 0);
        for n in 0..count {
            let first = 2 + n * PSNS;
            made.a(READ, first, &reth(PSNS * u32::from(MTU)), 0);
            if n == 0 && unanswered {
                continue;
            }
            // A span of one response in the capture is enough to be found.
            made.b(RESPONSE_FIRST, first, &aeth(ACK), MTU);
        }
        let psn = 2 + count * PSNS;
        made.a(WRITE_ONLY, psn, &reth(100), 100);
        made.b(ACKNOWLEDGE, psn, &aeth(0x62), 0);
        let (finished, packets) = dissect(&made.frames);
        let conversation = only(&finished.capture);
        let orphan = |mark| matches!(mark, Mark::Orphan | Mark::Stray);
        let lost: Vec<_> = packets
            .iter()
            .filter(|(_, place)| place.is_some_and(|place| orphan(place.mark)))
            .map(|(packet, _)| packet.number)
            .collect();
        assert_eq!(lost, [0; 0], "{count} {unanswered}");
        let last = conversation.sides[0].messages.last().expect("a message");
        assert!(
            matches!(last.outcome, Outcome::Refused { .. }),
            "{count} {unanswered}: {last:?}"
        );
        let told = found(conversation);
        assert!(told.contains(&"refused"), "{told:?}");
    }
}

/// A READ without an answer in the capture, long ago: it is the oldest one that has none.
#[test]
fn an_unanswered_message_is_told_however_long_ago() {
    const PSNS: u32 = 1 << 16;
    let mut made = Made::default();
    made.a(SEND_ONLY, 0, &[], 8);
    made.b(ACKNOWLEDGE, 0, &aeth(ACK), 0);
    made.a(READ, 1, &reth(PSNS * 256), 0);
    for n in 0..400 {
        let first = 1 + PSNS + n * 128;
        made.a(SEND_FIRST, first, &[], 256);
        for at in 1..127 {
            made.a(SEND_MIDDLE, first + at, &[], 256);
        }
        made.a(SEND_LAST, first + 127, &[], 8);
        made.b(ACKNOWLEDGE, first + 127, &aeth(ACK), 0);
    }
    for n in 0..300 {
        let first = 1 + PSNS + 400 * 128 + n * PSNS;
        made.a(READ, first, &reth(PSNS * 256), 0);
        made.b(RESPONSE_ONLY, first, &aeth(ACK), 256);
    }
    let (finished, _) = dissect(&made.frames);
    let conversation = only(&finished.capture);
    let told: Vec<_> = conversation
        .findings
        .iter()
        .filter_map(|finding| match finding.what {
            What::Unanswered { message, .. } => Some((message, finding.packets[0])),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(2, 3)]);
}
