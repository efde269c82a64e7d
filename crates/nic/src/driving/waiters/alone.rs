//! Which thread drives, seen from one.

use std::cell::{Cell, RefCell};

use super::*;

/// So many packets are found at each look.
struct Finds {
    packets: Cell<usize>,
    /// The places that were looked at.
    looks: RefCell<Vec<usize>>,
}

impl Finds {
    fn new(packets: usize) -> Finds {
        Finds {
            packets: Cell::new(packets),
            looks: RefCell::default(),
        }
    }
}

impl Awaitable for Finds {
    fn look(&self, place: usize, look: Look) -> Looked {
        self.looks.borrow_mut().push(place);
        Looked {
            received: (look != Look::First).then(|| self.packets.get()),
            left: false,
            waits_for_receives: false,
            packets: packets_of(place),
        }
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// The engine of each place has two descriptors of its own.
fn packets_of(place: usize) -> [RawFd; 2] {
    let place = place as RawFd;
    [10 * place + 3, 10 * place + 4]
}

fn asleep_on(places: &[usize]) -> Option<Waiting> {
    let pairs = places.iter().map(|place| packets_of(*place));
    Some(Waiting::SleepOn(Packets::new(pairs)))
}

fn begin(engines: &[&Arc<Waiters>], may_drive: bool) -> Wait {
    let engines = engines.iter().map(|waiters| (*waiters).clone());
    Wait::begin(engines.enumerate(), may_drive, 0)
}

fn woken(readable: &[bool]) -> Option<Readable> {
    Some(Readable::new(readable.iter().copied()))
}

#[test]
fn one_thread_drives_and_others_sleep_until_none_does() {
    let (waiters, packets) = (Waiters::new(), Finds::new(1));
    let mut first = begin(&[&waiters], true);
    assert_eq!(first.drive(None, &packets), asleep_on(&[0]));
    let mut second = begin(&[&waiters], true);
    assert_eq!(second.drive(None, &packets), None);
    assert_eq!(first.drive(woken(&[true; 2]), &packets), asleep_on(&[0]));
    drop(first);
    assert!(!waiters.drive() && waiters.sleep());
    assert!(!begin(&[&waiters], true).drives(), "another sleeps");
    drop(second);
    assert!(!begin(&[&waiters], false).drives(), "it may not");
    assert!(begin(&[&waiters], true).drives() && !waiters.sleep());
}

#[test]
fn a_thread_that_finds_nothing_leaves_packets_to_others() {
    let (waiters, packets) = (Waiters::new(), Finds::new(0));
    let mut wait = begin(&[&waiters], true);
    let mut wake = |found| {
        packets.packets.set(found);
        wait.drive(woken(&[true; 2]), &packets)
    };
    for _ in 0..NEEDLESS {
        assert_eq!(wake(0), asleep_on(&[0]));
    }
    assert_eq!(wake(1), asleep_on(&[0]));
    let sleeps = (0..).take_while(|_| wake(0) == asleep_on(&[0]));
    assert_eq!(sleeps.count() as u32, NEEDLESS);
}

#[test]
fn a_thread_drives_all_engines_that_no_other_drives() {
    let engines = [(); 3].map(|()| Waiters::new());
    let [first, second, third] = &engines;
    let all = [first, second, third];
    let packets = Finds::new(1);
    let mut wait = begin(&all, true);
    assert_eq!(wait.drive(None, &packets), asleep_on(&[0, 1, 2]));
    drop(wait);
    let other = begin(&[second], true);
    let mut wait = begin(&all, true);
    assert_eq!(wait.drive(None, &packets), asleep_on(&[0, 2]));
    assert_eq!(wait.left_to_others().collect::<Vec<_>>(), [1]);
    drop(other);
    packets.looks.borrow_mut().clear();
    let third_alone = woken(&[false, false, true, false]);
    assert_eq!(wait.drive(third_alone, &packets), asleep_on(&[0, 2]));
    assert_eq!(*packets.looks.borrow(), [2], "the others wake it still");
    drop(wait);
    let idle = |waiters: &Arc<Waiters>| !waiters.drive() && !waiters.sleep();
    assert!(engines.iter().all(idle));
}

#[test]
fn a_thread_gives_up_one_engine_and_keeps_the_others() {
    let engines = [(); 2].map(|()| Waiters::new());
    let packets = Finds::new(0);
    let mut wait = begin(&[&engines[0], &engines[1]], true);
    assert_eq!(wait.drive(None, &packets), asleep_on(&[0, 1]));
    let mut wake = || wait.drive(woken(&[false, false, false, true]), &packets);
    for _ in 0..NEEDLESS {
        assert_eq!(wake(), asleep_on(&[0, 1]));
    }
    assert_eq!(wake(), asleep_on(&[0]));
    assert!(engines[1].sleep() && !engines[1].drive() && engines[0].drive());
}

#[test]
fn more_engines_than_a_thread_drives_are_left_to_others() {
    let engines = [(); MOST_DRIVEN + 1].map(|()| Waiters::new());
    let wait = begin(&engines.iter().collect::<Vec<_>>(), true);
    assert_eq!(wait.driven().count(), MOST_DRIVEN);
    assert_eq!(wait.left_to_others().collect::<Vec<_>>(), [MOST_DRIVEN]);
}
