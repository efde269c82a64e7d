//! The responder against a peer that the test plays.

use crate::rc::testing::*;
use crate::{
    CompletionOpcode, Evidence, Immediate, QpEvent, RcAttr, Refused, RequestRefused, Status,
};
use Operation::*;
use alloc::vec;
use alloc::vec::Vec;
use rnic_wire::{Ext, NakCode, Operation, Psn, Syndrome, credit_count};

const OK: Status = Status::Success;
const FLUSHED: Status = Status::WorkRequestFlushed;
const SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
const RNR: Syndrome = Syndrome::RnrNak { timer: 12 };
const M: u32 = MTU as u32;

fn nak(code: NakCode) -> Syndrome {
    Syndrome::Nak(code)
}

/// PSN and syndrome of the ACKs and NAKs among `sent`, which is all there is.
fn acks(sent: &[Sent]) -> Vec<(u32, Syndrome)> {
    assert!(
        sent.iter().all(|p| p.operation == Acknowledge),
        "{:?}",
        brief(sent)
    );
    sent.iter()
        .map(|p| (p.bth.psn.value(), p.syndrome()))
        .collect()
}

fn ack_psns(sent: &[Sent]) -> Vec<u32> {
    assert!(
        sent.iter()
            .all(|p| matches!(p.syndrome(), Syndrome::Ack { .. }))
    );
    acks(sent).into_iter().map(|(psn, _)| psn).collect()
}

impl Fixture {
    fn send_only(&mut self, n: u32, payload: &[u8]) {
        self.feed(SendOnly, rq(n), NO_EXT, payload, true);
    }

    fn write_only(&mut self, n: u32, offset: u64, payload: &[u8]) {
        self.feed(
            WriteOnly,
            rq(n),
            reth(offset, payload.len() as u32),
            payload,
            true,
        );
    }

    fn read(&mut self, n: u32, offset: u64, len: u32) {
        self.feed(ReadRequest, rq(n), reth(offset, len), &[], true);
    }

    /// Fails the test unless the last packet was refused with `code` and broke the queue pair for
    /// good.
    fn assert_refused(&mut self, n: u32, code: NakCode, name: &str) {
        assert!(self.rc.is_error(), "{name}");
        assert!(self.rc.wants_transmit(), "{name}");
        assert_eq!(acks(&self.poll()), [(rq(n), nak(code))], "{name}");
        self.write_only(n, 0, &[9]);
        assert_eq!(self.poll().len(), 0, "{name}: silent from now on");
    }
}

mod sends {
    use super::*;

    #[test]
    fn messages_fill_receives_in_order() {
        let mut f = Fixture::new();
        f.post_receive(7, &[sge(0, 300), sge(0, 0), sge(1000, 300)]);
        f.post_receive(8, &[]);
        f.feed(SendFirst, rq(0), NO_EXT, &[1; MTU], false);
        f.feed(SendMiddle, rq(1), NO_EXT, &[2; MTU], false);
        assert_eq!(f.poll().len(), 0, "nothing asked, nothing said");
        f.feed(SendLastImm, rq(2), imm([4, 3, 2, 1]), &[3; 5], true);
        f.send_only(3, &[]);
        assert_eq!(
            received(&f.bench.recvs[0]),
            (517, Immediate::Data([4, 3, 2, 1]), true)
        );
        assert_eq!(received(&f.bench.recvs[1]), (0, Immediate::None, true));
        assert_eq!(f.recvs(), [(7, OK), (8, OK)]);
        let data = [&f.bench.memory[..300], &f.bench.memory[1000..1217]].concat();
        assert_eq!(data, [vec![1; 256], vec![2; 256], vec![3; 5]].concat());
        let sent = f.poll();
        assert_eq!(ack_psns(&sent), [rq(3)], "one ACK for all");
        assert_eq!(sent[0].ext.aeth.map(|a| a.msn), Some(2));
        assert_eq!(f.rc.rq_psn(), Psn::new(rq(4)));
        assert_eq!(f.rc.counters().messages_received, 2);
    }

    #[test]
    fn credits_tell_of_posted_receives() {
        let mut f = Fixture::new();
        for i in 0..10 {
            f.post_receive(i, &[]);
        }
        f.send_only(0, &[]);
        let Syndrome::Ack { credits } = f.poll()[0].syndrome() else {
            panic!()
        };
        assert_eq!(credit_count(credits), Some(8), "9 are posted");
        f.bench.srq = true;
        f.send_only(1, &[]);
        assert_eq!(f.poll()[0].syndrome(), Syndrome::Ack { credits: 31 });
    }

