//! Bytes get where they are granted, in one piece or none; and only to the process that granted
//! them.

use super::super::granted::{Copies, Granted, Identity, Writer};
use super::super::grants::{Grant, GrantName};
use super::super::ring::{Producer, grant_table_of};
use super::super::surroundings::Surroundings;
use super::*;
use rnic_wire::PathMtu;
use std::sync::atomic::AtomicU8;

struct World {
    cma: CmaWindow,
    granted: Granted,
    memory: Vec<u8>,
    counters: Arc<CmaCounters>,
    _identity: Identity,
}

const NAME: GrantName = GrantName {
    src_qpn: 1,
    dest_qpn: 2,
    key: 3,
};
const VA: u64 = 1 << 40;
const MTU: PathMtu = PathMtu::M1024;

fn request(name: GrantName, va: u64, len: u64) -> Request {
    Request {
        name,
        mtu: MTU,
        pkey: 0xffff,
        va,
        len,
    }
}

/// Of `len` bytes at `base`, which are named by addresses from `iova` on, to read and to write.
fn grant_of(name: GrantName, iova: u64, base: u64, len: u64) -> Grant {
    Grant {
        name,
        mtu: MTU,
        pkey: 0xffff,
        iova,
        base,
        len,
        read: true,
        write: true,
    }
}

fn world(pid: u32) -> World {
    world_of(Writer::numbered(pid), pid)
}

fn world_of(writer: Writer, pid: u32) -> World {
    let (_ring, file) = Producer::create().expect("a ring");
    let table = || grant_table_of(&file).expect("its grant table");
    let memory = vec![7; 300_000];
    let mut granted = Granted::new(table(), writer, Surroundings::System);
    let identity = Identity::new();
    granted.welcome(&identity);
    granted.grant(&grant_of(
        NAME,
        VA,
        memory.as_ptr() as u64,
        memory.len() as u64,
    ));
    let counters = Arc::<CmaCounters>::default();
    World {
        cma: CmaWindow::new(table(), pid, counters.clone()),
        granted,
        memory,
        counters,
        _identity: identity,
    }
}

fn spans(parts: &mut [&mut [u8]]) -> Vec<Span> {
    let span = |part: &mut &mut [u8]| Span::new(part.as_mut_ptr() as usize, part.len());
    parts.iter_mut().map(span).collect()
}

fn copy(world: &World, write: bool, va: u64, parts: &mut [&mut [u8]]) -> bool {
    let len = parts.iter().map(|part| part.len() as u64).sum();
    let whole = request(NAME, va, len);
    // SAFETY: the parts are borrowed for as long.
    unsafe { world.cma.copy(&whole, write, 0, &spans(parts), true) }
}

#[test]
fn short_and_long_ones_are_copied_whole() {
    let world = world(std::process::id());
    let (mut sum, mut read) = (0, 0);
    for len in [1, 3, 8, 10, 64, 4095, 4096, 4097, 100_000] {
        for at in [0_usize, 1, 4090] {
            let mut data: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
            let (front, back) = data.split_at_mut(len / 3);
            assert!(copy(&world, true, VA + at as u64, &mut [front, back]));
            let there = std::hint::black_box(&world.memory);
            assert_eq!(there[at..at + len], data[..], "{len} bytes at {at}");
            // Nor does a part in the middle want for anything.
            let whole = request(NAME, VA, 300_000);
            // SAFETY: the bytes are borrowed for as long.
            let middle = unsafe {
                let parts = spans(&mut [&mut data[..]]);
                world.cma.copy(&whole, true, 150_000, &parts, false)
            };
            assert!(middle);
            assert_eq!(there[150_000..150_000 + len], data[..], "{len} bytes");
            let mut back = vec![0; len];
            let (a, b) = back.split_at_mut(len / 2);
            assert!(copy(&world, false, VA + at as u64, &mut [a, b]));
            assert_eq!(back, data);
            read += len as u64;
            sum += 2 * len as u64;
        }
    }
    let mut counted = LinkCounters::default();
    world.counters.add_to(&mut counted);
    assert_eq!(
        (counted.tx_reached_bytes, counted.rx_reached_bytes),
        (sum, read)
    );
}

