//! What the protocol costs: two queue pairs that hand each other their packets, with memory that is
//! one slice and queues that are nearly nothing.
#![allow(missing_docs, reason = "what the macros of criterion make has none")]

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_transport::{
    Address, AtomicOp, BindFault, BindWindow, Completion, Device, LocalFault, Misplaced,
    PacketSink, Pd, Placement, QpEvent, Rc, RcAttr, RecvWqe, RemoteAccess, RemoteFault, Role,
    SendData, SendOp, SendWqe, SgList, Sge, Time,
};
use rnic_wire::{MAX_HEADER_LEN, Packet, PathMtu, Psn};

/// Of both sides.
const MTU: PathMtu = PathMtu::M1024;

/// A device with one region, and receives without end.
struct VecDevice {
    memory: Vec<u8>,
    receive: RecvWqe,
    completions: u64,
    /// The packet in hand, if its payload is detached.
    packet: Vec<u8>,
}

impl VecDevice {
    fn new(len: usize) -> VecDevice {
        let whole = Sge {
            addr: 0,
            length: len as u32,
            lkey: 1,
        };
        VecDevice {
            memory: vec![1; len],
            receive: RecvWqe {
                wr_id: 0,
                sges: SgList::from_slice(&[whole]),
            },
            completions: 0,
            packet: Vec::new(),
        }
    }
}

impl Device for VecDevice {
    fn check_local(&self, _: Pd, _: &Sge, _: bool) -> Result<(), LocalFault> {
        Ok(())
    }
    fn read_local(&self, _: Pd, _: u32, addr: u64, out: &mut [u8]) -> Result<(), LocalFault> {
        let at = addr as usize;
        out.copy_from_slice(&self.memory[at..at + out.len()]);
        Ok(())
    }
    fn write_local(&mut self, _: Pd, _: u32, addr: u64, data: &[u8]) -> Result<(), LocalFault> {
        let at = addr as usize;
        self.memory[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
    fn place_local(
        &mut self,
        _: Pd,
        _: u32,
        addr: u64,
        from: usize,
        len: usize,
    ) -> Result<(), Misplaced<LocalFault>> {
        let at = addr as usize;
        self.memory[at..at + len].copy_from_slice(&self.packet[from..from + len]);
        Ok(())
    }
    fn check_remote(
        &self,
        _: Pd,
        _: u32,
        _: u64,
        _: u64,
        _: RemoteAccess,
    ) -> Result<(), RemoteFault> {
        Ok(())
    }
    fn read_remote(&self, pd: Pd, key: u32, va: u64, out: &mut [u8]) -> Result<(), RemoteFault> {
        self.read_local(pd, key, va, out)
            .map_err(|_| RemoteFault::OutOfRange)
    }
    fn write_remote(&mut self, pd: Pd, key: u32, va: u64, data: &[u8]) -> Result<(), RemoteFault> {
        self.write_local(pd, key, va, data)
            .map_err(|_| RemoteFault::OutOfRange)
    }
    fn place_remote(
        &mut self,
        pd: Pd,
        key: u32,
        va: u64,
        from: usize,
        len: usize,
    ) -> Result<(), Misplaced<RemoteFault>> {
        self.place_local(pd, key, va, from, len)
            .map_err(|_| Misplaced::Lost)
    }
    fn atomic_write(&mut self, _: Pd, _: u32, _: u64, _: [u8; 8]) -> Result<(), RemoteFault> {
        Ok(())
    }
    fn flush(
        &mut self,
        _: Pd,
        _: u32,
        _: Option<(u64, u32)>,
        _: Placement,
    ) -> Result<(), RemoteFault> {
        Ok(())
    }
    fn atomic(&mut self, _: Pd, _: u32, _: u64, _: AtomicOp) -> Result<u64, RemoteFault> {
        Ok(0)
    }
    fn invalidate(&mut self, _: Pd, _: u32, _: u32) -> Result<(), RemoteFault> {
        Ok(())
    }
    fn bind_window(&mut self, _: Pd, _: u32, _: &BindWindow) -> Result<(), BindFault> {
        Ok(())
    }
    fn local_invalidate(&mut self, _: Pd, _: u32, _: u32) -> Result<(), BindFault> {
        Ok(())
    }
    fn take_receive(&mut self) -> Option<RecvWqe> {
        Some(self.receive.clone())
    }
    fn next_receive(&self) -> Option<&RecvWqe> {
        Some(&self.receive)
    }
    fn return_receive(&mut self, _: RecvWqe) {}
    fn receives_posted(&self) -> Option<u32> {
        Some(64)
    }
    fn complete_send(&mut self, _: Completion) {
        self.completions += 1;
    }
    fn complete_recv(&mut self, _: Completion) {
        self.completions += 1;
    }
    fn event(&mut self, _: QpEvent) {}
}

/// Packets in one buffer, which is used again and again.
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    most_payload: usize,
}

impl PacketSink for Batch {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.ends.last().copied().unwrap_or(0);
        self.ends.push(start + len);
        self.bytes.get_mut(start..start + len)
    }
    fn packet_to(&mut self, _: &Address, len: usize) -> Option<&mut [u8]> {
        self.packet(len)
    }
    fn most_payload(&self, mtu: usize) -> usize {
        self.most_payload.max(mtu)
    }
    fn retract(&mut self) {
        self.ends.pop();
    }
}

struct Side {
    rc: Rc,
    device: VecDevice,
}

struct Ends {
    sides: [Side; 2],
    batch: Batch,
    now: u64,
}

