//! What needs no packets keeps its place in the send queue, and what is refused goes by packets.

use super::PART;
use crate::rc::testing::*;
use crate::{Device, LocalFault, SendData, SendOp, Status};
use Operation::*;
use alloc::vec;
use alloc::vec::Vec;
use rnic_wire::{NakCode, Operation};

const OK: Status = Status::Success;
const VA: u64 = 0x5000;

/// A queue pair whose device executes so many parts, and whose peer has acknowledged one packet.
fn reaching(parts: usize) -> Fixture {
    let mut f = unheard(parts);
    f.post(SendOp::Send, 1);
    assert_eq!(f.poll().len(), 1);
    f.feed_ack(first(0));
    assert_eq!(f.sends().len(), 1);
    f
}

/// The same before that.
fn unheard(parts: usize) -> Fixture {
    let mut f = Fixture::new();
    f.bench.memory.resize(4 * PART as usize, 9);
    f.bench.reach = Some(parts);
    f
}

/// PSN of the `n`-th packet of all, and of those behind the first one.
fn first(n: u32) -> u32 {
    crate::rc::testing::sq(n)
}
fn sq(n: u32) -> u32 {
    first(n + 1)
}

#[test]
fn writes_and_reads_complete_in_order_without_packets() {
    let mut f = reaching(usize::MAX);
    let write = f.post(WRITE, 10);
    f.post_with(WRITE, 20, |wqe| wqe.signaled = false);
    let read = f.post(READ, 300);
    assert!(f.poll().is_empty());
    assert_eq!(f.sends(), [(write, OK), (read, OK)]);
    assert_eq!(
        f.bench.executed,
        [(true, VA, 0, 10), (true, VA, 0, 20), (false, VA, 0, 300)]
    );
    let counters = f.rc.counters();
    assert_eq!((counters.messages_sent, counters.packets_sent), (4, 1));
    assert_eq!(counters.without_packets.total().bytes, 330);
    assert_eq!(counters.requested.write.bytes, 30);
    assert_eq!(f.rc.sq_psn().value(), sq(0), "no PSN is taken");
    assert_eq!(f.rc.next_timeout(), None);
    f.post(SendOp::Send, 10);
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(0))]);
}

/// A grant of an earlier connection of the same queue pairs says nothing of this one: its PSNs may
/// be others than the peer expects.
#[test]
fn nothing_is_executed_before_the_peer_has_acknowledged_a_packet_of_this_connection() {
    let mut f = unheard(usize::MAX);
    f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(WriteOnly, first(0))]);
    let mut write = f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(WriteOnly, first(1))]);
    assert!(f.bench.executed.is_empty(), "nor is it waited for");
    f.feed_ack(first(1));
    write = write.max(f.post(WRITE, 10));
    assert!(f.poll().is_empty());
    assert_eq!(f.bench.executed, [(true, VA, 0, 10)]);
    assert_eq!(f.sends().last(), Some(&(write, OK)));

    // With another address, in SQD, it is a stranger again.
    let Fixture { rc, bench, .. } = &mut f;
    rc.drain(false, bench);
    let attr = *rc.attr();
    rc.retune(attr);
    rc.readdress();
    rc.resume();
    f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(WriteOnly, first(2))]);
    f.feed_ack(first(2));
    f.post(WRITE, 10);
    assert!(f.poll().is_empty());
    assert_eq!(f.bench.executed.len(), 2);
}

#[test]
fn nothing_overtakes_what_is_unacknowledged() {
    let mut f = reaching(usize::MAX);
    let send = f.post(SendOp::Send, 10);
    let write = f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(0)), (WriteOnly, sq(1))]);
    assert!(f.bench.executed.is_empty());
    f.feed_ack(sq(1));
    assert_eq!(f.sends(), [(send, OK), (write, OK)]);
    let (write, send) = (f.post(WRITE, 10), f.post(SendOp::Send, 10));
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(2))]);
    assert_eq!(f.bench.executed.len(), 1);
    assert_eq!(f.sends(), [(write, OK)], "and what is behind leaves later");
    f.feed_ack(sq(2));
    assert_eq!(f.sends(), [(send, OK)]);
}

