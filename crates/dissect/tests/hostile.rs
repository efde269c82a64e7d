//! No bytes make it panic, hang or fill the memory.

use crate::support;

use crate::support::{bytes, frames, names};
use proptest::prelude::*;
use rnic_dissect::{Capture, Decoder, Dissector, Frame, Limits};

/// All that can be done with a file, fed in pieces.
fn run(file: &[u8], piece: usize) -> Capture {
    let mut decoder = Decoder::new();
    let mut dissector = Dissector::new(Limits::default());
    'all: for piece in file.chunks(piece.max(1)) {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => dissector.frame(&frame, |_, _| {}),
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
    }
    let _ = decoder.finish();
    dissector.finish().capture
}

#[test]
fn pieces_make_no_difference() {
    for name in ["rc_send_v4", "cm_rping_v6"] {
        let file = bytes(name);
        let whole = format!("{:?}", run(&file, file.len()));
        for piece in [1, 7, 100] {
            assert_eq!(format!("{:?}", run(&file, piece)), whole, "{name} {piece}");
        }
    }
}

#[test]
fn every_cut_of_a_file_is_read_up_to_there() {
    let file = bytes("drop_send_mid_v4");
    let mut before = 0;
    for len in 24..file.len() {
        let capture = run(&file[..len], usize::MAX);
        assert!(capture.frames >= before);
        before = capture.frames;
    }
}

#[test]
fn every_snap_length_is_survived() {
    for name in ["rc_read_v4", "cm_rping_v4", "rc_atomic_v4", "ud_v4"] {
        for snap in 0..120 {
            let mut dissector = Dissector::new(Limits::default());
            let all = frames(name);
            for (index, frame) in all.iter().enumerate() {
                let frame = Frame {
                    number: index as u64 + 1,
                    time_ns: frame.time_ns,
                    link_type: frame.link_type,
                    interface: 0,
                    wire_len: frame.wire_len,
                    bytes: &frame.bytes[..frame.bytes.len().min(snap)],
                };
                dissector.frame(&frame, |_, _| {});
            }
            let capture = dissector.finish().capture;
            assert_eq!(capture.frames, all.len() as u64);
            // Ethernet, IPv4, UDP, BTH, and the longest extension headers.
            if snap >= 14 + 20 + 8 + 12 + 28 {
                assert_eq!(capture.packets, all.len() as u64, "{name} {snap}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_as_a_file(file in proptest::collection::vec(any::<u8>(), 0..600), kind in 0..5usize) {
        let head: &[u8] = [
            &[][..],
            &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0],
            &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 101],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
              28, 0, 0, 0],
            &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
              0, 0, 0, 28],
        ][kind];
        run(&[head, &file].concat(), 64);
    }

    #[test]
    fn any_bytes_as_frames(
        all in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        link in prop::sample::select(vec![0u16, 1, 12, 101, 108, 113, 228, 229, 276, 9]),
    ) {
        let mut dissector = Dissector::new(Limits::default());
        for (index, bytes) in all.iter().enumerate() {
            let frame = Frame {
                number: index as u64 + 1,
                time_ns: index as u64,
                link_type: link,
                interface: 0,
                wire_len: bytes.len() as u32,
                bytes,
            };
            dissector.frame(&frame, |_, _| {});
        }
        dissector.finish();
    }

    #[test]
    fn captures_with_flipped_bytes_lost_and_moved_frames(
        pick in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..30),
        lost in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        moved in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..8),
        cut in proptest::option::of(40..200usize),
    ) {
        let names = names();
        let mut all = frames(&names[pick.index(names.len())]);
        for index in lost {
            if all.len() > 1 {
                all.remove(index.index(all.len()));
            }
        }
        for (a, b) in moved {
            let len = all.len();
            all.swap(a.index(len), b.index(len));
        }
        for (frame, byte, value) in flips {
            let len = all.len();
            let frame = &mut all[frame.index(len)].bytes;
            let at = byte.index(frame.len());
            frame[at] = value;
        }
        if let Some(cut) = cut {
            // Without an ICRC to be checked, the changed headers reach the state machines.
            for frame in &mut all {
                frame.bytes.truncate(cut);
            }
        }
        let (finished, packets) = support::dissect(&all);
        for (_, place) in packets.iter().filter(|(_, place)| place.is_some()) {
            prop_assert!(place.unwrap().conversation < finished.capture.conversations.len());
        }
    }
}

