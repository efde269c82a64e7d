//! A peer that may send anything: right, nearly right and absurd packets (behind a good ICRC) into
//! a connected queue pair. Whatever comes, nothing panics, no byte outside granted ranges changes,
//! no completion is lost or doubled, and the queue pair stays within its drive contract.
//!
//! `HOSTILE_PACKETS` sets the number of packets of each seed in the normal run;
//! `ten_million_packets` is the long one.

use crate::support::memory::{Memory, QpDevice, Queues, Region, Rights, Srq};
use crate::support::network;
use crate::support::pair::{Batch, post_fast};
use rnic_transport::{
    AckRequest, BindWindow, Flush, Pd, Placement, Rc, RcAttr, RecvWqe, Role, SendData, SendOp,
    SendWqe, SgList, Sge, Status, Time,
};
use rnic_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Ext, Feth, Ieth, ImmDt, MAX_HEADER_LEN, Opcode, Operation,
    Packet, PathMtu, Psn, Reth, Service, Syndrome, Usual, Xrceth, emit, header_len, pad_len,
};

const REGION: u64 = 64 << 10;
const BASE: u64 = 0x10_0000;
/// Regions in their order; each at `BASE * (index + 1)` with lkey `0x10 * (index + 1)` and the rkey
/// after it.
const SRC: usize = 0;
const DST: usize = 1;
const OPEN: usize = 2;
/// Same domain, no remote rights.
const CLOSED: usize = 3;
/// Every right, in another domain.
const FOREIGN: usize = 4;
/// Every right, deregistered.
const GONE: usize = 5;
/// May be revoked by the peer.
const WINDOW: usize = 6;

/// The SRQs of the XRC domain.
const SRQS: [u32; 2] = [0x51, 0xff_ff52];

struct Victim {
    /// The queue that the peer's last request named.
    srqn: u32,
    executed_xrc: u64,
    rng: fastrand::Rng,
    rc: Rc,
    attr: RcAttr,
    memory: Memory,
    before: Vec<Vec<u8>>,
    queues: Queues,
    now: u64,
    next_wr: u64,
    signaled: u64,
    completed: u64,
    /// The message that the peer is sending: operation kind and bytes to come.
    inbound: Option<(bool, u32)>,
    /// What `inbound` becomes if the packet just made is taken.
    inbound_next: Option<(bool, u32)>,
    /// Packets fed and emitted lately: material for replays and mutations.
    seen: Vec<Vec<u8>>,
    packets: u64,
    deaths: u64,
    executed: u64,
    /// The next packet comes by memory.
    by_memory: bool,
    /// Packets by memory that moved the expected PSN by more than one.
    multi_psn: u64,
    /// Atomics that were executed on the fast path.
    fast: u64,
}

impl Victim {
    fn new(seed: u64) -> Victim {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut memory = Memory::default();
        for index in 0..=WINDOW {
            let number = index as u64 + 1;
            let mut bytes = vec![0; REGION as usize];
            rng.fill(&mut bytes);
            memory.register(Region {
                base: BASE * number,
                bytes,
                lkey: 0x10 * number as u32,
                rkey: 0x10 * number as u32 + 1,
                pd: Pd(if index == FOREIGN { 2 } else { 1 }),
                rights: match index {
                    SRC => Rights::default(),
                    DST | CLOSED => Rights::LOCAL,
                    _ => Rights::ALL,
                },
                invalidatable: index == WINDOW,
                revoked: false,
                unmapped: false,
            });
        }
        memory.deregister(GONE);
        let attr = RcAttr {
            role: Default::default(),
            qpn: 0x11,
            pd: Pd(1),
            dest_qpn: 0x22,
            mtu: PathMtu::M256,
            pkey: 0xffff,
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            timeout: 4,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 1,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            flush: Placement {
                global: true,
                persistent: true,
            },
            window_bytes: 16 << 10,
        };
        let before = memory.regions.iter().map(|r| r.bytes.clone()).collect();
        let mut victim = Victim {
            rng,
            rc: Rc::new(),
            attr,
            memory,
            before,
            queues: Queues::default(),
            now: 0,
            next_wr: 0,
            signaled: 0,
            completed: 0,
            srqn: 0,
            executed_xrc: 0,
            inbound: None,
            inbound_next: None,
            seen: Vec::new(),
            packets: 0,
            deaths: 0,
            executed: 0,
            by_memory: false,
            multi_psn: 0,
            fast: 0,
        };
        victim.connect();
        victim
    }

