//! Messages of which few ask for an acknowledge: all are acknowledged in the end.

use crate::rc::testing::*;
use crate::{SendOp, Status};
use alloc::vec::Vec;
use rnic_wire::Operation::*;

/// Until something asks, ns.
const SOON: u64 = 4_000_000;

/// Its ACK timeout, 67 ms, is as usual.
fn ready() -> Fixture {
    Fixture::with(crate::RcAttr {
        timeout: 14,
        ..attr()
    })
}

/// Sends a message; did it ask?
fn asks(f: &mut Fixture, signaled: bool) -> bool {
    f.post_short(8, signaled).expect("it leaves").bth.ack_req
}

#[test]
fn the_signaled_one_asks_for_those_before_it() {
    let mut f = ready();
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
    let mut f = ready();
    let asked = (0..600).filter(|_| asks(&mut f, false)).count();
    assert_eq!(asked, 3);
    // And one before a quarter of the window is under way.
    let window_bytes = 40 * 72;
    let mut f = Fixture::with(crate::RcAttr {
        window_bytes,
        timeout: 14,
        ..attr()
    });
    let asked: Vec<bool> = (0..40).map(|_| asks(&mut f, false)).collect();
    assert!(asked.chunks(10).all(|quarter| quarter.contains(&true)));
}

#[test]
fn the_last_one_is_sent_again_and_asks_if_none_follows_that_does() {
    let mut f = ready();
    asks(&mut f, false);
    asks(&mut f, false);
    asks(&mut f, false);
    f.feed_ack(sq(0));
    assert_eq!(f.rc.next_timeout(), Some(f.now.after(SOON)));
    f.fire_timer();
    let sent = f.poll();
    assert_eq!(brief(&sent), [(SendOnly, sq(2))]);
    assert!(sent[0].bth.ack_req);
    // What comes behind it does not wait.
    assert!(!asks(&mut f, false));
    f.feed_ack(sq(3));
    assert_eq!(f.rc.next_timeout(), None);
    let counters = f.rc.counters();
    assert_eq!((counters.timeouts, counters.retransmitted_packets), (0, 1));
}

/// A process that was stopped, or got no processor, comes late to both timers. Nobody owed it an
/// answer.
#[test]
fn who_was_not_asked_is_not_silent() {
    let mut f = ready();
    for _ in 0..3 {
        asks(&mut f, false);
    }
    f.feed_ack(sq(0));
    f.now = f.now.after(100_000_000);
    f.rc.handle_timeout(f.now, &mut f.bench);
    let sent = f.poll();
    assert_eq!(brief(&sent), [(SendOnly, sq(2))]);
    assert!(sent[0].bth.ack_req);
    let counters = f.rc.counters();
    assert_eq!((counters.timeouts, counters.retransmitted_packets), (0, 1));
    // Now there is one who is.
    f.fire_timer();
    assert_eq!(f.rc.counters().timeouts, 1);
}

/// A message whose end has not left does not ask for the one before it.
#[test]
fn the_packet_that_asks_is_a_last_one() {
    let mut f = ready();
    asks(&mut f, true);
    asks(&mut f, false);
    f.feed_ack(sq(0));
    f.post(SendOp::Send, 4 * MTU as u32);
    let sent = f.poll_some(usize::MAX, 2);
    assert_eq!(brief(&sent), [(SendFirst, sq(2)), (SendMiddle, sq(3))]);
    f.fire_timer();
    let sent = f.poll_some(usize::MAX, 1);
    assert_eq!(brief(&sent), [(SendOnly, sq(1))]);
    assert!(sent[0].bth.ack_req);
}

#[test]
fn in_a_slow_stream_one_asks_in_time() {
    let mut f = ready();
    asks(&mut f, false);
    let start = f.now;
    let mut asked = Vec::new();
    for n in 1..100 {
        f.now = start.after(n * SOON / 10);
        while f.rc.next_timeout().is_some_and(|at| at <= f.now) {
            f.rc.handle_timeout(f.now, &mut f.bench);
            assert!(f.poll().is_empty(), "nothing is sent again");
        }
        if asks(&mut f, false) {
            asked.push(n);
            f.feed_ack(sq(n as u32 - 1));
        }
    }
    assert_eq!(asked, [11, 22, 33, 44, 55, 66, 77, 88, 99]);
    assert_eq!(f.rc.counters().timeouts, 0);
}

