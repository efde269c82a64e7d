//! A target whose SRQs are another process's, and that process, which executes.

use super::*;
use crate::rc::testing::*;
use crate::{Evidence, Status};
use alloc::vec::Vec;
use rnic_wire::{Bth, Ext, Opcode, Psn, Syndrome, Xrceth};

const SRQN: u32 = 0x5007;

fn xrc_attr() -> RcAttr {
    RcAttr {
        role: Role::XrcTarget,
        ..attr()
    }
}

/// The target, as `near`; the SRQ's owner, whose `rc` nobody uses, as `far`.
struct Two {
    near: Fixture,
    far: Fixture,
    delegate: Delegate,
}

impl Two {
    fn new() -> Two {
        let mut near = Fixture::with(xrc_attr());
        near.bench.srq_is_remote = true;
        near.bench.srq = true;
        let mut far = Fixture::new();
        far.bench.srq = true;
        Two {
            near,
            far,
            delegate: Delegate::new(xrc_attr()),
        }
    }

    /// A request comes to the target; it must ask, and gets the owner's verdict.
    fn feed(&mut self, operation: Operation, n: u32, ext: Ext, payload: &[u8]) -> Verdict {
        let packet = packet(operation, n, ext, payload);
        let before = self.near.rc.rq_psn();
        let owed = self.near.rc.wants_transmit();
        let now = self.near.now;
        self.near
            .rc
            .handle_packet(now, &packet, &mut self.near.bench);
        assert_eq!(self.near.rc.rq_psn(), before, "nothing is done by asking");
        assert_eq!(self.near.rc.wants_transmit(), owed, "nor said");
        let verdict = self.delegate.execute(&packet, &mut self.far.bench);
        self.near
            .rc
            .executed_by_srq_owner(&packet, verdict, &mut self.near.bench);
        verdict
    }

    fn syndromes(&mut self) -> Vec<(u32, Syndrome)> {
        let sent = self.near.poll();
        sent.iter()
            .map(|p| (p.bth.psn.value(), p.syndrome()))
            .collect()
    }
}

fn packet(operation: Operation, n: u32, ext: Ext, payload: &[u8]) -> Packet<'_> {
    Packet {
        bth: Bth {
            opcode: Opcode::new(Service::Xrc, operation),
            pkey: 0xffff,
            dest_qp: 0x17,
            psn: Psn::new(rq(n)),
            ack_req: true,
            ..Bth::default()
        },
        ext: Ext {
            xrceth: Some(Xrceth { srqn: SRQN }),
            ..ext
        },
        payload: payload.into(),
    }
}

const DONE: Verdict = Verdict::Executed { original: 0 };

#[test]
fn a_send_fills_the_owners_receive_and_is_acknowledged_by_the_target() {
    let mut two = Two::new();
    two.far.post_receive(7, &[sge(0, 600)]);
    assert_eq!(two.feed(Operation::SendFirst, 0, NO_EXT, &[1; MTU]), DONE);
    assert_eq!(two.far.recvs(), [], "not complete yet");
    let last = imm([1, 2, 3, 4]);
    assert_eq!(two.feed(Operation::SendLastImm, 1, last, &[2; 5]), DONE);
    let done = &two.far.bench.recvs[0];
    assert_eq!((done.qpn, done.src_qpn, done.byte_len), (0x17, 0x42, 261));
    assert_eq!(two.far.recvs(), [(7, Status::Success)]);
    assert_eq!(two.far.bench.memory[256..261], [2; 5]);
    let sent = two.near.poll();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].bth.psn.value(), msn(&sent[0])), (rq(1), Some(1)));
    assert_eq!(two.near.rc.counters().messages_received, 1);
}

fn msn(sent: &Sent) -> Option<u32> {
    sent.ext.aeth.map(|aeth| aeth.msn)
}

#[test]
fn an_empty_srq_of_the_owner_puts_the_sender_off() {
    let mut two = Two::new();
    let verdict = two.feed(Operation::SendOnly, 0, NO_EXT, &[1]);
    assert_eq!(verdict, Verdict::NotReady);
    assert_eq!(two.syndromes(), [(rq(0), Syndrome::RnrNak { timer: 12 })]);
    two.far.post_receive(1, &[sge(0, 8)]);
    assert_eq!(two.feed(Operation::SendOnly, 0, NO_EXT, &[1]), DONE);
    assert_eq!(two.far.recvs(), [(1, Status::Success)]);
    assert_eq!(two.near.poll().len(), 1);
}

#[test]
fn an_rnr_in_the_middle_of_a_write_with_immediate_loses_nothing() {
    let mut two = Two::new();
    let first = reth(0, MTU as u32 + 4);
    assert_eq!(two.feed(Operation::WriteFirst, 0, first, &[5; MTU]), DONE);
    let last = imm([9; 4]);
    let verdict = two.feed(Operation::WriteLastImm, 1, last, &[6; 4]);
    assert_eq!(verdict, Verdict::NotReady);
    two.far.post_receive(3, &[]);
    assert_eq!(
        two.feed(Operation::WriteLastImm, 1, imm([9; 4]), &[6; 4]),
        DONE
    );
    assert_eq!(two.far.recvs(), [(3, Status::Success)]);
    assert_eq!(two.far.bench.memory[MTU..MTU + 4], [6; 4]);
}

