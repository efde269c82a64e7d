//! Messages of which few ask for an acknowledge: all are acknowledged in the end.

use crate::rc::testing::*;
use crate::{SendOp, Status};
use alloc::vec::Vec;
use rnic_wire::Operation::*;
use rnic_wire::Syndrome;

/// Until a probe asks, ns.
const SOON: u64 = 200_000;

/// Sends a message; did it ask?
fn asks(f: &mut Fixture, signaled: bool) -> bool {
    f.post_short(8, signaled).expect("it leaves").bth.ack_req
}

#[test]
fn the_signaled_one_asks_for_those_before_it() {
    let mut f = Fixture::new();
    assert!(asks(&mut f, false), "nothing else is under way");
    for _ in 0..50 {
        assert!(!asks(&mut f, false));
    }
    assert!(asks(&mut f, true));
    f.feed_ack(sq(51));
    assert_eq!(f.sends(), [(51, Status::Success)]);
    assert_eq!(f.rc.next_timeout(), None);
    assert_eq!(f.rc.counters().packets_sent, 52);
}

#[test]
fn one_in_many_asks_whatever_is_signaled() {
    let mut f = Fixture::new();
    let asked = (0..600).filter(|_| asks(&mut f, false)).count();
    assert_eq!(asked, 3);
    // And one before a quarter of the window is under way.
    let window_bytes = 40 * 72;
    let mut f = Fixture::with(crate::RcAttr {
        window_bytes,
        ..attr()
    });
    let asked: Vec<bool> = (0..40).map(|_| asks(&mut f, false)).collect();
    assert!(asked.chunks(10).all(|quarter| quarter.contains(&true)));
}

#[test]
fn a_probe_asks_if_none_follows_that_does() {
    let mut f = Fixture::new();
    asks(&mut f, false);
    asks(&mut f, false);
    f.feed_ack(sq(0));
    assert_eq!(f.rc.next_timeout(), Some(f.now.after(SOON)));
    f.fire_timer();
    let sent = f.poll();
    assert_eq!(brief(&sent), [(SendOnly, sq(1))]);
    assert!(sent[0].bth.ack_req);
    f.feed_ack(sq(1));
    assert_eq!(f.rc.next_timeout(), None);
    let counters = f.rc.counters();
    assert_eq!((counters.timeouts, counters.retransmitted_packets), (0, 1));
}

#[test]
fn a_probe_waits_while_more_leaves_and_is_none_where_the_last_one_asked() {
    let mut f = Fixture::new();
    asks(&mut f, false);
    for _ in 0..10 {
        f.now = f.now.after(SOON / 2);
        asks(&mut f, false);
    }
    assert_eq!(f.rc.next_timeout(), Some(f.now.after(SOON)));
    asks(&mut f, true);
    f.fire_timer();
    assert!(f.poll().is_empty());
    // From then on there is the ACK timeout alone.
    f.fire_timer();
    assert_eq!(f.rc.counters().timeouts, 1);
}

#[test]
fn a_longer_message_behind_them_asks_for_all() {
    let mut f = Fixture::new();
    asks(&mut f, false);
    asks(&mut f, false);
    f.post(WRITE, 1);
    assert!(f.poll()[0].bth.ack_req);
    f.fire_timer();
    assert!(f.poll().is_empty(), "no probe");
    f.feed_ack(sq(2));
    assert_eq!(f.rc.next_timeout(), None);
}

#[test]
fn where_the_ack_timeout_is_short_all_ask() {
    let mut f = Fixture::with(crate::RcAttr {
        timeout: 6,
        ..attr()
    });
    assert!((0..10).all(|_| asks(&mut f, false)));
    let mut f = Fixture::with(crate::RcAttr {
        // None.
        timeout: 0,
        ..attr()
    });
    asks(&mut f, false);
    assert!(!asks(&mut f, false));
    assert_eq!(f.rc.next_timeout(), Some(f.now.after(SOON)));
}

#[test]
fn on_a_path_that_loses_all_ask() {
    let mut f = Fixture::new();
    asks(&mut f, true);
    f.fire_timer();
    f.poll();
    f.feed_ack(sq(0));
    f.sends();
    assert!((0..10).all(|_| asks(&mut f, false)));
}

/// Posts them unsignaled, all but those of the last, and gives which packets ask.
fn asking(f: &mut Fixture, ops: &[(SendOp, u32)], last_signaled: bool) -> Vec<bool> {
    for (n, (op, len)) in ops.iter().enumerate() {
        let signaled = last_signaled && n + 1 == ops.len();
        f.post_with(*op, *len, |wqe| wqe.signaled = signaled);
    }
    f.poll().iter().map(|sent| sent.bth.ack_req).collect()
}

