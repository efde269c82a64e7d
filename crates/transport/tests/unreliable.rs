//! UC and UD over a network that loses, duplicates, reorders and corrupts: each message arrives
//! whole or not at all, UC's in order and once; every send completes; nothing is written outside
//! what was granted. And a peer that sends anything.
//!
//! `PROPTEST_CASES` sets the number of cases of each property.

use crate::support::memory::{Effect, Memory, QpDevice, Queues, Region, Rights};
use crate::support::network::{self, Impairments, Network};
use crate::support::pair::Batch;
use proptest::prelude::*;
use rnic_transport::{
    Address, CompletionOpcode, Immediate, NetworkHeader, Pd, QueuePair, RecvWqe, SendData, SendOp,
    SendWqe, Sge, Status, Time, Uc, UcAttr, Ud, UdAttr,
};
use rnic_wire::{
    Bth, Deth, Grh, MAX_HEADER_LEN, Opcode, Operation, Packet, PathMtu, Psn, Reth, Service,
    UdPrefix, header_len, pad_len,
};

const SRC: u64 = 0x10_0000;
const RECEIVES: u64 = 0x100_0000;
const OPEN: u64 = 0x200_0000;
/// Room of one message in each region.
const SLOT: u64 = 2048;
const MTU: PathMtu = PathMtu::M256;

fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    len: u32,
    signaled: bool,
}

fn message(longest: u32) -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        Just(Kind::Send),
        Just(Kind::SendImm),
        Just(Kind::Write),
        Just(Kind::WriteImm)
    ];
    let len = prop_oneof![
        1 => Just(0),
        3 => 1..=longest.min(64),
        3 => (0..=longest / 256).prop_map(|n| n * 256),
        3 => 0..=longest,
    ];
    (kind, len, any::<bool>()).prop_map(|(kind, len, signaled)| Message {
        kind,
        len,
        signaled,
    })
}

fn impairments() -> impl Strategy<Value = Impairments> {
    let rate = || prop_oneof![Just(0.0), 0.0..0.2];
    (rate(), rate(), rate(), rate()).prop_map(|(loss, duplicate, reorder, corrupt)| Impairments {
        loss,
        duplicate,
        reorder,
        corrupt,
        detour: 10..5_000,
        ..Impairments::none()
    })
}

/// The byte at `offset` of message `index`.
fn content(index: usize, offset: u64) -> u8 {
    (index as u8)
        .wrapping_mul(31)
        .wrapping_add((offset as u8).wrapping_mul(7))
        .wrapping_add((offset >> 8) as u8)
}

struct Side {
    qp: QueuePair,
    memory: Memory,
    queues: Queues,
}

impl Side {
    fn new(qp: QueuePair) -> Side {
        Side {
            qp,
            memory: Memory::default(),
            queues: Queues::default(),
        }
    }

    fn region(&mut self, base: u64, bytes: Vec<u8>, lkey: u32, rights: Rights) {
        self.memory.register(Region {
            base,
            bytes,
            lkey,
            rkey: lkey + 1,
            pd: Pd(1),
            rights,
            invalidatable: false,
            revoked: false,
            unmapped: false,
        });
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut QueuePair, &mut QpDevice<'_>) -> R) -> R {
        self.with_packet(None, f)
    }

