//! One queue pair on a bench: a test plays its peer, packet by packet.

use super::{Rc, RcAttr};
use crate::{
    AckRequest, Address, AtomicOp, BindFault, BindWindow, Completion, Device, Evidence, Immediate,
    LocalFault, OneSided, PacketSink, Pd, Placement, QpEvent, RecvWqe, RemoteAccess, RemoteFault,
    SendData, SendOp, SendWqe, SgList, Sge, ShortData, ShortSend, Status, Time,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use rnic_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Ext, Ieth, ImmDt, NakCode, Opcode, Operation, Packet,
    PathMtu, Psn, Reth, Service, Syndrome,
};

/// Where the one memory region starts, and its keys.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const LKEY: u32 = 11;
pub(crate) const RKEY: u32 = 22;
pub(crate) const MTU: usize = 256;
/// First PSN of both directions: every test wraps the circle unless it is very short.
pub(crate) const SQ_PSN: u32 = 0xff_fffe;
pub(crate) const RQ_PSN: u32 = 0xff_fffd;

/// A device with one region of memory.
pub(crate) struct Bench {
    pub(crate) memory: Vec<u8>,
    pub(crate) receives: VecDeque<RecvWqe>,
    pub(crate) srq: bool,
    pub(crate) remote_key_revoked: bool,
    pub(crate) sends: Vec<Completion>,
    pub(crate) recvs: Vec<Completion>,
    pub(crate) events: Vec<QpEvent>,
    pub(crate) atomics_executed: usize,
    /// Binds and local invalidates, by rkey; those of `refused_key` fail.
    pub(crate) local: Vec<u32>,
    pub(crate) refused_key: u32,
    /// Local memory cannot be read for the moment, though its key is good (on-demand paging).
    pub(crate) unreadable: bool,
    pub(crate) evidence: Vec<Evidence>,
    /// XRC: all SRQs are another process's.
    pub(crate) srq_is_remote: bool,
    /// And the bytes of its memory have been fetched.
    pub(crate) at_hand: bool,
    /// Parts of WRITEs and READs that are executed without packets before they are refused; `None`:
    /// nobody even asks.
    pub(crate) reach: Option<usize>,
    /// And it is known before.
    pub(crate) known: bool,
    /// Those that were: a WRITE?, where at the peer, bytes that lie before, bytes.
    pub(crate) executed: Vec<(bool, u64, u64, u32)>,
    /// How many were asked for at once, where it was in a row.
    pub(crate) rows: Vec<usize>,
}

impl Bench {
    fn range(addr: u64, len: usize, size: usize) -> Option<core::ops::Range<usize>> {
        let start = usize::try_from(addr.checked_sub(BASE)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= size).then_some(start..end)
    }

    fn local(
        &self,
        lkey: u32,
        addr: u64,
        len: usize,
    ) -> Result<core::ops::Range<usize>, LocalFault> {
        if lkey != LKEY {
            return Err(LocalFault::UnknownKey);
        }
        Bench::range(addr, len, self.memory.len()).ok_or(LocalFault::OutOfRange)
    }

    fn remote(
        &self,
        rkey: u32,
        va: u64,
        len: usize,
    ) -> Result<core::ops::Range<usize>, RemoteFault> {
        if rkey != RKEY || self.remote_key_revoked {
            return Err(RemoteFault::UnknownKey);
        }
        Bench::range(va, len, self.memory.len()).ok_or(RemoteFault::OutOfRange)
    }
}

impl Device for Bench {
    fn check_local(&self, _: Pd, sge: &Sge, _: bool) -> Result<(), LocalFault> {
        self.local(sge.lkey, sge.addr, sge.length as usize)
            .map(|_| ())
    }

