//! What `docs/interop.md` says of the captures of Linux and rnic is found in them.

use crate::support::{capture, found, interop_names, only};
use rnic_dissect::{Capture, Cause, Connection, Kind, Outcome, Side, What};
use rnic_wire::cm::{Attribute, RejectReason};
use rnic_wire::{NakCode, Syndrome};

#[test]
fn each_capture_shows_what_it_is_there_for() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interop.md");
    let document = std::fs::read_to_string(document).unwrap();
    let names = interop_names();
    assert!(names.len() >= 2);
    for name in names {
        assert!(document.contains(&format!("{name}.pcap")), "{name}");
        let capture = capture(&name);
        match name.trim_end_matches("_v4") {
            "refusals_linux" => refusals(&capture, LINUX_REFUSES),
            "refusals_rnic" => refusals(&capture, RNIC_REFUSES),
            "read_send_inv_linux" => the_read_comes_first(&capture),
            "read_send_inv_rnic" => the_key_is_gone(&capture),
            "nak_no_progress" => naks_are_no_progress(&capture),
            "retry_for_ever" => seven_retries_are_not_the_end(&capture),
            "req_without_program" => refused_by_the_kernel(&capture),
            "cm_from_elsewhere" => taken_from_elsewhere(&capture),
            "dreq_before_answer" => disconnect_ignored(&capture),
            "rep_dreq_to_a_third" => sent_to_a_third(&capture),
            _ => panic!("{name}: what does it show? See docs/interop.md, and say it here"),
        }
    }
}

/// Each of four queue pairs gets a SEND of 3000 B: the first one's receive is too short, the second
/// one has none, the third does not know the key to invalidate, the fourth one's receive has a key
/// of another protection domain. What they answer.
type Answers = [&'static [Syndrome]; 4];

const NOT_READY: Syndrome = Syndrome::RnrNak { timer: 12 };
const NO_SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
const OPERATIONAL: Syndrome = Syndrome::Nak(NakCode::RemoteOperationalError);
const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccessError);

/// The third one acknowledges, and fails by itself.
const LINUX_REFUSES: Answers = [
    &[OPERATIONAL],
    &[NOT_READY, NO_SEQUENCE],
    &[],
    &[OPERATIONAL],
];
const RNIC_REFUSES: Answers = [&[INVALID], &[NOT_READY], &[ACCESS], &[OPERATIONAL]];

fn refusals(capture: &Capture, answers: Answers) {
    assert_eq!(capture.conversations.len(), 4);
    for (n, (conversation, answers)) in capture.conversations.iter().zip(answers).enumerate() {
        let side = &conversation.sides[0];
        assert_eq!(naks(side), answers);
        let [message] = &side.messages[..] else {
            panic!("{:?}", side.messages)
        };
        let kind = if n == 2 {
            Kind::SendInvalidate
        } else {
            Kind::Send
        };
        let shape = (message.kind, message.bytes, message.packets);
        assert_eq!(shape, (kind, 3000, 3));
        match *answers {
            [] => assert!(matches!(message.outcome, Outcome::Done { .. })),
            [Syndrome::Nak(code)] => {
                let refused = What::Refused {
                    message: 1,
                    kind,
                    code,
                    remote: None,
                    bytes: 3000,
                };
                let [finding] = &conversation.findings[..] else {
                    panic!("{:?}", conversation.findings)
                };
                assert_eq!(finding.what, refused);
            }
            // Status 13, since the requester may not try a second time.
            _ => {
                let mut all = conversation.findings.iter().map(|finding| &finding.what);
                assert!(all.any(|what| matches!(what, What::GaveUp { rnr: true, .. })));
                // The rest of the message is answered, or not.
                let explained = found(conversation).contains(&"nak-after-rnr");
                assert_eq!(explained, answers.len() > 1);
            }
        }
    }
}

/// The negative answers, each of which came once.
fn naks(side: &Side) -> Vec<Syndrome> {
    let once = |(of, count): &(Syndrome, u64)| (*count == 1).then_some(*of);
    side.naks
        .iter()
        .map(|nak| once(nak).expect("one"))
        .collect()
}