#[test]
fn what_must_be_sent_again_is_not_overtaken_either() {
    let mut f = reaching(usize::MAX);
    f.post(SendOp::Send, 10);
    assert_eq!(f.poll().len(), 1);
    f.feed_nak(sq(0), NakCode::PsnSequenceError);
    f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(0)), (WriteOnly, sq(1))]);
    assert!(f.bench.executed.is_empty());
}

#[test]
fn other_operations_and_empty_ones_take_packets() {
    let mut f = reaching(usize::MAX);
    let imm = SendOp::WriteImm {
        remote_addr: VA,
        rkey: 5,
        imm: [1; 4],
    };
    for (op, len) in [(imm, 10), (WRITE, 0), (FETCH_ADD, 8), (READ, 0)] {
        f.post(op, len);
    }
    assert_eq!(f.poll().len(), 4);
    assert!(f.bench.executed.is_empty());
}

#[test]
fn a_long_one_goes_on_turn_by_turn_and_a_budget_ends_a_turn() {
    let mut f = reaching(usize::MAX);
    let long = f.post(WRITE, 2 * PART + 5);
    let next = f.post(WRITE, 1);
    for turn in 1..=3 {
        assert!(f.poll_some(1, 1).is_empty());
        assert_eq!(f.bench.executed.len(), turn);
        assert!(f.rc.wants_transmit());
    }
    assert_eq!(f.sends(), [(long, OK)]);
    let part = u64::from(PART);
    assert_eq!(
        f.bench.executed,
        [
            (true, VA, 0, PART),
            (true, VA + part, part, PART),
            (true, VA + 2 * part, 2 * part, 5)
        ]
    );
    f.poll();
    assert_eq!(f.sends(), [(next, OK)]);
}

#[test]
fn what_is_refused_goes_by_packets_from_its_beginning() {
    for parts in 0..3 {
        let mut f = reaching(parts);
        let id = f.post(READ, 2 * PART + 5);
        let sent = f.poll();
        assert_eq!(f.bench.executed.len(), parts);
        let asked = sent[0].ext.reth.expect("a request");
        assert_eq!((sent[0].brief(), asked.va), ((ReadRequest, sq(0)), VA));
        f.feed_nak(sq(0), NakCode::RemoteAccessError);
        assert_eq!(f.sends(), [(id, Status::RemoteAccessError)]);
    }
}

#[test]
fn a_write_that_was_refused_is_not_tried_again_while_it_is_under_way() {
    let mut f = reaching(0);
    f.post(WRITE, 3 * MTU as u32);
    assert_eq!(f.poll_some(1, 1).len(), 1);
    f.bench.reach = Some(1);
    assert_eq!(f.poll().len(), 2);
    assert!(f.bench.executed.is_empty());
}

#[test]
fn a_fence_waits_for_reads_that_have_packets() {
    let mut f = reaching(0);
    f.post(READ, 10);
    assert_eq!(f.poll().len(), 1);
    f.bench.reach = Some(usize::MAX);
    f.post_with(WRITE, 10, |wqe| wqe.fence = true);
    assert!(f.poll().is_empty() && f.bench.executed.is_empty());
    f.feed_read_response(ReadResponseOnly, sq(0), &[1; 10]);
    assert!(f.poll().is_empty());
    assert_eq!(f.bench.executed.len(), 1);
}

#[test]
fn local_faults_fail_as_ever() {
    let mut f = reaching(usize::MAX);
    let ok = f.post(WRITE, 10);
    let read = f.post_with(READ, 10, |wqe| {
        wqe.data = SendData::Inline([1; 10].iter().copied().collect());
    });
    let flushed = f.post(WRITE, 10);
    f.poll();
    let failed = Status::LocalQpOperationError;
    let want = [
        (ok, OK),
        (read, failed),
        (flushed, Status::WorkRequestFlushed),
    ];
    assert_eq!(f.sends(), want);
    let mut f = reaching(usize::MAX);
    f.bench.memory = vec![0; 5];
    let fault = f.bench.check_local(crate::Pd(1), &sge(0, 10), true);
    assert_eq!(fault, Err(LocalFault::OutOfRange));
    let read = f.post(READ, 10);
    f.poll();
    assert_eq!(f.sends(), [(read, Status::LocalProtectionError)]);
    assert!(f.bench.executed.is_empty());
}