    /// A fresh connection with attributes of its own.
    fn connect(&mut self) {
        let rng = &mut self.rng;
        self.attr.mtu = PathMtu::ALL[rng.usize(..2)];
        let psn = |rng: &mut fastrand::Rng| {
            let near = [0, 0xff_fff0, 0x7f_fff0][rng.usize(..3)];
            Psn::new(near + rng.u32(..16))
        };
        self.attr.sq_psn = psn(rng);
        self.attr.rq_psn = psn(rng);
        self.attr.max_rd_atomic = rng.u8(1..6);
        self.attr.max_dest_rd_atomic = rng.u8(..8).saturating_sub(u8::from(rng.bool()));
        self.attr.timeout = rng.u8(0..6);
        self.attr.retry_cnt = rng.u8(0..8);
        self.attr.rnr_retry = rng.u8(0..8);
        self.attr.remote_write = rng.u8(..) < 253;
        self.attr.remote_read = rng.u8(..) < 253;
        self.attr.remote_atomic = rng.u8(..) < 253;
        self.attr.flush = Placement {
            global: rng.u8(..) < 253,
            persistent: rng.u8(..) < 253,
        };
        self.attr.role = match rng.u8(..) {
            0..32 => Role::XrcInitiator,
            32..64 => Role::XrcTarget,
            _ => Role::Rc,
        };
        self.queues.shared = self.attr.role == Role::XrcTarget || rng.u8(..) < 64;
        self.queues.forget();
        self.queues.srqs = SRQS.map(|number| (number, Srq::new(Pd(1)))).into();
        self.inbound = None;
        self.rc.reset();
        self.rc.receive_ready(self.attr);
        self.rc.send_ready(self.attr);
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Rc, Time, &mut QpDevice<'_>) -> R) -> R {
        self.with_packet(None, f)
    }

