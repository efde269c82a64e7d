//! A group becomes smaller when it loses, and grows as it is answered; nobody is passed over, and
//! nobody is held back for ever.

use super::*;
use std::net::{IpAddr, Ipv4Addr};

const HOST: Address = Address::RoceV2(IpAddr::V4(Ipv4Addr::LOCALHOST));
const MS: u64 = 1_000_000;

const IDLE: Requests = Requests {
    awaits: false,
    may_leave: false,
    consecutive_ack_timeouts: 0,
    acknowledged: 0,
    failed: false,
    timeout_ns: 0,
};
const WANTS: Requests = Requests {
    may_leave: true,
    ..IDLE
};
const AWAITS: Requests = Requests {
    awaits: true,
    ..IDLE
};
const STREAMS: Requests = Requests {
    may_leave: true,
    ..AWAITS
};
/// Its ACK timer has just ended.
const LOST: Requests = Requests {
    consecutive_ack_timeouts: 1,
    ..WANTS
};

/// What it had under way is flushed.
const FAILED: Requests = Requests {
    failed: true,
    ..IDLE
};

fn of(number: u32) -> IncastMember {
    IncastMember {
        group: number,
        ..IncastMember::default()
    }
}

/// Of `n` queue pairs with something under way, one of which lost it at `now`.
fn group(now: u64, n: u32) -> (Incast, Vec<IncastMember>) {
    let mut incast = Incast::default();
    assert!(incast.timed_out(now, HOST));
    incast.form(now, HOST, n);
    let mut places = vec![IncastMember::default(); n as usize];
    for place in &mut places {
        incast.join(HOST, place, AWAITS);
        incast.note(place, AWAITS);
    }
    (incast, places)
}

impl Incast {
    fn only(&self) -> (u32, u32, usize) {
        let [group] = &self.groups[..] else {
            panic!("{self:?}");
        };
        (group.most, group.under_way, group.waiting.len())
    }

    /// All that it had under way is acknowledged.
    fn answer(&mut self, place: &mut IncastMember) {
        let of = Requests {
            acknowledged: place.acknowledged + 1,
            ..IDLE
        };
        self.note(place, of);
    }

    /// The turn of one that wants to send, which is held back or sends.
    fn turn(&mut self, now: u64, qpn: u32, place: &mut IncastMember, of: Requests) -> bool {
        let waits = self.must_wait(place, of);
        if waits {
            self.wait(now, qpn, *place);
            self.note(
                place,
                Requests {
                    may_leave: false,
                    ..of
                },
            );
        } else {
            self.note(place, AWAITS);
        }
        !waits
    }
}

#[test]
fn halves_once_for_all_timers_of_a_group() {
    let (mut incast, mut places) = group(1000 * MS, 100);
    assert_eq!(incast.only(), (50, 100, 0));
    for place in &mut places[..60] {
        assert!(!incast.timed_out(1005 * MS, HOST));
        incast.note(place, LOST);
    }
    assert_eq!(incast.only(), (50, 40, 0));
    for place in &mut places[60..] {
        assert!(!incast.timed_out(2000 * MS, HOST));
        incast.note(place, LOST);
    }
    assert_eq!(incast.only(), (20, 0, 0));
}

#[test]
fn few_are_never_held_up() {
    let (mut incast, mut places) = group(1000 * MS, FEW + 1);
    for (n, place) in (0..).zip(&mut places) {
        incast.timed_out((2000 + n) * 1000 * MS, HOST);
        incast.note(place, LOST);
    }
    assert_eq!(incast.only(), (FEWEST, 0, 0));
    for (qpn, place) in (0..FEWEST).zip(&mut places) {
        assert!(incast.turn(9, qpn, place, LOST), "{qpn}");
    }
    assert!(!incast.turn(9, 99, &mut places[20], LOST));
}