#[test]
fn a_send_queue_that_drains_ends_what_was_begun() {
    let mut f = reaching(usize::MAX);
    let long = f.post(WRITE, PART + 1);
    f.post(WRITE, 1);
    f.poll_some(1, 1);
    f.rc.drain(true, &mut f.bench);
    assert!(f.rc.is_draining() && f.bench.events.is_empty());
    f.poll();
    assert_eq!(f.sends(), [(long, OK)]);
    assert_eq!(f.bench.events, [crate::QpEvent::SendQueueDrained]);
    assert_eq!(f.bench.executed.len(), 2, "and begins nothing");
    f.rc.resume();
    f.poll();
    assert_eq!(f.bench.executed.len(), 3);
}

#[test]
fn what_was_begun_is_flushed_with_the_rest() {
    let mut f = reaching(usize::MAX);
    let ids = [f.post(WRITE, PART + 1), f.post(WRITE, 1)];
    f.poll_some(1, 1);
    f.rc.fail(&mut f.bench);
    let flushed = Status::WorkRequestFlushed;
    assert_eq!(f.sends(), ids.map(|id| (id, flushed)));
    assert_eq!(f.bench.executed.len(), 1);
}

#[test]
fn a_queue_of_writes_and_reads_changes_over_once_it_may() {
    let mut f = reaching(0);
    f.post(WRITE, 10);
    f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(WriteOnly, sq(0)), (WriteOnly, sq(1))]);
    (f.bench.reach, f.bench.known) = (Some(usize::MAX), true);
    f.post(WRITE, 20);
    f.post(READ, 30);
    assert!(f.poll().is_empty() && f.bench.executed.is_empty());
    f.feed_ack(sq(0));
    assert!(f.poll().is_empty() && f.bench.executed.is_empty());
    // What is lost is sent again meanwhile.
    f.feed_nak(sq(1), NakCode::PsnSequenceError);
    assert_eq!(brief(&f.poll()), [(WriteOnly, sq(1))]);
    f.feed_ack(sq(1));
    f.poll();
    assert_eq!(f.bench.executed, [(true, VA, 0, 20), (false, VA, 0, 30)]);
    assert_eq!(f.sends().len(), 4);
}

#[test]
fn nobody_waits_for_a_send_to_be_acknowledged() {
    let mut f = reaching(usize::MAX);
    f.bench.known = true;
    f.post(SendOp::Send, 10);
    f.post(WRITE, 10);
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(0)), (WriteOnly, sq(1))]);
}

#[test]
fn short_ones_of_one_kind_are_executed_in_rows() {
    let mut f = reaching(usize::MAX);
    let mut ids = Vec::new();
    for (op, len) in [(WRITE, 10), (WRITE, 4096), (WRITE, 1), (READ, 8), (READ, 9)] {
        ids.push((f.post(op, len), OK));
    }
    // A long one, one that has none to go with, and one that needs a packet.
    for (op, len) in [(WRITE, PART), (READ, 5), (WRITE, 6)] {
        ids.push((f.post(op, len), OK));
    }
    f.post(SendOp::Send, 10);
    assert_eq!(brief(&f.poll()), [(SendOnly, sq(0))]);
    assert_eq!(f.sends(), ids);
    assert_eq!(f.bench.rows, [3, 2]);
    let lengths: Vec<u32> = f.bench.executed.iter().map(|part| part.3).collect();
    assert_eq!(lengths, [10, 4096, 1, 8, 9, PART, 5, 6]);
}

#[test]
fn a_long_queue_is_executed_in_several_rows() {
    let mut f = reaching(usize::MAX);
    let ids: Vec<_> = (0..40).map(|len| (f.post(WRITE, len + 1), OK)).collect();
    assert!(f.poll().is_empty());
    assert_eq!(f.sends(), ids);
    assert_eq!(f.bench.rows, [16, 16, 8]);
}

