//! What goes in comes out, in order and whole, wherever the end of the ring is; and nothing that
//! the other side writes makes this side panic, hang, or read elsewhere.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

pub(in crate::shm) fn pair() -> (Producer, Consumer) {
    let (producer, file) = Producer::create().expect("a ring");
    (producer, Consumer::attach(&file).expect("its other end"))
}

impl Producer {
    /// Publishes a record of two parts, the second of which is [detached](Size) if there is one;
    /// there must be room.
    fn push_parts(&mut self, kind: Kind, front: &[u8], detached: &[u8]) {
        let size = Size {
            front: front.len(),
            detached: detached.len(),
        };
        if !detached.is_empty() {
            self.vacant(size).write(0, detached);
        }
        self.publish(kind, size, front);
    }

    /// Writes where only a hostile process does.
    pub(in crate::shm) fn scribble(&self, at: usize, bytes: &[u8]) {
        self.segment.write(at, bytes);
    }
}

fn bytes_of(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| number.wrapping_add(i as u8)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn records_come_out_as_they_went_in(
        steps in prop::collection::vec(
            (prop_oneof![0usize..200, 0..MAX_RECORD], 0..=MAX_HEADER_LEN, 0usize..4),
            1..400,
        ),
    ) {
        let (mut producer, mut consumer) = pair();
        let mut inside = VecDeque::new();
        let mut buffer = vec![0; MAX_RECORD];
        let take = |inside: &mut VecDeque<(Kind, Vec<u8>)>, consumer: &mut Consumer, buffer: &mut [u8]| {
            let record = consumer.front_record().expect("a right ring").expect("a record");
            let (kind, bytes) = inside.pop_front().expect("what was put in");
            assert_eq!(record.kind, kind);
            assert_eq!(consumer.copy(record, buffer), record.size.front);
            let (front, rest) = buffer.split_at_mut(record.size.front);
            assert_eq!(front, &bytes[..front.len()]);
            let detached = consumer.detached(record);
            let rest = &mut rest[..record.size.detached];
            // SAFETY: `rest` is ours.
            let all = unsafe { detached.copy_to(0, rest.as_mut_ptr(), rest.len()) }.is_ok();
            assert!(all);
            assert_eq!(rest, &bytes[front.len()..]);
            // SAFETY: `rest` is ours, were it copied to.
            let more = unsafe { detached.copy_to(1, rest.as_mut_ptr(), rest.len()) }.is_ok();
            assert!(!more, "there is no byte behind them");
            consumer.advance(record);
        };
        for (number, (len, front, taken)) in steps.into_iter().enumerate() {
            let flow = number as u16;
            // Long packets have headers.
            let (kind, size) = if front == 0 || front >= len {
                (Kind::Packet { flow }, Size::plain(len))
            } else {
                (Kind::Long { flow, mtu: PathMtu::ALL[number % 5] }, Size { front, detached: len - front })
            };
            while !producer.has_room(size).expect("a right ring") {
                take(&mut inside, &mut consumer, &mut buffer);
                consumer.publish_head();
            }
            let bytes = bytes_of(number as u8, len);
            let (front, detached) = bytes.split_at(size.front);
            producer.push_parts(kind, front, detached);
            inside.push_back((kind, bytes));
            for _ in 0..taken.min(inside.len()) {
                take(&mut inside, &mut consumer, &mut buffer);
            }
        }
        while !inside.is_empty() {
            take(&mut inside, &mut consumer, &mut buffer);
        }
        prop_assert!(consumer.is_empty());
        consumer.publish_head();
        prop_assert!(producer.is_drained());
        producer.push(Kind::Packet { flow: 0 }, &[1]);
        prop_assert!(!producer.is_drained());
    }

    #[test]
    fn a_hostile_producer_is_found_out_or_harmless(
        writes in prop::collection::vec((0usize..64, any::<u64>(), 0u64..6, 0usize..70_000, 0usize..256), 1..64),
    ) {
        let (producer, mut consumer) = pair();
        for (line, garbage, kind, len, front) in writes {
            // Garbage, and words that are nearly right.
            let word = encode(kind, garbage as u16, Size::plain(len)) | (front << LEN_BITS) as u64;
            let words = [garbage, word];
            let word = words[(garbage % 2) as usize];
            producer.scribble(DATA_AT + line * LINE, &word.to_ne_bytes());
            producer.scribble(DATA_AT + DATA - (line + 1) * LINE, &word.to_ne_bytes());
        }
        let mut buffer = vec![0; MAX_RECORD];
        for _ in 0..DATA / LINE {
            match consumer.front_record() {
                Ok(Some(record)) => {
                    consumer.copy(record, &mut buffer);
                    let len = record.size.detached;
                    // SAFETY: `buffer` is ours, and no record is longer.
                    let copied = unsafe { consumer.detached(record).copy_to(0, buffer.as_mut_ptr(), len) };
                    assert!(copied.is_ok());
                    consumer.advance(record);
                }
                Ok(None) | Err(Wrong) => break,
            }
        }
    }
}

