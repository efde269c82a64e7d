//! Captures as they would look had the network lost, turned or doubled packets before the place of
//! the capture.

use crate::support::made::*;
use crate::support::{dissect, dissect_within, found, frames, only, without};
use rnic_dissect::{Kind, Limits, Mark, Outcome, PeerHad, Severity, What};
use rnic_wire::NakCode;

#[test]
fn a_request_lost_before_the_capture() {
    // The packet that the NAK asks for was never seen.
    let capture = without("drop_send_mid_v4", &[3]);
    let conversation = only(&capture);
    assert_eq!(found(conversation), ["gap", "lost"]);
    let lost = conversation
        .findings
        .iter()
        .find_map(|finding| match finding.what {
            What::Lost { sent, .. } => Some(sent),
            _ => None,
        });
    assert_eq!(lost, Some(None));
    let message = &conversation.sides[0].messages[0];
    assert_eq!(
        (message.packets, message.bytes, message.missing),
        (5, 4500, 0)
    );
    assert!(matches!(message.outcome, Outcome::Done { .. }));
    let side = &conversation.sides[0];
    assert_eq!(side.missing_packets, 0);
    // The packet that fills the gap counts as sent again, as those behind it.
    let repeated: u32 = side.repeats.iter().map(|repeat| repeat.packets).sum();
    assert_eq!(
        (repeated, side.repeated_packets, message.repeated),
        (3, 3, 3)
    );
}

#[test]
fn an_overtaken_request_is_no_retransmission() {
    let mut all = frames("rc_send_v4");
    // Middle and last of the message of three.
    all.swap(3, 4);
    let (finished, packets) = dissect(&all);
    let conversation = only(&finished.capture);
    assert_eq!(found(conversation), ["reordered"]);
    let side = &conversation.sides[0];
    assert_eq!((side.reordered, side.repeat_count), (1, 0));
    let marks: Vec<_> = packets
        .iter()
        .filter_map(|(_, place)| place.map(|p| p.mark))
        .collect();
    assert!(marks.contains(&Mark::Reordered { index: 2 }), "{marks:?}");
    assert_eq!(side.messages[1].bytes, 3072);
}

#[test]
fn a_first_that_comes_late_joins_its_message() {
    let mut all = frames("rc_send_v4");
    all.swap(2, 3);
    let (finished, _) = dissect(&all);
    let side = &only(&finished.capture).sides[0];
    let bytes: Vec<_> = side.messages.iter().map(|message| message.bytes).collect();
    assert_eq!(bytes, [10, 3072, 0, 1024, 1025, 4]);
    assert!(side.messages.iter().all(|message| !message.headless));
}

/// The LAST of a message and the FIRST of the next come late, behind packets of the next: these are
/// not taken for the former's.
#[test]
fn two_messages_whose_border_comes_late_stay_two() {
    let captured = frames("drop_send_mid_v4");
    let (_, packets) = dissect(&captured);
    let full = |n: &usize| packets[*n].0.bth.opcode.0 == 1;
    let template = &captured[(0..captured.len()).find(full).expect("a MIDDLE")];
    let bth = 14 + 20 + 8;
    // FIRST, MIDDLE, LAST, and again.
    let all: Vec<_> = (0..6u8)
        .map(|n| {
            let mut frame = template.clone();
            frame.bytes[bth] = n % 3;
            frame.bytes[bth + 9..bth + 12].copy_from_slice(&[0, 0, n]);
            // Without the end of the ICRC, so that it is not checked.
            frame.bytes.truncate(frame.bytes.len() - 1);
            frame.time_ns += u64::from(n) * 1000;
            frame
        })
        .collect();
    let (straight, _) = dissect(&all);
    let of = |finished: &rnic_dissect::Finished| -> Vec<_> {
        let side = &only(&finished.capture).sides[0];
        let messages = side.messages.iter();
        messages
            .map(|m| {
                (
                    m.psn, m.span, m.bytes, m.packets, m.missing, m.headless, m.complete,
                )
            })
            .collect()
    };
    for turned in [false, true] {
        let mut late = all.clone();
        let (first, last) = (late.remove(3), late.remove(2));
        let moved = if turned { [first, last] } else { [last, first] };
        late.splice(3..3, moved);
        let (finished, _) = dissect(&late);
        assert_eq!(of(&finished), of(&straight));
        assert!(!found(only(&finished.capture)).contains(&"restart"));
    }
}

