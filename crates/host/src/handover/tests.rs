use proptest::prelude::*;
use std::ffi::CString;

use super::*;

fn train() -> Train {
    Train {
        src: "10.0.0.1".parse().unwrap(),
        dst: "fd00::2".parse().unwrap(),
        src_port: 50_123,
        len: 100,
        segment: 60,
        ids: IpIds::Hidden,
        marks: Some(IpMarks {
            traffic_class: 0x6b,
            hop_limit: 9,
        }),
    }
}

#[test]
fn a_header_comes_back_as_it_was() {
    let mut message = encode_header(&train(), 7).to_vec();
    message.resize(HEADER_LEN + 100, 0xee);
    assert_eq!(decode_header(&message), Some(train()));
    let unmarked = Train {
        marks: None,
        ..train()
    };
    let mut other = encode_header(&unmarked, 7).to_vec();
    other.resize(HEADER_LEN + 100, 0xee);
    assert_eq!(decode_header(&other), Some(unmarked));
    message.extend(encode_header(&train(), 8));
    message.extend([0xdd; 100]);
    message.extend([0; HEADER_LEN]);
    let records: Vec<_> = records(&message).collect();
    let expected = [
        (train(), 7, &[0xee; 100][..]),
        (train(), 8, &[0xdd; 100][..]),
    ];
    assert_eq!(records, expected);
}

proptest! {
    #[test]
    fn anything_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 8 {
            bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
            bytes[5..8].fill(0);
        }
        if let Some(train) = decode_header(&bytes) {
            prop_assert!((1..=bytes.len() - HEADER_LEN).contains(&train.len));
            prop_assert!(train.segment >= 1);
        }
        for (train, _, packets) in records(&bytes) {
            prop_assert_eq!(train.len, packets.len());
        }
    }
}

struct Place {
    folder: rnic_skip::Folder,
    dir: Fd,
}

impl Place {
    fn new() -> Place {
        let folder = rnic_skip::Folder::new();
        let dir = sys::open_at(
            None,
            &folder.c_path(),
            libc::O_RDONLY | libc::O_DIRECTORY,
            0,
        )
        .unwrap();
        Place { folder, dir }
    }

    fn open(&self, number: u32) -> HandoverSocket {
        HandoverSocket::open(&self.dir, self.folder.path(), number).unwrap()
    }

    fn push(&self, socket: &mut HandoverSocket, to: u32, train: &Train, bytes: &[u8]) -> u64 {
        socket.push(&self.dir, self.folder.path(), 0, to, train, bytes)
    }

    fn flush(&self, socket: &mut HandoverSocket) -> u64 {
        self.flush_at(socket, 0)
    }

    fn flush_at(&self, socket: &mut HandoverSocket, now_ns: u64) -> u64 {
        socket.flush(&self.dir, self.folder.path(), now_ns)
    }
}

fn receive(socket: &HandoverSocket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; MESSAGE_LEN];
    let len = socket.receive(&mut buffer)?;
    buffer.truncate(len);
    Some(buffer)
}

#[test]
fn what_came_in_one_go_passes_in_one_message() {
    let place = Place::new();
    let (mut a, b) = (place.open(5), place.open(6));
    assert_eq!(receive(&b), None);
    assert_eq!(place.push(&mut a, 6, &train(), &[9; 100]), 0);
    assert_eq!(
        place.push(&mut a, 6, &Train { len: 10, ..train() }, &[8; 10]),
        0
    );
    assert_eq!(place.flush(&mut a), 0);
    assert_eq!(place.flush(&mut a), 0);
    let message = receive(&b).unwrap();
    assert_eq!(decode_header(&message), Some(train()));
    let second = &message[HEADER_LEN + 100..];
    assert_eq!(decode_header(second), Some(Train { len: 10, ..train() }));
    assert_eq!(second[HEADER_LEN..], [8; 10]);
    assert_eq!(receive(&b), None);
}

#[test]
fn the_longest_train_passes_and_pushes_others_out() {
    let place = Place::new();
    let (mut a, b, c) = (place.open(5), place.open(6), place.open(7));
    let long = Train {
        len: 65_507,
        ..train()
    };
    place.push(&mut a, 6, &train(), &[9; 100]);
    place.push(&mut a, 6, &long, &vec![1; 65_507]);
    place.push(&mut a, 7, &train(), &[9; 100]);
    place.flush(&mut a);
    assert_eq!(decode_header(&receive(&b).unwrap()), Some(train()));
    assert_eq!(decode_header(&receive(&b).unwrap()), Some(long));
    assert_eq!(decode_header(&receive(&c).unwrap()), Some(train()));
}

#[test]
fn what_is_for_several_takes_one_message_each() {
    let place = Place::new();
    let mut a = place.open(5);
    // More than wait at once: the first are pushed out, and nothing is lost.
    let sockets: Vec<HandoverSocket> = (10..30).map(|number| place.open(number)).collect();
    for _ in 0..50 {
        for number in 10..10 + OUTGOING as u32 {
            assert_eq!(place.push(&mut a, number, &train(), &[9; 100]), 0);
        }
    }
    assert_eq!(place.flush(&mut a), 0);
    for number in 10..30 {
        assert_eq!(
            place.push(&mut a, number, &train(), &[number as u8; 100]),
            0
        );
    }
    assert_eq!(place.flush(&mut a), 0);
    for (number, socket) in (10..30).zip(&sockets) {
        if number < 10 + OUTGOING as u8 {
            assert_eq!(receive(socket).unwrap().len(), 50 * (HEADER_LEN + 100));
        }
        assert_eq!(receive(socket).unwrap()[HEADER_LEN..], [number; 100]);
        assert_eq!(receive(socket), None);
    }
}