/// The same memory several times, each at another place: those of a row that were copied.
fn copy_row(world: &World, write: bool, at: &[(GrantName, u64)], parts: &mut [&mut [u8]]) -> usize {
    let spans = spans(parts);
    let pieces = spans.len() / at.len();
    let len = |n: usize| {
        spans[n * pieces..][..pieces]
            .iter()
            .map(Span::len)
            .sum::<usize>()
    };
    let whole = |(n, &(name, va)): (usize, &(GrantName, u64))| Whole {
        request: request(name, va, len(n) as u64),
        pieces,
    };
    let row: Vec<Whole> = at.iter().enumerate().map(whole).collect();
    // SAFETY: the parts are borrowed for as long.
    unsafe { world.cma.copy_row(write, &row, &spans) }
}

#[test]
fn a_row_is_copied_one_after_the_other() {
    let world = world(std::process::id());
    let there = |at: u64, len: usize| {
        let at = (at - VA) as usize;
        std::hint::black_box(&world.memory)[at..at + len].to_vec()
    };
    for len in [1, 7, 8, 10, 64, 5000] {
        for count in [1, 2, 5, Whole::MOST] {
            // The third, if there is one, is where the first is.
            let place = |n: usize| (NAME, VA + if n == 2 { 0 } else { 6000 * n as u64 });
            let places: Vec<_> = (0..count).map(place).collect();
            let mut data: Vec<Vec<u8>> = (0..count)
                .map(|n| (0..len).map(|i| (n * 31 + i + len) as u8).collect())
                .collect();
            let before = data.clone();
            let mut halves: Vec<&mut [u8]> = Vec::new();
            for bytes in &mut data {
                let (front, back) = bytes.split_at_mut(len / 2);
                halves.extend([front, back]);
            }
            assert_eq!(copy_row(&world, true, &places, &mut halves), count);
            for (n, &(_, va)) in places.iter().enumerate() {
                let last = if count > 2 && n == 0 { 2 } else { n };
                assert_eq!(there(va, len), before[last], "{len} bytes, {n} of {count}");
            }
            let mut back = vec![vec![0; len]; count];
            let mut parts: Vec<&mut [u8]> = back.iter_mut().map(|b| &mut b[..]).collect();
            assert_eq!(copy_row(&world, false, &places, &mut parts), count);
            assert_eq!(back[count - 1], before[count - 1]);
        }
    }
    let mut counted = LinkCounters::default();
    world.counters.add_to(&mut counted);
    assert_eq!(counted.tx_reached_bytes, counted.rx_reached_bytes);
    assert_eq!(counted.tx_reached_bytes, (1 + 7 + 8 + 10 + 64 + 5000) * 24);
}

#[test]
fn a_row_ends_before_the_first_that_is_not_granted_or_not_there() {
    let mut world = world(std::process::id());
    let nowhere = GrantName { key: 4, ..NAME };
    world.granted.grant(&grant_of(nowhere, VA, 4096, 100));
    let unknown = GrantName { key: 5, ..NAME };
    for other in [(unknown, VA), (nowhere, VA), (NAME, VA - 1)] {
        for first in 0..3 {
            let mut row = vec![(NAME, VA); 3];
            row[first] = other;
            for write in [true, false] {
                let mut data = [[1; 10]; 3];
                let mut parts: Vec<&mut [u8]> = data.iter_mut().map(|d| &mut d[..]).collect();
                let copied = copy_row(&world, write, &row, &mut parts);
                assert_eq!(copied, first, "{other:?}");
            }
        }
    }
    assert_eq!(
        copy_row(
            &world,
            true,
            &[(NAME, VA); 2],
            &mut [&mut [1; 10], &mut [1; 10]]
        ),
        2
    );
    assert!(
        world.granted.revoke(&|_| true).is_none(),
        "none is under way"
    );
    assert_eq!(
        copy_row(
            &world,
            true,
            &[(NAME, VA); 2],
            &mut [&mut [1; 10], &mut [1; 10]]
        ),
        0
    );
}