    fn with_packet<R>(
        &mut self,
        packet: Option<&[u8]>,
        f: impl FnOnce(&mut Rc, Time, &mut QpDevice<'_>) -> R,
    ) -> R {
        let mut device = QpDevice {
            memory: &mut self.memory,
            queues: &mut self.queues,
            packet,
        };
        f(&mut self.rc, Time(self.now), &mut device)
    }

    /// One thing happens.
    fn step(&mut self) {
        match self.rng.u8(..) {
            0..=169 => self.feed(),
            170..=199 => self.poll(),
            200..=219 => self.post_receive(),
            220..=239 => self.post_send(),
            240..=253 => self.pass_time(),
            254 => {
                if self.rng.u8(..) < 16 {
                    self.with(|rc, _, device| rc.fail(device));
                }
            }
            255 => {
                // Memory comes and goes under a connection.
                let index = [DST, OPEN, SRC][self.rng.usize(..3)];
                let region = &mut self.memory.regions[index];
                region.unmapped = !region.unmapped && self.rng.u8(..) < 32;
            }
        }
        if self.rc.is_error() {
            self.bury();
        }
    }

    /// After ERR everything has ended; then life begins anew.
    fn bury(&mut self) {
        // What was executed before is answered, and then comes the NAK.
        for _ in 0..100_000 {
            if !self.rc.wants_transmit() {
                break;
            }
            self.poll();
        }
        assert!(
            !self.rc.wants_transmit(),
            "ERR has nothing to say after its NAK"
        );
        assert_eq!(self.rc.next_timeout(), None, "ERR waits for nothing");
        assert_eq!(self.queues.signaled_open(), 0, "sends without an end");
        assert_eq!(self.rc.sends_outstanding(), 0, "sends still queued");
        assert_eq!(self.queues.receives_open(), 0, "receives without an end");
        assert!(self.queues.shared || self.queues.receives.is_empty());
        for _ in 0..self.rng.usize(..4) {
            self.feed();
        }
        assert!(!self.rc.wants_transmit(), "ERR answers");
        self.deaths += 1;
        self.audit();
        self.connect();
    }

    /// The ledgers are clean and nothing changed that nobody may change.
    fn audit(&mut self) {
        assert_eq!(self.queues.violations, Vec::<String>::new());
        for index in [SRC, CLOSED, FOREIGN, GONE] {
            assert!(
                self.memory.regions[index].bytes == self.before[index],
                "region {index} changed"
            );
        }
        let successes = |list: &[rnic_transport::Completion]| {
            list.iter().filter(|c| c.status == Status::Success).count() as u64
        };
        let executed = successes(&self.queues.recv_completions);
        self.executed += executed;
        if self.attr.role == Role::XrcTarget {
            self.executed_xrc += executed;
        }
        self.completed += successes(&self.queues.send_completions);
        self.queues.send_completions.clear();
        self.queues.recv_completions.clear();
        self.queues.recv_from.clear();
        self.queues.events.clear();
        self.queues.effects.clear();
        for region in &mut self.memory.regions {
            (region.revoked, region.unmapped) = (false, false);
        }
    }

    fn post_receive(&mut self) {
        let srq = match self.attr.role {
            Role::XrcInitiator => return,
            Role::XrcTarget => Some(SRQS[self.rng.usize(..2)]),
            Role::Rc => None,
        };
        if self.queues.posted(srq) > 8 {
            return;
        }
        let wr_id = self.wr();
        let pieces = self.rng.usize(..12);
        let sges = (0..pieces).map(|_| self.sge(DST)).collect();
        self.queues.post_receive(srq, RecvWqe { wr_id, sges });
    }

    fn wr(&mut self) -> u64 {
        self.next_wr += 1;
        self.next_wr
    }

    /// A piece of a region; rarely of one that must not be used, or past its end.
    fn sge(&mut self, region: usize) -> Sge {
        let rng = &mut self.rng;
        let region = if rng.u16(..) < 32 {
            [SRC, OPEN, FOREIGN, GONE][rng.usize(..4)]
        } else {
            region
        };
        let number = region as u64 + 1;
        let length = rng.u32(..700);
        let offset = if rng.u16(..) < 32 {
            rng.u64(..)
        } else {
            rng.u64(..REGION - 700)
        };
        Sge {
            addr: (BASE * number).wrapping_add(offset),
            length,
            lkey: 0x10 * number as u32,
        }
    }

    fn post_send(&mut self) {
        if self.rc.sends_outstanding() > 8 || self.attr.role == Role::XrcTarget {
            return;
        }
        let wr_id = self.wr();
        let (remote_addr, rkey) = (self.rng.u64(..), self.rng.u32(..));
        let (a, b) = (self.rng.u64(..), self.rng.u64(..));
        let imm = self.rng.u32(..).to_be_bytes();
        let op = match self.rng.u8(..82) {
            64 => SendOp::BindWindow(BindWindow {
                rkey,
                lkey: self.sge(SRC).lkey,
                addr: a,
                length: b,
                read: true,
                write: true,
                atomic: true,
                zero_based: false,
            }),
            65 => SendOp::LocalInvalidate(rkey),
            66..74 => SendOp::AtomicWrite { remote_addr, rkey },
            74.. => SendOp::Flush(Flush {
                remote_addr,
                rkey,
                length: if self.rng.u8(..) < 250 { a >> 34 } else { a },
                whole_region: self.rng.bool(),
                placement: Placement {
                    global: self.rng.bool(),
                    persistent: self.rng.bool(),
                },
            }),
            0..8 => SendOp::Send,
            8..16 => SendOp::SendImm(imm),
            16..24 => SendOp::SendInvalidate(rkey),
            24..32 => SendOp::Write { remote_addr, rkey },
            32..40 => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            40..48 => SendOp::Read { remote_addr, rkey },
            48..56 => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: a,
                swap: b,
            },
            _ => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: a,
            },
        };
        let atomic = matches!(op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
        let list: SgList = if let SendOp::AtomicWrite { .. } = op {
            let mut sge = self.sge(SRC);
            sge.length = 8;
            [sge].into_iter().collect()
        } else if atomic {
            let mut sge = self.sge(DST);
            sge.length = 8;
            [sge].into_iter().collect()
        } else {
            let region = if op.is_read_or_atomic() { DST } else { SRC };
            (0..self.rng.usize(..4)).map(|_| self.sge(region)).collect()
        };
        let inline = !op.is_read_or_atomic() && self.rng.u8(..) < 32;
        let data = if inline {
            SendData::Inline((0..self.rng.u8(..100)).collect())
        } else {
            SendData::Gather(list)
        };
        let wqe = SendWqe {
            srqn: self.rng.u32(..) & 0xff_ffff,
            wr_id,
            op,
            data,
            signaled: self.rng.bool(),
            solicited: self.rng.bool(),
            fence: self.rng.u8(..) < 32,
        };
        self.signaled += u64::from(wqe.signaled);
        if self.rng.bool() {
            return self.with(|rc, _, device| {
                device.queues.note_send(&wqe);
                rc.post_send(wqe);
            });
        }
        let mut batch = Batch::new(self.rng.usize(..2));
        self.with(|rc, now, device| {
            device.queues.note_send(&wqe);
            post_fast(rc, now, wqe, AckRequest::Now, device, &mut batch);
        });
        self.emitted(batch);
    }

