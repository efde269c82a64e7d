//! The captures of Linux Soft-RoCE (`crates/wire/tests/captures/README.md`), also with frames left
//! out or moved, and those of Linux and rnic (`docs/interop.md`).

#[allow(dead_code, reason = "the tests of rnic-cli use the rest")]
pub mod made;

use std::fs;
use std::path::PathBuf;

pub use made::Owned;
use rnic_dissect::{
    Capture, Conversation, Decoder, Dissector, Finished, Frame, Limits, Packet, Place,
};

/// Linux at both ends.
const LINUX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/tests/captures");
/// Linux and rnic.
const INTEROP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/captures");

fn names_in(folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let ext = path.extension().unwrap_or_default();
            ext.to_string_lossy().starts_with("pcap")
        })
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Names of the captures with Linux at both ends.
pub fn names() -> Vec<String> {
    let names = names_in(LINUX);
    assert!(names.len() > 60, "{names:?}");
    names
}

/// Names of those with Linux and rnic.
pub fn interop_names() -> Vec<String> {
    names_in(INTEROP)
}

pub fn bytes(name: &str) -> Vec<u8> {
    let in_folder = |folder| PathBuf::from(folder).join(format!("{name}.pcap"));
    let linux = in_folder(LINUX);
    let path = if linux.exists() {
        linux
    } else {
        in_folder(INTEROP)
    };
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn frames(name: &str) -> Vec<Owned> {
    let mut decoder = Decoder::new();
    decoder.feed(&bytes(name));
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        frames.push(Owned {
            time_ns: frame.time_ns,
            link_type: frame.link_type,
            wire_len: frame.wire_len,
            bytes: frame.bytes.to_vec(),
        });
    }
    decoder.finish().unwrap();
    frames
}

pub fn dissect(frames: &[Owned]) -> (Finished, Vec<(Packet, Option<Place>)>) {
    dissect_within(Limits::default(), frames)
}

pub fn dissect_within(
    limits: Limits,
    frames: &[Owned],
) -> (Finished, Vec<(Packet, Option<Place>)>) {
    let mut dissector = Dissector::new(limits);
    let mut packets = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let frame = Frame {
            number: index as u64 + 1,
            time_ns: frame.time_ns,
            link_type: frame.link_type,
            interface: 0,
            wire_len: frame.wire_len,
            bytes: &frame.bytes,
        };
        dissector.frame(&frame, |packet, place| packets.push((*packet, place)));
    }
    let finished = dissector.finish();
    for (_, place) in &mut packets {
        *place = place.map(|place| finished.resolve(place).expect("a place that is known"));
    }
    (finished, packets)
}

pub fn capture(name: &str) -> Capture {
    dissect(&frames(name)).0.capture
}

/// The frames without those of these numbers.
pub fn without(name: &str, numbers: &[usize]) -> Capture {
    let mut frames = frames(name);
    for &number in numbers.iter().rev() {
        frames.remove(number - 1);
    }
    dissect(&frames).0.capture
}

/// Names of what was found.
pub fn found(conversation: &Conversation) -> Vec<&'static str> {
    conversation
        .findings
        .iter()
        .map(|finding| finding.what.name())
        .collect()
}

/// The only conversation.
pub fn only(capture: &Capture) -> &Conversation {
    assert_eq!(capture.conversations.len(), 1);
    &capture.conversations[0]
}

/// The first frames alone: a capture that ends too soon.
pub fn begin(name: &str, count: usize) -> Vec<Owned> {
    let mut frames = frames(name);
    frames.truncate(count);
    frames
}

/// Goes on for a while, in which nothing but an ARP request comes.
pub fn silence(mut frames: Vec<Owned>, ns: u64) -> Vec<Owned> {
    let mut arp = frames.last().expect("a frame").clone();
    arp.time_ns += ns;
    arp.bytes.truncate(14 + 28);
    arp.bytes[12..14].copy_from_slice(&[0x08, 0x06]);
    frames.push(arp);
    frames
}