#[test]
fn where_only_the_file_may_be_used_a_row_goes_by_it() {
    let world = world(std::process::id());
    let memory = world.cma.memory().expect("reached");
    memory.only_file.store(true, Ordering::Relaxed);
    let mut data = [[3; 10], [4; 10]];
    let mut parts: Vec<&mut [u8]> = data.iter_mut().map(|d| &mut d[..]).collect();
    assert_eq!(
        copy_row(&world, true, &[(NAME, VA), (NAME, VA + 10)], &mut parts),
        2
    );
    let there = std::hint::black_box(&world.memory);
    assert_eq!((there[9], there[10]), (3, 4));
}

#[test]
fn only_what_lies_in_one_line_has_no_end_that_is_stored_last() {
    for (at, len, want) in [
        (54, 10, true),
        (55, 10, false),
        (63, 1, true),
        (0, 2, false),
        (0, 3, false),
        (60, 4, true),
        (61, 4, false),
        (33, 31, true),
        (0, 32, false),
        (u64::MAX, 1, true),
        (0, u64::MAX, false),
    ] {
        let want = want && cfg!(target_arch = "x86_64");
        assert_eq!(is_at_once(at, len), want, "{len} bytes at {at}");
    }
}

/// Programs spin on the last byte of a buffer to learn that all of it came.
#[test]
fn who_sees_the_end_of_a_write_sees_all_of_it() {
    const MOST: usize = 200;
    const ROUNDS: u64 = 300;
    let world = world(std::process::id());
    let base = world.memory.as_ptr().cast::<AtomicU8>();
    // SAFETY: memory of that length, which from here on is touched by atomics and by the kernel
    // alone.
    let there = unsafe { std::slice::from_raw_parts(base, world.memory.len()) };
    let first = there.as_ptr().align_offset(64);
    for (at, len) in [
        (0, 2),
        (0, 10),
        (54, 10),
        (55, 10),
        (1, 63),
        (0, 64),
        (7, 100),
        (0, MOST),
    ] {
        let at = first + at;
        let place = &there[at..at + len];
        let (seen, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let reads = || {
            let mut torn = 0;
            for round in 1..=ROUNDS {
                while place[len - 1].load(Ordering::Acquire) != round as u8 {
                    if over.load(Ordering::Acquire) {
                        return torn;
                    }
                    std::thread::yield_now();
                }
                let is_new = |byte: &AtomicU8| byte.load(Ordering::Relaxed) == round as u8;
                torn += u64::from(!place.iter().all(is_new));
                seen.store(round, Ordering::Release);
            }
            torn
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(reads);
            let copied = (1..=ROUNDS).all(|round| {
                let mut data = [round as u8; MOST];
                // By itself, and as the second of a row.
                let copied = if round % 2 == 0 {
                    copy(&world, true, VA + at as u64, &mut [&mut data[..len]])
                } else {
                    let places = [(NAME, VA + 100_000), (NAME, VA + at as u64)];
                    copy_row(&world, true, &places, &mut [&mut [1], &mut data[..len]]) == 2
                };
                while copied && seen.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                copied
            });
            over.store(true, Ordering::Release);
            assert!(copied, "{len} bytes at {at}");
            assert_eq!(reader.join().ok(), Some(0), "torn: {len} bytes at {at}");
        });
    }
}

