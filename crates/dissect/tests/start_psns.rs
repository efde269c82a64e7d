//! Two sides whose start PSNs differ: nothing was lost, and the answers belong to the requests.

use crate::support::made::*;
use crate::support::{dissect, found, only};
use rnic_dissect::{Mark, Severity, What};
use rnic_wire::Psn;

const NAK: u8 = 0x60;

/// A request that begins at `began`, sent four times, each answered by one who expects another PSN.
fn apart(began: u32, answer: (u8, u32)) -> Made {
    let mut made = Made::default();
    for _ in 0..4 {
        made.a(WRITE_ONLY, began, &reth(8), 8);
        made.b(ACKNOWLEDGE, answer.1, &aeth(answer.0), 0);
        made.wait(5_000_000);
    }
    made
}

#[test]
fn they_are_named_and_the_answers_are_of_the_conversation() {
    for (began, expects, answer) in [
        // B is behind: it asks for what it expects.
        (0x3e7, 0x64, (NAK, 0x64)),
        // B is ahead: it takes the requests for old ones, and acknowledges what it had last.
        (0x3e7, 0x1000, (ACK, 0xfff)),
    ] {
        let (finished, packets) = dissect(&apart(began, answer).frames);
        let conversation = only(&finished.capture);
        assert_eq!(found(conversation), ["start-psns"]);
        let finding = &conversation.findings[0];
        let what = What::StartPsns {
            began: Psn::new(began),
            expects: Psn::new(expects),
            answers: 4,
            given_up: false,
        };
        assert_eq!((&finding.what, &*finding.packets), (&what, &[1, 2][..]));
        assert_eq!(what.severity(), Severity::Failed);
        assert_eq!(conversation.packets, [4, 4]);
        assert_eq!(
            conversation.ends.each_ref().map(|end| end.qpn),
            [Some(0x11), Some(0x22)]
        );
        // Each answer lies at B's side of the same conversation.
        for (packet, place) in &packets {
            let place = place.expect("a place");
            assert_eq!(place.conversation, 0);
            assert_eq!(place.from as u64, (packet.number + 1) % 2, "{packet:?}");
        }
    }
}

/// ACKs whose requests are not in the capture belong to somebody else.
#[test]
fn other_answers_stay_on_their_own() {
    let mut made = Made::default();
    made.a(WRITE_ONLY, 0x3e7, &reth(8), 8);
    for n in 0..4 {
        made.b(ACKNOWLEDGE, 0x100000 + n, &aeth(ACK), 0);
    }
    let (finished, packets) = dissect(&made.frames);
    assert_eq!(finished.capture.conversations.len(), 2);
    let said = finished.capture.conversations.iter().flat_map(found);
    assert!(!said.into_iter().any(|name| name == "start-psns"));
    assert!(
        packets
            .iter()
            .skip(1)
            .all(|(_, place)| place.is_some_and(|p| p.mark == Mark::Orphan))
    );
}

/// A message that was acknowledged shows that the two count alike; a late NAK of a PSN before is an
/// echo.
#[test]
fn an_echo_says_nothing_of_the_start() {
    let mut made = Made::default();
    made.a(WRITE_ONLY, 0x64, &reth(8), 8);
    made.b(ACKNOWLEDGE, 0x64, &aeth(ACK), 0);
    made.a(WRITE_ONLY, 0x65, &reth(8), 8);
    made.b(ACKNOWLEDGE, 0x60, &aeth(NAK), 0);
    let (finished, _) = dissect(&made.frames);
    assert!(!found(only(&finished.capture)).contains(&"start-psns"));
}
