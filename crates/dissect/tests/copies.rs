//! One file that both ends of a connection write: each packet is in it as sent and as received.

use crate::support::made::*;
use crate::support::{Owned, dissect, found, only};

const SLL: u16 = 113;

/// The frame as one of the two ends saw it.
fn seen(frame: &Owned, sent: bool, later_ns: u64) -> Owned {
    let kind = if sent { 4 } else { 0 };
    let link = [0, kind, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let bytes = [&link[..], &frame.bytes[14..]].concat();
    Owned {
        time_ns: frame.time_ns + later_ns,
        link_type: SLL,
        wire_len: frame.wire_len + 2,
        bytes,
    }
}

/// A message of 200 packets and its ACK, in a burst: all are sent before the first arrives.
fn burst() -> Made {
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], 1024);
    for psn in 1..199 {
        made.a(SEND_MIDDLE, psn, &[], 1024);
    }
    made.a(SEND_LAST, 199, &[], 8);
    made.b(ACKNOWLEDGE, 199, &aeth(ACK), 0);
    made
}

#[test]
fn each_packet_is_there_once() {
    let made = burst();
    let sent = made.frames.iter().map(|frame| seen(frame, true, 0));
    let received = made
        .frames
        .iter()
        .map(|frame| seen(frame, false, 3_000_000));
    // The ACK is sent when all has arrived.
    let mut frames: Vec<_> = sent.clone().take(200).collect();
    frames.extend(received.clone().take(200));
    frames.extend(sent.skip(200));
    frames.extend(received.skip(200));
    let (finished, packets) = dissect(&frames);
    let capture = &finished.capture;
    assert_eq!((capture.packets, capture.skipped.copies), (201, 201));
    assert_eq!(packets.len(), 201);
    let conversation = only(capture);
    assert_eq!(found(conversation), [""; 0]);
    assert_eq!(conversation.sides[0].repeat_count, 0);
    assert_eq!(conversation.sides[0].doubled_packets, 0);
}

/// The network doubled a packet, brought two in the wrong order, and lost one, which was sent again:
/// all of that is still to be seen.
#[test]
fn what_the_network_did_stays() {
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], 1024);
    made.a(SEND_MIDDLE, 1, &[], 1024);
    made.a(SEND_MIDDLE, 2, &[], 1024);
    made.a(SEND_LAST, 3, &[], 8);
    made.wait(20_000_000);
    made.a(SEND_LAST, 3, &[], 8);
    made.b(ACKNOWLEDGE, 3, &aeth(ACK), 0);
    let sent: Vec<_> = made
        .frames
        .iter()
        .map(|frame| seen(frame, true, 0))
        .collect();
    let received: Vec<_> = made
        .frames
        .iter()
        .map(|frame| seen(frame, false, 40_000))
        .collect();
    let frames = [
        &sent[..4],
        &received[..1],
        // A second copy of the first one, then 2 before 1; 3 is lost.
        &received[..1],
        &received[2..3],
        &received[1..2],
        &sent[4..5],
        &received[4..5],
        &sent[5..],
        &received[5..],
    ]
    .concat();
    let (finished, _) = dissect(&frames);
    let capture = &finished.capture;
    // 6 were sent, and one came twice.
    assert_eq!(capture.packets, 7);
    let conversation = only(capture);
    let side = &conversation.sides[0];
    assert_eq!(side.doubled_packets, 1, "{:?}", found(conversation));
    assert_eq!(side.repeated_packets, 1, "{:?}", found(conversation));
    assert!(
        found(conversation).contains(&"timeout"),
        "{:?}",
        found(conversation)
    );
}
