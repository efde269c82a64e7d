//! What the engine's policies promise to a program, call by call, and what they save: packets,
//! system calls, looks, turns. Time passes only where a test says so.

use rnic_fabric::{Kind, Pair, Service, Waits, Work};

use Waits::{Asleep, Polling};

const US: u64 = 1_000;

fn rc(waits: [Waits; 2]) -> Pair {
    let mut pair = Pair::new(Service::Rc, waits).expect("a pair");
    for end in 0..2 {
        pair.post_receives(end, 1000).expect("posted");
    }
    pair
}

/// What an end did between two moments.
fn between(before: Work, after: Work) -> Work {
    Work {
        packets: after.packets - before.packets,
        sends: after.sends - before.sends,
        looks: after.looks - before.looks,
        turns: after.turns - before.turns,
    }
}

/// So many times: one end posts, and both look once in a microsecond for `us` of them.
fn stream(pair: &mut Pair, count: usize, us: u64, kind: Kind) {
    for _ in 0..count {
        pair.post(0, kind, 8, false).expect("posted");
        for _ in 0..us {
            pair.pass(US).expect("time");
            let received = pair.poll(1, 16).expect("polled").len();
            pair.post_receives(1, received).expect("posted");
            pair.poll(0, 16).expect("polled");
        }
    }
}

/// Promise of ACK coalescing: a peer that goes on sending to a program that polls gets an ACK for
/// some of its messages, which the last of them answers all (IBTA vol. 1, 9.7.5.1.2).
#[test]
fn ack_coalescing_answers_a_stream_with_few_acks() {
    for kind in [Kind::Send, Kind::Write] {
        let mut pair = rc([Polling, Polling]);
        stream(&mut pair, 320, 8, kind);
        let acks = pair.work(1).packets;
        assert!((20..=40).contains(&acks), "{kind:?}: {acks} ACKs");
    }
}

/// Promise of ACK coalescing: nobody waits for its ACK for more than twenty microseconds after it
/// fell silent, if the program looks.
#[test]
fn ack_coalescing_holds_no_ack_for_long() {
    let mut pair = rc([Polling, Polling]);
    stream(&mut pair, 5, 8, Kind::Write);
    pair.post(0, Kind::Write, 8, true).expect("posted");
    let begin = pair.now();
    while pair.poll(0, 1).expect("polled").is_empty() {
        pair.pass(US).expect("time");
        pair.poll(1, 16).expect("polled");
        assert!(pair.now() < begin + 25 * US, "no completion");
    }
}

/// Promise of doorbell batching: short messages that a program posts one by one, and does not wait
/// for, leave by tens.
#[test]
fn doorbell_batching_sends_a_stream_in_few_system_calls() {
    let mut pair = rc([Polling, Polling]);
    for n in 0..640 {
        pair.post(0, Kind::Send, 8, false).expect("posted");
        pair.pass(100).expect("time");
        if n % 10 == 9 {
            let received = pair.poll(1, 64).expect("polled").len();
            pair.post_receives(1, received).expect("posted");
        }
        if n % 64 == 63 {
            pair.poll(0, 64).expect("polled");
        }
    }
    pair.poll(0, 1).expect("polled");
    let work = pair.work(0);
    assert!(work.packets >= 640, "{work:?}");
    assert!(work.sends <= 64, "{work:?}");
}

/// Promise of doorbell batching: a message that is alone leaves with its post.
#[test]
fn doorbell_batching_holds_up_nobody_who_is_alone() {
    let mut pair = rc([Polling, Polling]);
    for _ in 0..100 {
        let before = pair.work(0).packets;
        pair.post(0, Kind::Send, 8, true).expect("posted");
        assert_eq!(pair.work(0).packets, before + 1);
        let mut complete = 0;
        while complete == 0 {
            pair.pass(US).expect("time");
            let received = pair.poll(1, 16).expect("polled").len();
            pair.post_receives(1, received).expect("posted");
            complete = pair.poll(0, 1).expect("polled").len();
        }
    }
}

/// Promise: the batches of a program that asks for each hundredth completion end with the message
/// that asks, which it waits for: it is under way without another call.
#[test]
fn a_batch_ends_with_the_message_that_is_signaled() {
    const PERIOD: usize = 100;
    let mut pair = rc([Polling, Polling]);
    let mut left = 0;
    for n in 1..=20 * PERIOD {
        let asks = n % PERIOD == 0;
        pair.post(0, Kind::Send, 8, asks).expect("posted");
        pair.pass(50).expect("time");
        if n % 25 == 0 {
            let received = pair.poll(1, 64).expect("polled").len();
            pair.post_receives(1, received).expect("posted");
        }
        if asks {
            left += usize::from(pair.work(0).packets as usize >= n);
            while pair.poll(0, 1).expect("polled").is_empty() {
                pair.pass(US).expect("time");
                let received = pair.poll(1, 64).expect("polled").len();
                pair.post_receives(1, received).expect("posted");
            }
        }
    }
    // The first time nobody knows which one asks.
    assert!(
        left >= 15,
        "the message that asks had left {left} of 19 times"
    );
}

fn is_receive(completion: &&rnic_nic::Completion) -> bool {
    completion.wr_id == 0
}