    fn read_local(&self, _: Pd, lkey: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault> {
        let range = self.local(lkey, addr, out.len())?;
        if self.unreadable {
            return Err(LocalFault::OutOfRange);
        }
        out.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn write_local(&mut self, _: Pd, lkey: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault> {
        let range = self.local(lkey, addr, data.len())?;
        self.memory[range].copy_from_slice(data);
        Ok(())
    }

    fn may_execute(&self) -> bool {
        self.reach.is_some()
    }

    fn would_execute(&self, _: &OneSided<'_>) -> bool {
        self.known
    }

    fn execute(&mut self, part: &OneSided<'_>) -> bool {
        let Some(left) = self.reach.and_then(|left| left.checked_sub(1)) else {
            return false;
        };
        assert_eq!((part.pd, part.dest_qpn), (Pd(1), 0x42));
        let behind = part.offset + u64::from(part.len);
        assert!(behind <= part.data.len());
        assert_eq!(part.ends, behind == part.data.len());
        self.reach = Some(left);
        self.executed
            .push((part.write, part.va, part.offset, part.len));
        true
    }

    fn execute_row(&mut self, parts: &[OneSided<'_>]) -> usize {
        self.rows.push(parts.len());
        parts.iter().take_while(|part| self.execute(part)).count()
    }

    fn check_remote(
        &self,
        _: Pd,
        rkey: u32,
        va: u64,
        len: u64,
        _: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        assert_ne!(len, 0, "not asked for empty operations");
        self.remote(rkey, va, len as usize).map(|_| ())
    }

    fn read_remote(&self, _: Pd, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        let range = self.remote(rkey, va, out.len())?;
        out.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn write_remote(&mut self, _: Pd, rkey: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault> {
        let range = self.remote(rkey, va, data.len())?;
        self.memory[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic_write(
        &mut self,
        pd: Pd,
        rkey: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), RemoteFault> {
        self.write_remote(pd, rkey, va, &value)
    }

    fn flush(
        &mut self,
        _: Pd,
        rkey: u32,
        range: Option<(u64, u32)>,
        _: Placement,
    ) -> Result<(), RemoteFault> {
        let (va, len) = range.unwrap_or((BASE, 0));
        self.remote(rkey, va, len as usize).map(drop)
    }

    fn atomic(&mut self, _: Pd, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, RemoteFault> {
        let range = self.remote(rkey, va, 8)?;
        let cell: &mut [u8; 8] = (&mut self.memory[range]).try_into().unwrap();
        let old = u64::from_ne_bytes(*cell);
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        };
        *cell = new.to_ne_bytes();
        self.atomics_executed += 1;
        Ok(old)
    }

    fn invalidate(&mut self, _: Pd, _: u32, rkey: u32) -> Result<(), RemoteFault> {
        self.remote(rkey, BASE, 0)?;
        self.remote_key_revoked = true;
        Ok(())
    }

    fn bind_window(&mut self, _: Pd, _: u32, bind: &BindWindow) -> Result<(), BindFault> {
        self.local_invalidate(Pd(0), 0, bind.rkey)
    }

    fn local_invalidate(&mut self, _: Pd, _: u32, rkey: u32) -> Result<(), BindFault> {
        if rkey == self.refused_key {
            return Err(BindFault::UnknownWindow);
        }
        self.local.push(rkey);
        Ok(())
    }

    fn select_srq(&mut self, _: u32) -> Option<Pd> {
        (!self.srq_is_remote).then_some(Pd(1))
    }

    fn is_remote_srq(&mut self, _: u32) -> bool {
        self.srq_is_remote
    }

    fn is_at_hand(&mut self, pd: Pd, _: u32, _: u64, _: u32, _: u32) -> bool {
        self.at_hand || pd.remote_srq().is_none()
    }

    fn take_receive(&mut self) -> Option<RecvWqe> {
        self.receives.pop_front()
    }

    fn next_receive(&self) -> Option<&RecvWqe> {
        self.receives.front().filter(|_| !self.srq)
    }

    fn return_receive(&mut self, wqe: RecvWqe) {
        self.receives.push_front(wqe);
    }

    fn receives_posted(&self) -> Option<u32> {
        (!self.srq).then_some(self.receives.len() as u32)
    }

    fn evidence(&mut self, evidence: &Evidence) {
        self.evidence.push(*evidence);
    }

    fn complete_send(&mut self, completion: Completion) {
        self.sends.push(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.recvs.push(completion);
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }
}

/// Collects packets; refuses when it holds `room`.
pub(crate) struct Sink {
    pub(crate) packets: Vec<Vec<u8>>,
    pub(crate) room: usize,
}

impl PacketSink for Sink {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.packets.len() == self.room {
            return None;
        }
        // What was not written shows.
        self.packets.push(vec![0xee; len]);
        self.packets.last_mut().map(Vec::as_mut_slice)
    }

    fn packet_to(&mut self, _: &Address, len: usize) -> Option<&mut [u8]> {
        self.packet(len)
    }

    fn send_short(&mut self, packet: &[u8]) -> bool {
        let room = self.packet(packet.len());
        room.map(|room| room.copy_from_slice(packet)).is_some()
    }

    fn retract(&mut self) {
        self.packets.pop();
    }
}

impl Sink {
    /// The packets, taken apart.
    fn sent(&self) -> Vec<Sent> {
        self.packets
            .iter()
            .map(|bytes| {
                let packet = Packet::parse(bytes).expect("a valid packet");
                assert_eq!(bytes.len() % 4, 0);
                assert!(
                    bytes.ends_with(&[0; 3][..usize::from(packet.bth.pad)]),
                    "pad bytes are zero"
                );
                assert_eq!(packet.bth.dest_qp, 0x42);
                Sent {
                    operation: packet.bth.opcode.operation().expect("an operation"),
                    bth: packet.bth,
                    ext: packet.ext,
                    payload: packet.payload.here().to_vec(),
                }
            })
            .collect()
    }
}

/// A packet that the queue pair sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) operation: Operation,
    pub(crate) bth: Bth,
    pub(crate) ext: Ext,
    pub(crate) payload: Vec<u8>,
}

impl Sent {
    /// Operation and PSN: what most tests look at.
    pub(crate) fn brief(&self) -> (Operation, u32) {
        (self.operation, self.bth.psn.value())
    }

    pub(crate) fn syndrome(&self) -> Syndrome {
        self.ext.aeth.expect("an answer with AETH").syndrome
    }
}

pub(crate) fn brief(sent: &[Sent]) -> Vec<(Operation, u32)> {
    sent.iter().map(Sent::brief).collect()
}

/// A queue pair, its device and the time.
pub(crate) struct Fixture {
    pub(crate) rc: Rc,
    pub(crate) bench: Bench,
    pub(crate) now: Time,
    next_wr_id: u64,
}

pub(crate) fn attr() -> RcAttr {
    RcAttr {
        role: crate::Role::Rc,
        qpn: 0x17,
        pd: Pd(1),
        dest_qpn: 0x42,
        mtu: PathMtu::M256,
        pkey: 0xffff,
        sq_psn: Psn::new(SQ_PSN),
        rq_psn: Psn::new(RQ_PSN),
        timeout: 10,
        retry_cnt: 3,
        rnr_retry: 3,
        min_rnr_timer: 12,
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        remote_write: true,
        remote_read: true,
        remote_atomic: true,
        flush: Placement {
            global: true,
            persistent: true,
        },
        window_bytes: 1 << 16,
    }
}

/// PSN of the `n`-th packet this side sends.
pub(crate) fn sq(n: u32) -> u32 {
    Psn::new(SQ_PSN).add(n).value()
}

/// PSN of the `n`-th packet of the peer.
pub(crate) fn rq(n: u32) -> u32 {
    Psn::new(RQ_PSN).add(n).value()
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::with(attr())
    }

    pub(crate) fn with(attr: RcAttr) -> Fixture {
        let memory = (0..64 * 1024u32)
            .map(|i| (i.wrapping_mul(31) >> 3) as u8)
            .collect();
        let bench = Bench {
            memory,
            receives: VecDeque::new(),
            srq: false,
            remote_key_revoked: false,
            sends: Vec::new(),
            recvs: Vec::new(),
            events: Vec::new(),
            atomics_executed: 0,
            local: Vec::new(),
            refused_key: 0,
            unreadable: false,
            evidence: Vec::new(),
            srq_is_remote: false,
            at_hand: false,
            reach: None,
            known: false,
            executed: Vec::new(),
            rows: Vec::new(),
        };
        let mut rc = Rc::new();
        rc.receive_ready(attr);
        rc.send_ready(attr);
        Fixture {
            rc,
            bench,
            now: Time(1000),
            next_wr_id: 0,
        }
    }

    /// Posts a signaled WQE over `len` bytes at the start of memory; returns its wr_id.
    pub(crate) fn post(&mut self, op: SendOp, len: u32) -> u64 {
        self.post_with(op, len, |_| {})
    }

    pub(crate) fn post_with(
        &mut self,
        op: SendOp,
        len: u32,
        change: impl FnOnce(&mut SendWqe),
    ) -> u64 {
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        let sges = SgList::from_slice(&[Sge {
            addr: BASE,
            length: len,
            lkey: LKEY,
        }]);
        let data = SendData::Gather(sges);
        let mut wqe = SendWqe {
            srqn: 0,
            wr_id,
            op,
            data,
            signaled: true,
            solicited: false,
            fence: false,
        };
        change(&mut wqe);
        self.rc.post_send(wqe);
        wr_id
    }

    pub(crate) fn post_receive(&mut self, wr_id: u64, sges: &[Sge]) {
        self.bench.receives.push_back(RecvWqe {
            wr_id,
            sges: SgList::from_slice(sges),
        });
    }

    /// Everything the queue pair wants to send now.
    pub(crate) fn poll(&mut self) -> Vec<Sent> {
        let sent = self.poll_some(usize::MAX, usize::MAX);
        assert!(
            !self.rc.wants_transmit(),
            "polled dry, and still wants to send"
        );
        sent
    }

    pub(crate) fn poll_some(&mut self, budget: usize, room: usize) -> Vec<Sent> {
        let mut sink = Sink {
            packets: Vec::new(),
            room,
        };
        self.rc
            .poll_transmit(self.now, &mut self.bench, &mut sink, budget);
        sink.sent()
    }

    /// Posts a SEND of `len` bytes that need not ask for an acknowledge. What left at once; `None`:
    /// it is not queued.
    pub(crate) fn post_short(&mut self, len: u32, signaled: bool) -> Option<Sent> {
        let short = ShortSend {
            wr_id: self.next_wr_id,
            data: ShortData::Registered(Sge {
                addr: BASE,
                length: len,
                lkey: LKEY,
            }),
            signaled,
            solicited: false,
        };
        self.next_wr_id += 1;
        let mut sink = Sink {
            packets: Vec::new(),
            room: 1,
        };
        let (rc, bench) = (&mut self.rc, &self.bench);
        rc.post_short(self.now, &short, AckRequest::Later, bench, &mut sink)
            .then(|| sink.sent().remove(0))
    }

    /// The peer sends a packet.
    pub(crate) fn feed(
        &mut self,
        operation: Operation,
        psn: u32,
        ext: Ext,
        payload: &[u8],
        ack_req: bool,
    ) {
        let bth = Bth {
            opcode: Opcode::new(Service::Rc, operation),
            pkey: 0xffff,
            dest_qp: 0x17,
            psn: Psn::new(psn),
            ack_req,
            solicited: true,
            ..Bth::default()
        };
        let payload = payload.into();
        self.rc
            .handle_packet(self.now, &Packet { bth, ext, payload }, &mut self.bench);
    }

    pub(crate) fn feed_syndrome(&mut self, psn: u32, syndrome: Syndrome) {
        let ext = Ext {
            aeth: Some(Aeth { syndrome, msn: 0 }),
            ..Ext::default()
        };
        self.feed(Operation::Acknowledge, psn, ext, &[], false);
    }

    pub(crate) fn feed_ack(&mut self, psn: u32) {
        self.feed_syndrome(psn, Syndrome::Ack { credits: 31 });
    }

    pub(crate) fn feed_nak(&mut self, psn: u32, code: NakCode) {
        self.feed_syndrome(psn, Syndrome::Nak(code));
    }

    pub(crate) fn feed_read_response(&mut self, operation: Operation, psn: u32, payload: &[u8]) {
        let aeth = (operation != Operation::ReadResponseMiddle).then(Aeth::default);
        self.feed(
            operation,
            psn,
            Ext {
                aeth,
                ..Ext::default()
            },
            payload,
            false,
        );
    }

    pub(crate) fn feed_atomic_ack(&mut self, psn: u32, original: u64) {
        let atomic_ack = Some(AtomicAckEth { original });
        let ext = Ext {
            aeth: Some(Aeth::default()),
            atomic_ack,
            ..Ext::default()
        };
        self.feed(Operation::AtomicAcknowledge, psn, ext, &[], false);
    }

    /// Lets the ACK timeout or RNR wait come.
    pub(crate) fn fire_timer(&mut self) {
        self.now = self.rc.next_timeout().expect("a timer runs");
        self.rc.handle_timeout(self.now, &mut self.bench);
    }

    /// Lets probes pass, sending what they send, until the ACK timeout comes.
    pub(crate) fn fire_ack_timeout(&mut self) {
        let before = self.rc.counters().timeouts;
        while self.rc.counters().timeouts == before {
            self.fire_timer();
            if self.rc.counters().timeouts == before {
                self.poll();
            }
        }
    }

    /// wr_id and status of the send completions since the last call.
    pub(crate) fn sends(&mut self) -> Vec<(u64, Status)> {
        self.bench
            .sends
            .drain(..)
            .map(|c| (c.wr_id, c.status))
            .collect()
    }

    /// wr_id and status of the receive completions since the last call.
    pub(crate) fn recvs(&mut self) -> Vec<(u64, Status)> {
        self.bench
            .recvs
            .drain(..)
            .map(|c| (c.wr_id, c.status))
            .collect()
    }
}

pub(crate) fn sge(offset: u64, length: u32) -> Sge {
    Sge {
        addr: BASE + offset,
        length,
        lkey: LKEY,
    }
}

pub(crate) fn reth(offset: u64, dma_len: u32) -> Ext {
    Ext {
        reth: Some(Reth {
            va: BASE + offset,
            rkey: RKEY,
            dma_len,
        }),
        ..Ext::default()
    }
}

pub(crate) fn imm(bytes: [u8; 4]) -> Ext {
    Ext {
        imm: Some(ImmDt(bytes)),
        ..Ext::default()
    }
}

pub(crate) fn ieth(rkey: u32) -> Ext {
    Ext {
        ieth: Some(Ieth { rkey }),
        ..Ext::default()
    }
}

pub(crate) fn fetch_add(offset: u64, add: u64) -> Ext {
    Ext {
        atomic: Some(AtomicEth {
            va: BASE + offset,
            rkey: RKEY,
            swap_or_add: add,
            compare: 0,
        }),
        ..Ext::default()
    }
}

pub(crate) const WRITE: SendOp = SendOp::Write {
    remote_addr: 0x5000,
    rkey: 5,
};
pub(crate) const READ: SendOp = SendOp::Read {
    remote_addr: 0x5000,
    rkey: 5,
};
pub(crate) const FETCH_ADD: SendOp = SendOp::FetchAdd {
    remote_addr: 0x5000,
    rkey: 5,
    add: 3,
};
pub(crate) const NO_EXT: Ext = Ext {
    feth: None,
    reth: None,
    aeth: None,
    atomic: None,
    atomic_ack: None,
    imm: None,
    ieth: None,
    deth: None,
    xrceth: None,
    rdeth: None,
};

/// What a receive completion says beside its status.
pub(crate) fn received(completion: &Completion) -> (u32, Immediate, bool) {
    (
        completion.byte_len,
        completion.immediate,
        completion.solicited,
    )
}
