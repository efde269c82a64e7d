//! Short messages of which few ask for an acknowledge: all are acknowledged in the end.

use crate::Status;
use crate::rc::testing::*;
use alloc::vec::Vec;
use rnic_wire::Operation::*;

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
