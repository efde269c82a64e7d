//! What a capture shows of the path MTUs of both ends.

use crate::support::made::*;
use crate::support::{Owned, dissect, frames, only};
use rnic_dissect::{Severity, What};

/// What is said of path MTUs, with its packets.
fn said(frames: &[Owned]) -> Vec<(What, Vec<u64>)> {
    let (finished, _) = dissect(frames);
    let findings = only(&finished.capture).findings.iter();
    let about = findings.filter(|finding| {
        matches!(
            finding.what,
            What::MtusDiffer { .. } | What::MtuNotAgreed { .. } | What::NotMtu { .. }
        )
    });
    about
        .map(|finding| (finding.what.clone(), finding.packets.clone()))
        .collect()
}

/// A message of three packets each way, with full packets so long.
fn both(a: u16, b: u16) -> Made {
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], a);
    made.a(SEND_MIDDLE, 1, &[], a);
    made.a(SEND_LAST, 2, &[], 8);
    made.b(ACKNOWLEDGE, 2, &aeth(ACK), 0);
    made.b(SEND_FIRST, 100, &[], b);
    made.b(SEND_MIDDLE, 101, &[], b);
    made.b(SEND_LAST, 102, &[], 8);
    made.a(ACKNOWLEDGE, 102, &aeth(ACK), 0);
    made
}

/// Two ends with path MTUs of their own: it is said once, with both values, and not of each packet.
#[test]
fn path_mtus_that_differ_are_named() {
    let what = What::MtusDiffer { mtus: [4096, 1024] };
    assert_eq!(what.severity(), Severity::Open);
    let made = both(4096, 1024);
    assert_eq!(said(&made.frames), [(what, vec![1, 5])]);
}

/// Ends that agree are not accused.
#[test]
fn path_mtus_that_are_the_same_are_not() {
    assert_eq!(said(&both(1024, 1024).frames), []);
}

/// READ responses show the responder's path MTU as well as its requests would.
#[test]
fn a_responders_path_mtu_shows_in_its_responses() {
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], 1024);
    made.a(SEND_LAST, 1, &[], 8);
    made.b(ACKNOWLEDGE, 1, &aeth(ACK), 0);
    made.a(READ, 2, &reth(4096), 0);
    made.b(RESPONSE_FIRST, 2, &aeth(ACK), 2048);
    made.b(RESPONSE_LAST, 3, &aeth(ACK), 2048);
    let what = What::MtusDiffer { mtus: [1024, 2048] };
    assert_eq!(said(&made.frames), [(what, vec![1, 5])]);
}

/// One end whose full packets have several lengths: each packet that is wrong is named, as before.
#[test]
fn an_end_that_changes_its_mind_is_told_by_packet() {
    let mut made = Made::default();
    made.a(SEND_FIRST, 0, &[], 1024);
    made.a(SEND_MIDDLE, 1, &[], 512);
    made.a(SEND_LAST, 2, &[], 8);
    made.b(ACKNOWLEDGE, 2, &aeth(ACK), 0);
    let what = What::NotMtu {
        len: 512,
        mtu: 1024,
    };
    assert_eq!(said(&made.frames), [(what, vec![2])]);
}

/// Full packets of another length than the path MTU of the REQ, behind a recorded connection.
#[test]
fn a_path_mtu_that_was_not_agreed_on_is_named() {
    let connected = &frames("cm_rping_v4")[..3];
    let with = |mtu: u16| {
        let mut all = connected.to_vec();
        let later = connected[2].time_ns;
        all.extend(both(mtu, mtu).frames.into_iter().map(|mut frame| {
            // The queue pairs of the recorded connection: 0x6e of 10.0.0.1 and 0x26e of 10.0.0.2.
            let to_b = frame.bytes[14 + 19] == 2;
            let qpn: u32 = if to_b { 0x26e } else { 0x6e };
            frame.bytes[14 + 20 + 8 + 4..][..4].copy_from_slice(&qpn.to_be_bytes());
            frame.time_ns += later;
            frame
        }));
        all
    };
    assert_eq!(said(&with(1024)), [], "as agreed");
    let what = What::MtuNotAgreed {
        agreed: 1024,
        len: 512,
    };
    assert_eq!(what.severity(), Severity::Note);
    let expected = [(what.clone(), vec![4]), (what, vec![8])];
    assert_eq!(said(&with(512)), expected);
}