    fn poll(&mut self) {
        let (capacity, budget) = (self.rng.usize(1..64), self.rng.usize(1..50_000));
        let mut batch = Batch::new(capacity);
        if self.rng.bool() {
            batch.most_payload = Some(self.rng.usize(..5000));
        }
        let wanted = self.rc.wants_transmit();
        let fast = self.rng.bool();
        self.with(|rc, now, device| {
            let said = fast
                && (rc.acknowledge_fast(device, &mut batch) || rc.answer_fast(device, &mut batch));
            if !said {
                rc.poll_transmit(now, device, &mut batch, budget);
            }
        });
        assert!(
            wanted || batch.packets.is_empty(),
            "emitted without wanting to"
        );
        self.emitted(batch);
    }

    fn emitted(&mut self, batch: Batch) {
        for bytes in batch.packets {
            if let Err(rule) = network::lint(
                &bytes,
                self.attr.mtu,
                batch.most_payload,
                self.attr.pkey,
                self.attr.dest_qpn,
            ) {
                panic!("emitted {rule}");
            }
            self.remember(bytes);
        }
    }

    fn remember(&mut self, bytes: Vec<u8>) {
        if self.seen.len() < 64 {
            self.seen.push(bytes);
        } else {
            let at = self.rng.usize(..64);
            self.seen[at] = bytes;
        }
    }

    fn pass_time(&mut self) {
        self.now += self.rng.u64(..100_000);
        if self.rc.next_timeout().is_some_and(|at| at.0 <= self.now) {
            self.with(|rc, now, device| rc.handle_timeout(now, device));
            let next = self.rc.next_timeout();
            assert!(next.is_none_or(|at| at.0 > self.now), "fired and still due");
        }
    }

    /// A packet comes: mostly one that could be right, so that the absurd ones meet every state.
    fn feed(&mut self) {
        self.inbound_next = self.inbound;
        self.by_memory = self.rng.u8(..) < 64;
        let mut bytes = match self.rng.u8(..) {
            0..=119 => self.request(),
            120..=219 => self.response(),
            220..=252 if !self.seen.is_empty() => {
                let at = self.rng.usize(..self.seen.len());
                self.seen[at].clone()
            }
            _ => {
                let mut bytes = vec![0; self.rng.usize(..600)];
                self.rng.fill(&mut bytes);
                if let Some(opcode) = bytes.first_mut() {
                    *opcode &= 0x1f;
                }
                if let Some(flags) = bytes.get_mut(1) {
                    *flags &= 0xf0;
                }
                bytes
            }
        };
        if self.rng.u8(..) < 8 {
            self.mutate(&mut bytes);
        }
        // By memory the payload may be anywhere, as long as the peer says, and gone.
        let by_memory = self.by_memory;
        let gone = self.rng.u8(..) < 8;
        let parsed = if by_memory {
            let front = &bytes[..bytes.len().min(MAX_HEADER_LEN)];
            let said = match self.rng.u8(..) {
                0 => self.rng.usize(..),
                _ => bytes.len(),
            };
            // What is not there cannot be had.
            let theirs = match self.rng.u8(..) {
                0..16 => PathMtu::ALL[self.rng.usize(..5)],
                _ => self.attr.mtu,
            };
            Packet::parse_front(front, said, theirs).map(|packet| (packet, said > bytes.len()))
        } else {
            Packet::parse(&bytes).map(|packet| (packet, false))
        };
        let Ok((packet, absurd)) = parsed else {
            return;
        };
        self.packets += 1;
        let expected = self.rc.rq_psn();
        let detached = (!gone && !absurd).then_some(&bytes[..]);
        let usual = Usual::parse(&bytes).filter(|_| !by_memory && self.rng.bool());
        let fast = self.with_packet(detached, |rc, now, device| {
            let fast = usual.is_some_and(|(bth, usual)| rc.take_fast(now, &bth, usual, device));
            if !fast {
                rc.handle_packet(now, &packet, device);
            }
            fast
        });
        self.fast += u64::from(fast && packet.ext.atomic.is_some());
        self.multi_psn += u64::from(
            by_memory && !self.rc.is_error() && self.rc.rq_psn().distance_from(expected) > 1,
        );
        if self.rc.rq_psn() != expected {
            self.inbound = self.inbound_next;
        }
        self.remember(bytes);
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        for _ in 0..self.rng.usize(1..4) {
            // Headers are where it hurts.
            let span = if self.rng.bool() {
                bytes.len().min(40)
            } else {
                bytes.len()
            };
            let at = self.rng.usize(..span);
            match self.rng.u8(..4) {
                0 => bytes[at] ^= 1 << self.rng.u8(..8),
                1 => bytes[at] = self.rng.u8(..),
                2 => bytes[at] = [0, 0xff, 0x7f, 0x80][self.rng.usize(..4)],
                _ if at > 12 => bytes.truncate(at),
                _ => {}
            }
        }
    }

