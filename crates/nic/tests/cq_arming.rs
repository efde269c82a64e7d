//! When an armed completion queue has its event: for what comes, and, as on hardware, for what the
//! program has not seen or has left in the queue.

use crate::pair;

use std::time::{Duration, Instant};

use rnic_nic::{CompChannel, Context, Cq, Qp, RecvWqe, SendWqe};

const MANY: u32 = 16;

/// Two queue pairs: what the one sends completes in `sent`, what the other one receives in
/// `received`, which has the channel.
struct Setting {
    channel: CompChannel,
    sent: Cq,
    received: Cq,
    left: Qp,
    right: Qp,
    _context: Context,
}

impl Setting {
    fn new() -> Setting {
        let context = Context::open().expect("a device");
        let channel = context.create_comp_channel().expect("a channel");
        // SAFETY: takes no pointer.
        let set = unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(set, 0);
        let sent = context.create_cq(4 * MANY, None, 1).expect("a queue");
        let received = context
            .create_cq(4 * MANY, Some(&channel), 2)
            .expect("a queue");
        let pd = context.alloc_pd();
        let left = pair::create(&pd, &sent, &sent, None, MANY);
        let right = pair::create(&pd, &received, &received, None, MANY);
        pair::connect(&context, &left, &right);
        Setting {
            channel,
            sent,
            received,
            left,
            right,
            _context: context,
        }
    }

    /// Messages arrive while the program polls the other queue alone.
    fn messages(&self, count: u32, solicited: bool) {
        for _ in 0..count {
            let posted = self
                .right
                .post_recv(&mut std::iter::once(Ok(RecvWqe::default())));
            posted.expect("a receive");
            let send = SendWqe {
                solicited,
                ..SendWqe::default()
            };
            let posted = self.left.post_send(&mut std::iter::once(Ok(send)));
            posted.expect("a send");
            // Acknowledged, so it is there.
            while self.sent.poll(1, &mut |_| ()).expect("a poll") == 0 {}
        }
    }

    fn has_event(&self) -> bool {
        match self.channel.get_event() {
            Ok(cookie) => cookie == 2,
            Err(error) => {
                assert_eq!(error.errno(), libc::EAGAIN);
                false
            }
        }
    }

    fn take(&self, most: usize) -> usize {
        self.received.poll(most, &mut |_| ()).expect("a poll")
    }
}

#[test]
fn what_came_before_the_queue_was_armed_has_an_event() {
    let setting = Setting::new();
    assert_eq!(setting.take(1), 0);
    setting.messages(1, false);
    // As UCX does: the queues are polled one after the other, armed, and waited for.
    setting.received.request_notify(false);
    assert!(setting.has_event(), "a message waits");
    assert!(!setting.has_event(), "one event");
    assert_eq!(setting.take(2), 1);
}

#[test]
fn who_was_told_and_has_not_looked_is_not_told_again() {
    let setting = Setting::new();
    setting.received.request_notify(false);
    setting.messages(3, false);
    assert!(setting.has_event());
    // The order of the man page: arm, then poll.
    setting.received.request_notify(false);
    assert!(!setting.has_event(), "the program is about to poll");
    assert_eq!(setting.take(4), 3);
    assert!(!setting.has_event(), "nothing is left");
    setting.messages(1, false);
    assert!(setting.has_event(), "it was armed");
}

#[test]
fn what_a_poll_leaves_in_an_armed_queue_has_an_event() {
    let setting = Setting::new();
    setting.received.request_notify(false);
    setting.messages(3, false);
    for left in [2, 1, 0] {
        assert!(setting.has_event(), "{left} and one more wait");
        setting.received.request_notify(false);
        assert_eq!(setting.take(1), 1);
    }
    assert!(!setting.has_event());
}

#[test]
fn a_poll_that_found_nothing_was_a_look() {
    let setting = Setting::new();
    setting.received.request_notify(false);
    setting.messages(1, false);
    assert!(setting.has_event());
    assert_eq!((setting.take(2), setting.take(2)), (1, 0));
    setting.messages(1, false);
    setting.received.request_notify(false);
    assert!(setting.has_event(), "it came after the poll");
}

#[test]
fn a_queue_armed_twice_has_one_event_at_a_time() {
    let setting = Setting::new();
    setting.messages(1, false);
    setting.received.request_notify(false);
    setting.received.request_notify(false);
    assert!(setting.has_event());
    assert!(!setting.has_event());
    // It is armed still.
    assert_eq!(setting.take(2), 1);
    setting.messages(1, false);
    assert!(setting.has_event());
}

#[test]
fn only_solicited_ones_count_for_who_asked_for_these() {
    let setting = Setting::new();
    setting.messages(2, false);
    setting.received.request_notify(true);
    assert!(!setting.has_event(), "nobody asked for an event");
    assert_eq!(setting.take(1), 1);
    assert!(!setting.has_event());
    setting.messages(1, true);
    assert!(setting.has_event(), "it was armed");
    assert_eq!(setting.take(1), 1);
    setting.received.request_notify(true);
    assert!(setting.has_event(), "the solicited one waits");
    assert_eq!(setting.take(2), 1);
    setting.received.request_notify(true);
    assert!(!setting.has_event());
}

#[test]
fn moderation_holds_for_what_waits_as_well() {
    let setting = Setting::new();
    // The time is the longest, and the count is not reached.
    setting
        .received
        .moderate(100, rnic_nic::MAX_CQ_PERIOD)
        .expect("moderated");
    setting.messages(1, false);
    let armed = Instant::now();
    setting.received.request_notify(false);
    while !setting.has_event() {
        assert!(armed.elapsed() < Duration::from_secs(60), "it never comes");
        std::thread::yield_now();
    }
    let period = Duration::from_micros(rnic_nic::MAX_CQ_PERIOD.into());
    assert!(armed.elapsed() >= period, "its time is not over");
    // As many as it takes: at once.
    setting
        .received
        .moderate(3, rnic_nic::MAX_CQ_PERIOD)
        .expect("moderated");
    setting.messages(3, false);
    assert_eq!(setting.take(1), 1);
    setting.received.request_notify(false);
    assert!(setting.has_event(), "three wait");
}