#[test]
fn who_waits_is_let_go_in_order() {
    let (mut incast, mut places) = group(1, 40);
    for qpn in 0..3 {
        incast.answer(&mut places[qpn as usize]);
        assert!(!incast.turn(2, qpn, &mut places[qpn as usize], WANTS));
    }
    assert_eq!((incast.only(), incast.next()), ((20, 37, 3), None));
    for place in &mut places[3..22] {
        incast.answer(place);
    }
    // 22 were answered by now, so that there may be one more.
    assert_eq!(incast.only(), (21, 18, 3));
    // There is room, but not for one that has just come.
    assert!(incast.has_room() && !incast.is_free(places[30]));
    let mut late = of(places[0].group);
    assert!(!incast.turn(3, 7, &mut late, WANTS));
    for qpn in 0..3 {
        assert_eq!(incast.next(), Some((qpn, places[0].group)));
        assert!(incast.admit(places[0].group, &mut places[qpn as usize], WANTS));
    }
    assert_eq!((incast.next(), incast.only()), (None, (21, 21, 1)));
}

/// A turn for its responder, an ACK of something else, a full socket: none of that takes its place
/// away.
#[test]
fn who_was_let_go_sends_at_its_turn() {
    let (mut incast, mut places) = group(1, 40);
    let number = places[0].group;
    for place in &mut places[1..=30] {
        incast.answer(place);
    }
    incast.answer(&mut places[0]);
    let mut waits = of(number);
    for place in &mut places[31..] {
        incast.note(place, AWAITS);
    }
    incast.groups[0].most = 9;
    assert!(!incast.turn(2, 5, &mut waits, WANTS));
    incast.note(&mut waits, IDLE);
    assert_eq!(incast.next(), None);
    incast.answer(&mut places[31]);
    assert_eq!(incast.next(), Some((5, number)));
    assert!(incast.admit(number, &mut waits, WANTS));
    assert_eq!(incast.only().1, 9);
    incast.note(&mut waits, WANTS);
    assert_eq!(incast.only().1, 9);
    assert!(!incast.must_wait(&mut waits, WANTS));
    incast.note(&mut waits, AWAITS);
    assert_eq!(incast.only().1, 9);
    incast.answer(&mut waits);
    assert_eq!(incast.only().1, 8);
}

#[test]
fn who_was_let_go_for_nothing_takes_no_room() {
    let (mut incast, places) = group(1, 40);
    let number = places[0].group;
    let mut flushed = of(number);
    assert!(incast.admit(number, &mut flushed, IDLE));
    assert_eq!(incast.only().1, 40);
    let mut elsewhere = of(number + 1);
    assert!(!incast.admit(number, &mut elsewhere, WANTS));
}

#[test]
fn who_goes_on_gives_way() {
    let (mut incast, mut places) = group(1, 40);
    let streams = STREAMS;
    for _ in 0..100 {
        assert!(!incast.must_wait(&mut places[0], streams));
    }
    let mut waits = of(places[0].group);
    assert!(!incast.turn(2, 50, &mut waits, WANTS));
    for _ in 0..TURNS {
        assert!(incast.turn(2, 0, &mut places[0], streams));
    }
    assert!(!incast.turn(2, 0, &mut places[0], streams));
    // Until it is answered it counts.
    assert_eq!(incast.only(), (20, 40, 2));
    incast.answer(&mut places[0]);
    assert_eq!(incast.only(), (20, 39, 2));
}

#[test]
fn grows_by_one_each_time_all_are_answered() {
    let (mut incast, mut places) = group(1, 40);
    for _ in 0..20 + 21 {
        incast.answer(&mut places[0]);
        incast.note(&mut places[0], AWAITS);
    }
    assert_eq!(incast.only().0, 22);
    // Who asks once more, who is told to send again and who fails was not answered.
    for of in [LOST, WANTS, IDLE, FAILED] {
        let acknowledged = places[0].acknowledged + u64::from(of.failed);
        for _ in 0..100 {
            incast.note(&mut places[0], Requests { acknowledged, ..of });
            incast.note(&mut places[0], AWAITS);
        }
    }
    assert_eq!(incast.only().0, 22);
}

#[test]
fn who_is_silent_for_long_neither_counts_nor_waits() {
    let (mut incast, mut places) = group(1, 40);
    let silent = Requests {
        consecutive_ack_timeouts: SILENT,
        ..AWAITS
    };
    for place in &mut places {
        incast.note(place, silent);
    }
    assert_eq!(incast.only().1, 0);
    incast.groups[0].most = 0;
    assert!(!incast.must_wait(&mut places[0], silent));
}