    #[test]
    fn invalidate_revokes_the_key_or_fails() {
        let mut f = Fixture::new();
        f.post_receive(1, &[sge(0, 10)]);
        f.feed(SendOnlyInvalidate, rq(0), ieth(RKEY), &[5; 3], true);
        assert_eq!(
            received(&f.bench.recvs[0]),
            (3, Immediate::Invalidated(RKEY), true)
        );
        assert!(f.bench.remote_key_revoked);
        f.recvs();
        f.post_receive(2, &[sge(0, 10)]);
        f.post_receive(3, &[sge(0, 10)]);
        f.feed(SendOnlyInvalidate, rq(1), ieth(RKEY), &[5; 3], true);
        assert_eq!(f.recvs(), [(2, Status::RemoteInvalidRequest), (3, FLUSHED)]);
        f.assert_refused(1, NakCode::RemoteAccessError, "invalidate");
    }

    #[test]
    fn a_message_longer_than_its_receive() {
        for multi in [false, true] {
            let mut f = Fixture::new();
            f.post_receive(1, &[sge(0, if multi { M + 4 } else { 4 })]);
            f.post_receive(2, &[]);
            if multi {
                f.feed(SendFirst, rq(0), NO_EXT, &[1; MTU], false);
            }
            let n = u32::from(multi);
            f.feed(
                if multi { SendLast } else { SendOnly },
                rq(n),
                NO_EXT,
                &[1; 5],
                true,
            );
            assert_eq!(f.recvs(), [(1, Status::LocalLengthError), (2, FLUSHED)]);
            let refused = RequestRefused {
                operation: if multi { SendLast } else { SendOnly },
                psn: Psn::new(rq(n)),
                why: Refused::TooLong,
                room: if multi { u64::from(M) + 4 } else { 4 },
                length: if multi { u64::from(M) + 5 } else { 5 },
            };
            assert_eq!(f.bench.evidence, [Evidence::RequestRefused(refused)]);
            f.assert_refused(n, NakCode::InvalidRequest, "too long");
        }
    }

    #[test]
    fn a_receive_in_bad_memory() {
        let mut f = Fixture::new();
        f.post_receive(
            1,
            &[crate::Sge {
                addr: BASE,
                length: 100,
                lkey: 5,
            }],
        );
        f.post(WRITE, 1);
        f.send_only(0, &[1; 50]);
        assert_eq!(f.recvs(), [(1, Status::LocalProtectionError)]);
        assert_eq!(f.sends(), [(0, FLUSHED)]);
        f.assert_refused(0, NakCode::RemoteOperationalError, "bad memory");
    }
}

mod receiver_not_ready {
    use super::*;

    #[test]
    fn one_nak_then_silence_until_it_comes_again() {
        let mut f = Fixture::new();
        f.send_only(0, &[1]);
        f.send_only(1, &[2]);
        f.send_only(2, &[2]);
        assert_eq!(acks(&f.poll()), [(rq(0), RNR)]);
        f.send_only(3, &[2]);
        assert_eq!(f.poll().len(), 0);
        f.send_only(0, &[1]);
        assert_eq!(acks(&f.poll()), [(rq(0), RNR)]);
        f.post_receive(1, &[sge(0, 10)]);
        f.send_only(0, &[1]);
        assert_eq!(ack_psns(&f.poll()), [rq(0)]);
        f.send_only(3, &[2]);
        assert_eq!(acks(&f.poll()), [(rq(1), SEQUENCE)]);
        assert_eq!(f.rc.counters().rnr_naks_sent, 2);
    }

    #[test]
    fn a_receive_posted_in_time_takes_the_nak_back() {
        let mut f = Fixture::new();
        f.send_only(0, &[1]);
        f.post_receive(1, &[sge(0, 10)]);
        f.send_only(0, &[1]);
        assert_eq!(ack_psns(&f.poll()), [rq(0)]);
    }

    #[test]
    fn a_write_with_immediate_needs_one_for_its_last_packet_alone() {
        let mut f = Fixture::new();
        let before = f.bench.memory.clone();
        f.feed(WriteFirst, rq(0), reth(0, M + 9), &[1; MTU], true);
        assert_eq!(ack_psns(&f.poll()), [rq(0)]);
        f.feed(WriteLastImm, rq(1), imm([1; 4]), &[2; 9], true);
        assert_eq!(acks(&f.poll()), [(rq(1), RNR)]);
        assert_eq!(f.bench.memory[MTU..], before[MTU..], "not stored yet");
        f.post_receive(6, &[]);
        f.feed(WriteLastImm, rq(1), imm([1; 4]), &[2; 9], true);
        assert_eq!(ack_psns(&f.poll()), [rq(1)]);
        assert_eq!(f.bench.memory[MTU..MTU + 9], [2; 9]);
        let completion = f.bench.recvs[0];
        assert_eq!(completion.opcode, CompletionOpcode::RecvRdmaWithImm);
        assert_eq!(
            received(&completion),
            (M + 9, Immediate::Data([1; 4]), true)
        );
        f.feed(
            WriteOnlyImm,
            rq(2),
            Ext {
                reth: reth(0, 1).reth,
                ..imm([1; 4])
            },
            &[7],
            true,
        );
        assert_eq!(acks(&f.poll()), [(rq(2), RNR)]);
        assert_ne!(f.bench.memory[0], 7);
    }