#[test]
fn what_finds_nobody_is_counted() {
    let place = Place::new();
    let mut a = place.open(5);
    // 100 bytes in packets of 60: two. 60 bytes: one.
    place.push(&mut a, 6, &train(), &[9; 100]);
    assert_eq!(
        place.push(&mut a, 5, &Train { len: 60, ..train() }, &[9; 60]),
        0
    );
    assert_eq!(place.flush(&mut a), 2);
    assert_eq!(place.flush(&mut a), 0);
    assert!(receive(&a).is_some());
    // A process that is gone leaves its name behind; a newcomer takes it over.
    drop(place.open(6));
    place.push(&mut a, 6, &train(), &[9; 100]);
    assert_eq!(place.flush(&mut a), 2);
    let b = place.open(6);
    place.push(&mut a, 6, &train(), &[9; 100]);
    assert_eq!(place.flush(&mut a), 0);
    assert!(receive(&b).is_some());
}

/// Fills the queue of socket 6 with messages of one packet until one is kept; how many it took.
fn fill(place: &Place, socket: &mut HandoverSocket) -> u8 {
    for n in 0..u8::MAX {
        place.push(socket, 6, &Train { len: 60, ..train() }, &[n; 60]);
        assert_eq!(place.flush(socket), 0);
        if socket.next_timeout().is_some() {
            return n;
        }
    }
    panic!("never full");
}

#[test]
fn what_finds_a_full_queue_comes_later_in_its_order() {
    let place = Place::new();
    let (mut a, b, c) = (place.open(5), place.open(6), place.open(7));
    let full = fill(&place, &mut a);
    assert_eq!(a.next_timeout(), Some(RETRY_NS));
    place.push(&mut a, 6, &Train { len: 60, ..train() }, &[u8::MAX; 60]);
    for n in 0..full {
        assert_eq!(receive(&b).unwrap()[HEADER_LEN..], [n; 60]);
    }
    // Not before its time.
    assert_eq!(place.flush_at(&mut a, RETRY_NS - 1), 0);
    assert_eq!(receive(&b), None);
    assert_eq!(place.flush_at(&mut a, RETRY_NS), 0);
    assert_eq!(a.next_timeout(), None);
    let message = receive(&b).unwrap();
    let (first, second) = message.split_at(HEADER_LEN + 60);
    assert_eq!(first[HEADER_LEN..], [full; 60]);
    assert_eq!(second[HEADER_LEN..], [u8::MAX; 60]);
    assert_eq!(receive(&c), None);
}

#[test]
fn a_socket_that_stays_full_loses_and_does_not_block() {
    let place = Place::new();
    let (mut a, _b) = (place.open(5), place.open(6));
    fill(&place, &mut a);
    // Up to the length of a message they wait, and for a while; then they are lost, and so is what
    // comes after.
    let one = Train { len: 60, ..train() };
    let more = (1..100_000u64)
        .find(|_| place.push(&mut a, 6, &one, &[0; 60]) == 1)
        .expect("there is an end to it");
    assert_eq!(more as usize, MESSAGE_LEN / (HEADER_LEN + 60));
    assert_eq!(place.flush_at(&mut a, PATIENCE_NS), 0);
    assert_eq!(place.flush_at(&mut a, 2 * PATIENCE_NS), more);
    assert_eq!(a.next_timeout(), None);
    assert_eq!(place.flush_at(&mut a, 3 * PATIENCE_NS), 0);
}

#[test]
fn a_folder_with_a_long_name_has_sockets_too() {
    let place = Place::new();
    let long = place.folder.path().join("x".repeat(150));
    std::fs::create_dir(&long).unwrap();
    let name = CString::new(long.as_os_str().as_bytes()).unwrap();
    let dir = sys::open_at(None, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
    let mut a = HandoverSocket::open(&dir, &long, 5).unwrap();
    let b = HandoverSocket::open(&dir, &long, 6).unwrap();
    a.push(&dir, &long, 0, 6, &train(), &[9; 100]);
    assert_eq!(a.flush(&dir, &long, 0), 0);
    assert!(receive(&b).is_some());
}

#[test]
fn a_process_that_never_reads_its_socket_does_not_keep_messages_from_others() {
    let place = Place::new();
    let mut a = place.open(5);
    let long = Train {
        len: 65_507,
        ..train()
    };
    // As many as it takes to fill the greatest send buffer that a socket here gets; each holds so
    // many messages and one more.
    let each = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").expect("/proc");
    let each: u32 = each.trim().parse().expect("a number");
    let all = 10..10 + (300 / each.max(1)).clamp(2, 30);
    let stopped: Vec<HandoverSocket> = all.clone().map(|number| place.open(number)).collect();
    let mut now = 0;
    for number in all {
        while a.next_timeout().is_none() {
            place.push(&mut a, number, &long, &vec![0; long.len]);
            assert_eq!(place.flush_at(&mut a, now), 0);
        }
        now += 2 * PATIENCE_NS;
        assert!(place.flush_at(&mut a, now) > 0, "it is given up");
    }
    let awake = place.open(6);
    place.push(&mut a, 6, &long, &vec![1; long.len]);
    assert_eq!(place.flush_at(&mut a, now), 0);
    assert_eq!(decode_header(&receive(&awake).unwrap()), Some(long));
    // Nor was anything lost that found room.
    for socket in &stopped {
        assert_eq!(decode_header(&receive(socket).unwrap()), Some(long));
    }
}