#[test]
fn a_row_that_ends_early_goes_on_by_packets() {
    for done in 0..4 {
        let mut f = reaching(done);
        let ids: Vec<_> = (0..4).map(|_| (f.post(WRITE, 10), OK)).collect();
        let sent = f.poll();
        assert_eq!(f.sends(), ids[..done]);
        assert_eq!(sent.len(), 4 - done);
        assert_eq!(sent[0].brief(), (WriteOnly, sq(0)));
        f.feed_ack(sq(3 - done as u32));
        assert_eq!(f.sends(), ids[done..]);
    }
}

#[test]
fn what_is_wrong_in_a_row_fails_in_its_turn() {
    let mut f = reaching(usize::MAX);
    let good = [f.post(WRITE, 10), f.post(WRITE, 10)];
    let bad = f.post_with(WRITE, 3 * MTU as u32, |wqe| {
        wqe.data = SendData::Gather(
            [crate::Sge {
                lkey: 99,
                ..sge(0, 3 * MTU as u32)
            }]
            .into_iter()
            .collect(),
        );
    });
    let flushed = f.post(WRITE, 10);
    f.poll();
    let want = [
        (good[0], OK),
        (good[1], OK),
        (bad, Status::LocalProtectionError),
        (flushed, Status::WorkRequestFlushed),
    ];
    assert_eq!(f.sends(), want);
    assert_eq!(f.bench.executed.len(), 2);
}

#[test]
fn only_what_needs_no_packet_waits_for_a_row() {
    let mut f = reaching(usize::MAX);
    assert!(!f.rc.waits_for_row());
    for (op, len, waits) in [
        (WRITE, 10, true),
        (READ, 10, true),
        (WRITE, 64 * 1024, false),
        (SendOp::Send, 10, false),
        // Behind one that is sent.
        (WRITE, 10, false),
    ] {
        f.post(op, len);
        assert_eq!(f.rc.waits_for_row(), waits, "{op:?}, {len} bytes");
        if matches!(op, SendOp::Send) {
            f.poll();
        }
    }
}

#[test]
fn one_that_is_alone_is_done_as_it_is_posted() {
    let mut f = reaching(usize::MAX);
    let write = f.post(WRITE, 10);
    assert!(f.rc.execute_fast(&mut f.bench));
    let read = f.post(READ, 300);
    assert!(f.rc.execute_fast(&mut f.bench));
    assert_eq!(f.sends(), [(write, OK), (read, OK)]);
    assert!(!f.rc.wants_transmit());
    assert_eq!(f.rc.counters().without_packets.total().bytes, 310);
    // There is nothing any more.
    assert!(!f.rc.execute_fast(&mut f.bench));
}

#[test]
fn what_is_not_alone_or_not_to_be_done_so_is_left_as_it_was() {
    // Behind what is unacknowledged, of two, of an operation with packets, too long, refused, and
    // with a wrong key.
    let left = |f: &mut Fixture| !f.rc.execute_fast(&mut f.bench) && f.sends().is_empty();
    let mut f = reaching(usize::MAX);
    f.post(SendOp::Send, 10);
    assert!(left(&mut f));
    f.poll();
    f.post(WRITE, 10);
    assert!(left(&mut f));
    let mut f = reaching(usize::MAX);
    let both = [f.post(WRITE, 10), f.post(WRITE, 10)];
    assert!(left(&mut f));
    f.poll();
    assert_eq!(f.sends(), both.map(|id| (id, OK)));
    let mut f = reaching(usize::MAX);
    f.post(WRITE, PART);
    assert!(left(&mut f));
    let mut f = reaching(0);
    f.post(WRITE, 10);
    assert!(left(&mut f));
    assert_eq!(brief(&f.poll()), [(WriteOnly, sq(0))]);
    let mut f = reaching(usize::MAX);
    f.post_with(WRITE, 300, |wqe| {
        let SendData::Gather(list) = &mut wqe.data else {
            unreachable!("as posted")
        };
        list[0].lkey += 1;
    });
    assert!(left(&mut f));
    f.poll();
    assert_eq!(f.sends()[0].1, Status::LocalProtectionError);
}