    #[test]
    fn a_refused_write_takes_no_receive() {
        let mut f = Fixture::new();
        f.post_receive(6, &[]);
        f.bench.remote_key_revoked = true;
        f.feed(
            WriteOnlyImm,
            rq(0),
            Ext {
                reth: reth(0, 1).reth,
                ..imm([1; 4])
            },
            &[7],
            true,
        );
        assert_eq!(f.recvs(), [(6, FLUSHED)]);
        f.assert_refused(0, NakCode::RemoteAccessError, "write");
    }
}

mod writes {
    use super::*;

    #[test]
    fn packets_follow_each_other() {
        let mut f = Fixture::new();
        f.feed(WriteFirst, rq(0), reth(100, 2 * M + 3), &[1; MTU], false);
        f.feed(WriteMiddle, rq(1), NO_EXT, &[2; MTU], false);
        f.feed(WriteLast, rq(2), NO_EXT, &[3; 3], true);
        f.write_only(3, 5, &[4; 2]);
        assert_eq!(
            f.bench.memory[100..615],
            [vec![1; 256], vec![2; 256], vec![3; 3]].concat()
        );
        assert_eq!(f.bench.memory[5..7], [4, 4]);
        assert_eq!(ack_psns(&f.poll()), [rq(3)]);
        assert_eq!(f.recvs(), []);
    }

    #[test]
    fn the_whole_range_is_checked_at_the_first_packet() {
        let mut f = Fixture::new();
        let before = f.bench.memory.clone();
        let size = before.len() as u32;
        f.feed(WriteFirst, rq(0), reth(10, size), &[1; MTU], false);
        assert_eq!(f.bench.memory, before);
        f.assert_refused(0, NakCode::RemoteAccessError, "past the end");
        assert_eq!(f.bench.events, [QpEvent::AccessError]);
    }

    #[test]
    fn an_empty_one_needs_no_memory() {
        let mut f = Fixture::new();
        f.bench.remote_key_revoked = true;
        f.feed(WriteOnly, rq(0), reth(u64::MAX / 2, 0), &[], true);
        f.read(1, u64::MAX / 2, 0);
        assert_eq!(
            brief(&f.poll()),
            [(Acknowledge, rq(0)), (ReadResponseOnly, rq(1))]
        );
    }

    #[test]
    fn memory_that_vanishes_between_packets() {
        let mut f = Fixture::new();
        f.feed(WriteFirst, rq(0), reth(0, 2 * M), &[1; MTU], true);
        f.bench.remote_key_revoked = true;
        f.feed(WriteLast, rq(1), NO_EXT, &[1; MTU], true);
        f.assert_refused(1, NakCode::RemoteAccessError, "vanished");
    }
}

