//! A connected queue pair of any service, and a peer that sends anything behind a right ICRC.

use rnic_transport::{
    Address, Flush, PacketSink, Pd, Placement, QueuePair, Rc, RcAttr, RecvWqe, Role, SendData,
    SendOp, SendWqe, SgList, Sge, Time, Uc, UcAttr, Ud, UdAttr,
};
use rnic_wire::{
    Bth, Grh, Opcode, Operation, Packet, PathMtu, Psn, Service, UdPrefix, header_len, pad_len,
};

use crate::input::Input;
use memory::{Memory, QpDevice, Queues, Region, Rights, Srq};

#[allow(dead_code, reason = "the tests of transport use the rest")]
#[path = "../../transport/tests/support/memory.rs"]
mod memory;

const REGION: u64 = 8 << 10;
const BASE: u64 = 0x10_0000;
/// Regions in their order: each at `BASE * (index + 1)` with lkey `0x10 * (index + 1)` and the rkey
/// after it.
const SRC: usize = 0;
const DST: usize = 1;
const OPEN: usize = 2;
/// Every right, in another domain.
const FOREIGN: usize = 3;
/// May be revoked by the peer.
const WINDOW: usize = 4;

const QPN: u32 = 0x11;
const DEST_QPN: u32 = 0x22;
const QKEY: u32 = 0x1111_1111;
const SRQ: u32 = 0x51;

/// Packets on their way out.
#[derive(Default)]
struct Sink {
    packets: Vec<Vec<u8>>,
    room: usize,
}

impl PacketSink for Sink {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.packets.len() == self.room {
            return None;
        }
        self.packets.push(vec![0xee; len]);
        self.packets.last_mut().map(Vec::as_mut_slice)
    }

    fn packet_to(&mut self, _to: &Address, len: usize) -> Option<&mut [u8]> {
        self.packet(len)
    }

    fn retract(&mut self) {
        self.packets.pop();
    }
}

struct Victim {
    qp: QueuePair,
    service: Service,
    role: Role,
    memory: Memory,
    queues: Queues,
    now: u64,
    next_wr: u64,
    sent: Vec<Vec<u8>>,
}