#[test]
fn uc_messages_with_a_hole_are_dropped() {
    // The middle of the second message; the last of it.
    for (frame, missing) in [(3, 1), (4, 0)] {
        let capture = without("uc_v4", &[frame]);
        let conversation = only(&capture);
        assert_eq!(found(conversation), ["uc-lost"], "without {frame}");
        let What::UcLost {
            message,
            missing: is,
        } = conversation.findings[0].what
        else {
            panic!()
        };
        assert_eq!((message, is), (2, missing));
        let outcomes: Vec<_> = conversation.sides[0]
            .messages
            .iter()
            .map(|m| m.outcome)
            .collect();
        assert_eq!(outcomes.iter().filter(|o| **o == Outcome::Lost).count(), 1);
    }
}

#[test]
fn a_response_lost_before_the_capture() {
    let capture = without("drop_read_resp_mid_v4", &[4]);
    let conversation = only(&capture);
    assert_eq!(
        found(conversation),
        ["read-again", "response-gap", "middle-answer"]
    );
    let again = &conversation.findings[0].what;
    assert!(
        matches!(again, What::ReadAgain { seen: false, .. }),
        "{again:?}"
    );
    assert!(matches!(
        conversation.sides[0].messages[0].outcome,
        Outcome::Done { number: 9, .. }
    ));
}

/// A packet of its own that the capture lacks, and that comes again once the timer has run out: the
/// wait is told from the gap.
#[test]
fn a_message_that_fills_a_gap_late_is_a_timeout() {
    let mut all = frames("rc_send_v4");
    let late = all.remove(8);
    let mut again = late.clone();
    again.time_ns = all.last().expect("a frame").time_ns + 100_000_000;
    all.retain(|frame| frame.bytes.len() > 66);
    all.push(again);
    let (finished, _) = dissect(&all);
    let causes: Vec<_> = only(&finished.capture).sides[0]
        .repeats
        .iter()
        .map(|repeat| (repeat.cause, repeat.waited_ns >= 100_000_000))
        .collect();
    assert_eq!(causes, [(rnic_dissect::Cause::Timeout, true)]);
}

#[test]
fn an_ack_lost_before_the_capture() {
    let capture = without("drop_write_ack_v4", &[6]);
    let had = only(&capture)
        .findings
        .iter()
        .find_map(|finding| match finding.what {
            What::Timeout {
                acknowledged_by: None,
                peer_had,
                ..
            } => Some(peer_had),
            _ => None,
        });
    // One ACK for each duplicate says that the peer had it all.
    assert_eq!(had, Some(PeerHad::All { reply: 11 }));
}

#[test]
fn one_direction_alone() {
    let name = "rc_read_v4";
    let all = frames(name);
    let (_, packets) = dissect(&all);
    let first = packets[0].0.outer.flow.src;
    for requests in [true, false] {
        let half: Vec<_> = packets
            .iter()
            .zip(&all)
            .filter(|((packet, _), _)| (packet.outer.flow.src == first) == requests)
            .map(|(_, frame)| frame.clone())
            .collect();
        let (finished, _) = dissect(&half);
        let conversation = only(&finished.capture);
        assert!(conversation.ends[0].qpn.is_none());
        let expected = if requests { "unanswered" } else { "orphans" };
        assert_eq!(found(conversation), [expected]);
        // All answers, or the first request.
        let named = &conversation.findings[0].packets;
        assert_eq!(named.len(), if requests { 1 } else { half.len() });
    }
}

#[test]
fn a_capture_that_begins_within_a_message() {
    let all = frames("rc_stream256_v4");
    let (finished, _) = dissect(&all[10..]);
    let conversation = only(&finished.capture);
    assert!(conversation.sides[0].messages[0].headless);
    assert_eq!(found(conversation), ["headless"]);
}

#[test]
fn conversations_side_by_side_are_told_apart_by_their_psns() {
    // Five queue pairs with the same PSNs, one after the other; here all requests come before all
    // answers.
    let all = frames("rc_badrkey_v4");
    let (requests, answers): (Vec<_>, Vec<_>) = {
        let (_, packets) = dissect(&all);
        let first = packets[0].0.outer.flow.src;
        let mut requests = Vec::new();
        let mut answers = Vec::new();
        for ((packet, _), frame) in packets.iter().zip(&all) {
            match packet.outer.flow.src == first {
                true => requests.push(frame.clone()),
                false => answers.push(frame.clone()),
            }
        }
        (requests, answers)
    };
    let mixed: Vec<_> = requests.into_iter().chain(answers).collect();
    let (finished, _) = dissect(&mixed);
    let capture = finished.capture;
    assert_eq!(capture.conversations.len(), 5);
    for conversation in &capture.conversations {
        let [a, b] = conversation.ends.map(|end| end.qpn.unwrap());
        // Soft-RoCE's source ports tell them apart: 0x3b and 0x23b, and so on.
        assert_eq!(a + 0x200, b);
    }
}

