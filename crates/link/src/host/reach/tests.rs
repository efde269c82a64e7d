//! Bytes get where they are granted, in one piece or none; and only to the process that granted them.

use super::super::granted::{Copies, Granted, Identity};
use super::super::grants::Grant;
use super::super::ring::Producer;
use super::*;
use crate::sys;

struct World {
    reach: Reach,
    granted: Granted,
    memory: Vec<u8>,
    reached: Arc<Reached>,
    _identity: Identity,
}

const NAME: GrantName = GrantName {
    src_qpn: 1,
    dest_qpn: 2,
    key: 3,
};
const VA: u64 = 1 << 40;

fn world(pid: u32) -> World {
    let (_ring, file) = Producer::create().expect("a ring");
    let board = || Board::of(&file).expect("its board");
    let memory = vec![7; 300_000];
    let mut granted = Granted::new(board(), pid);
    let identity = Identity::new();
    granted.welcome(&identity);
    granted.grant(&Grant {
        name: NAME,
        iova: VA,
        base: memory.as_ptr() as u64,
        len: memory.len() as u64,
        read: true,
        write: true,
    });
    let reached = Arc::<Reached>::default();
    World {
        reach: Reach::new(board(), pid, reached.clone()),
        granted,
        memory,
        reached,
        _identity: identity,
    }
}

fn spans(parts: &mut [&mut [u8]]) -> Vec<Span> {
    let span = |part: &mut &mut [u8]| Span::new(part.as_mut_ptr() as usize, part.len());
    parts.iter_mut().map(span).collect()
}

fn copy(world: &World, write: bool, va: u64, parts: &mut [&mut [u8]]) -> bool {
    // SAFETY: the parts are borrowed for as long.
    unsafe { world.reach.copy(&NAME, write, va, &spans(parts)) }
}

#[test]
fn short_and_long_ones_are_copied_whole() {
    let world = world(std::process::id());
    let mut sum = 0;
    for len in [1, 3, 8, 10, 64, 4095, 4096, 4097, 100_000] {
        for at in [0_usize, 1, 4090] {
            let mut data: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
            let (front, back) = data.split_at_mut(len / 3);
            assert!(copy(&world, true, VA + at as u64, &mut [front, back]));
            let there = std::hint::black_box(&world.memory);
            assert_eq!(there[at..at + len], data[..], "{len} bytes at {at}");
            let mut back = vec![0; len];
            let (a, b) = back.split_at_mut(len / 2);
            assert!(copy(&world, false, VA + at as u64, &mut [a, b]));
            assert_eq!(back, data);
            sum += len as u64;
        }
    }
    let mut counted = LinkCounters::default();
    world.reached.add_to(&mut counted);
    assert_eq!(
        (counted.tx_reached_bytes, counted.rx_reached_bytes),
        (sum, sum)
    );
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

#[test]
fn a_process_of_the_same_number_is_not_taken_for_the_one_that_granted() {
    // The process with the first number has no such memory, or may not be reached.
    let world = world(1);
    assert!(!copy(&world, true, VA, &mut [&mut [1; 10]]));
    assert_eq!(world.reached.refused.load(Ordering::Relaxed), 1);
    assert!(!copy(&world, true, VA, &mut [&mut [1; 10]]), "nor later");
}

#[test]
fn local_memory_that_is_not_there_fails_the_copy() {
    let world = world(std::process::id());
    for len in [10, 100_000] {
        let nowhere = [Span::new(4096, len)];
        // SAFETY: nothing of this process is at that address.
        assert!(!unsafe { world.reach.copy(&NAME, true, VA, &nowhere) });
    }
    assert!(copy(&world, true, VA, &mut [&mut [1; 10]]));
}

#[test]
fn what_is_taken_back_in_the_middle_of_a_copy_is_waited_for() {
    let mut world = world(std::process::id());
    let turn = 1;
    let World { reach, granted, .. } = &mut world;
    let copying = reach.board.during(turn, || {
        let copying = granted.revoke(&|name| name.key == NAME.key);
        assert!(granted.lingers());
        // Whoever asks for the same once more has to wait as well, and nobody else has to.
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
fn a_process_that_is_stopped_in_a_copy_is_not_waited_for_without_end() {
    let mut world = world(std::process::id());
    let World { reach, granted, .. } = &mut world;
    let over = reach.board.during(1, || {
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
    let World { reach, granted, .. } = &mut world;
    let over = reach.board.during(1, || {
        let mut copies = Copies::default();
        copies.add(granted.revoke(&|_| true));
        copies.wait()
    });
    assert!(over);
    child.wait().expect("it has ended");
}