impl Victim {
    fn new(input: &mut Input<'_>) -> Victim {
        let mut memory = Memory::default();
        for index in 0..=WINDOW {
            let number = index as u64 + 1;
            memory.register(Region {
                base: BASE * number,
                bytes: vec![index as u8; REGION as usize],
                lkey: 0x10 * number as u32,
                rkey: 0x10 * number as u32 + 1,
                pd: Pd(if index == FOREIGN { 2 } else { 1 }),
                rights: match index {
                    SRC => Rights::default(),
                    DST => Rights::LOCAL,
                    _ => Rights::ALL,
                },
                invalidatable: index == WINDOW,
                revoked: false,
                unmapped: false,
            });
        }
        let (kind, bits) = (input.u8() % 5, input.u8());
        let mtu = input.one_of(&[PathMtu::M256, PathMtu::M512, PathMtu::M1024]);
        let psn = input.one_of(&[0, 0xff_fffe, 0x7f_fffe]);
        let (sq_psn, rq_psn) = (Psn::new(psn), Psn::new(psn ^ 3));
        let role = [Role::Rc, Role::XrcInitiator, Role::XrcTarget];
        let role = role.get(usize::from(kind)).copied().unwrap_or_default();
        let (qp, service) = match kind {
            0..=2 => {
                let attr = RcAttr {
                    role,
                    qpn: QPN,
                    pd: Pd(1),
                    dest_qpn: DEST_QPN,
                    mtu,
                    pkey: 0xffff,
                    sq_psn,
                    rq_psn,
                    timeout: input.u8() % 6,
                    retry_cnt: input.u8() % 8,
                    rnr_retry: input.u8() % 8,
                    min_rnr_timer: 1,
                    max_rd_atomic: 1 + input.u8() % 5,
                    max_dest_rd_atomic: input.u8() % 8,
                    remote_write: bits & 1 == 0,
                    remote_read: bits & 2 == 0,
                    remote_atomic: bits & 4 == 0,
                    flush: Placement {
                        global: bits & 8 == 0,
                        persistent: bits & 16 == 0,
                    },
                    window_bytes: 16 << 10,
                };
                let mut rc = Rc::new();
                rc.receive_ready(attr);
                rc.send_ready(attr);
                let service = match role {
                    Role::Rc => Service::Rc,
                    _ => Service::Xrc,
                };
                (QueuePair::Rc(rc), service)
            }
            3 => {
                let attr = UcAttr {
                    qpn: QPN,
                    pd: Pd(1),
                    dest_qpn: DEST_QPN,
                    mtu,
                    pkey: 0xffff,
                    sq_psn,
                    rq_psn,
                    remote_write: bits & 1 == 0,
                };
                let mut uc = Uc::new();
                uc.receive_ready(attr);
                uc.send_ready(attr);
                (QueuePair::Uc(uc), Service::Uc)
            }
            _ => {
                let attr = UdAttr {
                    qpn: QPN,
                    pd: Pd(1),
                    qkey: QKEY,
                    mtu,
                    pkey: 0xffff,
                    pkey_index: 0,
                    sq_psn,
                };
                let mut ud = Ud::new();
                ud.receive_ready(attr);
                ud.send_ready(attr);
                (QueuePair::Ud(ud), Service::Ud)
            }
        };
        let mut queues = Queues::default();
        queues.shared = role == Role::XrcTarget || bits & 32 != 0;
        queues.srqs.insert(SRQ, Srq::new(Pd(1)));
        Victim {
            qp,
            service,
            role,
            memory,
            queues,
            now: 0,
            next_wr: 0,
            sent: Vec::new(),
        }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut QueuePair, Time, &mut QpDevice<'_>) -> R) -> R {
        let mut device = QpDevice {
            memory: &mut self.memory,
            queues: &mut self.queues,
            packet: None,
        };
        f(&mut self.qp, Time(self.now), &mut device)
    }

    fn wr(&mut self) -> u64 {
        self.next_wr += 1;
        self.next_wr
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 16 {
            0..=7 => self.feed(input),
            8 | 9 => self.post_receive(input),
            10 | 11 => self.post_send(input),
            12..=14 => {
                let (room, budget) = (usize::from(input.u8()), usize::from(input.u16()));
                self.poll(room, budget);
            }
            _ => self.pass_time(u64::from(input.u16()) * 4),
        }
    }

    /// A piece of a region of ours; of one that must not be used, or past its end, if the input
    /// says so.
    fn sge(&mut self, input: &mut Input<'_>, region: usize) -> Sge {
        let choice = input.u8();
        let region = match choice {
            0 => SRC,
            1 => FOREIGN,
            2 => WINDOW + 1,
            _ => region,
        };
        let number = region as u64 + 1;
        let (length, offset) = (input.u16() % 1500, u64::from(input.u16()));
        let offset = match choice {
            3 => offset << 40,
            4 => offset % REGION,
            _ => offset % (REGION - 1500),
        };
        Sge {
            addr: (BASE * number).wrapping_add(offset),
            length: length.into(),
            lkey: 0x10 * number as u32,
        }
    }

    fn post_receive(&mut self, input: &mut Input<'_>) {
        let srq = match self.role {
            Role::XrcInitiator => return,
            Role::XrcTarget => Some(SRQ),
            Role::Rc => None,
        };
        if self.queues.posted(srq) > 8 {
            return;
        }
        let wr_id = self.wr();
        let pieces = input.u8() % 4;
        let sges = (0..pieces).map(|_| self.sge(input, DST)).collect();
        self.queues.post_receive(srq, RecvWqe { wr_id, sges });
    }