#[test]
fn a_packet_that_the_network_doubled_is_no_timeout() {
    let mut all = frames("rc_send_v4");
    // The middle of the message of three, 20 us later, before its LAST.
    let mut copy = all[3].clone();
    copy.time_ns += 20_000;
    all.insert(4, copy);
    let (finished, _) = dissect(&all);
    let conversation = only(&finished.capture);
    assert_eq!(found(conversation), ["early"]);
    let side = &conversation.sides[0];
    assert_eq!(side.messages[1].bytes, 3072);
    assert_eq!((side.repeat_count, side.doubled_packets), (0, 1));
    assert_eq!((side.repeats.len(), side.messages[1].repeated), (0, 0));
}

/// `tcpdump -i any` shows a packet at a bond and at its slave: SLL2 says at which interface, the
/// file does not.
#[test]
fn a_packet_at_two_interfaces_counts_once() {
    let at = |frame: &Owned, ifindex: u8| {
        let mut header = vec![0; 20];
        header[..2].copy_from_slice(&[0x08, 0x00]);
        header[7] = ifindex;
        let mut frame = frame.clone();
        frame.bytes.splice(..14, header);
        frame.link_type = 276;
        frame.time_ns += u64::from(ifindex) * 1000;
        frame
    };
    let all = frames("drop_send_mid_v4");
    let twice = |other| -> Vec<_> {
        let both = |frame| [at(frame, 1), at(frame, other)];
        all.iter().flat_map(both).collect()
    };
    let (finished, _) = dissect(&twice(2));
    let capture = &finished.capture;
    assert_eq!((capture.packets, capture.skipped.copies), (10, 10));
    let conversation = only(capture);
    assert_eq!(found(conversation), ["lost"]);
    assert_eq!(conversation.sides[0].repeat_count, 1);
    // Where nothing tells the interfaces apart, the copies are counted as such, once for all.
    let (finished, _) = dissect(&twice(1));
    let conversation = only(&finished.capture);
    let found = found(conversation);
    assert!(found.contains(&"captured-twice"), "{found:?}");
    assert!(!found.contains(&"early"), "{found:?}");
}

/// Three of four packets are sent again within 10 ms, each seen going out and coming in: what an
/// interface has shown once is no copy when it shows it again.
#[test]
fn a_fast_retransmission_at_two_interfaces_is_no_copy() {
    let cooked = |frame: &Owned, ifindex: u8| {
        let mut header = vec![0; 20];
        header[..2].copy_from_slice(&[0x08, 0x00]);
        header[7] = ifindex;
        let mut frame = frame.clone();
        frame.bytes.splice(..14, header);
        frame.wire_len += 6;
        frame.link_type = 276;
        frame.time_ns += u64::from(ifindex) * 1000;
        frame
    };
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], 1024);
    for again in [false, true] {
        made.a(SEND_MIDDLE, 1, &[], 1024);
        made.a(SEND_MIDDLE, 2, &[], 1024);
        made.a(SEND_LAST, 3, &[], 100);
        let syndrome = if again { ACK } else { 0x60 };
        made.b(ACKNOWLEDGE, if again { 3 } else { 1 }, &aeth(syndrome), 0);
    }
    // At both; the second interface has lost the first packet 2, or shows all of a burst late.
    let both = |frame| [cooked(frame, 1), cooked(frame, 2)];
    let twice: Vec<_> = made.frames.iter().flat_map(both).collect();
    let mut lossy = twice.clone();
    lossy.remove(3);
    let mut late = twice.clone();
    late[..8].sort_by_key(|frame| frame.bytes[7]);
    for (frames, copies) in [(twice, 9), (lossy, 8), (late, 9)] {
        let (finished, _) = dissect(&frames);
        let capture = &finished.capture;
        assert_eq!((capture.packets, capture.skipped.copies), (9, copies));
        let side = &only(capture).sides[0];
        assert_eq!((side.repeat_count, side.repeated_packets), (1, 3));
        assert_eq!(found(only(capture)), ["lost"]);
    }
}

