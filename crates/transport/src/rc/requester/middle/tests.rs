//! Rows of packets are what packets one at a time would be, and end where room, budget, window or
//! memory end.

use crate::rc::testing::*;
use crate::{SendData, SendOp, SgList, Sge, Status};
use Operation::*;
use alloc::vec::Vec;
use rnic_wire::{Ext, NakCode, Operation, Psn, Reth, Syndrome};

const WRITE: SendOp = SendOp::Write {
    remote_addr: 0x5000,
    rkey: 5,
};

/// Entries that end within packets, one of them within the same packet as the next.
fn list() -> [Sge; 4] {
    [(7, 1000), (9000, 3), (5000, 2100), (40_000, 900)].map(|(at, length)| Sge {
        addr: BASE + at,
        length,
        lkey: LKEY,
    })
}

fn gathered(f: &Fixture) -> Vec<u8> {
    let range =
        |sge: &Sge| (sge.addr - BASE) as usize..(sge.addr - BASE) as usize + sge.length as usize;
    list()
        .iter()
        .flat_map(|sge| f.bench.memory[range(sge)].to_vec())
        .collect()
}

fn post_list(f: &mut Fixture, op: SendOp) {
    f.post_with(op, 0, |wqe| {
        wqe.data = SendData::Gather(SgList::from_slice(&list()));
    });
}

fn payload(sent: &[Sent]) -> Vec<u8> {
    sent.iter().flat_map(|p| p.payload.clone()).collect()
}

#[test]
fn rows_end_where_room_or_budget_ends_and_go_on_from_there() {
    let budgets = [1, 268, 269, 1000, usize::MAX];
    let rooms = [1, 2, 3, 7, usize::MAX];
    for (budget, room) in budgets.into_iter().flat_map(|b| rooms.map(|r| (b, r))) {
        for op in [SendOp::Send, WRITE] {
            let mut f = Fixture::new();
            post_list(&mut f, op);
            let mut sent = Vec::new();
            loop {
                let some = f.poll_some(budget, room);
                // The packet that crosses the line is the last: 268 bytes each, the first of a
                // WRITE 284.
                let most = budget.div_ceil(268).min(room);
                assert!(some.len() <= most, "{} of {budget}, {room}", some.len());
                if some.is_empty() {
                    break;
                }
                sent.extend(some);
            }
            let last = sent.len() - 1;
            assert_eq!(last, 4003 / MTU);
            assert_eq!(payload(&sent), gathered(&f), "{budget}, {room}");
            for (i, packet) in sent.iter().enumerate() {
                let of = |first, middle, end| match i {
                    0 => first,
                    _ if i == last => end,
                    _ => middle,
                };
                let want = match op {
                    SendOp::Send => of(SendFirst, SendMiddle, SendLast),
                    _ => of(WriteFirst, WriteMiddle, WriteLast),
                };
                assert_eq!(packet.brief(), (want, sq(i as u32)));
                assert_eq!(packet.bth.ack_req, i == last);
                assert_eq!((packet.bth.pkey, packet.bth.mig_req), (0xffff, true));
            }
            let counters = f.rc.counters();
            assert_eq!(counters.packets_sent, 16);
            assert_eq!(counters.bytes_sent, 4003);
            assert_eq!(counters.retransmitted_packets, 0);
        }
    }
}

#[test]
fn what_was_sent_in_a_row_is_sent_again_from_any_packet_on() {
    for lost in 1..16 {
        let mut f = Fixture::new();
        post_list(&mut f, SendOp::Send);
        f.poll();
        f.feed_nak(sq(lost), NakCode::PsnSequenceError);
        let again = f.poll();
        assert_eq!(again[0].bth.psn, Psn::new(sq(lost)));
        assert_eq!(again.len(), 16 - lost as usize);
        assert_eq!(payload(&again), gathered(&f)[lost as usize * MTU..]);
        f.feed_ack(sq(15));
        assert_eq!(f.sends(), [(0, Status::Success)]);
    }
}

#[test]
fn no_more_leaves_than_the_window_takes() {
    let mut f = Fixture::with(crate::RcAttr {
        // Of 256 bytes and 64 of overhead each.
        window_bytes: 5 * 320 + 319,
        ..attr()
    });
    post_list(&mut f, WRITE);
    assert_eq!(f.poll().len(), 5);
    f.feed_ack(sq(2));
    let next = f.poll();
    assert_eq!(brief(&next), [5, 6, 7].map(|n| (WriteMiddle, sq(n))));
    assert_eq!(payload(&next), gathered(&f)[5 * MTU..8 * MTU]);
}