#[test]
fn what_is_not_granted_is_not_touched() {
    let mut world = world(std::process::id());
    let end = VA + world.memory.len() as u64;
    let mut data = [1; 10];
    assert!(!copy(&world, true, end - 9, &mut [&mut data]));
    assert!(!copy(&world, true, VA - 1, &mut [&mut data]));
    assert!(copy(&world, true, end - 10, &mut [&mut data]));
    assert!(world.granted.revoke(&|name| name.key == NAME.key).is_none());
    assert!(!copy(&world, true, VA, &mut [&mut data]));
    assert!(!copy(&world, false, VA, &mut [&mut data]));
    assert_eq!(std::hint::black_box(&world.memory)[..10], [7; 10]);
}

/// A part of it may be within the region: by packets nothing would be touched, since the request as
/// a whole is looked at first.
#[test]
fn no_part_of_a_request_is_copied_that_is_not_granted_as_a_whole() {
    let world = world(std::process::id());
    let len = world.memory.len() as u64;
    let whole = |len| Request {
        mtu: PathMtu::M1024,
        pkey: 0xffff,
        ..request(NAME, VA, len)
    };
    let mut data = [1; 10];
    let mut try_it = |whole: &Request, from| {
        let parts = spans(&mut [&mut data]);
        // SAFETY: the bytes are borrowed for as long.
        unsafe { world.cma.copy(whole, true, from, &parts, false) }
    };
    assert!(!try_it(&whole(len + 1), 0));
    assert!(!try_it(&whole(len), len - 9), "behind the request");
    assert!(!try_it(&whole(len), u64::MAX - 5), "wraps");
    assert_eq!(std::hint::black_box(&world.memory)[..10], [7; 10]);
    assert!(try_it(&whole(len), len - 10));
}

#[test]
fn a_process_of_the_same_number_is_not_taken_for_the_one_that_granted() {
    // The process with the first number has no such memory, or may not be reached.
    let world = world(1);
    assert!(!copy(&world, true, VA, &mut [&mut [1; 10]]));
    assert_eq!(world.counters.refused.load(Ordering::Relaxed), 1);
    assert!(!copy(&world, true, VA, &mut [&mut [1; 10]]), "nor later");
}

#[test]
fn local_memory_that_is_not_there_fails_the_copy() {
    let world = world(std::process::id());
    for len in [10, 100_000] {
        let nowhere = [Span::new(4096, len)];
        // SAFETY: nothing of this process is at that address.
        assert!(!unsafe {
            world
                .cma
                .copy(&request(NAME, VA, len as u64), true, 0, &nowhere, true)
        });
    }
    assert!(copy(&world, true, VA, &mut [&mut [1; 10]]));
}

#[test]
fn what_is_taken_back_in_the_middle_of_a_copy_is_waited_for() {
    let mut world = world(std::process::id());
    let turn = 1;
    let World { cma, granted, .. } = &mut world;
    let copying = cma.table.during(turn, || {
        let copying = granted.revoke(&|name| name.key == NAME.key);
        assert!(granted.lingers());
        // A caller that asks for the same once more has to wait as well, and no other has to.
        assert!(granted.revoke(&|name| name.key == NAME.key).is_some());
        assert!(granted.revoke(&|name| name.key == 99).is_none());
        copying
    });
    let mut copies = Copies::default();
    copies.add(copying);
    assert!(copies.wait(), "it is over");
    assert!(!granted.lingers());
    assert!(granted.revoke(&|name| name.key == NAME.key).is_none());
}