#[test]
fn malformed_requests_are_invalid() {
    type Case = (&'static str, u32, fn(&mut Fixture));
    let cases: [Case; 22] = [
        ("middle of nothing", 0, |f| {
            f.feed(SendMiddle, rq(0), NO_EXT, &[0; MTU], true)
        }),
        ("last of nothing", 0, |f| {
            f.feed(WriteLast, rq(0), NO_EXT, &[0; 3], true)
        }),
        ("first in a message", 1, |f| {
            f.feed(SendFirst, rq(0), NO_EXT, &[0; MTU], false);
            f.feed(SendFirst, rq(1), NO_EXT, &[0; MTU], true);
        }),
        ("other kind in a message", 1, |f| {
            f.feed(WriteFirst, rq(0), reth(0, 3 * M), &[0; MTU], false);
            f.feed(SendMiddle, rq(1), NO_EXT, &[0; MTU], true);
        }),
        ("read in a message", 1, |f| {
            f.feed(WriteFirst, rq(0), reth(0, 3 * M), &[0; MTU], false);
            f.read(1, 0, 5);
        }),
        ("atomic in a message", 1, |f| {
            f.feed(SendFirst, rq(0), NO_EXT, &[0; MTU], false);
            f.feed(FetchAdd, rq(1), fetch_add(0, 1), &[], true);
        }),
        ("short first", 0, |f| {
            f.feed(SendFirst, rq(0), NO_EXT, &[0; MTU - 4], true)
        }),
        ("long first", 0, |f| {
            f.feed(WriteFirst, rq(0), reth(0, 5 * M), &[0; MTU + 4], true)
        }),
        ("short middle", 1, |f| {
            f.feed(WriteFirst, rq(0), reth(0, 3 * M), &[0; MTU], false);
            f.feed(WriteMiddle, rq(1), NO_EXT, &[0; 4], true);
        }),
        ("empty last", 1, |f| {
            f.feed(SendFirst, rq(0), NO_EXT, &[0; MTU], false);
            f.feed(SendLast, rq(1), NO_EXT, &[], true);
        }),
        ("long last", 1, |f| {
            f.feed(SendFirst, rq(0), NO_EXT, &[0; MTU], false);
            f.feed(SendLast, rq(1), NO_EXT, &[0; MTU + 1], true);
        }),
        ("long only", 0, |f| {
            f.feed(SendOnly, rq(0), NO_EXT, &[0; MTU + 1], true)
        }),
        ("write only, shorter than said", 0, |f| {
            f.feed(WriteOnly, rq(0), reth(0, 9), &[0; 8], true)
        }),
        ("write only, longer than said", 0, |f| {
            f.feed(WriteOnly, rq(0), reth(0, 7), &[0; 8], true)
        }),
        ("write first that is all", 0, |f| {
            f.feed(WriteFirst, rq(0), reth(0, M), &[0; MTU], true)
        }),
        ("write middle too many", 1, |f| {
            f.feed(WriteFirst, rq(0), reth(0, 2 * M), &[0; MTU], false);
            f.feed(WriteMiddle, rq(1), NO_EXT, &[0; MTU], true);
        }),
        ("write last too short", 1, |f| {
            f.feed(WriteFirst, rq(0), reth(0, 2 * M), &[0; MTU], false);
            f.feed(WriteLast, rq(1), NO_EXT, &[0; MTU - 4], true);
        }),
        ("write too long", 0, |f| {
            f.feed(WriteFirst, rq(0), reth(0, (1 << 31) + 1), &[0; MTU], true)
        }),
        ("read too long", 0, |f| f.read(0, 0, (1 << 31) + 1)),
        ("misaligned atomic", 0, |f| {
            f.feed(FetchAdd, rq(0), fetch_add(4, 1), &[], true)
        }),
        ("no reth", 0, |f| {
            f.feed(ReadRequest, rq(0), NO_EXT, &[], true)
        }),
        ("no atomic header", 0, |f| {
            f.feed(CompareSwap, rq(0), NO_EXT, &[], true)
        }),
    ];
    for (name, n, feed) in cases {
        let mut f = Fixture::new();
        f.post_receive(1, &[sge(0, 2000)]);
        f.post(WRITE, 1);
        feed(&mut f);
        assert_eq!(f.recvs(), [(1, FLUSHED)], "{name}");
        assert_eq!(f.sends(), [(0, FLUSHED)], "{name}");
        assert_eq!(f.bench.events, [QpEvent::RequestError], "{name}");
        f.assert_refused(n, NakCode::InvalidRequest, name);
    }
}

#[test]
fn rights_the_queue_pair_does_not_give() {
    let none = RcAttr {
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
        flush: Default::default(),
        ..attr()
    };
    let no_resources = RcAttr {
        max_dest_rd_atomic: 0,
        ..attr()
    };
    let write = |f: &mut Fixture| f.write_only(0, 0, &[1]);
    let read = |f: &mut Fixture| f.read(0, 0, 1);
    let atomic = |f: &mut Fixture| f.feed(FetchAdd, rq(0), fetch_add(0, 1), &[], true);
    type Case<'a> = (RcAttr, &'a dyn Fn(&mut Fixture));
    let cases: [Case<'_>; 5] = [
        (none, &write),
        (none, &read),
        (none, &atomic),
        (no_resources, &read),
        (no_resources, &atomic),
    ];
    for (attr, feed) in cases {
        let mut f = Fixture::with(attr);
        let before = f.bench.memory.clone();
        feed(&mut f);
        f.assert_refused(0, NakCode::InvalidRequest, "right");
        assert_eq!(f.bench.memory, before);
    }
    let mut f = Fixture::with(none);
    f.rc.update(attr());
    write(&mut f);
    assert_eq!(ack_psns(&f.poll()), [rq(0)]);
}

#[test]
fn a_wrong_key_is_refused_for_every_operation() {
    for n in 0..3 {
        let mut f = Fixture::new();
        f.bench.remote_key_revoked = true;
        match n {
            0 => f.write_only(0, 0, &[1]),
            1 => f.read(0, 0, 1),
            _ => f.feed(FetchAdd, rq(0), fetch_add(0, 1), &[], true),
        }
        f.assert_refused(0, NakCode::RemoteAccessError, "key");
        assert_eq!(f.rc.counters().access_naks_sent, 1);
        assert_eq!(f.bench.events, [QpEvent::AccessError]);
    }
}