fn peer_had(frames: &[Owned]) -> PeerHad {
    let (finished, _) = dissect(frames);
    let mut findings = only(&finished.capture).findings.iter();
    let had = findings.find_map(|finding| match finding.what {
        What::Timeout { peer_had, .. } => Some(peer_had),
        _ => None,
    });
    had.expect("a timeout")
}

/// Packets 6 to 10 are sent again; 11 to 14 acknowledge PSN 3 of 4. One such ACK behind the
/// repeated packet may be that packet's own; several, or one ahead of it, are answers to
/// duplicates, and show what the peer had had.
#[test]
fn one_ack_does_not_show_what_the_peer_had() {
    let all = frames("drop_send_last_v4");
    let psn = rnic_wire::Psn::new(0x10_0003);
    let up_to = |reply| PeerHad::UpTo { psn, reply };
    assert_eq!(peer_had(&all), up_to(11));
    let mut once = all.clone();
    once.drain(11..14);
    assert_eq!(peer_had(&once), PeerHad::Unknown);
    let mut ahead = once;
    ahead[10].time_ns = ahead[6].time_ns;
    ahead[7..11].rotate_right(1);
    assert_eq!(peer_had(&ahead), up_to(8));
}

/// A corrupted packet is in the capture: what misses it names it, instead of a loss before the
/// capture.
#[test]
fn a_gap_names_the_packet_with_a_wrong_icrc() {
    let mut all = frames("drop_send_mid_v4");
    *all[2].bytes.last_mut().expect("an ICRC") ^= 1;
    let (finished, _) = dissect(&all);
    let findings = &only(&finished.capture).findings;
    let bad: Vec<_> = findings
        .iter()
        .map(|finding| (finding.what.name(), finding.bad.clone()))
        .collect();
    assert_eq!(bad, [("gap", vec![3]), ("lost", vec![3])]);
    // The same of an answer: the last one.
    let mut all = frames("rc_send_v4");
    let last = all.last_mut().expect("an ACK");
    *last.bytes.last_mut().expect("an ICRC") ^= 1;
    let (finished, _) = dissect(&all);
    let finding = &only(&finished.capture).findings[0];
    assert_eq!(finding.what.name(), "unanswered");
    assert_eq!(finding.bad, [all.len() as u64]);
}

/// Two captures of the same packets, put together, with clocks 3 ms or 3 s apart: what comes again
/// nobody sent again.
#[test]
fn a_file_of_two_captures_has_no_timeouts() {
    let mut reads = Made::default();
    reads.numbered = true;
    for n in 0..20 {
        reads.a(READ, 3 * n, &reth(3 * 1024), 0);
        reads.b(RESPONSE_FIRST, 3 * n, &aeth(ACK), 1024);
        reads.b(RESPONSE_MIDDLE, 3 * n + 1, &[], 1024);
        reads.b(RESPONSE_LAST, 3 * n + 2, &aeth(ACK), 1024);
    }
    for one in [frames("rc_stream1024_v4"), reads.frames] {
        for skew_ns in [200_000, 3_000_000, 3_000_000_000] {
            let mut all = one.clone();
            all.extend(one.iter().map(|frame| {
                let mut copy = frame.clone();
                copy.time_ns += skew_ns;
                copy
            }));
            all.sort_by_key(|frame| frame.time_ns);
            let (finished, _) = dissect(&all);
            let conversation = only(&finished.capture);
            assert_eq!(found(conversation), ["captured-twice"], "{skew_ns}");
            let side = &conversation.sides[0];
            assert_eq!((side.repeat_count, side.repeats.len()), (0, 0));
            assert_eq!(side.doubled_packets, side.request_packets);
            assert!(side.messages.iter().all(|message| message.repeated == 0));
        }
    }
}

/// All that was sent is sent again after a timeout, and answered again: one ACK each time, so this
/// is no second capture.
#[test]
fn a_message_sent_again_as_a_whole_is_a_timeout() {
    let mut made = Made::default();
    for _ in 0..2 {
        made.a(SEND_FIRST, 0, &[], 1024);
        for psn in 1..30 {
            made.a(SEND_MIDDLE, psn, &[], 1024);
        }
        made.a(SEND_LAST, 30, &[], 100);
        made.b(ACKNOWLEDGE, 30, &aeth(ACK), 0);
        made.wait(100_000_000);
    }
    let (finished, _) = dissect(&made.frames);
    assert_eq!(found(only(&finished.capture)), ["timeout"]);
    // Or an answer to each, by who numbers no packets.
    let mut made = Made::default();
    for _ in 0..2 {
        for n in 0..20 {
            made.a(READ, n, &reth(1024), 0);
        }
        for n in 0..20 {
            made.b(RESPONSE_ONLY, n, &aeth(ACK), 1024);
        }
        made.wait(100_000_000);
    }
    let (finished, _) = dissect(&made.frames);
    let said = found(only(&finished.capture));
    assert!(!said.contains(&"captured-twice"), "{said:?}");
}

