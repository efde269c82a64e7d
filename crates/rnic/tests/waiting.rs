//! Waiting on channels, and what a completion says of its time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rnic::{CompletionQueue, Context, Error, QueuePair, Rc, SendRequest};

use crate::loopback::{PATIENCE, pair};

/// A queue pair whose receives come to `queue`, and its peer.
fn receiver(context: &Context, queue: &CompletionQueue) -> (QueuePair<Rc>, QueuePair<Rc>) {
    let gid = context.loopback_gid().expect("an address");
    let pd = context.alloc_pd().expect("pd");
    let sends = context.create_cq(256).build().expect("cq");
    let receiver = pd.create_qp::<Rc>(&sends, queue).gid(&gid).max_recv_wr(256);
    let receiver = receiver.build().expect("qp");
    let sender = pd
        .create_qp::<Rc>(&sends, &sends)
        .gid(&gid)
        .max_send_wr(256);
    let sender = sender.build().expect("qp");
    let (to_sender, to_receiver) = (sender.endpoint(), receiver.endpoint());
    let receiver = receiver.handshake(to_sender).expect("handshake");
    let sender = sender.handshake(to_receiver).expect("handshake");
    (sender, receiver)
}

/// One message after another, each to one of several queues, each sent when the one before was
/// seen: a wake-up that is lost is waited for until the test fails.
#[test]
fn no_wake_up_of_several_queues_is_lost() {
    const ROUNDS: u64 = 1500;
    let context = Context::open().expect("the device opens");
    let channel = context.create_comp_channel().expect("a channel");
    let queues = [(); 3].map(|()| {
        let builder = context.create_cq(512).channel(&channel);
        builder.build().expect("cq")
    });
    let pairs: Vec<_> = queues
        .iter()
        .map(|queue| receiver(&context, queue))
        .collect();
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (pairs, seen) = (&pairs, &seen);
        scope.spawn(move || {
            for round in 0..ROUNDS {
                while seen.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                // The distance to the peer's going to sleep differs from round to round.
                for _ in 0..(round * 37) % 4000 {
                    std::hint::spin_loop();
                }
                let (sender, receiver) = &pairs[(round * 7 % 3) as usize];
                receiver.post_recv_empty(round).expect("posted");
                let request = SendRequest::send_inline(b"").id(round);
                sender.post(request).expect("posted");
                let sent = sender.send_cq().wait(PATIENCE).expect("sent");
                assert_eq!(sent.ok().expect("success").id(), round);
            }
        });
        let all: Vec<&CompletionQueue> = queues.iter().collect();
        for round in 0..ROUNDS {
            let place = channel.wait_any(&all, Some(PATIENCE)).expect("a wake-up");
            assert_eq!(place as u64, round * 7 % 3);
            let received = queues[place]
                .poll_one()
                .expect("polls")
                .expect("it has some");
            assert_eq!(received.ok().expect("success").id(), round);
            assert!(queues[place].poll_one().expect("polls").is_none());
            seen.store(round + 1, Ordering::Release);
        }
    });
}

/// What a poll has taken from the device with what it gave out is not reported by it any more:
/// arming says that there is something.
#[test]
fn what_an_earlier_poll_took_is_not_slept_over() {
    let context = Context::open().expect("the device opens");
    let queue = context.create_cq(64).build().expect("cq");
    let (sender, receiver) = receiver(&context, &queue);
    for id in 0..8 {
        receiver.post_recv_empty(id).expect("posted");
        let request = SendRequest::send_inline(b"");
        sender.post(request).expect("posted");
        sender.send_cq().wait(PATIENCE).expect("sent");
    }
    for id in 0..8 {
        assert!(queue.arm_and_check(false).expect("arms"), "{id} is there");
        let place = queue.channel().wait_any(&[&queue], Some(PATIENCE));
        assert_eq!(place.expect("at once"), 0);
        let received = queue.poll_one().expect("polls").expect("it has some");
        assert_eq!(received.id(), id);
    }
    while queue.channel().try_event().expect("looks").is_some() {}
    assert!(!queue.arm_and_check(false).expect("arms"), "all are polled");
    let nothing = queue
        .channel()
        .wait_any(&[&queue], Some(Duration::from_millis(5)));
    assert!(matches!(nothing, Err(Error::Timeout(_))), "{nothing:?}");
}