    fn post_send(&mut self, input: &mut Input<'_>) {
        if self.qp.sends_outstanding() > 8 || self.role == Role::XrcTarget {
            return;
        }
        let wr_id = self.wr();
        let (remote_addr, rkey) = (input.u64(), input.u32());
        let choice = match self.service {
            Service::Ud => input.u8() % 2,
            Service::Uc => input.u8() % 4,
            _ => input.u8() % 10,
        };
        let imm = [1, 2, 3, 4];
        let to = Address {
            path: 0,
            qpn: DEST_QPN,
            qkey: QKEY,
        };
        let op = match (self.service, choice) {
            (Service::Ud, 0) => SendOp::Datagram { to, imm: None },
            (Service::Ud, _) => SendOp::Datagram { to, imm: Some(imm) },
            (_, 0) => SendOp::Send,
            (_, 1) => SendOp::SendImm(imm),
            (_, 2) => SendOp::Write { remote_addr, rkey },
            (_, 3) => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            (_, 4) => SendOp::Read { remote_addr, rkey },
            (_, 5) => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: 1,
                swap: 2,
            },
            (_, 6) => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
            (_, 7) => SendOp::SendInvalidate(rkey),
            (_, 8) => SendOp::AtomicWrite { remote_addr, rkey },
            _ => SendOp::Flush(Flush {
                remote_addr,
                rkey,
                length: u64::from(input.u16()),
                whole_region: input.flag(),
                placement: Placement {
                    global: true,
                    persistent: input.flag(),
                },
            }),
        };
        let region = if op.is_read_or_atomic() { DST } else { SRC };
        let list: SgList = match op {
            SendOp::Flush(_) => SgList::default(),
            SendOp::AtomicWrite { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                let mut sge = self.sge(input, region);
                sge.length = 8;
                [sge].into_iter().collect()
            }
            // No message is longer than the MTU; the caller has seen to that.
            SendOp::Datagram { .. } => {
                let mut sge = self.sge(input, region);
                sge.length %= 257;
                [sge].into_iter().collect()
            }
            _ => (0..input.u8() % 3)
                .map(|_| self.sge(input, region))
                .collect(),
        };
        let wqe = SendWqe {
            srqn: SRQ,
            wr_id,
            op,
            data: SendData::Gather(list),
            signaled: input.flag(),
            solicited: input.flag(),
            fence: input.flag(),
        };
        self.with(|qp, _, device| {
            device.queues.note_send(&wqe);
            qp.post_send(wqe);
        });
    }

    fn poll(&mut self, room: usize, budget: usize) {
        let mut sink = Sink {
            room,
            ..Sink::default()
        };
        let wanted = self.qp.wants_transmit();
        self.with(|qp, now, device| qp.poll_transmit(now, device, &mut sink, budget));
        assert!(wanted || sink.packets.is_empty(), "emits unasked");
        for bytes in sink.packets {
            let packet = Packet::parse(&bytes).expect("what it sends is a packet");
            assert_eq!(packet.bth.dest_qp, DEST_QPN);
            self.sent.push(bytes);
        }
        let excess = self.sent.len().saturating_sub(16);
        self.sent.drain(..excess);
    }

    fn pass_time(&mut self, ns: u64) {
        self.now += ns;
        if self.qp.next_timeout().is_some_and(|at| at.0 <= self.now) {
            self.with(|qp, now, device| qp.handle_timeout(now, device));
            let next = self.qp.next_timeout();
            assert!(next.is_none_or(|at| at.0 > self.now), "fired, still due");
        }
    }

    /// A packet of the peer: its headers are the input's, but where that says that they shall be
    /// right.
    fn feed(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        if choice == 0 {
            return self.take(input.bytes(600));
        }
        let Some(operation) = Opcode(input.u8() & 0x1f).operation() else {
            return;
        };
        let opcode = Opcode::new(self.service, operation);
        let answers = matches!(
            operation,
            Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::ReadResponseFirst
                | Operation::ReadResponseMiddle
                | Operation::ReadResponseLast
                | Operation::ReadResponseOnly
        );
        let last_sent = self.sent.last().and_then(|bytes| Bth::parse(bytes).ok());
        let psn = match &self.qp {
            QueuePair::Rc(_) if answers => last_sent.map_or(Psn::new(0), |bth| bth.psn),
            QueuePair::Rc(rc) => rc.rq_psn(),
            QueuePair::Uc(uc) => uc.rq_psn(),
            QueuePair::Ud(ud) => ud.rq_psn(),
        };
        let psn = psn.add(i32::from(input.u8() as i8 / 16) as u32 & 0xff_ffff);
        let (place, offset) = (input.u8(), input.u16());
        let len = match choice % 4 {
            0 => 0,
            1 => 256,
            2 => usize::from(input.u8()),
            _ => usize::from(input.u16() % 1200),
        };
        let bth = Bth {
            opcode,
            solicited: choice & 32 != 0,
            pad: pad_len(len),
            pkey: 0xffff,
            dest_qp: QPN,
            ack_req: choice & 64 != 0,
            psn,
            ..Bth::default()
        };
        let header = header_len(opcode);
        let mut bytes = vec![0; header + len + usize::from(pad_len(len))];
        bth.emit(bytes.first_chunk_mut::<{ Bth::LEN }>().expect("a BTH"));
        let given = input.bytes(header - Bth::LEN);
        bytes[Bth::LEN..Bth::LEN + given.len()].copy_from_slice(given);
        // The words that a guess would hardly hit. Not every service has the operation, and thus
        // its headers.
        let mut at = Bth::LEN;
        let mut put = |at: usize, word: &[u8]| {
            if let Some(place) = bytes[..header].get_mut(at..at + word.len()) {
                place.copy_from_slice(word);
            }
        };
        if choice & 16 == 0 {
            if self.service == Service::Xrc && operation.is_request() {
                put(at, &SRQ.to_be_bytes());
                at += 4;
            }
            if self.service == Service::Ud {
                put(at, &QKEY.to_be_bytes());
            } else if operation.has_feth() {
                at += 4;
            }
            if operation.has_reth() || operation.is_atomic() {
                let region = [OPEN, OPEN, WINDOW, FOREIGN, DST, OPEN, OPEN, OPEN];
                let number = region[usize::from(place & 7)] as u64 + 1;
                let va = BASE * number + u64::from(offset) % (REGION + 16);
                put(at, &va.to_be_bytes());
                put(at + 8, &(0x10 * number as u32 + 1).to_be_bytes());
                if operation.has_reth() && choice & 8 == 0 {
                    put(at + 12, &(len as u32).to_be_bytes());
                }
            }
        }
        self.take(&bytes);
    }

    fn take(&mut self, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        let prefix = || UdPrefix::V6(Grh::default());
        self.with(|qp, now, device| qp.handle_packet(now, &packet, prefix, device));
    }

    /// After ERR everything has ended, and there is nothing more to say.
    fn end(&mut self) {
        self.with(|qp, _, device| qp.fail(device));
        for _ in 0..10_000 {
            if !self.qp.wants_transmit() {
                break;
            }
            self.poll(64, 50_000);
        }
        assert!(!self.qp.wants_transmit(), "ERR has nothing to say");
        assert_eq!(self.qp.next_timeout(), None, "ERR waits for nothing");
        assert_eq!(self.queues.signaled_open(), 0, "sends without an end");
        assert_eq!(self.qp.sends_outstanding(), 0, "sends still queued");
        assert_eq!(self.queues.receives_open(), 0, "receives without an end");
    }
}

/// Any bytes as what a peer sends and an application posts: no panic, nothing is written where that
/// is not granted, and each work request ends once.
pub(crate) fn queue_pair(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut victim = Victim::new(&mut input);
    for _ in 0..300 {
        if input.is_empty() {
            break;
        }
        victim.step(&mut input);
    }
    victim.end();
    assert_eq!(victim.queues.violations, Vec::<String>::new());
    for index in [SRC, FOREIGN] {
        let region = &victim.memory.regions[index];
        let kept = region.bytes.iter().all(|byte| *byte == index as u8);
        assert!(kept, "region {index} changed");
    }
}