/// Or those that wait for a dead host would never fail.
#[test]
fn a_host_that_answers_nobody_makes_no_group() {
    let (mut incast, mut places) = group(1, 40);
    let number = places[0].group;
    incast.note(&mut places[0], LOST);
    assert!(!incast.turn(MS, 0, &mut places[0], LOST));
    assert_eq!(incast.over(2 * MS), None);
    incast.answer(&mut places[1]);
    assert_eq!(incast.over(400 * MS), None);
    let at = incast.deadline().expect("a time");
    assert_eq!(incast.over(at - 1), None);
    assert_eq!(incast.over(at), Some(number));
    incast.dissolve(at, number);
    incast.note(&mut places[0], LOST);
    assert_eq!(
        (incast.deadline(), places[0]),
        (None, IncastMember::default())
    );
    // Nor does it soon, when those end that were let go.
    assert!(!incast.timed_out(at + 100 * MS, HOST));
    assert!(incast.timed_out(at + DEAD_NS + 1, HOST));
}

#[test]
fn a_group_of_which_nobody_waits_is_none_before_long() {
    let (mut incast, places) = group(1, 40);
    assert_eq!((incast.deadline(), incast.over(IDLE_NS)), (None, None));
    assert_eq!(incast.over(IDLE_NS + 2), Some(places[0].group));
}

#[test]
fn who_leaves_makes_room() {
    let (mut incast, mut places) = group(1, 40);
    let mut waits = of(places[0].group);
    assert!(!incast.turn(2, 50, &mut waits, WANTS));
    for place in &mut places[..21] {
        incast.leave(place);
        incast.leave(place);
    }
    assert_eq!((incast.only(), incast.deadline()), ((20, 19, 1), Some(0)));
}

/// One host that loses is no reason to hold anybody else up.
#[test]
fn each_host_has_its_own() {
    let (mut incast, _) = group(1, 40);
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)).into();
    let mut place = IncastMember::default();
    incast.join(other, &mut place, IDLE);
    assert!(incast.is_free(place) && !incast.must_wait(&mut place, WANTS));
    // Looked for again, but not with each timer.
    assert!(!incast.timed_out(2, other));
    assert!(incast.timed_out(20 * MS, other));
    incast.form(20 * MS, other, 64);
    incast.join(other, &mut place, IDLE);
    incast.note(&mut place, AWAITS);
    assert_eq!(incast.groups[1].under_way, 1);
    assert_eq!(incast.groups[0].under_way, 40);
}

/// Or it would count twice, and its room be lost for good.
#[test]
fn a_queue_pair_joins_once() {
    let (mut incast, mut places) = group(1, 40);
    for place in &mut places {
        incast.join(HOST, place, STREAMS);
        incast.note(place, STREAMS);
    }
    assert_eq!(incast.only(), (20, 40, 0));
}

/// What is acknowledged at its turn may be older than that.
#[test]
fn who_gave_way_and_was_let_go_has_its_turn() {
    let (mut incast, mut places) = group(1, 40);
    let number = places[0].group;
    incast.wait(2, 0, places[0]);
    assert!(incast.admit(number, &mut places[0], STREAMS));
    let wants = Requests {
        acknowledged: 1,
        ..WANTS
    };
    incast.note(&mut places[0], wants);
    assert_eq!(incast.only().1, 40);
    assert!(!incast.must_wait(&mut places[0], wants));
}

/// Nor is one of whose answers all were lost, for as long as that may take to be found out.
#[test]
fn a_host_is_quiet_after_some_ack_timeouts() {
    let (mut incast, mut places) = group(1, 40);
    let slow = Requests {
        timeout_ns: 1000 * MS,
        ..IDLE
    };
    let mut place = IncastMember::default();
    incast.join(HOST, &mut place, slow);
    incast.note(&mut places[0], LOST);
    assert!(!incast.turn(1, 0, &mut places[0], LOST));
    assert_eq!(incast.over(4000 * MS), None);
    assert_eq!(incast.over(4001 * MS), Some(place.group));
}

/// A slow host is not a dead one.
#[test]
fn an_answer_to_one_that_does_not_count_is_heard() {
    let (mut incast, mut places) = group(1, 40);
    incast.note(&mut places[0], LOST);
    assert!(!incast.turn(1, 0, &mut places[0], LOST));
    for now in 1..10 {
        let late = Requests {
            acknowledged: now,
            ..WANTS
        };
        incast.note(&mut places[0], late);
        assert_eq!(incast.over(now * 400 * MS), None);
    }
}