#[test]
fn memory_that_vanishes_within_a_row_ends_it_there() {
    let mut f = Fixture::new();
    f.post(WRITE, 20 * MTU as u32);
    assert_eq!(f.poll_some(usize::MAX, 1).len(), 1);
    f.bench.memory.truncate(4 * MTU + 100);
    let sent = f.poll();
    assert_eq!(brief(&sent), [1, 2, 3].map(|n| (WriteMiddle, sq(n))));
    assert_eq!(f.rc.counters().packets_sent, 4);
    // The peer has a part of it. The message fails in its turn: at once, since it is the oldest.
    assert_eq!(f.sends(), [(0, Status::LocalProtectionError)]);
    assert_eq!(f.poll().len(), 0);
}

#[test]
fn a_message_whose_first_packet_was_taken_back_begins_with_it() {
    let mut f = Fixture::new();
    f.post(SendOp::Send, 1);
    f.post(WRITE, 5 * MTU as u32);
    assert_eq!(brief(&f.poll_some(usize::MAX, 1)), [(SendOnly, sq(0))]);
    f.bench.unreadable = true;
    assert_eq!(f.poll().len(), 0, "it fails when the SEND is done");
    // The SEND is lost, and the memory is there again before its turn has come.
    f.bench.unreadable = false;
    f.feed_nak(sq(0), NakCode::PsnSequenceError);
    let want = [
        (SendOnly, sq(0)),
        (WriteFirst, sq(1)),
        (WriteMiddle, sq(2)),
        (WriteMiddle, sq(3)),
        (WriteMiddle, sq(4)),
        (WriteLast, sq(5)),
    ];
    assert_eq!(brief(&f.poll()), want);
    f.feed_ack(sq(5));
    assert_eq!(f.sends(), [(0, Status::Success), (1, Status::Success)]);
}

/// A READ request of `packets` and a half.
fn ask(f: &mut Fixture, packets: u32) -> Vec<u8> {
    let len = packets * MTU as u32 + 100;
    let ext = Ext {
        reth: Some(Reth {
            va: BASE + 3,
            rkey: RKEY,
            dma_len: len,
        }),
        ..Ext::default()
    };
    f.feed(ReadRequest, rq(0), ext, &[], true);
    f.bench.memory[3..3 + len as usize].to_vec()
}

#[test]
fn responses_are_the_same_in_rows() {
    for (budget, room) in [(1, 9), (600, 9), (usize::MAX, 3), (usize::MAX, usize::MAX)] {
        let mut f = Fixture::new();
        let want = ask(&mut f, 11);
        let mut sent = Vec::new();
        while sent.len() < 12 {
            let some = f.poll_some(budget, room);
            assert!((1..=room).contains(&some.len()));
            sent.extend(some);
        }
        assert_eq!(payload(&sent), want);
        let (first, rest) = sent.split_first().unwrap();
        let (last, middles) = rest.split_last().unwrap();
        assert_eq!(first.brief(), (ReadResponseFirst, rq(0)));
        assert_eq!(last.brief(), (ReadResponseLast, rq(11)));
        for (middle, n) in middles.iter().zip(1..) {
            assert_eq!(middle.brief(), (ReadResponseMiddle, rq(n)));
            assert!(middle.ext.aeth.is_none());
        }
        assert_eq!(f.poll().len(), 0);
        assert_eq!(f.rc.counters().packets_sent, 12);
        assert_eq!(f.rc.counters().bytes_sent, want.len() as u64);
    }
}

#[test]
fn a_read_whose_memory_vanishes_within_a_row_is_refused_there() {
    let mut f = Fixture::new();
    ask(&mut f, 11);
    assert_eq!(f.poll_some(usize::MAX, 1).len(), 1);
    f.bench.memory.truncate(5 * MTU);
    let sent = f.poll();
    let want = [
        (ReadResponseMiddle, rq(1)),
        (ReadResponseMiddle, rq(2)),
        (ReadResponseMiddle, rq(3)),
        (Acknowledge, rq(4)),
    ];
    assert_eq!(brief(&sent), want);
    assert_eq!(
        sent[3].syndrome(),
        Syndrome::Nak(NakCode::RemoteAccessError)
    );
    assert!(f.rc.is_error());
}