    fn build(&mut self, operation: Operation, psn: Psn, ext: &Ext, len: usize) -> Vec<u8> {
        let service = match (self.attr.role, self.rng.u8(..)) {
            (_, 0) => [Service::Rc, Service::Xrc][self.rng.usize(..2)],
            (Role::Rc, _) => Service::Rc,
            _ => Service::Xrc,
        };
        // All packets of a message mostly name the same queue, and one that there is.
        if self.inbound.is_none() || self.rng.u8(..) == 0 {
            self.srqn = SRQS[self.rng.usize(..2)];
        }
        if self.rng.u16(..) < 64 {
            self.srqn = self.rng.u32(..) & 0xff_ffff;
        }
        let mut ext = *ext;
        if service == Service::Xrc && operation.is_request() {
            ext.xrceth = Some(Xrceth { srqn: self.srqn });
        }
        let bth = Bth {
            opcode: Opcode::new(service, operation),
            solicited: self.rng.bool(),
            pad: pad_len(len),
            pkey: self.attr.pkey,
            dest_qp: self.attr.qpn,
            ack_req: self.rng.bool(),
            psn,
            ..Bth::default()
        };
        let header = header_len(bth.opcode);
        let mut bytes = vec![0; header + len + usize::from(pad_len(len))];
        self.rng.fill(&mut bytes[header..]);
        emit(&bth, &ext, &mut bytes);
        bytes
    }

    /// A PSN near `psn`, mostly itself.
    fn near(&mut self, psn: Psn) -> Psn {
        match self.rng.u8(..) {
            0..=199 => psn,
            200..=225 => psn.sub(self.rng.u32(..8)),
            226..=250 => psn.add(self.rng.u32(..8)),
            251..=253 => psn.add(0x80_0000 - 4 + self.rng.u32(..8)),
            _ => Psn::new(self.rng.u32(..)),
        }
    }

    fn target(&mut self, len: u64) -> (u64, u32) {
        let rng = &mut self.rng;
        let region = match rng.u8(..) {
            0..=251 => OPEN,
            252..=253 => WINDOW,
            _ => rng.usize(..=WINDOW),
        };
        let number = region as u64 + 1;
        let offset = match rng.u8(..) {
            0..=252 => rng.u64(..=REGION.saturating_sub(len)),
            253..=254 => REGION - rng.u64(..8),
            _ => rng.u64(..),
        };
        (
            (BASE * number).wrapping_add(offset),
            0x10 * number as u32 + 1,
        )
    }

    /// Payload of a full packet of the peer.
    fn packet_size(&mut self) -> usize {
        let psns = if self.by_memory {
            self.rng.usize(1..6)
        } else {
            1
        };
        psns * self.attr.mtu.bytes()
    }