/// A million packets of as many queue pairs as fit: conversations and findings stay within the
/// limits.
#[test]
fn limits_hold() {
    let template = &frames("rc_flush_v4")[0];
    let limits = Limits {
        messages: 10,
        conversations: 100,
    };
    let mut dissector = Dissector::new(limits);
    let mut bytes = template.bytes.clone();
    // Cut behind the BTH, so that the ICRC is not checked.
    bytes.truncate(14 + 20 + 8 + 12);
    for n in 0..20_000u32 {
        let qpn = (n % 1000).to_be_bytes();
        bytes[14 + 28 + 5..14 + 28 + 8].copy_from_slice(&qpn[1..]);
        bytes[14 + 28 + 9..14 + 28 + 12]
            .copy_from_slice(&n.wrapping_mul(77_777).to_be_bytes()[1..]);
        let frame = Frame {
            number: u64::from(n) + 1,
            time_ns: u64::from(n),
            link_type: 1,
            interface: 0,
            wire_len: template.wire_len,
            bytes: &bytes,
        };
        dissector.frame(&frame, |_, _| {});
    }
    let capture = dissector.finish().capture;
    assert_eq!(capture.conversations.len(), 100);
    for conversation in &capture.conversations {
        assert!(conversation.sides[0].messages.len() <= 10);
        assert!(conversation.findings.len() < 1000);
    }
}

/// Middle packets, each as far ahead as counts as a gap: no message grows beyond the longest one
/// that there is.
#[test]
fn a_message_without_end_is_cut() {
    const STEP: u32 = 1 << 17;
    let mut bytes = frames("rc_flush_v4")[0].bytes.clone();
    let wire_len = bytes.len() as u32;
    // Cut behind the BTH, so that the ICRC is not checked.
    bytes.truncate(14 + 20 + 8 + 12);
    let bth = 14 + 20 + 8;
    bytes[bth] = 0x07;
    let mut dissector = Dissector::new(Limits::default());
    for n in 0..40_000u32 {
        bytes[bth + 9..bth + 12].copy_from_slice(&n.wrapping_mul(STEP).to_be_bytes()[1..]);
        let frame = Frame {
            number: u64::from(n) + 1,
            time_ns: u64::from(n),
            link_type: 1,
            interface: 0,
            wire_len,
            bytes: &bytes,
        };
        dissector.frame(&frame, |_, _| {});
    }
    let capture = dissector.finish().capture;
    let messages = &capture.conversations[0].sides[0].messages;
    assert!(messages.iter().all(|message| message.span <= 1 << 23));
}

/// Requests of ever new connections: they are bounded as conversations are.
#[test]
fn connections_are_limited() {
    let mut frame = frames("cm_rping_v4").swap_remove(0);
    // Without the end of the ICRC, so that it is not checked.
    frame.bytes.truncate(frame.bytes.len() - 1);
    let local_id = 14 + 20 + 8 + 12 + 8 + 24;
    let limits = Limits {
        messages: 10,
        conversations: 100,
    };
    let mut dissector = Dissector::new(limits);
    for n in 1..=1000u32 {
        frame.bytes[local_id..local_id + 4].copy_from_slice(&n.to_be_bytes());
        let frame = Frame {
            number: u64::from(n),
            time_ns: frame.time_ns,
            link_type: 1,
            interface: 0,
            wire_len: frame.wire_len,
            bytes: &frame.bytes,
        };
        dissector.frame(&frame, |_, _| {});
    }
    assert_eq!(dissector.finish().capture.connections.len(), 100);
}