#[test]
fn what_the_owner_refuses_breaks_the_target_as_its_own_refusal_would() {
    type Case = (Operation, Ext, &'static [u8], Refused, NakCode, bool);
    let wrong_key = Ext {
        reth: reth(0, 4).reth.map(|r| rnic_wire::Reth { rkey: 99, ..r }),
        ..NO_EXT
    };
    let cases: [Case; 4] = [
        (
            Operation::SendOnly,
            NO_EXT,
            &[1; 9],
            Refused::TooLong,
            NakCode::InvalidRequest,
            true,
        ),
        (
            Operation::WriteOnly,
            wrong_key,
            &[1; 4],
            Refused::Access,
            NakCode::RemoteAccessError,
            false,
        ),
        (
            Operation::SendMiddle,
            NO_EXT,
            &[1; MTU],
            Refused::Malformed,
            NakCode::InvalidRequest,
            false,
        ),
        (
            Operation::FetchAdd,
            fetch_add(4, 1),
            &[],
            Refused::Unaligned,
            NakCode::InvalidRequest,
            false,
        ),
    ];
    for (operation, ext, payload, why, code, takes_receive) in cases {
        let mut two = Two::new();
        two.far.post_receive(1, &[sge(0, 8)]);
        let verdict = two.feed(operation, 0, ext, payload);
        assert_eq!(verdict, Verdict::Refused(why));
        assert!(two.near.rc.is_error());
        assert_eq!(two.syndromes(), [(rq(0), Syndrome::Nak(code))]);
        let told = |e: &Evidence| matches!(e, Evidence::RequestRefused(r) if r.why == why);
        assert!(two.near.bench.evidence.iter().any(told));
        let completed = two.far.recvs();
        assert_eq!(completed.len(), usize::from(takes_receive), "{operation:?}");
        assert!(!two.delegate.holds_receive());
    }
}

#[test]
fn a_read_waits_until_its_bytes_are_fetched() {
    let mut two = Two::new();
    let request = reth(16, MTU as u32 + 1);
    assert_eq!(two.feed(Operation::ReadRequest, 0, request, &[]), DONE);
    assert_eq!(
        two.near.rc.rq_psn(),
        Psn::new(rq(2)),
        "two packets of answer"
    );
    assert_eq!(two.near.poll().len(), 0, "it waits, and asks no more");
    two.near.bench.at_hand = true;
    assert!(!two.near.rc.wants_transmit());
    two.near.rc.memory_came();
    let sent = two.near.poll();
    assert_eq!(
        brief(&sent),
        [
            (Operation::ReadResponseFirst, rq(0)),
            (Operation::ReadResponseLast, rq(1))
        ]
    );
}

#[test]
fn an_atomic_is_executed_once_and_answered_as_often_as_asked() {
    let mut two = Two::new();
    two.far.bench.memory[..8].copy_from_slice(&41u64.to_ne_bytes());
    let verdict = two.feed(Operation::FetchAdd, 0, fetch_add(0, 1), &[]);
    assert_eq!(verdict, Verdict::Executed { original: 41 });
    let answered = |f: &mut Fixture| f.poll()[0].ext.atomic_ack.map(|a| a.original);
    assert_eq!(answered(&mut two.near), Some(41));
    // The answer was lost: the target knows it.
    let again = packet(Operation::FetchAdd, 0, fetch_add(0, 1), &[]);
    let now = two.near.now;
    two.near.rc.handle_packet(now, &again, &mut two.near.bench);
    assert_eq!(answered(&mut two.near), Some(41));
    assert_eq!(two.far.bench.atomics_executed, 1);
}

#[test]
fn a_verdict_on_what_was_not_asked_changes_nothing() {
    let mut two = Two::new();
    let stray = packet(Operation::SendOnly, 3, NO_EXT, &[1]);
    let before = two.near.rc.rq_psn();
    for verdict in [DONE, Verdict::NotReady, Verdict::Refused(Refused::Access)] {
        two.near
            .rc
            .executed_by_srq_owner(&stray, verdict, &mut two.near.bench);
    }
    assert!(!two.near.rc.is_error() && !two.near.rc.wants_transmit());
    assert_eq!(two.near.rc.rq_psn(), before);
}

#[test]
fn more_reads_than_agreed_are_refused_without_asking() {
    let mut two = Two::new();
    for n in 0..2 {
        assert_eq!(two.feed(Operation::ReadRequest, n, reth(0, 4), &[]), DONE);
    }
    let third = packet(Operation::ReadRequest, 2, reth(0, 4), &[]);
    let now = two.near.now;
    two.near.rc.handle_packet(now, &third, &mut two.near.bench);
    assert!(two.near.rc.is_error());
}

#[test]
fn a_target_that_breaks_flushes_the_owners_receive() {
    let mut two = Two::new();
    two.far.post_receive(7, &[sge(0, 600)]);
    assert_eq!(two.feed(Operation::SendFirst, 0, NO_EXT, &[1; MTU]), DONE);
    assert!(two.delegate.holds_receive());
    two.delegate.flush(&mut two.far.bench);
    assert_eq!(two.far.recvs(), [(7, Status::WorkRequestFlushed)]);
    // And a message starts anew.
    two.far.post_receive(8, &[sge(0, 600)]);
    let verdict = two.delegate.execute(
        &packet(Operation::SendOnly, 9, NO_EXT, &[1]),
        &mut two.far.bench,
    );
    assert_eq!(verdict, DONE);
}