mod sequence {
    use super::*;

    #[test]
    fn future_packets_draw_one_nak_and_are_not_executed() {
        let mut f = Fixture::new();
        let before = f.bench.memory.clone();
        for n in 1..4 {
            f.write_only(n, 0, &[1]);
        }
        assert_eq!(acks(&f.poll()), [(rq(0), SEQUENCE)]);
        f.write_only(4, 0, &[1]);
        assert_eq!(f.poll().len(), 0);
        assert_eq!(f.bench.memory, before);
        f.write_only(0, 0, &[1]);
        assert_eq!(ack_psns(&f.poll()), [rq(0)]);
        f.write_only(2, 0, &[1]);
        assert_eq!(acks(&f.poll()), [(rq(1), SEQUENCE)], "armed again");
        assert_eq!(
            (
                f.rc.counters().out_of_sequence,
                f.rc.counters().sequence_naks_sent
            ),
            (5, 2)
        );
    }

    #[test]
    fn a_nak_acknowledges_and_replaces_the_ack() {
        let mut f = Fixture::new();
        f.write_only(0, 0, &[1]);
        f.write_only(2, 0, &[1]);
        assert_eq!(acks(&f.poll()), [(rq(1), SEQUENCE)]);
    }

    #[test]
    fn packets_that_swapped_places_within_a_batch() {
        let mut f = Fixture::new();
        f.write_only(1, 0, &[2]);
        f.write_only(0, 0, &[1]);
        // 1 was dropped and must come again, 0 need not.
        assert_eq!(acks(&f.poll()), [(rq(1), SEQUENCE)]);
        f.write_only(3, 0, &[2]);
        f.write_only(1, 0, &[2]);
        f.write_only(2, 0, &[2]);
        f.write_only(3, 0, &[2]);
        assert_eq!(ack_psns(&f.poll()), [rq(3)]);
    }

    #[test]
    fn past_packets_are_acknowledged_and_not_executed() {
        let mut f = Fixture::new();
        f.post_receive(1, &[sge(0, 10)]);
        f.send_only(0, &[1]);
        f.write_only(1, 50, &[1]);
        f.poll();
        f.bench.memory[50] = 99;
        f.feed(WriteOnly, rq(1), reth(50, 1), &[1], false);
        assert_eq!(ack_psns(&f.poll()), [rq(1)]);
        f.send_only(0, &[1]);
        assert_eq!(ack_psns(&f.poll()), [rq(1)], "the most recent one");
        assert_eq!(f.bench.memory[50], 99);
        assert_eq!(f.recvs(), [(1, OK)]);
        assert_eq!(
            (
                f.rc.counters().duplicates_received,
                f.rc.counters().messages_received
            ),
            (2, 2)
        );
    }

    #[test]
    fn half_the_circle_is_past() {
        let mut f = Fixture::new();
        f.feed(WriteOnly, rq(0x80_0000), reth(0, 1), &[1], true);
        assert_eq!(ack_psns(&f.poll()), [rq(0xff_ffff)]);
        f.feed(WriteOnly, rq(0x7f_ffff), reth(0, 1), &[1], true);
        assert_eq!(acks(&f.poll()), [(rq(0), SEQUENCE)]);
    }
}

mod reads {
    use super::*;

    #[test]
    fn responses_carry_the_memory_in_order() {
        let mut f = Fixture::new();
        f.write_only(0, 0, &[1]);
        f.read(1, 3, 2 * M + 5);
        f.write_only(4, 9000, &[1]);
        assert_eq!(f.rc.rq_psn(), Psn::new(rq(5)));
        let sent = f.poll();
        let want = [
            (ReadResponseFirst, rq(1)),
            (ReadResponseMiddle, rq(2)),
            (ReadResponseLast, rq(3)),
            (Acknowledge, rq(4)),
        ];
        assert_eq!(
            brief(&sent),
            want,
            "the first response acknowledges the WRITE before"
        );
        let data: Vec<u8> = sent.iter().flat_map(|p| p.payload.clone()).collect();
        assert_eq!(data, f.bench.memory[3..3 + 2 * MTU + 5]);
        let msns: Vec<Option<u32>> = sent.iter().map(|p| p.ext.aeth.map(|a| a.msn)).collect();
        assert_eq!(msns, [Some(2), None, Some(2), Some(3)]);
    }

