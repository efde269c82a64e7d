//! What the README of the captures says of each is found in it.

use crate::support;

use crate::support::{capture, dissect, found, frames, interop_names, names, only};
use rnic_dissect::{Cause, Kind, Mark, Message, Outcome, Pairing, PeerHad, What};
use rnic_wire::cm::{Attribute, RejectReason, SidrStatus};
use rnic_wire::{NakCode, Psn, Service, Syndrome};

fn both(name: &str) -> [String; 2] {
    [format!("{name}_v4"), format!("{name}_v6")]
}

/// Those of the two that are there: a few captures are kept elsewhere.
fn there(name: &str) -> Vec<String> {
    let all = names();
    let found: Vec<_> = both(name)
        .into_iter()
        .filter(|name| all.contains(name))
        .collect();
    assert!(!found.is_empty(), "{name}");
    found
}

fn shape(messages: &[Message]) -> Vec<(Kind, u64, u32)> {
    let of = |message: &Message| (message.kind, message.bytes, message.packets);
    messages.iter().map(of).collect()
}

fn all_done(messages: &[Message]) {
    for message in messages {
        assert!(
            matches!(message.outcome, Outcome::Done { .. }),
            "{message:?}"
        );
    }
}

#[test]
fn every_packet_of_every_capture_has_a_sensible_place() {
    for name in names().into_iter().chain(interop_names()) {
        let (finished, packets) = dissect(&frames(&name));
        let capture = &finished.capture;
        let skipped: u64 = capture.skipped.frames.iter().map(|(_, n)| n).sum();
        let strange: u64 = capture.skipped.packets.iter().map(|(_, n, _)| n).sum();
        assert_eq!(
            capture.frames,
            capture.packets + skipped + strange,
            "{name}"
        );
        assert_eq!(capture.packets, packets.len() as u64, "{name}");
        let probe = name.starts_with("probe");
        if !probe {
            assert_eq!((capture.icrc_wrong, capture.icrc_other), (0, 0), "{name}");
            assert_eq!(strange, 0, "{name}");
        }
        for (packet, place) in &packets {
            let Some(place) = place else { continue };
            let conversation = &capture.conversations[place.conversation];
            let end = conversation.ends[place.from];
            assert_eq!(end.addr, packet.outer.flow.src, "{name} {}", packet.number);
            let odd = matches!(place.mark, Mark::Orphan | Mark::Stray);
            assert!(
                !odd || probe,
                "{name}: packet {} {:?}",
                packet.number,
                place.mark
            );
            if let Some((side, id)) = place.message {
                let messages = &conversation.sides[side].messages;
                assert!(messages.iter().any(|message| message.id == id), "{name}");
            }
        }
        for conversation in &capture.conversations {
            for finding in &conversation.findings {
                assert!(!finding.packets.is_empty(), "{name} {finding:?}");
            }
            assert_eq!(conversation.more_findings, 0, "{name}");
        }
    }
}

#[test]
fn sends() {
    for name in there("rc_send") {
        let capture = capture(&name);
        let conversation = only(&capture);
        assert_eq!(conversation.service, Service::Rc);
        assert!(matches!(
            conversation.pairing,
            Pairing::Inferred { others: 0, .. }
        ));
        let messages = &conversation.sides[0].messages;
        let expected = [(10, 1), (3072, 3), (0, 1), (1024, 1), (1025, 2), (4, 1)];
        let expected = expected.map(|(bytes, packets)| (Kind::Send, bytes, packets));
        assert_eq!(shape(messages), expected, "{name}");
        all_done(messages);
        assert_eq!(found(conversation), [""; 0]);
        assert_eq!(conversation.mtu.map(|(mtu, _)| mtu), Some(1024));
    }
}

