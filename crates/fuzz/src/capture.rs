//! Capture files.

use rnic_dissect::{Decoder, Dissector, Limits};

/// Any bytes as a capture file, in two pieces: no panic, and every place that was given out lies in
/// the finished capture.
pub(crate) fn file(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    let mut dissector = Dissector::new(Limits {
        messages: 1000,
        conversations: 100,
    });
    let mut places = Vec::new();
    let (front, back) = bytes.split_at(bytes.len() / 2);
    'all: for piece in [front, back] {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => dissector.frame(&frame, |_, place| places.extend(place)),
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
    }
    let finished = dissector.finish();
    for place in places {
        let place = finished.resolve(place).expect("known");
        assert!(place.conversation < finished.capture.conversations.len());
    }
}