    fn with_packet<R>(
        &mut self,
        packet: Option<&[u8]>,
        f: impl FnOnce(&mut QueuePair, &mut QpDevice<'_>) -> R,
    ) -> R {
        let mut device = QpDevice {
            memory: &mut self.memory,
            queues: &mut self.queues,
            packet,
        };
        f(&mut self.qp, &mut device)
    }

    /// Only a packet that says so beforehand takes a receive; false: it did not although there was
    /// one.
    fn take(&mut self, bytes: &[u8], by_memory: Option<PathMtu>, gone: bool) -> bool {
        let front = &bytes[..bytes.len().min(MAX_HEADER_LEN)];
        let parsed = match by_memory {
            Some(mtu) => Packet::parse_front(front, bytes.len(), mtu),
            None => Packet::parse(bytes),
        };
        let Ok(packet) = parsed else {
            return true;
        };
        let (needs, posted) = (self.qp.needs_receive(&packet), self.queues.receives.len());
        let detached = (!gone).then_some(bytes);
        self.with_packet(detached, |qp, device| {
            qp.handle_packet(Time(0), &packet, prefix, device);
        });
        if gone {
            return true;
        }
        let took = self.queues.receives.len() < posted;
        assert!(needs || !took || self.qp.is_error(), "{packet:?}");
        took || !needs || posted == 0
    }
}

fn prefix() -> UdPrefix {
    UdPrefix::V6(Grh {
        next_header: 17,
        sgid: [1; 16],
        dgid: [2; 16],
        ..Grh::default()
    })
}

fn uc_attr(qpn: u32, psn: u32) -> UcAttr {
    UcAttr {
        qpn,
        pd: Pd(1),
        dest_qpn: 0x33 - qpn,
        mtu: MTU,
        pkey: 0xffff,
        sq_psn: Psn::new(psn),
        rq_psn: Psn::new(psn),
        remote_write: true,
    }
}

fn ud_attr(qpn: u32) -> UdAttr {
    UdAttr {
        qpn,
        pd: Pd(1),
        qkey: 0x1111,
        mtu: MTU,
        pkey: 0xffff,
        pkey_index: 0,
        sq_psn: Psn::new(0xff_fffe),
    }
}

fn uc(qpn: u32, psn: u32) -> QueuePair {
    let mut qp = Uc::new();
    qp.receive_ready(uc_attr(qpn, psn));
    qp.send_ready(uc_attr(qpn, psn));
    QueuePair::Uc(qp)
}

fn ud(qpn: u32) -> QueuePair {
    let mut qp = Ud::new();
    qp.receive_ready(ud_attr(qpn));
    qp.send_ready(ud_attr(qpn));
    QueuePair::Ud(qp)
}

/// Sends `messages` from one to another over the network; gives both as they are at the end, when
/// all has arrived.
fn run(
    mut from: Side,
    mut to: Side,
    messages: &[Message],
    impairments: Impairments,
    seed: u64,
) -> (Side, Side) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut network = Network::new(impairments, rng.u64(..));
    let total = messages.len() as u64;
    let source = (0..total * SLOT)
        .map(|at| content((at / SLOT) as usize, at % SLOT))
        .collect();
    let datagrams = matches!(from.qp, QueuePair::Ud(_));
    from.region(SRC, source, 1, Rights::default());
    to.region(RECEIVES, vec![0; (total * SLOT) as usize], 3, Rights::LOCAL);
    to.region(OPEN, vec![0; (total * SLOT) as usize], 5, Rights::ALL);
    for n in 0..total {
        to.queues.receives.push_back(RecvWqe {
            wr_id: n,
            sges: [Sge {
                addr: RECEIVES + n * SLOT,
                length: SLOT as u32,
                lkey: 3,
            }]
            .into_iter()
            .collect(),
        });
    }
    let (mut now, mut arrivals, mut next) = (0, Vec::new(), 0);
    while next < messages.len() || from.qp.wants_transmit() {
        if next < messages.len() && (rng.bool() || !from.qp.wants_transmit()) {
            let wqe = wqe(next, messages[next], datagrams);
            from.queues.note_send(&wqe);
            from.qp.post_send(wqe);
            next += 1;
        }
        let mut batch = Batch::new(rng.usize(1..8));
        // Of a datagram there is only one kind.
        if rng.bool() {
            batch.most_payload = Some(rng.usize(..8 * MTU.bytes()));
        }
        let budget = rng.usize(1..4096);
        from.with(|qp, device| qp.poll_transmit(Time(now), device, &mut batch, budget));
        for bytes in batch.packets {
            network::lint(&bytes, MTU, batch.most_payload, 0xffff, 0x22)
                .expect("a packet by the rules");
            let by_memory = batch.most_payload.map(|_| MTU);
            arrivals.extend(network.send(now, 1, bytes, by_memory));
        }
        now += rng.u64(1..2_000);
    }
    arrivals.sort_by_key(|(at, _)| *at);
    for (at, arrived) in arrivals {
        if let Some(bytes) = network.open(at, &arrived) {
            let taken = to.take(bytes, arrived.by_memory, arrived.gone);
            assert!(taken, "a receive left");
        }
    }
    (from, to)
}