/// READs, and a SEND that invalidates their key behind them: Linux answers those to their end, and
/// then takes this.
fn the_read_comes_first(capture: &Capture) {
    let messages = &only(capture).sides[0].messages;
    let (last, reads) = messages.split_last().expect("messages");
    assert_eq!(last.kind, Kind::SendInvalidate);
    let invalidates = |rkey: u32| last.invalidate == Some(rkey);
    let answered: Vec<_> = messages
        .iter()
        .map(|message| match message.outcome {
            Outcome::Done { number, .. } => number,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(answered.is_sorted(), "{answered:?}");
    for read in reads {
        assert_eq!((read.kind, read.answered), (Kind::Read, read.span));
        assert!(read.remote.is_some_and(|(_, rkey, _)| invalidates(rkey)));
    }
}

/// The same to rnic: what is left of the READ is refused.
fn the_key_is_gone(capture: &Capture) {
    let conversation = only(capture);
    let messages = &conversation.sides[0].messages;
    let last = messages.last().expect("messages");
    assert_eq!(last.kind, Kind::SendInvalidate);
    let refused = conversation.findings.iter().find_map(|one| match one.what {
        What::Refused {
            kind, code, remote, ..
        } => Some((kind, code, remote)),
        _ => None,
    });
    let (kind, code, remote) = refused.expect("a refusal");
    assert_eq!((kind, code), (Kind::Read, NakCode::RemoteAccessError));
    assert_eq!(remote.map(|(_, rkey, _)| rkey), last.invalidate);
}

/// Each NAK asks for a later PSN, and so acknowledges what is before it; after seven Linux sends no
/// more.
fn naks_are_no_progress(capture: &Capture) {
    let side = &only(capture).sides[0];
    let asked: Vec<_> = side.repeats.iter().map(|repeat| repeat.psns.0).collect();
    assert!(asked.windows(2).all(|two| two[0].is_before(two[1])));
    let by_nak = |cause| matches!(cause, Cause::Nak { .. });
    assert!(side.repeats.iter().all(|repeat| by_nak(repeat.cause)));
    assert_eq!(side.naks, [(NO_SEQUENCE, asked.len() as u64 + 1)]);
    assert!(side.messages[0].is_open());
}

/// With a `retry_cnt` of 7.
fn seven_retries_are_not_the_end(capture: &Capture) {
    let conversation = only(capture);
    let message = &conversation.sides[0].messages[0];
    assert!(message.timeouts > 7 && message.is_open(), "{message:?}");
    assert_eq!(conversation.packets[1], 0, "no answer");
}

/// Nobody has QP 1 open but the kernel.
fn refused_by_the_kernel(capture: &Capture) {
    let [connection] = &capture.connections[..] else {
        panic!("{:?}", capture.connections)
    };
    let (by, _, reason) = connection.rejected.expect("a REJ");
    assert_eq!((by, reason), (1, RejectReason::INVALID_SERVICE_ID));
}

/// The connection with a REQ, and that with the same ids whose messages have another address.
fn two_addresses(capture: &Capture) -> [&Connection; 2] {
    let [asked, elsewhere] = &capture.connections[..] else {
        panic!("{:?}", capture.connections)
    };
    assert!(asked.has(Attribute::Req) && !elsewhere.has(Attribute::Req));
    assert_ne!(asked.addrs[0], elsewhere.addrs[0]);
    assert_eq!(asked.addrs[1], elsewhere.addrs[1]);
    [asked, elsewhere]
}

/// RTU and DREQ come from an address that the REQ did not come from, and are obeyed: the DREP goes
/// where the REQ came from.
fn taken_from_elsewhere(capture: &Capture) {
    let [asked, elsewhere] = two_addresses(capture);
    assert!(elsewhere.has(Attribute::Rtu) && elsewhere.has(Attribute::Dreq));
    assert!(!asked.has(Attribute::Dreq) && asked.has(Attribute::Drep));
}

/// A DREQ comes behind the REP: no DREP, and the RTU goes out all the same.
fn disconnect_ignored(capture: &Capture) {
    let [connection] = &capture.connections[..] else {
        panic!("{:?}", capture.connections)
    };
    use Attribute::{Dreq, Rep, Req, Rtu};
    let steps: Vec<_> = connection.steps.iter().map(|step| step.what).collect();
    assert_eq!(steps, [Req, Rep, Dreq, Rtu]);
}

/// The REQ names an address that it does not come from: there go REP and DREQ, again and again.
fn sent_to_a_third(capture: &Capture) {
    let [_, third] = two_addresses(capture);
    assert!(third.times(1, Attribute::Rep) > 1, "{third:?}");
    assert!(third.times(1, Attribute::Dreq) > 1, "{third:?}");
}