#[test]
fn only_long_packets_have_a_path_mtu_and_it_is_one_that_there_is() {
    let sizes = [
        Size::plain(40),
        Size {
            front: 28,
            detached: 5000,
        },
    ];
    for (kind, code) in (0..=u8::MAX).flat_map(|kind| (0..16).map(move |code| (kind, code))) {
        let kind = u64::from(kind & 0xf);
        for size in sizes {
            let read = decode(encode(kind | code << MTU_SHIFT, 3, size));
            let long = size.detached > 0;
            let mtu = PathMtu::from_ibv(code as u32);
            let right = match (kind, mtu) {
                (PACKET | FLOW, None) => code == 0,
                (REFERENCE, Some(_)) => true,
                (LONG, Some(_)) => long,
                _ => false,
            };
            // The front's length of one that has no detached part is part of its own, which is too
            // long then.
            let right = right && (kind == LONG || !long);
            assert_eq!(read.is_some(), right, "{kind}, {code}, {size:?}: {read:?}");
        }
    }
}

#[test]
fn long_payload_begins_at_a_cache_line() {
    let (mut producer, mut consumer) = pair();
    for len in [3000, 4096, 16_384, 5000] {
        producer.push_parts(
            Kind::Long {
                flow: 0,
                mtu: PathMtu::M256,
            },
            &[1; 28],
            &vec![2; len],
        );
        let record = consumer.front_record().expect("right").expect("there");
        assert!(consumer.detached(record).at.is_multiple_of(LINE), "{len}");
        consumer.advance(record);
    }
}

#[test]
fn a_full_ring_has_no_room_and_loses_nothing() {
    let (mut producer, mut consumer) = pair();
    let mut pushed = 0u32;
    while producer.has_room(Size::plain(1000)).expect("right") {
        producer.push(Kind::Packet { flow: 0 }, &[pushed as u8; 1000]);
        pushed += 1;
    }
    assert!(pushed as usize > DATA / 1100);
    let mut buffer = vec![0; MAX_RECORD];
    for number in 0..pushed {
        let record = consumer.front_record().expect("right").expect("there");
        consumer.copy(record, &mut buffer);
        assert_eq!(buffer[..1000], [number as u8; 1000]);
        consumer.advance(record);
    }
    assert!(consumer.is_empty());
    consumer.publish_head();
    assert!(producer.has_room(Size::plain(MAX_RECORD)).expect("right"));
}

#[test]
fn a_consumer_that_lies_about_its_position_is_found_out() {
    for lie in [1u64 << 40, u64::MAX] {
        let (mut producer, _consumer) = pair();
        producer.scribble(HEAD_AT, &lie.to_ne_bytes());
        while let Ok(true) = producer.has_room(Size::plain(1000)) {
            producer.push(Kind::Packet { flow: 0 }, &[0; 1000]);
        }
        assert_eq!(producer.has_room(Size::plain(1000)), Err(Wrong), "{lie:#x}");
    }
}

#[test]
fn a_file_that_could_shrink_is_refused() {
    let long_enough = std::env::temp_dir().join(format!("rnic-ring-{}", std::process::id()));
    std::fs::write(&long_enough, vec![0; LEN]).expect("a file");
    let name = std::ffi::CString::new(long_enough.to_str().expect("text")).expect("no zero");
    let file = sys::open_at(None, &name, libc::O_RDWR, 0).expect("opened");
    assert!(Consumer::attach(&file).is_err(), "a file of a disk");
    std::fs::remove_file(&long_enough).expect("removed");
    let short = sys::memory_file(LEN - 4096).expect("a file");
    assert!(Consumer::attach(&short).is_err(), "too short");
}