#[test]
fn of_those_in_the_queue_the_last_one_asks() {
    for last_signaled in [false, true] {
        let mut f = Fixture::new();
        let ops = [(SendOp::Send, 8), (WRITE, 600), (WRITE, 0), (WRITE, 8)];
        let asked = asking(&mut f, &ops, last_signaled);
        assert_eq!(asked, [false, false, false, false, false, true]);
        f.fire_timer();
        assert!(f.poll().is_empty(), "no probe");
        f.feed_ack(sq(5));
        assert_eq!(f.sends().len(), usize::from(last_signaled));
        assert_eq!(f.rc.next_timeout(), None);
    }
}

#[test]
fn the_last_one_does_not_if_more_is_expected() {
    let mut f = Fixture::new();
    f.rc.expect_more(true);
    assert_eq!(asking(&mut f, &[(WRITE, 8), (WRITE, 8)], false), [false; 2]);
    assert_eq!(asking(&mut f, &[(WRITE, 8)], true), [true]);
    f.rc.expect_more(false);
    assert_eq!(asking(&mut f, &[(WRITE, 8)], false), [true]);
}

#[test]
fn a_signaled_one_asks_wherever_it_is() {
    let mut f = Fixture::new();
    for signaled in [false, true, false, false] {
        f.post_with(WRITE, 8, |wqe| wqe.signaled = signaled);
    }
    let asked: Vec<bool> = f.poll().iter().map(|sent| sent.bth.ack_req).collect();
    assert_eq!(asked, [false, true, false, true]);
}

#[test]
fn what_is_behind_it_has_to_be_a_packet() {
    let mut f = Fixture::new();
    let ops = [(WRITE, 8), (SendOp::LocalInvalidate(7), 0)];
    assert_eq!(asking(&mut f, &ops, true), [true]);
}

#[test]
fn one_that_is_sent_again_asks() {
    let mut f = Fixture::new();
    let ops = [(WRITE, 8), (WRITE, 8), (WRITE, 8)];
    assert_eq!(asking(&mut f, &ops, true), [false, false, true]);
    f.fire_ack_timeout();
    assert!(f.poll().iter().all(|sent| sent.bth.ack_req));
}

#[test]
fn a_queue_that_is_cut_off_behind_one_that_did_not_ask_is_acknowledged() {
    let mut f = Fixture::new();
    f.post_with(WRITE, 8, |wqe| wqe.signaled = false);
    f.post(WRITE, 8);
    let sent = f.poll_some(1, usize::MAX);
    assert_eq!(brief(&sent), [(WriteOnly, sq(0))]);
    assert!(!sent[0].bth.ack_req);
    f.rc.drain(false, &mut f.bench);
    assert_eq!(brief(&f.poll()), []);
    f.fire_timer();
    assert!(f.poll()[0].bth.ack_req, "a probe");
    f.feed_ack(sq(0));
    assert_eq!(f.rc.next_timeout(), None);
}

/// Found by the simulation: the wait was none before the first round trip was known.
#[test]
fn a_probe_never_comes_at_once() {
    let mut f = Fixture::new();
    f.post_with(SendOp::Send, 2 * MTU as u32, |wqe| wqe.signaled = false);
    f.post(SendOp::Send, 8);
    assert_eq!(f.poll_some(2 * MTU, usize::MAX).len(), 2);
    f.feed_syndrome(sq(0), Syndrome::RnrNak { timer: 1 });
    f.fire_timer();
    assert_eq!(brief(&f.poll_some(1, usize::MAX)), [(SendFirst, sq(0))]);
    let next = f.rc.next_timeout().expect("a timer");
    assert!(next >= f.now.after(SOON), "{next:?} at {:?}", f.now);
}

/// A probe would hold up all that is behind it.
#[test]
fn there_is_no_probe_while_one_that_asked_is_under_way() {
    let mut f = Fixture::new();
    for _ in 0..3 {
        asks(&mut f, false);
    }
    asks(&mut f, true);
    asks(&mut f, false);
    for _ in 0..3 {
        f.now = f.now.after(SOON);
        f.rc.handle_timeout(f.now, &mut f.bench);
        assert!(f.poll().is_empty());
    }
    f.feed_ack(sq(3));
    f.fire_timer();
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(4))]);
}