#[test]
fn immediates_invalidates_and_writes() {
    for name in there("rc_send_imm") {
        let capture = capture(&name);
        let messages = &only(&capture).sides[0].messages;
        assert_eq!(messages.len(), 3);
        for message in messages {
            assert_eq!(message.kind, Kind::SendImm);
            assert_eq!(message.imm, Some([0x11, 0x22, 0x33, 0x44]));
            assert!(message.solicited);
        }
    }
    for name in there("rc_send_inv") {
        let capture = capture(&name);
        let messages = &only(&capture).sides[0].messages;
        assert_eq!(messages[0].kind, Kind::SendInvalidate);
        assert_eq!(messages[1].kind, Kind::SendInvalidate);
        assert!(
            messages[0]
                .invalidate
                .is_some_and(|rkey| rkey >= 0x0800_0000)
        );
        let refused = messages[2].outcome;
        let code = NakCode::RemoteAccessError;
        assert!(matches!(refused, Outcome::Refused { code: is, .. } if is == code));
        assert_eq!(found(only(&capture)), ["refused"]);
    }
    for name in there("rc_write") {
        let capture = capture(&name);
        let expected = [(11, 1), (3500, 4), (2048, 2), (0, 1)];
        let expected = expected.map(|(bytes, packets)| (Kind::Write, bytes, packets));
        assert_eq!(shape(&only(&capture).sides[0].messages), expected);
    }
    for name in there("rc_write_imm") {
        let capture = capture(&name);
        let messages = &only(&capture).sides[0].messages;
        let lengths: Vec<_> = messages.iter().map(|message| message.bytes).collect();
        assert_eq!(lengths, [11, 2500, 0]);
        assert!(
            messages
                .iter()
                .all(|message| message.kind == Kind::WriteImm)
        );
        assert!(messages.iter().all(|message| message.remote.is_some()));
    }
}

#[test]
fn reads_and_atomics_with_their_answers() {
    let capture_of = capture;
    for name in there("rc_read") {
        let capture = capture_of(&name);
        let messages = &only(&capture).sides[0].messages;
        let lengths: Vec<_> = messages.iter().map(|message| message.bytes).collect();
        assert_eq!(lengths, [13, 10240, 0, 1024, 1030]);
        let spans: Vec<_> = messages.iter().map(|message| message.span).collect();
        assert_eq!(spans, [1, 10, 1, 1, 2]);
        for message in messages {
            assert_eq!(message.answered, message.span);
            assert_eq!(message.answered_bytes, message.bytes);
        }
        all_done(messages);
    }
    for name in there("rc_read_pipe") {
        let capture = capture_of(&name);
        let side = &only(&capture).sides[0];
        all_done(&side.messages);
        assert_eq!(side.messages.len(), 9);
        if name.ends_with("v4") {
            // Asked for 3; Soft-RoCE makes it 4.
            assert_eq!(side.most_reads, 4);
        }
    }
    for name in there("rc_atomic") {
        let capture = capture_of(&name);
        let messages = &only(&capture).sides[0].messages;
        let kinds: Vec<_> = messages.iter().map(|message| message.kind).collect();
        let swap = Kind::CompareSwap;
        assert_eq!(kinds, [swap, swap, Kind::FetchAdd, Kind::Read]);
        all_done(messages);
        // The first one hit: the second one finds what it put there.
        let put = messages[0].operands.map(|(swap, _)| swap);
        assert_eq!(messages[1].original, put);
    }
}

#[test]
fn unreliable() {
    let capture = capture("uc_v4");
    let conversation = only(&capture);
    assert_eq!(conversation.pairing, Pairing::OneWay);
    let expected = [
        (Kind::Send, 10, 1),
        (Kind::Send, 2500, 3),
        (Kind::SendImm, 9, 1),
        (Kind::Write, 11, 1),
        (Kind::Write, 2500, 3),
        (Kind::WriteImm, 1500, 2),
    ];
    let messages = &conversation.sides[0].messages;
    assert_eq!(shape(messages), expected);
    assert!(
        messages
            .iter()
            .all(|message| message.outcome == Outcome::Sent)
    );

    let capture = support::capture("ud_v4");
    let conversation = only(&capture);
    assert_eq!(conversation.service, Service::Ud);
    let qkeys = vec![(0x1111_1111, 4), (0x2222_2222, 1)];
    assert_eq!(conversation.qkeys, [qkeys, vec![]]);
    assert_eq!(found(conversation), ["qkey"]);
    assert_eq!(conversation.findings[0].packets, [5]);
    for name in there("ud_tclass") {
        let (_, packets) = dissect(&frames(&name));
        assert_eq!(packets[0].0.outer.traffic_class, 0x6a);
        assert_eq!(packets[0].0.outer.hop_limit, 64);
    }
}

