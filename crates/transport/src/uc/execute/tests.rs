//! A WRITE without packets keeps its place among what is sent, and what is refused goes by packets.

use super::MOST;
use crate::rc::testing::{BASE, Bench, Fixture, LKEY, SQ_PSN, Sink};
use crate::{
    Address, PacketSink, Pd, SendData, SendOp, SendWqe, SgList, Sge, Status, Time, Uc, UcAttr,
};
use alloc::vec;
use alloc::vec::Vec;
use rnic_wire::{Operation, Packet, PathMtu, Psn};

const VA: u64 = 0x5000;
const WRITE: SendOp = SendOp::Write {
    remote_addr: VA,
    rkey: 5,
};

/// A path by memory whose peer has executed all, until there is a packet.
struct Path {
    sink: Sink,
    all_executed: bool,
}

impl PacketSink for Path {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        self.all_executed = false;
        self.sink.packet(len)
    }

    fn packet_to(&mut self, to: &Address, len: usize) -> Option<&mut [u8]> {
        self.sink.packet_to(to, len)
    }

    fn all_executed(&self) -> bool {
        self.all_executed
    }

    fn retract(&mut self) {
        self.sink.retract();
    }
}

struct Connection {
    uc: Uc,
    bench: Bench,
    path: Path,
}

impl Connection {
    /// The device executes so many before it refuses.
    fn reaching(executes: usize) -> Connection {
        let mut bench = Fixture::new().bench;
        bench.memory.resize(2 * MOST as usize, 9);
        bench.reach = Some(executes);
        let attr = UcAttr {
            qpn: 0x41,
            pd: Pd(1),
            dest_qpn: 0x42,
            mtu: PathMtu::M256,
            sq_psn: Psn::new(SQ_PSN),
            ..UcAttr::NONE
        };
        let mut uc = Uc::new();
        uc.receive_ready(attr);
        uc.send_ready(attr);
        Connection {
            uc,
            bench,
            path: Path {
                sink: Sink {
                    packets: Vec::new(),
                    room: usize::MAX,
                },
                all_executed: true,
            },
        }
    }

    fn post(&mut self, op: SendOp, length: u32) {
        let sge = Sge {
            addr: BASE,
            length,
            lkey: LKEY,
        };
        self.uc.post_send(SendWqe {
            op,
            data: SendData::Gather(SgList::from_slice(&[sge])),
            signaled: true,
            ..SendWqe::default()
        });
    }

    /// The operations of the packets that leave, how many WRITEs needed none, and how many
    /// completed.
    fn poll(&mut self, budget: usize) -> (Vec<Operation>, usize, usize) {
        let before = (self.bench.executed.len(), self.bench.sends.len());
        self.uc
            .poll_transmit(Time(1), &mut self.bench, &mut self.path, budget);
        let packets = self.path.sink.packets.drain(..);
        let operations = packets
            .map(|bytes| {
                let packet = Packet::parse(&bytes).expect("a valid packet");
                packet.bth.opcode.operation().expect("an operation")
            })
            .collect();
        let sends = &self.bench.sends[before.1..];
        assert!(sends.iter().all(|c| c.status == Status::Success));
        (
            operations,
            self.bench.executed.len() - before.0,
            sends.len(),
        )
    }

    fn poll_dry(&mut self) -> (Vec<Operation>, usize, usize) {
        let polled = self.poll(usize::MAX);
        assert!(!self.uc.wants_transmit());
        polled
    }
}

#[test]
fn it_takes_neither_packet_nor_psn() {
    let mut c = Connection::reaching(usize::MAX);
    c.post(WRITE, 300);
    assert_eq!(c.poll_dry(), (vec![], 1, 1));
    assert_eq!(c.bench.executed, [(true, VA, 0, 300)]);
    assert_eq!(c.uc.sq_psn().value(), SQ_PSN);
    let counters = c.uc.counters();
    assert_eq!((counters.messages_sent, counters.packets_sent), (1, 0));
    assert_eq!(counters.without_packets.total().bytes, 300);
    assert_eq!(counters.requested.write.bytes, 300);
}

#[test]
fn it_overtakes_nothing() {
    let mut c = Connection::reaching(usize::MAX);
    for op in [WRITE, SendOp::Send, WRITE] {
        c.post(op, 10);
    }
    let by_packets = vec![Operation::SendOnly, Operation::WriteOnly];
    assert_eq!(c.poll_dry(), (by_packets, 1, 3));
    // Nor does a later one, until the peer is done with those.
    c.post(WRITE, 10);
    assert_eq!(c.poll_dry(), (vec![Operation::WriteOnly], 0, 1));
    c.path.all_executed = true;
    c.post(WRITE, 10);
    assert_eq!(c.poll_dry(), (vec![], 1, 1));
}

#[test]
fn what_is_refused_and_all_else_goes_by_packets() {
    let mut c = Connection::reaching(0);
    c.post(WRITE, 10);
    assert_eq!(c.poll_dry(), (vec![Operation::WriteOnly], 0, 1));
    let imm = SendOp::WriteImm {
        remote_addr: VA,
        rkey: 5,
        imm: [1; 4],
    };
    for (op, len) in [
        (SendOp::Send, 10),
        (imm, 10),
        (WRITE, 0),
        (WRITE, MOST as u32 + 1),
    ] {
        let mut c = Connection::reaching(usize::MAX);
        c.post(op, len);
        let (packets, executed, completed) = c.poll_dry();
        assert!(!packets.is_empty());
        assert_eq!((executed, completed), (0, 1));
    }
}

#[test]
fn a_budget_ends_a_turn() {
    let mut c = Connection::reaching(usize::MAX);
    c.post(WRITE, 10);
    c.post(WRITE, 10);
    assert_eq!(c.poll(1), (vec![], 1, 1));
    assert!(c.uc.wants_transmit());
    assert_eq!(c.poll(1), (vec![], 1, 1));
}

#[test]
fn in_sqd_none_begins() {
    let mut c = Connection::reaching(usize::MAX);
    c.uc.drain(false, &mut c.bench);
    c.post(WRITE, 10);
    assert_eq!(c.poll(usize::MAX), (vec![], 0, 0));
    c.uc.resume();
    assert_eq!(c.poll_dry(), (vec![], 1, 1));
}

/// What the peer granted to the connection before says nothing of this one: it may take the packets
/// for stragglers.
#[test]
fn a_queue_pair_that_begins_anew_goes_by_packets() {
    let mut c = Connection::reaching(usize::MAX);
    c.post(WRITE, 10);
    assert_eq!(c.poll_dry(), (vec![], 1, 1));
    let attr = *c.uc.attr();
    for _ in 0..2 {
        c.uc.reset();
        c.uc.receive_ready(attr);
        c.uc.send_ready(attr);
        c.path.all_executed = true;
        c.post(WRITE, 10);
        assert_eq!(c.poll_dry(), (vec![Operation::WriteOnly], 0, 1));
    }
    // One that was never connected has nothing to forget.
    let mut c = Connection::reaching(usize::MAX);
    c.uc = Uc::new();
    c.uc.reset();
    c.uc.receive_ready(attr);
    c.uc.send_ready(attr);
    c.post(WRITE, 10);
    assert_eq!(c.poll_dry(), (vec![], 1, 1));
}