/// A datagram carries the Q_Key of its receiver: each direction has its own.
#[test]
fn each_direction_of_datagrams_has_its_q_key() {
    let mut made = Made::default();
    for psn in 0..3 {
        made.a(UD_SEND_ONLY, psn, &deth(0x2222, 0x11), 64);
        made.b(UD_SEND_ONLY, psn, &deth(0x1111, 0x22), 64);
    }
    let (finished, _) = dissect(&made.frames);
    let conversation = only(&finished.capture);
    assert_eq!(conversation.qkeys, [[(0x2222, 3)], [(0x1111, 3)]]);
    assert_eq!(found(conversation), [""; 0]);
    // Another one to the same queue pair is dropped for good.
    made.b(UD_SEND_ONLY, 3, &deth(0x2222, 0x22), 64);
    let (finished, _) = dissect(&made.frames);
    let findings = &only(&finished.capture).findings;
    assert_eq!((findings.len(), findings[0].side), (1, 1));
    let wrong = What::Qkey {
        qkey: 0x2222,
        expected: 0x1111,
    };
    assert_eq!(findings[0].what, wrong);
    assert_eq!(wrong.severity(), Severity::Failed);
}

/// A responder refuses at the first packet that it cannot take, while the requester still sends the
/// others: what was refused is the whole message, also where messages are no longer kept.
#[test]
fn a_refusal_in_the_middle_of_a_message_is_of_all_of_it() {
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], 1024);
    made.b(ACKNOWLEDGE, 0, &aeth(INVALID_REQUEST), 0);
    made.a(SEND_MIDDLE, 1, &[], 1024);
    made.a(SEND_LAST_IMM, 2, &[1, 2, 3, 4], 10);
    for messages in [1, 0] {
        let limits = Limits {
            messages,
            ..Limits::default()
        };
        let (finished, _) = dissect_within(limits, &made.frames);
        let conversation = only(&finished.capture);
        assert_eq!(conversation.sides[0].messages.len(), messages);
        let [refused] = &conversation.findings[..] else {
            panic!("{:?}", conversation.findings)
        };
        assert_eq!(refused.packets, [1, 2]);
        let all = What::Refused {
            message: 1,
            kind: Kind::SendImm,
            code: NakCode::InvalidRequest,
            remote: None,
            bytes: 2058,
        };
        assert_eq!(refused.what, all);
    }
}

/// The FIRST of a refused message comes last, or its LAST and the FIRST of the next one: one
/// refusal stays one.
#[test]
fn a_refusal_stays_one_whatever_comes_late() {
    let mut first_late = Made::default();
    first_late.a(SEND_ONLY, 0, &[], 8);
    first_late.a(SEND_MIDDLE, 2, &[], 1024);
    first_late.b(ACKNOWLEDGE, 2, &aeth(INVALID_REQUEST), 0);
    first_late.a(SEND_FIRST, 1, &[], 1024);
    let mut border_late = Made::default();
    border_late.a(SEND_FIRST, 0, &[], 1024);
    border_late.a(SEND_LAST, 3, &[], 8);
    border_late.b(ACKNOWLEDGE, 0, &aeth(INVALID_REQUEST), 0);
    border_late.a(SEND_FIRST, 2, &[], 1024);
    border_late.a(SEND_LAST, 1, &[], 8);
    for (made, id, bytes) in [(first_late, 2, 2048), (border_late, 1, 1032)] {
        let (finished, _) = dissect(&made.frames);
        let conversation = only(&finished.capture);
        let told = conversation.findings.iter();
        let told: Vec<_> = told
            .filter_map(|finding| match finding.what {
                What::Refused { message, bytes, .. } => Some((message, bytes)),
                _ => None,
            })
            .collect();
        assert_eq!(told, [(id, bytes)]);
        let messages = conversation.sides[0].messages.iter();
        let refused: Vec<_> = messages
            .filter(|message| matches!(message.outcome, Outcome::Refused { .. }))
            .map(|message| (message.id, message.bytes))
            .collect();
        assert_eq!(refused, told);
    }
}