    #[test]
    fn repeated_from_any_packet_on() {
        let mut f = Fixture::new();
        f.read(0, 0, 3 * M);
        f.poll();
        f.read(0, 0, 3 * M);
        assert_eq!(f.poll().len(), 3);
        f.read(1, u64::from(M), 2 * M);
        assert_eq!(
            brief(&f.poll()),
            [(ReadResponseFirst, rq(1)), (ReadResponseLast, rq(2))]
        );
        f.read(2, u64::from(2 * M), M);
        assert_eq!(brief(&f.poll()), [(ReadResponseOnly, rq(2))]);
        f.read(0, 0, M);
        assert_eq!(brief(&f.poll()), [(ReadResponseOnly, rq(0))]);
        assert_eq!(f.rc.counters().messages_received, 1);
    }

    #[test]
    fn what_was_not_granted_is_not_repeated() {
        let mut f = Fixture::new();
        f.read(0, u64::from(M), 3 * M);
        f.write_only(3, 0, &[1]);
        f.poll();
        let other_key = Ext {
            reth: reth(u64::from(M), 3 * M)
                .reth
                .map(|r| rnic_wire::Reth { rkey: 1, ..r }),
            ..NO_EXT
        };
        f.feed(ReadRequest, rq(0), other_key, &[], true);
        f.read(0, 0, 3 * M);
        f.read(0, u64::from(M), 3 * M + 1);
        f.read(1, u64::from(M), 2 * M);
        f.read(1, u64::from(2 * M), 2 * M + 1);
        f.read(3, u64::from(M), M);
        f.feed(FetchAdd, rq(0), fetch_add(0, 1), &[], true);
        assert_eq!(f.poll().len(), 0);
        assert_eq!(f.rc.counters().dropped, 7);
    }

    #[test]
    fn repeated_while_being_answered() {
        let mut f = Fixture::new();
        f.read(0, 0, 4 * M);
        assert_eq!(f.poll_some(usize::MAX, 3).len(), 3);
        // Ahead of where the answer is: comes anyway. Behind: the answer steps back.
        f.read(3, u64::from(3 * M), M);
        f.read(1, u64::from(M), 3 * M);
        let want = [
            (ReadResponseFirst, rq(1)),
            (ReadResponseMiddle, rq(2)),
            (ReadResponseLast, rq(3)),
        ];
        let sent = f.poll();
        assert_eq!(brief(&sent), want);
        let data: Vec<u8> = sent.iter().flat_map(|p| p.payload.clone()).collect();
        assert_eq!(data, f.bench.memory[MTU..4 * MTU]);
    }

    /// A requester that repeats a READ in pieces: the second piece comes while the first waits to
    /// be answered.
    #[test]
    fn a_repetition_is_answered_to_the_end_of_the_last_that_asked() {
        let mut f = Fixture::new();
        f.read(0, 0, 4 * M);
        f.poll();
        let all = [
            (ReadResponseFirst, rq(0)),
            (ReadResponseMiddle, rq(1)),
            (ReadResponseMiddle, rq(2)),
            (ReadResponseLast, rq(3)),
        ];
        for (n, len) in [(1, 3 * M), (0, 4 * M)] {
            f.read(0, 0, M);
            f.read(n, u64::from(n * M), len);
            let sent = f.poll();
            assert_eq!(brief(&sent), all, "{n}");
            let data: Vec<u8> = sent.iter().flat_map(|p| p.payload.clone()).collect();
            assert_eq!(data, f.bench.memory[..4 * MTU]);
        }
        // A shorter one leaves it as long as it was.
        f.read(0, 0, 4 * M);
        f.read(1, u64::from(M), M);
        assert_eq!(brief(&f.poll()), all);
    }

    /// Linux's requester takes a READ for done when an ACK comes in the middle of its responses.
    #[test]
    fn no_ack_for_a_repetition_comes_into_the_middle_of_a_read() {
        let mut f = Fixture::new();
        f.write_only(0, 0, &[1]);
        assert_eq!(ack_psns(&f.poll()), [rq(0)]);
        f.read(1, 0, 4 * M);
        assert_eq!(f.poll_some(usize::MAX, 2).len(), 2);
        f.write_only(0, 0, &[1]);
        let rest = [(ReadResponseMiddle, rq(3)), (ReadResponseLast, rq(4))];
        assert_eq!(brief(&f.poll()), rest);
        // Nor in front of an answer that begins anew: it acknowledges as much.
        f.write_only(0, 0, &[1]);
        f.read(3, u64::from(2 * M), 2 * M);
        let again = [(ReadResponseFirst, rq(3)), (ReadResponseLast, rq(4))];
        assert_eq!(brief(&f.poll()), again);
        // With nothing behind it, it is acknowledged.
        f.write_only(0, 0, &[1]);
        assert_eq!(f.poll().len(), 1);
    }