    /// A request that continues the peer's message or starts one.
    fn request(&mut self) -> Vec<u8> {
        use Operation::*;
        let mtu = self.packet_size() as u32;
        let expected = self.rc.rq_psn();
        let psn = self.near(expected);
        let mut ext = Ext {
            imm: Some(ImmDt(self.rng.u32(..).to_be_bytes())),
            ieth: Some(Ieth {
                rkey: if self.rng.u8(..) < 240 {
                    0x10 * (WINDOW as u32 + 1) + 1
                } else {
                    self.rng.u32(..)
                },
            }),
            ..Ext::default()
        };
        let (operation, len) = match self.inbound {
            Some((write, left)) if self.rng.u8(..) < 254 => {
                let last = left <= mtu;
                let choice = self.rng.usize(..3);
                let operation = match (write, last) {
                    (false, false) => SendMiddle,
                    (false, true) => [SendLast, SendLastImm, SendLastInvalidate][choice],
                    (true, false) => WriteMiddle,
                    (true, true) => [WriteLast, WriteLastImm, WriteLast][choice],
                };
                self.inbound_next = (!last).then(|| (write, left - mtu));
                (operation, left.min(mtu))
            }
            _ => {
                let len = match self.rng.u8(..8) {
                    0 => 0,
                    1..=4 => self.rng.u32(..=mtu),
                    _ => self.rng.u32(..2000),
                };
                let choice = self.rng.usize(..3);
                let operation = match self.rng.u8(..12) {
                    0..=2 if len > mtu => SendFirst,
                    0..=2 => [SendOnly, SendOnlyImm, SendOnlyInvalidate][choice],
                    3..=5 if len > mtu => WriteFirst,
                    3..=5 => [WriteOnly, WriteOnlyImm, WriteOnly][choice],
                    6..=7 => ReadRequest,
                    8 => CompareSwap,
                    9 => FetchAdd,
                    10 => AtomicWrite,
                    _ => Flush,
                };
                self.inbound_next = operation
                    .is_first()
                    .then(|| (operation == WriteFirst, len - mtu));
                let (va, rkey) = self.target(u64::from(len).max(8));
                ext.reth = Some(Reth {
                    va,
                    rkey,
                    dma_len: match self.rng.u8(..) {
                        0..=252 => len,
                        253..=254 => len.wrapping_add(self.rng.u32(..3)).wrapping_sub(1),
                        _ => self.rng.u32(..),
                    },
                });
                if operation == AtomicWrite && self.rng.u8(..) < 250 {
                    ext.reth = Some(Reth {
                        va: va & !7,
                        rkey,
                        dma_len: 8,
                    });
                }
                ext.feth = Some(match self.rng.u8(..) {
                    0..=249 => Feth {
                        placement: self.rng.u8(1..4),
                        selectivity: self.rng.u8(..2),
                    },
                    _ => Feth {
                        placement: self.rng.u8(..16),
                        selectivity: self.rng.u8(..4),
                    },
                });
                let aligned = self.rng.u8(..) < 253;
                ext.atomic = Some(AtomicEth {
                    va: if aligned { va & !7 } else { va },
                    rkey,
                    swap_or_add: self.rng.u64(..),
                    compare: self.rng.u64(..),
                });
                let payload = if operation == AtomicWrite {
                    8
                } else if operation.has_payload() {
                    len.min(mtu)
                } else {
                    0
                };
                (operation, payload)
            }
        };
        let len = match self.rng.u8(..) {
            0..=252 => len as usize,
            253 => len as usize + 1,
            254 => (len as usize).saturating_sub(1),
            _ => self.rng.usize(..5000),
        };
        let ext = only(operation, ext);
        self.build(operation, psn, &ext, len)
    }

