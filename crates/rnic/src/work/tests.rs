use super::*;

fn entry(id: u64, signaled: bool) -> Entry {
    Entry {
        id,
        pieces: Pieces::default(),
        signaled,
        _way: None,
    }
}

#[test]
fn completes_in_order_and_retires_unsignaled_ones_before() {
    let mut queue = WorkQueue::default();
    let mut released = Vec::new();
    for (id, signaled) in [(10, false), (11, true), (12, false), (13, true)] {
        queue.push(entry(id, signaled));
    }
    assert_eq!(queue.next(), 4);
    assert_eq!(queue.complete(1, &mut released).unwrap().id, 11);
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.complete(3, &mut released).unwrap().id, 13);
    assert_eq!(queue.len(), 0);
    assert_eq!(queue.next(), 4);
}

#[test]
fn a_signaled_entry_waits_for_its_own_completion() {
    let mut queue = WorkQueue::default();
    let mut released = Vec::new();
    for id in 0..3 {
        queue.push(entry(id, true));
    }
    assert_eq!(queue.complete(2, &mut released).unwrap().id, 2);
    assert_eq!(queue.len(), 2, "two older ones have not completed");
    assert_eq!(queue.complete(0, &mut released).unwrap().id, 0);
    assert_eq!(queue.complete(1, &mut released).unwrap().id, 1);
    assert_eq!(queue.len(), 0);
}

#[test]
fn unknown_and_repeated_numbers_are_nothing() {
    let mut queue = WorkQueue::default();
    let mut released = Vec::new();
    assert!(queue.complete(0, &mut released).is_none());
    queue.push(entry(7, true));
    assert!(queue.complete(1, &mut released).is_none());
    assert!(queue.complete(u64::MAX, &mut released).is_none());
    assert!(queue.complete(0, &mut released).is_some());
    assert!(queue.complete(0, &mut released).is_none());
}

#[test]
fn later_unsignaled_entries_stay() {
    let mut queue = WorkQueue::default();
    let mut released = Vec::new();
    queue.push(entry(0, true));
    queue.push(entry(1, false));
    assert!(queue.complete(0, &mut released).is_some());
    assert_eq!(
        queue.len(),
        1,
        "the unsignaled one after it is not vouched for"
    );
}