#[test]
fn receiver_not_ready() {
    for name in there("rc_rnr") {
        let capture = capture(&name);
        let conversation = only(&capture);
        let found = found(conversation);
        assert_eq!(found.iter().filter(|name| **name == "rnr").count(), 2);
        assert!(found.contains(&"nak-after-rnr"));
        assert!(!found.contains(&"lost"));
        let side = &conversation.sides[0];
        let timers: Vec<_> = side.naks.iter().map(|(of, _)| *of).collect();
        assert!(timers.contains(&Syndrome::RnrNak { timer: 20 }));
        all_done(&side.messages);
        let rnr = |cause: &Cause| {
            matches!(
                cause,
                Cause::Rnr {
                    timer_ns: 10_240_000,
                    ..
                }
            )
        };
        assert!(side.repeats.iter().any(|repeat| rnr(&repeat.cause)));
        assert!(
            side.repeats
                .iter()
                .all(|repeat| repeat.cause != Cause::Timeout)
        );
    }
    for name in there("rc_rnr_exc") {
        let capture = capture(&name);
        let unanswered = only(&capture)
            .findings
            .iter()
            .find_map(|finding| match finding.what {
                What::Unanswered { times, rnr, .. } => Some((times, rnr)),
                _ => None,
            });
        assert_eq!(unanswered, Some((3, true)), "{name}");
    }
    for name in there("rc_rnr_write_imm") {
        let capture = capture(&name);
        let side = &only(&capture).sides[0];
        all_done(&side.messages);
        // The first retry is the whole message, later ones its LAST.
        let packets: Vec<_> = side.repeats.iter().map(|repeat| repeat.packets).collect();
        assert_eq!(packets[0], 3);
        assert!(
            packets[1..].iter().all(|&packets| packets == 1),
            "{packets:?}"
        );
    }
}

#[test]
fn refusals() {
    for name in there("rc_badrkey") {
        let capture = capture(&name);
        assert_eq!(capture.conversations.len(), 5);
        let codes: Vec<_> = capture
            .conversations
            .iter()
            .map(|conversation| match conversation.findings[..] {
                [ref only] => match only.what {
                    What::Refused { code, kind, .. } => (kind, code),
                    ref other => panic!("{other:?}"),
                },
                ref all => panic!("{all:?}"),
            })
            .collect();
        let access = NakCode::RemoteAccessError;
        assert_eq!(
            codes,
            [
                (Kind::Write, access),
                (Kind::Read, access),
                (Kind::Write, access),
                (Kind::FetchAdd, access),
                (Kind::Read, NakCode::InvalidRequest),
            ]
        );
    }
    for name in there("rc_len_err") {
        let capture = capture(&name);
        let what = &only(&capture).findings[0].what;
        let code = NakCode::RemoteOperationalError;
        assert!(matches!(what, What::Refused { code: is, bytes: 200, .. } if *is == code));
    }
}

#[test]
fn nobody_answers() {
    for (name, sent) in [("rc_timeout_exc", 4), ("rc_flush", 2)] {
        for name in there(name) {
            let capture = capture(&name);
            let conversation = only(&capture);
            assert_eq!(conversation.pairing, Pairing::OneWay);
            assert_eq!(conversation.ends[0].qpn, None);
            let unanswered = conversation
                .findings
                .iter()
                .find_map(|finding| match finding.what {
                    What::Unanswered {
                        times,
                        rnr: false,
                        ever_answered: false,
                        ..
                    } => Some(times),
                    _ => None,
                });
            assert_eq!(unanswered, Some(sent), "{name}");
        }
    }
}

#[test]
fn psns_wrap_and_streams() {
    for name in there("rc_psnwrap") {
        let capture = capture(&name);
        let side = &only(&capture).sides[0];
        assert_eq!(side.messages[0].psn, Psn::new(0xff_fffe));
        assert_eq!(side.messages[1].kind, Kind::Read);
        all_done(&side.messages);
        assert_eq!(found(only(&capture)), [""; 0]);
    }
    let capture_of = capture;
    let capture = capture_of("rc_mtu4096_v4");
    assert_eq!(only(&capture).mtu.map(|(mtu, _)| mtu), Some(4096));
    assert_eq!(
        shape(&only(&capture).sides[0].messages),
        [(Kind::Send, 9000, 3)]
    );
    let capture = capture_of("rc_stream256_v4");
    let side = &only(&capture).sides[0];
    assert_eq!(side.messages[0].bytes, 60_000);
    assert_eq!(side.messages[0].packets, 235);
    assert!(side.partial_acks > 0);
    let capture = capture_of("rc_stream1024_v4");
    assert_eq!(only(&capture).sides[0].messages.len(), 41);
}