    /// An answer to something that is in flight, or might have been.
    fn response(&mut self) -> Vec<u8> {
        use Operation::*;
        // The request that it answers, mostly one that was really sent.
        let request = self
            .seen
            .iter()
            .rev()
            .filter_map(|bytes| Packet::parse(bytes).ok())
            .filter(|p| p.bth.dest_qp == self.attr.dest_qpn)
            .nth(self.rng.usize(..3))
            .map(|p| (p.bth.psn, p.bth.opcode.operation(), p.ext.reth));
        let mtu = self.packet_size();
        let (psn, operation, len) = match request {
            Some((psn, Some(ReadRequest), Some(reth))) if self.rng.u8(..) < 230 => {
                let len = reth.dma_len as usize;
                let packets = len.div_ceil(mtu).max(1);
                let psns = mtu / self.attr.mtu.bytes();
                let k = self.rng.usize(..packets.min(6));
                let operation = match (k, k + 1 == packets) {
                    (0, true) => ReadResponseOnly,
                    (0, false) => ReadResponseFirst,
                    (_, false) => ReadResponseMiddle,
                    (_, true) => ReadResponseLast,
                };
                let psn = psn.add((k * psns) as u32);
                (psn, operation, (len - k * mtu).min(mtu))
            }
            Some((psn, Some(AtomicWrite | Flush), _)) if self.rng.u8(..) < 230 => {
                (psn, ReadResponseOnly, 0)
            }
            Some((psn, Some(CompareSwap | FetchAdd), _)) if self.rng.u8(..) < 230 => {
                (psn, AtomicAcknowledge, 0)
            }
            Some((psn, ..)) => {
                let operation = if self.rng.u8(..) < 230 {
                    Acknowledge
                } else {
                    [
                        ReadResponseFirst,
                        ReadResponseMiddle,
                        ReadResponseLast,
                        ReadResponseOnly,
                        AtomicAcknowledge,
                    ][self.rng.usize(..5)]
                };
                let len = if operation.has_payload() {
                    self.rng.usize(..=mtu)
                } else {
                    0
                };
                (psn, operation, len)
            }
            None => (self.rc.sq_psn(), Acknowledge, 0),
        };
        let psn = self.near(psn);
        let syndrome = match self.rng.u8(..) {
            0..=219 => Syndrome::Ack {
                credits: self.rng.u8(..32),
            },
            220..=235 => Syndrome::RnrNak {
                timer: self.rng.u8(1..8),
            },
            236..=250 => Syndrome::from_u8(0x60),
            _ => Syndrome::from_u8(self.rng.u8(..)),
        };
        let ext = Ext {
            aeth: Some(Aeth {
                syndrome,
                msn: self.rng.u32(..),
            }),
            atomic_ack: Some(AtomicAckEth {
                original: self.rng.u64(..),
            }),
            ..Ext::default()
        };
        let ext = only(operation, ext);
        self.build(operation, psn, &ext, len)
    }
}

/// The headers that `operation` has, of those given.
fn only(operation: Operation, ext: Ext) -> Ext {
    use Operation::*;
    Ext {
        feth: ext.feth.filter(|_| operation.has_feth()),
        reth: ext.reth.filter(|_| operation.has_reth()),
        aeth: ext.aeth.filter(|_| operation.has_aeth()),
        atomic: ext.atomic.filter(|_| operation.is_atomic()),
        atomic_ack: ext.atomic_ack.filter(|_| operation == AtomicAcknowledge),
        imm: ext.imm.filter(|_| operation.has_immediate()),
        ieth: ext
            .ieth
            .filter(|_| matches!(operation, SendLastInvalidate | SendOnlyInvalidate)),
        ..Ext::default()
    }
}

fn attack(seed: u64, packets: u64) -> Victim {
    let mut victim = Victim::new(seed);
    while victim.packets < packets {
        victim.step();
    }
    // The end: everything that was posted ends.
    victim.with(|rc, _, device| rc.fail(device));
    victim.bury();
    victim
}

/// The attack must reach deep states, or it shows nothing.
fn must_have_happened(victim: &Victim) {
    let packets = victim.packets;
    let counters = victim.rc.counters();
    let enough = [
        ("deaths", victim.deaths, packets / 5_000),
        ("receives filled", victim.executed, packets / 500),
        ("multi-PSN packets", victim.multi_psn, packets / 500),
        ("atomics fast", victim.fast, packets / 500),
        ("XRC receives", victim.executed_xrc, packets / 10_000),
        ("sends completed", victim.completed, packets / 500),
        ("duplicates", counters.duplicates_received, packets / 500),
        ("gaps", counters.out_of_sequence, packets / 500),
        ("RNR NAKs", counters.rnr_naks_sent, packets / 5_000),
        (
            "retransmissions",
            counters.retransmitted_packets,
            packets / 5_000,
        ),
        ("access NAKs", counters.access_naks_sent, packets / 50_000),
        ("invalid NAKs", counters.invalid_naks_sent, packets / 50_000),
    ];
    for (what, count, least) in enough {
        assert!(count > least, "only {count} {what} in {packets} packets");
    }
    assert!(
        victim.deaths < packets / 20,
        "{} connections for {packets} packets: none lives long",
        victim.deaths
    );
}

/// Ten million packets, or `HOSTILE_PACKETS`.
#[test]
fn whatever_comes_nothing_breaks() {
    const CONNECTIONS: u64 = 10;
    let packets = std::env::var("HOSTILE_PACKETS")
        .ok()
        .map_or(10_000_000, |t| {
            t.parse().expect("HOSTILE_PACKETS is a number")
        });
    std::thread::scope(|scope| {
        for seed in 0..CONNECTIONS {
            scope.spawn(move || must_have_happened(&attack(seed, packets / CONNECTIONS)));
        }
    });
}