fn wqe(index: usize, message: Message, datagram: bool) -> SendWqe {
    let at = index as u64 * SLOT;
    let imm = (index as u32).to_be_bytes();
    let (remote_addr, rkey) = (OPEN + at, 6);
    let op = match message.kind {
        kind if datagram => SendOp::Datagram {
            to: Address {
                path: 0,
                qpn: 0x22,
                qkey: 0x1111,
            },
            imm: (kind == Kind::SendImm).then_some(imm),
        },
        Kind::Send => SendOp::Send,
        Kind::SendImm => SendOp::SendImm(imm),
        Kind::Write => SendOp::Write { remote_addr, rkey },
        Kind::WriteImm => SendOp::WriteImm {
            remote_addr,
            rkey,
            imm,
        },
    };
    let half = message.len / 2;
    SendWqe {
        wr_id: index as u64,
        op,
        data: SendData::Gather(
            [
                (SRC + at, half),
                (SRC + at + u64::from(half), message.len - half),
            ]
            .into_iter()
            .map(|(addr, length)| Sge {
                addr,
                length,
                lkey: 1,
            })
            .collect(),
        ),
        signaled: message.signaled,
        solicited: false,
        fence: false,
        srqn: 0,
    }
}

/// Every signaled send completed with success.
fn check_sender(from: &Side, messages: &[Message]) {
    assert_eq!(from.queues.violations, Vec::<String>::new());
    let signaled = messages.iter().filter(|m| m.signaled).count();
    let done = &from.queues.send_completions;
    assert_eq!(done.len(), signaled);
    assert!(done.iter().all(|c| c.status == Status::Success));
}

fn received(to: &Side, wr_id: u64, skip: u64, len: u64) -> &[u8] {
    let at = (wr_id * SLOT + skip) as usize;
    &to.memory.regions[0].bytes[at..at + len as usize]
}

/// The SEND (or, of the immediate, any message) that a completion belongs to: the first from `next`
/// on that fits.
fn uc_case(messages: &[Message], impairments: Impairments, seed: u64, psn: u32) {
    let harmless =
        impairments.loss == 0.0 && impairments.corrupt == 0.0 && impairments.reorder == 0.0;
    let sides = (Side::new(uc(0x11, psn)), Side::new(uc(0x22, psn)));
    let (from, to) = run(sides.0, sides.1, messages, impairments, seed);
    check_sender(&from, messages);
    assert_eq!(to.queues.violations, Vec::<String>::new());
    assert!(!to.qp.is_error());
    let mut next = 0;
    for done in &to.queues.recv_completions {
        assert_eq!(done.status, Status::Success);
        let bytes = received(&to, done.wr_id, 0, u64::from(done.byte_len));
        let fits = |index: usize| {
            let message = messages[index];
            let len = u64::from(message.len);
            let imm = Immediate::Data((index as u32).to_be_bytes());
            let expected: Vec<u8> = (0..len).map(|at| content(index, at)).collect();
            u64::from(done.byte_len) == len
                && match message.kind {
                    Kind::Write => false,
                    Kind::WriteImm => {
                        let at = index * SLOT as usize;
                        done.opcode == CompletionOpcode::RecvRdmaWithImm
                            && done.immediate == imm
                            && to.memory.regions[1].bytes[at..at + len as usize] == expected
                    }
                    Kind::Send => done.immediate == Immediate::None && bytes == expected,
                    Kind::SendImm => done.immediate == imm && bytes == expected,
                }
        };
        let found = (next..messages.len()).find(|&index| fits(index));
        next = found.unwrap_or_else(|| panic!("{done:?} is no message from {next} on")) + 1;
    }
    // Stores of the peer stay within the message that they belong to, and hold its bytes.
    for effect in &to.queues.effects {
        let Effect::Write { rkey, va, len } = effect else {
            panic!("{effect:?}");
        };
        assert_eq!(*rkey, 6);
        for at in va - OPEN..va - OPEN + len {
            let (index, offset) = ((at / SLOT) as usize, at % SLOT);
            assert!(offset < u64::from(messages[index].len));
            assert_eq!(
                to.memory.regions[1].bytes[at as usize],
                content(index, offset)
            );
        }
    }
    if harmless {
        let whole = |m: &&Message| m.kind != Kind::Write;
        let expected = messages.iter().filter(whole).count();
        assert_eq!(to.queues.recv_completions.len(), expected);
        assert_eq!(to.qp.counters().messages_received, messages.len() as u64);
    }
}