#[test]
fn what_is_displaced_in_the_middle_of_a_copy_is_waited_for() {
    let mut world = world(std::process::id());
    let set: Vec<u16> = GrantTable::places(&NAME).collect();
    let name = |key| GrantName { key, ..NAME };
    let grant = |key| grant_of(name(key), VA, 1 << 20, 1);
    let same_set = |key: &u32| GrantTable::places(&name(*key)).eq(set.iter().copied());
    // One more than there is room for, beside the one that is there.
    let more: Vec<u32> = (100..).filter(same_set).take(set.len()).collect();
    let World { cma, granted, .. } = &mut world;
    for key in &more[1..] {
        granted.grant(&grant(*key));
    }
    let copying = cma.table.during(1, || {
        granted.grant(&grant(more[0]));
        let all = [NAME.key].into_iter().chain(more.iter().copied());
        let gone: Vec<u32> = all
            .filter(|key| {
                cma.table
                    .place(&request(name(*key), VA, 1), false)
                    .is_none()
            })
            .collect();
        let &[gone] = &gone[..] else {
            panic!("one was displaced: {gone:?}");
        };
        granted.revoke(&|name| name.key == gone)
    });
    assert!(copying.is_some());
}

#[test]
fn a_range_that_wraps_is_not_reached() {
    let mut world = world(std::process::id());
    let liar = GrantName { key: 4, ..NAME };
    world
        .granted
        .grant(&grant_of(liar, 0, u64::MAX - 10_000, u64::MAX));
    let mut data = vec![0; 100_000];
    let whole = request(liar, 0, 100_000);
    for write in [true, false] {
        // SAFETY: the bytes are borrowed for as long.
        assert!(!unsafe {
            world
                .cma
                .copy(&whole, write, 0, &spans(&mut [&mut data]), true)
        });
    }
}

#[test]
fn a_process_that_is_stopped_in_a_copy_is_not_waited_for_without_end() {
    let mut world = world(std::process::id());
    let World { cma, granted, .. } = &mut world;
    let over = cma.table.during(1, || {
        let mut copies = Copies::default();
        copies.add(granted.revoke(&|_| true));
        copies.wait()
    });
    assert!(!over);
}

#[test]
fn one_that_ended_in_a_copy_is_not_waited_for() {
    let mut child = std::process::Command::new("true").spawn().expect("true(1)");
    let mut world = world(child.id());
    // Not waited for by its parent: it may even be a zombie.
    while !sys::has_ended(child.id()) {
        std::thread::yield_now();
    }
    let World { cma, granted, .. } = &mut world;
    let over = cma.table.during(1, || {
        let mut copies = Copies::default();
        copies.add(granted.revoke(&|_| true));
        copies.wait()
    });
    assert!(over);
    child.wait().expect("it has ended");
}

/// As one of another PID namespace is, of which only the connection tells.
#[test]
fn one_without_a_number_that_ended_in_a_copy_is_not_waited_for() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a connection");
    let connection = Arc::new(Fd::from(std::os::fd::OwnedFd::from(ours)));
    let writer = || Writer::unknown(&connection);
    let mut world = world_of(writer(), std::process::id());
    let World { cma, granted, .. } = &mut world;
    let (before, after) = cma.table.during(1, || {
        let mut revoked = || {
            let mut copies = Copies::default();
            copies.add(granted.revoke(&|_| true));
            copies.wait()
        };
        let before = revoked();
        drop(theirs);
        (before, revoked())
    });
    assert_eq!((before, after), (false, true));
    // What is kept of a ring that was closed has no connection any more.
    let mut world = world_of(writer(), std::process::id());
    let World { cma, granted, .. } = &mut world;
    cma.table.during(1, || {
        assert!(granted.shut(true));
        assert!(!granted.lingers());
    });
}

#[test]
fn who_could_not_be_tried_for_want_of_a_descriptor_is_tried_again() {
    if !rnic_skip::alone() {
        return;
    }
    let world = world(std::process::id());
    let mut counters = LinkCounters::default();
    let all = rnic_skip::all_descriptors();
    assert!(!copy(&world, true, VA, &mut [&mut [1; 8]]));
    drop(all);
    assert!(copy(&world, true, VA, &mut [&mut [2; 8]]));
    world.counters.add_to(&mut counters);
    assert_eq!(counters.host_out_of_reach, 0);
}
