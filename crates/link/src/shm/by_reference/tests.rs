//! What a packet refers to is copied, in one piece or not at all, from the process that sent it and
//! no other; and what was withdrawn is not taken for it.

use proptest::prelude::*;

use super::*;
use crate::shm::granted::Identity;
use crate::shm::ring::{Producer, grant_table_of};

struct World {
    own: GrantTable,
    peers: GrantTable,
    identity: Identity,
}

/// Both ends' grant tables; the producer has said which process it is.
fn world() -> World {
    let (_ring, file) = Producer::create().expect("a ring");
    let table = || grant_table_of(&file).expect("its grant table");
    let world = World {
        own: table(),
        peers: table(),
        identity: Identity::new(),
    };
    world.own.introduce(world.identity.nonce());
    world
}

fn span(bytes: &[u8]) -> Span {
    Span::new(bytes.as_ptr() as usize, bytes.len())
}

fn record(claim: Claim, pieces: &[Span], headers: &[u8]) -> Vec<u8> {
    let mut record = vec![0; preface_len(pieces.len())];
    write_preface(&mut record, claim, pieces);
    record.extend_from_slice(headers);
    record
}

/// What the consumer gets of bytes `from..from + out.len()` of what a record refers to.
fn copy(world: &World, source: &Source, record: &[u8], from: usize, out: &mut [u8]) -> bool {
    let mut pieces = [Span::EMPTY; MOST_PIECES];
    let parsed = ByReference::parse(record, (&world.peers, source), &mut pieces);
    let (payload, headers) = parsed.expect("a record");
    assert_eq!(headers, b"headers");
    // SAFETY: `out` is ours.
    unsafe { payload.copy_to(from, out.as_mut_ptr(), out.len()) }.is_ok()
}

#[test]
fn pieces_are_joined_and_parts_are_cut_from_them() {
    let world = world();
    assert!(!world.own.takes_references(), "not before it was tried");
    let source = Source::try_it(&world.peers, std::process::id(), &Surroundings::System)
        .expect("this process");
    assert!(world.own.takes_references());
    let memory: Vec<u8> = (0..10_000).map(|i| (i * 7) as u8).collect();
    let pieces = [
        span(&memory[..3000]),
        span(&[]),
        span(&memory[3000..3001]),
        span(&memory[3001..]),
    ];
    let record = record(world.own.claim(5), &pieces, b"headers");
    for (from, len) in [
        (0, 10_000),
        (0, 0),
        (2999, 3),
        (3000, 1),
        (3001, 6999),
        (17, 5000),
    ] {
        let mut out = vec![0; len];
        assert!(copy(&world, &source, &record, from, &mut out));
        assert_eq!(out, memory[from..from + len], "{len} bytes from {from}");
    }
    assert!(!copy(&world, &source, &record, 1, &mut [0; 10_000]));
    assert!(!copy(&world, &source, &record, usize::MAX, &mut [0; 2]));
    assert!(world.own.takes_references(), "nobody is to blame");
}

#[test]
fn what_was_withdrawn_does_not_stand() {
    let world = world();
    let source = Source::try_it(&world.peers, std::process::id(), &Surroundings::System)
        .expect("this process");
    let memory = [7; 100];
    let record = |qpn| record(world.own.claim(qpn), &[span(&memory)], b"headers");
    let (one, other) = (record(5), record(6));
    world.own.withdraw(5);
    assert!(!copy(&world, &source, &one, 0, &mut [0; 100]));
    assert!(copy(&world, &source, &other, 0, &mut [0; 100]));
    assert!(copy(&world, &source, &record(5), 0, &mut [0; 100]), "anew");
}

#[test]
fn memory_that_is_not_there_is_not_had() {
    let world = world();
    let source = Source::try_it(&world.peers, std::process::id(), &Surroundings::System)
        .expect("this process");
    let memory = [7; 100];
    let pieces = [span(&memory), Span::new(4096, 100)];
    let record = record(world.own.claim(5), &pieces, b"headers");
    assert!(!copy(&world, &source, &record, 0, &mut [0; 200]));
    assert!(copy(&world, &source, &record, 0, &mut [0; 100]));
}

#[test]
fn only_the_process_that_sent_it_is_read() {
    let world = world();
    // The first process has no such memory, or may not be read; and no process has the number 0.
    assert!(Source::try_it(&world.peers, 1, &Surroundings::System).is_none());
    assert!(Source::try_it(&world.peers, 0, &Surroundings::System).is_none());
    assert!(!world.own.takes_references());
    let source = Source::try_it(&world.peers, std::process::id(), &Surroundings::System)
        .expect("this process");
    // Its number is another's now.
    let stranger = Source { pid: 1, ..source };
    let memory = [7; 100];
    let record = record(world.own.claim(5), &[span(&memory)], b"headers");
    assert!(!copy(&world, &stranger, &record, 0, &mut [0; 100]));
    assert!(
        !world.own.takes_references(),
        "what follows comes by packets"
    );
}

#[test]
fn a_process_that_says_nothing_of_itself_is_not_read() {
    let (_ring, file) = Producer::create().expect("a ring");
    let table = grant_table_of(&file).expect("its grant table");
    assert!(Source::try_it(&table, std::process::id(), &Surroundings::System).is_none());
}

proptest! {
    #[test]
    fn whatever_a_record_says_is_taken_without_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        pieces in 0..20_u8,
        lens in prop::collection::vec(0..200_000_u64, 20),
        from in any::<usize>(),
    ) {
        let world = world();
        let source = Source::try_it(&world.peers, std::process::id(), &Surroundings::System).expect("this process");
        // Likely ones, too.
        if bytes.len() > 8 {
            bytes[..4].copy_from_slice(&[pieces, 0, 0, 0]);
        }
        let front = 16.min(bytes.len());
        for (piece, len) in bytes[front..].chunks_exact_mut(16).zip(lens) {
            piece[8..].copy_from_slice(&len.to_ne_bytes());
        }
        let mut list = [Span::EMPTY; MOST_PIECES];
        if let Ok((payload, headers)) =
            ByReference::parse(&bytes, (&world.peers, &source), &mut list)
        {
            prop_assert!(payload.len() <= MOST_BY_REFERENCE && headers.len() < bytes.len());
            let mut out = [0; 64];
            // SAFETY: `out` is ours.
            let _ = unsafe { payload.copy_to(from, out.as_mut_ptr(), out.len()) };
            // SAFETY: `out` is ours.
            let _ = unsafe { payload.copy_to(0, out.as_mut_ptr(), out.len()) };
        }
    }
}