    #[test]
    fn repetitions_are_answered_in_the_order_of_psns() {
        let mut f = Fixture::new();
        f.read(0, 0, 10);
        f.feed(FetchAdd, rq(1), fetch_add(0, 1), &[], true);
        f.write_only(2, 0, &[1]);
        f.poll();
        f.feed(WriteOnly, rq(2), reth(0, 1), &[1], true);
        f.feed(FetchAdd, rq(1), fetch_add(0, 1), &[], true);
        f.read(0, 0, 10);
        f.read(0, 0, 10);
        f.feed(FetchAdd, rq(1), fetch_add(0, 1), &[], true);
        let want = [
            (ReadResponseOnly, rq(0)),
            (AtomicAcknowledge, rq(1)),
            (Acknowledge, rq(2)),
        ];
        assert_eq!(brief(&f.poll()), want);
    }

    #[test]
    fn more_than_agreed_are_refused_only_while_all_are_being_answered() {
        let mut f = Fixture::new();
        for n in 0..2 {
            f.read(n, 0, 1);
        }
        f.read(2, 0, 1);
        assert!(f.rc.is_error());
        let sent = f.poll();
        assert_eq!(
            brief(&sent),
            [
                (ReadResponseOnly, rq(0)),
                (ReadResponseOnly, rq(1)),
                (Acknowledge, rq(2))
            ]
        );
        assert_eq!(sent[2].syndrome(), nak(NakCode::InvalidRequest));

        let mut f = Fixture::new();
        for n in 0..100 {
            f.read(n, 0, 1);
            assert_eq!(brief(&f.poll()), [(ReadResponseOnly, rq(n))]);
        }
        // A repetition of the oldest gives way to a new one.
        f.read(98, 0, 1);
        f.read(100, 0, 1);
        assert_eq!(brief(&f.poll()), [(ReadResponseOnly, rq(100))]);
        f.read(98, 0, 1);
        assert_eq!(f.poll().len(), 0, "forgotten");
    }

    #[test]
    fn three_means_four_as_linux_counts() {
        let mut f = Fixture::with(RcAttr {
            max_dest_rd_atomic: 3,
            ..attr()
        });
        for n in 0..4 {
            f.read(n, 0, 1);
        }
        assert_eq!(f.poll().len(), 4);
    }

    #[test]
    fn memory_that_vanishes_before_it_is_sent() {
        let mut f = Fixture::new();
        f.read(0, 0, 3 * M);
        f.write_only(3, 0, &[1]);
        f.post(WRITE, 1);
        assert_eq!(f.poll_some(usize::MAX, 1).len(), 1);
        f.bench.remote_key_revoked = true;
        let sent = f.poll();
        let refused: Vec<_> = sent
            .iter()
            .filter(|p| p.operation == Acknowledge)
            .cloned()
            .collect();
        assert_eq!(acks(&refused), [(rq(1), nak(NakCode::RemoteAccessError))]);
        assert!(
            !sent.iter().any(|p| p.operation == ReadResponseMiddle),
            "the packet was taken back"
        );
        assert!(f.rc.is_error());
        assert_eq!(f.sends(), [(0, FLUSHED)]);
        assert_eq!(f.bench.events, [QpEvent::AccessError]);
        assert_eq!(f.poll().len(), 0);
    }

    #[test]
    fn a_stream_of_responses_leaves_room_for_requests() {
        let mut f = Fixture::new();
        f.read(0, 0, 200 * M);
        f.post(WRITE, 20 * M);
        // A sink that never has room for more than the responses.
        let both = [f.poll_some(100_000, 4), f.poll_some(100_000, 4)].concat();
        assert!(both.iter().any(|p| p.operation == WriteFirst));
        assert!(both.iter().any(|p| p.operation == ReadResponseFirst));
        let mixed = f.poll_some(2000, usize::MAX);
        assert!(mixed.iter().any(|p| p.operation == WriteMiddle));
        assert!(mixed.iter().any(|p| p.operation == ReadResponseMiddle));
    }
}

mod atomics {
    use super::*;
    use rnic_wire::AtomicEth;