fn repeats(name: &str) -> Vec<(Cause, u32, Psn)> {
    let capture = capture(name);
    let side = &only(&capture).sides[0];
    all_done(&side.messages);
    side.repeats
        .iter()
        .map(|repeat| (repeat.cause, repeat.packets, repeat.psns.0))
        .collect()
}

#[test]
fn losses_and_their_repair() {
    let first = Psn::new(0x10_0000);
    // NAK and go back N.
    for name in there("drop_send_mid") {
        let nak = Cause::Nak { number: 6 };
        assert_eq!(repeats(&name), [(nak, 3, first.add(2))]);
        let capture = capture(&name);
        let what = &only(&capture).findings[0].what;
        let lost = What::Lost {
            psn: first.add(2),
            sent: Some(3),
        };
        assert_eq!(*what, lost);
    }
    let nak = Cause::Nak { number: 4 };
    assert_eq!(repeats("drop_sends_first_v4"), [(nak, 3, first)]);

    // Timeouts, and what the answers show.
    let timeout = |name: &str| {
        let capture = capture(name);
        let found = only(&capture)
            .findings
            .iter()
            .find_map(|finding| match finding.what {
                What::Timeout {
                    acknowledged_by,
                    peer_had,
                    ..
                } => Some((acknowledged_by, peer_had)),
                _ => None,
            });
        found.unwrap_or_else(|| panic!("{name}: no timeout"))
    };
    assert_eq!(repeats("drop_send_last_v4"), [(Cause::Timeout, 5, first)]);
    let up_to = PeerHad::UpTo {
        psn: first.add(3),
        reply: 11,
    };
    assert_eq!(timeout("drop_send_last_v4"), (None, up_to));
    assert_eq!(repeats("drop_write_ack_v4"), [(Cause::Timeout, 5, first)]);
    assert_eq!(timeout("drop_write_ack_v4").0, Some(6));
    // A waited until its repeated packets were acknowledged, not for the ACK that was lost.
    let write = capture("drop_write_ack_v4");
    let side = &only(&write).sides[0];
    assert!(matches!(
        side.messages[0].outcome,
        Outcome::Done { number: 12, .. }
    ));
    assert_eq!((side.acks, side.duplicate_acks), ((1, 1), 4));
    let latency = side.latencies[0].1.summary().unwrap();
    assert!(latency.min > 290_000_000, "{latency:?}");
    assert_eq!(repeats("drop_read_req_v4"), [(Cause::Timeout, 1, first)]);
    assert_eq!(repeats("drop_atomic_ack_v4"), [(Cause::Timeout, 1, first)]);
    assert_eq!(timeout("drop_atomic_ack_v4").0, Some(2));
    assert_eq!(
        repeats("drop_read_resp_first_v4"),
        [(Cause::Timeout, 1, first)]
    );
    // The first response, packet 2, was lost, not the last one and not the request.
    let first_lost = capture("drop_read_resp_first_v4");
    assert_eq!(found(only(&first_lost)), ["read-again"]);
    let again = &only(&first_lost).findings[0].what;
    assert!(
        matches!(
            again,
            What::ReadAgain {
                response: Some(2),
                ..
            }
        ),
        "{again:?}"
    );
    for (name, from) in [("drop_read_resp_mid", 2), ("drop_read_resp_last", 4)] {
        for name in there(name) {
            assert_eq!(repeats(&name), [(Cause::Timeout, 1, first.add(from))]);
            let capture = capture(&name);
            assert_eq!(found(only(&capture)), ["read-again", "middle-answer"]);
        }
    }
    assert_eq!(repeats("drop_ack_coalesce_v4"), []);
}