#[test]
fn queues_of_another_channel_are_not_waited_for() {
    let context = Context::open().expect("the device opens");
    let [one, two] = [(); 2].map(|()| context.create_cq(4).build().expect("cq"));
    for queues in [&[&one, &two][..], &[]] {
        let refused = one.channel().wait_any(queues, None);
        assert!(
            matches!(refused, Err(Error::InvalidArgument(_))),
            "{refused:?}"
        );
    }
}

/// Stamps are of the moment when a completion arose, by the device's clock and by that of the wall.
#[test]
fn completions_say_when_they_arose() {
    if !crate::device().timestamps {
        return;
    }
    let context = Context::open().expect("the device opens");
    let queue = context.create_cq(64).timestamps().build().expect("cq");
    let (sender, receiver) = receiver(&context, &queue);
    let epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let (before, wall) = (context.device_clock().expect("a clock"), epoch());
    for id in 0..40 {
        receiver.post_recv_empty(id).expect("posted");
        let request = SendRequest::send_inline(b"").imm([id as u8; 4]);
        sender.post(request).expect("posted");
        let sent = sender.send_cq().wait(PATIENCE).expect("sent");
        assert_eq!(sent.timestamp(), None, "of a queue without");
    }
    let after = context.device_clock().expect("a clock");
    let whole = after.since(before.now).expect("its frequency is known");
    // Polled later than they arose.
    let mut last = after.since(before.now).expect("as above");
    for id in 0..40 {
        let received = queue.wait(PATIENCE).expect("received");
        let received = received.ok().expect("success");
        assert_eq!((received.id(), received.imm()), (id, Some([id as u8; 4])));
        let stamp = received.timestamp().expect("a stamp");
        let ago = after.since(stamp.ticks).expect("its frequency is known");
        assert!(ago <= whole, "{id}: {ago:?} of {whole:?}");
        assert!(ago <= last, "{id}: {ago:?} after {last:?}");
        last = ago;
        if let Some(at) = stamp.wallclock {
            // The clock of the wall may be set at any time; not by an hour.
            let wall = wall.as_ref().expect("after the epoch");
            assert!(at.abs_diff(*wall) < Duration::from_secs(3600), "{at:?}");
        }
    }
}

/// Errors, ids and buffers come through a queue with stamps as through any other.
#[test]
fn failures_come_through_a_queue_with_stamps() {
    if !crate::device().timestamps {
        return;
    }
    let context = Context::open().expect("the device opens");
    let queue = context.create_cq(64).timestamps().build().expect("cq");
    let (sender, receiver) = receiver(&context, &queue);
    let buffer = receiver.pd().buffer(1).expect("memory");
    receiver.post_recv(buffer, 5).expect("posted");
    sender
        .post(SendRequest::send_inline(b"too long"))
        .expect("posted");
    let failed = queue.wait(PATIENCE).expect("told");
    assert!(failed.timestamp().is_some());
    assert_eq!(failed.id(), 5);
    assert_eq!(failed.status(), rnic::Status::LocalLengthError);
    assert_eq!(failed.into_buffer().expect("comes back").len(), 1);
}

#[test]
fn a_queue_without_stamps_gives_none() {
    let (left, right) = pair();
    right.qp.post_recv_empty(1).expect("posted");
    left.qp.post(SendRequest::send_inline(b"")).expect("posted");
    assert_eq!(right.done().timestamp(), None);
    assert_eq!(left.done().timestamp(), None);
}