#[test]
fn a_lost_ack_of_one_that_asked_is_asked_for_again_ahead_of_the_ack_timeout() {
    let mut f = ready();
    asks(&mut f, false);
    asks(&mut f, true);
    asks(&mut f, false);
    let timeout = f.rc.attr().timeout;
    let timeout = 4096u64 << timeout;
    let start = f.now;
    let sent = loop {
        f.fire_timer();
        let sent = f.poll();
        if !sent.is_empty() {
            break sent;
        }
    };
    assert_eq!(brief(&sent), [(SendOnly, sq(2))]);
    let waited = f.now.0 - start.0;
    assert!(
        (timeout / 4..timeout / 4 + SOON).contains(&waited),
        "{waited}"
    );
    f.feed_ack(sq(2));
    assert_eq!(f.sends(), [(1, Status::Success)]);
    assert_eq!(f.rc.counters().timeouts, 0);
}

#[test]
fn none_is_sent_again_while_one_that_asked_is_under_way_for_short() {
    let mut f = ready();
    asks(&mut f, true);
    asks(&mut f, false);
    f.now = f.now.after(SOON);
    f.rc.handle_timeout(f.now, &mut f.bench);
    assert!(f.poll().is_empty());
    f.feed_ack(sq(0));
    f.fire_timer();
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(1))]);
}

#[test]
fn one_that_is_sent_again_and_lost_is_for_the_ack_timeout() {
    let mut f = ready();
    asks(&mut f, false);
    asks(&mut f, false);
    f.feed_ack(sq(0));
    f.fire_timer();
    assert_eq!(f.poll().len(), 1);
    f.fire_ack_timeout();
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(1))]);
}

#[test]
fn a_longer_message_behind_them_asks_for_all() {
    let mut f = ready();
    asks(&mut f, false);
    asks(&mut f, false);
    f.post(WRITE, 1);
    assert!(f.poll()[0].bth.ack_req);
    f.fire_timer();
    assert!(f.poll().is_empty(), "nothing is sent again");
    f.feed_ack(sq(2));
    assert_eq!(f.rc.next_timeout(), None);
}

#[test]
fn where_there_is_no_ack_timeout_or_a_short_one_all_ask() {
    // None, and 8.4 ms.
    for timeout in [0, 11] {
        let mut f = Fixture::with(crate::RcAttr { timeout, ..attr() });
        assert!((0..10).all(|_| asks(&mut f, false)));
    }
}

#[test]
fn on_a_path_that_loses_all_ask() {
    let mut f = ready();
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
        let mut f = ready();
        let ops = [(SendOp::Send, 8), (WRITE, 600), (WRITE, 0), (WRITE, 8)];
        let asked = asking(&mut f, &ops, last_signaled);
        assert_eq!(asked, [false, false, false, false, false, true]);
        f.fire_timer();
        assert!(f.poll().is_empty(), "nothing is sent again");
        f.feed_ack(sq(5));
        assert_eq!(f.sends().len(), usize::from(last_signaled));
        assert_eq!(f.rc.next_timeout(), None);
    }
}

#[test]
fn the_last_one_does_not_if_more_is_expected() {
    let mut f = ready();
    f.rc.expect_more(true);
    assert_eq!(asking(&mut f, &[(WRITE, 8), (WRITE, 8)], false), [false; 2]);
    assert_eq!(asking(&mut f, &[(WRITE, 8)], true), [true]);
    f.rc.expect_more(false);
    assert_eq!(asking(&mut f, &[(WRITE, 8)], false), [true]);
}

#[test]
fn a_signaled_one_asks_wherever_it_is() {
    let mut f = ready();
    for signaled in [false, true, false, false] {
        f.post_with(WRITE, 8, |wqe| wqe.signaled = signaled);
    }
    let asked: Vec<bool> = f.poll().iter().map(|sent| sent.bth.ack_req).collect();
    assert_eq!(asked, [false, true, false, true]);
}

#[test]
fn what_is_behind_it_has_to_be_a_packet() {
    let mut f = ready();
    let ops = [(WRITE, 8), (SendOp::LocalInvalidate(7), 0)];
    assert_eq!(asking(&mut f, &ops, true), [true]);
}

#[test]
fn one_that_is_sent_again_asks() {
    let mut f = ready();
    let ops = [(WRITE, 8), (WRITE, 8), (WRITE, 8)];
    assert_eq!(asking(&mut f, &ops, true), [false, false, true]);
    f.fire_ack_timeout();
    assert!(f.poll().iter().all(|sent| sent.bth.ack_req));
}

#[test]
fn a_queue_that_is_cut_off_behind_one_that_did_not_ask_is_acknowledged() {
    let mut f = ready();
    f.post_with(WRITE, 8, |wqe| wqe.signaled = false);
    f.post(WRITE, 8);
    let sent = f.poll_some(usize::MAX, 1);
    assert_eq!(brief(&sent), [(WriteOnly, sq(0))]);
    assert!(!sent[0].bth.ack_req);
    f.rc.drain(false, &mut f.bench);
    assert_eq!(brief(&f.poll()), []);
    f.fire_timer();
    assert!(f.poll()[0].bth.ack_req);
    f.feed_ack(sq(0));
    assert_eq!(f.rc.next_timeout(), None);
}