#[test]
fn connections() {
    use Attribute::*;
    for name in there("cm_rping") {
        let capture = capture(&name);
        let [connection] = &capture.connections[..] else {
            panic!("{name}")
        };
        let steps: Vec<_> = connection.steps.iter().map(|step| step.what).collect();
        assert_eq!(steps, [Req, Rep, Rtu, Dreq, Drep]);
        assert_eq!(connection.conversation, Some(0));
        let conversation = only(&capture);
        assert_eq!(conversation.pairing, Pairing::Connection { index: 0 });
        let req = connection.req.as_ref().unwrap();
        let rep = connection.rep.as_ref().unwrap();
        assert_eq!(conversation.ends[0].qpn, Some(req.qpn));
        assert_eq!(conversation.ends[1].qpn, Some(rep.qpn));
        // The starting PSN is the receiver's.
        assert_eq!(
            conversation.sides[0].messages[0].psn.value(),
            rep.starting_psn
        );
        assert_eq!(
            conversation.sides[1].messages[0].psn.value(),
            req.starting_psn
        );
        all_done(&conversation.sides[0].messages);
        all_done(&conversation.sides[1].messages);
    }
    for name in there("cm_private") {
        let capture = capture(&name);
        let connection = &capture.connections[0];
        let text = |what: Attribute| {
            let found = connection
                .private_data
                .iter()
                .find(|(known, _)| *known == what);
            found.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
        };
        assert_eq!(text(Req).as_deref(), Some("client-private"));
        assert_eq!(text(Rep).as_deref(), Some("server-private"));
    }
    for (name, reason) in [
        ("cm_reject", RejectReason::CONSUMER_DEFINED),
        ("cm_rej_nolisten", RejectReason::INVALID_SERVICE_ID),
    ] {
        for name in there(name) {
            let capture = capture(&name);
            let rejected = capture.connections[0].rejected.unwrap();
            assert_eq!((rejected.0, rejected.2), (1, reason));
            assert!(capture.conversations.is_empty());
        }
    }
    let times = |name: &str, from, what| capture(name).connections[0].times(from, what);
    assert_eq!(times("cm_lost_req_v4", 0, Req), 2);
    assert_eq!(times("cm_lost_rep_v4", 1, Rep), 2);
    assert_eq!(times("cm_lost_rtu_v4", 1, Rep), 2);
    assert_eq!(times("cm_req_retries_v4", 0, Req), 16);
    assert_eq!(times("cm_lost_dreq_v4", 0, Dreq), 1);
    assert_eq!(times("cm_slow_accept_v4", 1, Mra), 1);
    assert_eq!(times("cm_slow_accept_v4", 0, Dreq), 2);
}

#[test]
fn datagram_services_and_multicast() {
    for name in there("cm_udaddy") {
        let capture = capture(&name);
        let connection = &capture.connections[0];
        let (status, qpn, qkey) = connection.resolved.unwrap();
        assert_eq!((status, qkey), (SidrStatus::VALID, 0x0123_4567));
        let conversation = only(&capture);
        assert!(conversation.ends.iter().any(|end| end.qpn == Some(qpn)));
        // Both directions are one conversation.
        assert!(conversation.packets.iter().all(|&packets| packets > 0));
    }
    let capture_of = capture;
    let capture = capture_of("cm_sidr_nolisten_v4");
    let (status, ..) = capture.connections[0].resolved.unwrap();
    assert_eq!(status, SidrStatus::UNSUPPORTED);
    let capture = capture_of("cm_mckey_v4");
    assert_eq!(only(&capture).ends[1].qpn, Some(0xff_ffff));
    let igmp: u64 = capture.skipped.frames.iter().map(|(_, n)| n).sum();
    assert_eq!(igmp, 8);
}

#[test]
fn probes() {
    let capture_of = capture;
    let capture = capture_of("probe_ud");
    // 1 bit wrong over each IP version; another identification, another DF.
    assert_eq!((capture.icrc_wrong, capture.icrc_other), (2, 2));
    // Each finding names the packets that show it.
    let marked: Vec<_> = capture
        .conversations
        .iter()
        .flat_map(|conversation| &conversation.findings)
        .filter(|finding| finding.what.name() == "congestion")
        .map(|finding| finding.packets.clone())
        .collect();
    assert_eq!(marked, [[14], [42]]);
    let strange: Vec<_> = capture.skipped.packets.iter().map(|(_, n, _)| *n).collect();
    assert_eq!(strange, [2, 2]);
    let capture = capture_of("probe_gso");
    assert_eq!((capture.icrc_wrong, capture.icrc_other), (0, 4));
    let capture = capture_of("probe_rc");
    let all: Vec<_> = capture.conversations.iter().flat_map(found).collect();
    for name in [
        "restart",
        "wrong-length",
        "unfinished",
        "headless",
        "not-mtu",
        "gap",
    ] {
        assert!(all.contains(&name), "{name}: {all:?}");
    }
    let capture = capture_of("probe_cm");
    assert_eq!(
        capture
            .connections
            .iter()
            .filter(|c| c.rejected.is_some())
            .count(),
        8
    );
    let not_cm = capture
        .findings
        .iter()
        .filter(|f| f.what.name() == "not-cm");
    assert_eq!(not_cm.count(), 4);
}