/// Exchanges of a program that polls for each message and answers it.
fn ping_pong(pair: &mut Pair, count: usize) {
    for _ in 0..count {
        for (from, to) in [(0, 1), (1, 0)] {
            pair.post(from, Kind::Send, 8, true).expect("posted");
            let mut got = 0;
            let begin = pair.now();
            while got == 0 {
                pair.pass(US / 2).expect("time");
                let found = pair.poll(to, 16).expect("polled");
                got = found.iter().filter(is_receive).count();
                // The other one waits for its answer already.
                pair.poll(from, 16).expect("polled");
                assert!(pair.now() < begin + 1_000 * US, "no message");
            }
            pair.post_receives(to, got).expect("posted");
        }
    }
}

/// Promise: a poll that brings the message that its program waits for brings it at once. What the
/// engine has to say is said at the next call, with the answer if that is it.
#[test]
fn what_is_put_off_leaves_after_the_message_was_taken() {
    let mut pair = rc([Polling, Polling]);
    let mut sent = 0;
    for round in 0..200 {
        pair.post(0, Kind::Send, 8, true).expect("posted");
        let begin = pair.now();
        while pair.poll(0, 1).expect("polled").is_empty() {
            pair.pass(US).expect("time");
            let before = pair.work(1).sends;
            let received = pair.poll(1, 16).expect("polled").len();
            // The peer waits for its ACKs, which is soon known.
            if received > 0 && round >= 100 {
                sent += pair.work(1).sends - before;
            }
            pair.post_receives(1, received).expect("posted");
            assert!(pair.now() < begin + 1_000 * US, "no completion");
        }
    }
    assert_eq!(
        sent, 0,
        "a poll that brought a message sent something first"
    );
}

/// Promise: a poll that finds nothing mostly looks at what costs little, and not at everything.
#[test]
fn quick_polls_look_at_everything_now_and_then_only() {
    let mut pair = rc([Polling, Polling]);
    ping_pong(&mut pair, 10);
    pair.pass(100 * US).expect("time");
    pair.poll(0, 16).expect("polled");
    let before = pair.work(0);
    for _ in 0..1000 {
        pair.pass(100).expect("time");
        assert!(pair.poll(0, 16).expect("polled").is_empty());
    }
    let work = between(before, pair.work(0));
    assert!((50..=200).contains(&work.looks), "{work:?}");
}

/// The turns that each end's engine gives for a hundred work requests, one after the other.
fn turns(kind: Kind) -> [u64; 2] {
    let mut pair = rc([Polling, Polling]);
    for _ in 0..100 {
        pair.post(0, kind, 8, true).expect("posted");
        let begin = pair.now();
        while pair.poll(0, 1).expect("polled").is_empty() {
            pair.pass(US).expect("time");
            let received = pair.poll(1, 16).expect("polled").len();
            pair.post_receives(1, received).expect("posted");
            assert!(pair.now() < begin + 1_000 * US, "no completion");
        }
    }
    [0, 1].map(|end| pair.work(end).turns)
}

/// Promise: a short message that is all there is to send leaves without a turn.
#[test]
fn fast_posts_need_no_turn() {
    for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd] {
        assert_eq!(turns(kind)[0], 0, "{kind:?}");
    }
}

/// Promise: the answer to a READ or atomic of a few bytes leaves without one.
#[test]
fn fast_replies_need_no_turn() {
    for kind in [Kind::Read, Kind::FetchAdd] {
        assert_eq!(turns(kind)[1], 0, "{kind:?}");
    }
}

/// Promise of piggybacked ACKs: a program that looks at its memory, and answers each WRITE at once,
/// has its ACKs leave with its answers. Each exchange is one wake-up for the peer, and not two.
#[test]
fn ack_piggyback_sends_acks_with_answers() {
    let mut pair = rc([Asleep, Asleep]);
    let exchange = |pair: &mut Pair| {
        for end in 0..2 {
            pair.post(end, Kind::Write, 8, false).expect("posted");
            pair.pass(10 * US).expect("time");
        }
    };
    for _ in 0..100 {
        exchange(&mut pair);
    }
    let before = [0, 1].map(|end| pair.work(end));
    for _ in 0..100 {
        exchange(&mut pair);
    }
    for (end, before) in before.into_iter().enumerate() {
        let work = between(before, pair.work(end));
        assert!(work.packets >= 200, "{work:?}");
        assert!(work.sends <= 110, "{work:?}");
    }
}

/// Promise of the receive hold: a program that posts its receives anew some time after messages came
/// loses none of them, although UC has no RNR NAK.
#[test]
fn receive_hold_keeps_messages_until_there_is_a_receive() {
    let mut pair = Pair::new(Service::Uc, [Asleep, Asleep]).expect("a pair");
    pair.post_receives(1, 4).expect("posted");
    for _ in 0..200 {
        pair.post(0, Kind::Send, 64, false).expect("posted");
    }
    let mut got = 0;
    for _ in 0..100 {
        pair.pass(300 * US).expect("time");
        let some = pair.poll(1, 16).expect("polled").len();
        pair.post_receives(1, some).expect("posted");
        got += some;
    }
    assert_eq!(got, 200);
}