    #[test]
    fn executed_once_and_answered_as_often_as_asked() {
        let mut f = Fixture::new();
        f.bench.memory[8..16].copy_from_slice(&7u64.to_ne_bytes());
        for _ in 0..3 {
            f.feed(FetchAdd, rq(0), fetch_add(8, 5), &[], true);
            let sent = f.poll();
            assert_eq!(brief(&sent), [(AtomicAcknowledge, rq(0))]);
            assert_eq!(sent[0].ext.atomic_ack.map(|a| a.original), Some(7));
            assert_eq!(sent[0].ext.aeth.map(|a| a.msn), Some(1));
        }
        assert_eq!(f.bench.memory[8..16], 12u64.to_ne_bytes());
        assert_eq!(f.bench.atomics_executed, 1);
        for (n, compare, want) in [(1, 12, 100u64), (2, 12, 100)] {
            let atomic = AtomicEth {
                va: BASE + 8,
                rkey: RKEY,
                swap_or_add: 100,
                compare,
            };
            f.feed(
                CompareSwap,
                rq(n),
                Ext {
                    atomic: Some(atomic),
                    ..NO_EXT
                },
                &[],
                true,
            );
            assert_eq!(f.bench.memory[8..16], want.to_ne_bytes());
        }
        let originals: Vec<_> = f
            .poll()
            .iter()
            .map(|p| p.ext.atomic_ack.unwrap().original)
            .collect();
        assert_eq!(originals, [12, 100]);
    }

    #[test]
    fn a_forgotten_one_is_not_executed_again() {
        let mut f = Fixture::new();
        for n in 0..3 {
            f.feed(FetchAdd, rq(n), fetch_add(0, 1), &[], true);
            f.poll();
        }
        f.feed(FetchAdd, rq(0), fetch_add(0, 1), &[], true);
        assert_eq!(f.poll().len(), 0);
        assert_eq!(f.bench.atomics_executed, 3);
        assert_eq!(f.rc.counters().dropped, 1);
    }
}

mod states {
    use super::*;

    #[test]
    fn communication_is_established_once_and_only_in_rtr() {
        let mut f = Fixture::new();
        f.write_only(0, 0, &[1]);
        assert_eq!(f.bench.events, [], "in RTS");
        f.rc.reset();
        f.write_only(0, 0, &[1]);
        f.rc.receive_ready(attr());
        f.feed_ack(sq(0));
        assert_eq!(
            (f.rc.counters().dropped, f.bench.events.len()),
            (2, 0),
            "RESET, and an answer in RTR"
        );
        f.write_only(0, 0, &[1]);
        f.write_only(1, 0, &[1]);
        assert_eq!(f.bench.events, [QpEvent::CommunicationEstablished]);
        assert_eq!(ack_psns(&f.poll()), [rq(1)], "the responder answers in RTR");
        f.post(WRITE, 1);
        assert_eq!(f.poll().len(), 0, "the requester does not send");
        f.rc.send_ready(attr());
        assert_eq!(brief(&f.poll()), [(WriteOnly, sq(0))]);
        f.write_only(2, 0, &[1]);
        assert_eq!(
            ack_psns(&f.poll()),
            [rq(2)],
            "RTS keeps the responder's place"
        );
    }

    #[test]
    fn in_error_everything_is_dropped() {
        let mut f = Fixture::new();
        f.post_receive(1, &[sge(0, 300)]);
        f.post_receive(2, &[]);
        f.feed(SendFirst, rq(0), NO_EXT, &[1; MTU], false);
        f.read(1, 0, 10);
        f.rc.fail(&mut f.bench);
        assert_eq!(f.recvs(), [(1, FLUSHED), (2, FLUSHED)]);
        f.poll();
        let before = f.bench.memory.clone();
        f.write_only(1, 0, &[9]);
        f.feed_ack(sq(0));
        assert_eq!(f.poll().len(), 0);
        assert_eq!(f.bench.memory, before);
        assert_eq!(f.rc.counters().dropped, 2);
    }

    #[test]
    fn what_was_executed_before_an_error_is_still_acknowledged() {
        let mut f = Fixture::new();
        f.write_only(0, 0, &[1]);
        f.rc.fail(&mut f.bench);
        assert_eq!(ack_psns(&f.poll()), [rq(0)]);
        let mut f = Fixture::new();
        f.read(0, 0, 10);
        f.write_only(1, 0, &[1]);
        f.rc.fail(&mut f.bench);
        assert_eq!(f.poll().len(), 0, "not without the answer before");
    }

    #[test]
    fn packets_of_other_services_and_unknown_operations_are_dropped() {
        use rnic_wire::{Bth, Opcode, Packet, Payload, Service};
        let mut f = Fixture::new();
        let others = [
            Opcode::new(Service::Uc, SendOnly),
            Opcode::new(Service::Ud, SendOnly),
            Opcode(0x1b),
            Opcode::CNP,
        ];
        for opcode in others {
            let bth = Bth {
                opcode,
                psn: Psn::new(rq(0)),
                ..Bth::default()
            };
            f.rc.handle_packet(
                f.now,
                &Packet {
                    bth,
                    ext: NO_EXT,
                    payload: Payload::Here(&[]),
                },
                &mut f.bench,
            );
        }
        assert_eq!(f.rc.counters().dropped, 4);
        assert_eq!(f.poll().len(), 0);
    }
}