fn ud_case(messages: &[Message], impairments: Impairments, seed: u64) {
    let harmless = impairments.loss == 0.0 && impairments.corrupt == 0.0;
    let duplicates = impairments.duplicate > 0.0;
    let sides = (Side::new(ud(0x11)), Side::new(ud(0x22)));
    let (from, to) = run(sides.0, sides.1, messages, impairments, seed);
    check_sender(&from, messages);
    assert_eq!(to.queues.violations, Vec::<String>::new());
    let mut header = [0; UdPrefix::LEN];
    prefix().emit(&mut header);
    for done in &to.queues.recv_completions {
        assert_eq!(
            (done.status, done.src_qpn, done.grh),
            (Status::Success, 0x11, Some(NetworkHeader::Ipv6))
        );
        let len = u64::from(done.byte_len) - UdPrefix::LEN as u64;
        assert_eq!(received(&to, done.wr_id, 0, UdPrefix::LEN as u64), header);
        let bytes = received(&to, done.wr_id, UdPrefix::LEN as u64, len);
        let whole = (0..messages.len()).any(|index| {
            u64::from(messages[index].len) == len
                && (0..len)
                    .map(|at| content(index, at))
                    .eq(bytes.iter().copied())
        });
        assert!(whole, "{done:?} is no message");
    }
    if harmless && !duplicates {
        assert_eq!(to.queues.recv_completions.len(), messages.len());
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn uc_delivers_whole_messages_in_order_or_not_at_all(
        messages in prop::collection::vec(message(SLOT as u32), 1..40),
        impairments in impairments(),
        seed in any::<u64>(),
        psn in prop_oneof![Just(0u32), 0xff_fff0..=0xff_ffffu32, 0x7f_fff0..=0x80_0000u32],
    ) {
        uc_case(&messages, impairments, seed, psn);
    }

    #[test]
    fn ud_delivers_whole_datagrams_or_none(
        messages in prop::collection::vec(message(MTU.bytes() as u32), 1..40),
        impairments in impairments(),
        seed in any::<u64>(),
    ) {
        ud_case(&messages, impairments, seed);
    }
}

/// A packet as a hostile peer makes it: any opcode, mostly plausible values.
fn absurd(rng: &mut fastrand::Rng, expected: Psn, service: Service) -> Vec<u8> {
    let operation = Operation::ALL[rng.usize(..Operation::ALL.len())];
    let service = if rng.u8(..) < 240 {
        service
    } else {
        Service::from_code(rng.u8(..))
    };
    let opcode = match rng.u8(..) {
        0..4 => Opcode(rng.u8(..)),
        _ => Opcode::new(service, operation),
    };
    let len = [0, 1, 255, 256, 257, rng.usize(..600)][rng.usize(..6)];
    let bth = Bth {
        opcode,
        solicited: rng.bool(),
        pad: if rng.u8(..) < 8 {
            rng.u8(..4)
        } else {
            pad_len(len)
        },
        pkey: 0xffff,
        dest_qp: 0x22,
        psn: match rng.u8(..) {
            0..200 => expected,
            200..250 => expected.add(rng.u32(..8)).sub(4),
            _ => Psn::new(rng.u32(..)),
        },
        ..Bth::default()
    };
    let mut bytes = vec![0; header_len(opcode) + len + usize::from(bth.pad)];
    rng.fill(&mut bytes);
    bth.emit(&mut bytes);
    let headers = &mut bytes[Bth::LEN..];
    if opcode.service() == Service::Ud && headers.len() >= Deth::LEN {
        let qkey = if rng.u8(..) < 230 {
            0x1111
        } else {
            rng.u32(..)
        };
        let src_qp = rng.u32(..);
        Deth { qkey, src_qp }.emit(headers);
    } else if opcode.operation().is_some_and(Operation::has_reth) && headers.len() >= Reth::LEN {
        let va = match rng.u8(..) {
            0..8 => rng.u64(..),
            8..128 => OPEN + rng.u64(..8 * SLOT) - 2 * SLOT,
            _ => OPEN + rng.u64(..SLOT),
        };
        let len = len as u32;
        Reth {
            va,
            rkey: [6, 6, 6, 4, rng.u32(..)][rng.usize(..5)],
            dma_len: [len, len, 512, 513, rng.u32(..)][rng.usize(..5)],
        }
        .emit(headers);
    }
    if rng.u8(..) < 8 {
        bytes.truncate(rng.usize(..bytes.len() + 1));
    }
    bytes
}

/// Any packets whatever: no panic, no byte outside the receives and the open region, no receive
/// lost or done twice.
#[test]
fn a_hostile_peer_reaches_only_what_was_granted() {
    let packets: u64 = std::env::var("HOSTILE_PACKETS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(60_000);
    for (seed, service) in [(1, Service::Uc), (2, Service::Ud)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fresh = |rng: &mut fastrand::Rng| match service {
            Service::Uc => uc(0x22, [0, 0xff_fff0][rng.usize(..2)]),
            _ => ud(0x22),
        };
        let mut side = Side::new(fresh(&mut rng));
        side.region(RECEIVES, vec![0; 8 * SLOT as usize], 3, Rights::LOCAL);
        side.region(OPEN, vec![0; 4 * SLOT as usize], 5, Rights::ALL);
        // A guard that no key opens for writing.
        side.region(
            OPEN + 4 * SLOT,
            vec![7; 4 * SLOT as usize],
            9,
            Rights::LOCAL,
        );
        let (mut posted, mut done, mut deaths) = (0, 0, 0);
        for _ in 0..packets {
            if side.qp.is_error() {
                assert_eq!(side.queues.receives.len(), 0);
                assert_eq!(side.queues.receives_open(), 0);
                assert_eq!(side.queues.recv_completions.len() + done, posted);
                done = posted;
                deaths += 1;
                side.queues.recv_completions.clear();
                side.queues.forget();
                side.qp = fresh(&mut rng);
            }
            if side.queues.receives.len() < 4 && rng.u8(..) < 100 {
                let length = if rng.u8(..) < 250 {
                    SLOT as u32
                } else {
                    rng.u32(..64)
                };
                side.queues.receives.push_back(RecvWqe {
                    wr_id: posted as u64,
                    sges: [Sge {
                        addr: RECEIVES + posted as u64 % 8 * SLOT,
                        length,
                        lkey: 3,
                    }]
                    .into_iter()
                    .collect(),
                });
                posted += 1;
            }
            let bytes = absurd(&mut rng, side.qp.rq_psn(), service);
            let by_memory = rng.bool().then(|| PathMtu::ALL[rng.usize(..2)]);
            side.take(&bytes, by_memory, rng.u8(..) < 16);
            assert_eq!(side.queues.violations, Vec::<String>::new());
            for effect in side.queues.effects.drain(..) {
                let Effect::Write { rkey: 6, va, len } = effect else {
                    panic!("{effect:?}");
                };
                assert!(va >= OPEN && va + len <= OPEN + 4 * SLOT);
            }
            // Neither service answers.
            assert!(!side.qp.wants_transmit());
        }
        assert!(side.memory.regions[2].bytes.iter().all(|&b| b == 7));
        let counters = side.qp.counters();
        assert!(posted > 1000, "{posted} receives");
        if service == Service::Uc {
            assert!(counters.messages_received > 500, "{counters:?}");
        } else {
            assert!(deaths > 10, "{deaths}");
        }
    }
}