impl Ends {
    fn new(most_payload: usize) -> Ends {
        let side = |qpn, dest_qpn| {
            let attr = RcAttr {
                role: Role::Rc,
                qpn,
                pd: Pd(1),
                dest_qpn,
                mtu: MTU,
                pkey: 0xffff,
                sq_psn: Psn::new(0),
                rq_psn: Psn::new(0),
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer: 1,
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                remote_write: true,
                remote_read: true,
                remote_atomic: true,
                flush: Placement::default(),
                window_bytes: 1 << 20,
            };
            let mut rc = Rc::new();
            rc.receive_ready(attr);
            rc.send_ready(attr);
            Side {
                rc,
                device: VecDevice::new(64 << 10),
            }
        };
        Ends {
            sides: [side(1, 2), side(2, 1)],
            batch: Batch {
                bytes: vec![0; 512 << 10],
                ends: Vec::new(),
                most_payload,
            },
            now: 0,
        }
    }

    /// Posts `count` work requests on the first side and lets both talk until all is acknowledged.
    fn run(&mut self, op: SendOp, len: u32, count: u64, watch: &mut impl Watch) {
        let whole = Sge {
            addr: 0,
            length: len,
            lkey: 1,
        };
        watch.of(REQUESTER, || {
            for wr_id in 0..count {
                self.sides[REQUESTER].rc.post_send(SendWqe {
                    wr_id,
                    op,
                    data: SendData::Gather(SgList::from_slice(&[whole])),
                    signaled: true,
                    ..SendWqe::default()
                });
            }
        });
        let mut turn = REQUESTER;
        while self.sides.iter().any(|side| side.rc.wants_transmit()) {
            watch.of(turn, || self.say(turn));
            turn = 1 - turn;
            watch.of(turn, || self.hear(turn));
        }
    }

    /// `side` makes the packets of what it has to say.
    fn say(&mut self, side: usize) {
        self.now += 1000;
        self.batch.ends.clear();
        let Side { rc, device } = &mut self.sides[side];
        rc.poll_transmit(Time(self.now), device, &mut self.batch, 256 << 10);
    }

    /// `side` takes in what the other one said.
    fn hear(&mut self, side: usize) {
        let now = Time(self.now);
        let batch = &self.batch;
        let by_memory = batch.most_payload > 0;
        let Side { rc, device } = &mut self.sides[side];
        let mut start = 0;
        for end in &batch.ends {
            let packet = &batch.bytes[start..*end];
            if by_memory && packet.len() > MAX_HEADER_LEN {
                let front = &packet[..MAX_HEADER_LEN];
                let parsed = Packet::parse_front(front, packet.len(), MTU).expect("a packet");
                // Where its payload is: one more copy than a device makes.
                device.packet.clear();
                device.packet.extend_from_slice(packet);
                rc.handle_packet(now, &parsed, device);
            } else {
                let parsed = Packet::parse(packet).expect("a packet");
                rc.handle_packet(now, &parsed, device);
            }
            start = *end;
        }
    }
}

const REQUESTER: usize = 0;
const RESPONDER: usize = 1;

/// What is timed of a run.
trait Watch {
    /// Does a piece of `side`'s work.
    fn of(&mut self, side: usize, work: impl FnOnce());
}

/// All of it, by criterion.
struct Both;

impl Watch for Both {
    fn of(&mut self, _: usize, work: impl FnOnce()) {
        work();
    }
}

/// One side's work.
struct Only {
    side: usize,
    took: Duration,
}

impl Watch for Only {
    fn of(&mut self, side: usize, work: impl FnOnce()) {
        if side != self.side {
            return work();
        }
        let start = Instant::now();
        work();
        self.took += start.elapsed();
    }
}

const WRITE: SendOp = SendOp::Write {
    remote_addr: 0,
    rkey: 1,
};
const READ: SendOp = SendOp::Read {
    remote_addr: 0,
    rkey: 1,
};

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("requester, responder and ACK");
    for (name, op, len, count) in [
        ("SEND of 10 B, alone", SendOp::Send, 10, 1),
        ("SEND of 8 B, 64 in a list", SendOp::Send, 8, 64),
        ("WRITE of 64 KiB", WRITE, 64 << 10, 1),
        ("READ of 64 KiB", READ, 64 << 10, 1),
    ] {
        group.throughput(Throughput::Elements(count));
        let mut ends = Ends::new(0);
        group.bench_function(name, |b| b.iter(|| ends.run(op, len, count, &mut Both)));
    }
    for (name, op) in [("WRITE", WRITE), ("READ", READ)] {
        let mut ends = Ends::new(64 << 10);
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{name} of 64 KiB in one packet by memory"), |b| {
            b.iter(|| ends.run(op, 64 << 10, 1, &mut Both))
        });
    }
}

/// The two sides of the same by themselves, in lists, so that the clock read around each piece (two
/// for a list and its ACKs) does not count for much.
fn sides(c: &mut Criterion) {
    for (name, side) in [("requester", REQUESTER), ("responder", RESPONDER)] {
        let mut group = c.benchmark_group(name);
        for (name, op, len, count) in [
            ("SEND of 8 B, 64 in a list", SendOp::Send, 8, 64),
            ("WRITE of 8 B, 64 in a list", WRITE, 8, 64),
            ("READ of 8 B, 64 in a list", READ, 8, 64),
            ("WRITE of 64 KiB", WRITE, 64 << 10, 1),
            ("READ of 64 KiB", READ, 64 << 10, 1),
        ] {
            group.throughput(Throughput::Elements(count));
            let mut ends = Ends::new(0);
            group.bench_function(name, |b| {
                b.iter_custom(|rounds| {
                    let mut watch = Only {
                        side,
                        took: Duration::ZERO,
                    };
                    for _ in 0..rounds {
                        ends.run(op, len, count, &mut watch);
                    }
                    watch.took
                })
            });
        }
    }
}

criterion_group!(parts, messages, sides);
criterion_main!(parts);
