//! Two hosts whose programs somebody else writes out, step by step.
//!
//! A [`Scenario`](crate::Scenario) says what programs want; here a test says what they do, call by
//! call: this one posts, that one looks, so much time passes. It is for what an engine promises to
//! programs of a certain manner, and what it costs: packets, system calls, turns.

use std::collections::VecDeque;

use rnic_nic::{
    Access, Completion, Context, Cq, Frame, Gid, Host, LinkCounters, PathMtu, Pd, Qp, QpAttr,
    QpCap, QpInit, RecvWqe, SendData, SendOp, SendWqe, SgList, SimulatedDevice, SimulatedHost,
    SimulatedPort, SimulatedPortConfig, Wire,
};

use crate::connect;
use crate::memory::Memory;
use crate::scenario::{Kind, Service};

/// The time at first, ns.
const BEGIN: u64 = 1_000_000_000;
/// From one host to the other, ns.
const DELAY: u64 = 1_000;
/// Work requests that a send or receive queue takes.
const DEPTH: u32 = 1024;
/// Bytes that a message has at most.
const LONGEST: usize = 1 << 16;
/// Events at one moment, and no more: time stands still.
const MOST_AT_ONCE: u32 = 100_000;

/// How a host's program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// It polls: it has the engine to itself, and nothing happens there but when it calls.
    Polling,
    /// It sleeps, or looks at its memory: packets wake the background thread.
    Asleep,
}

/// Two hosts with a device and a queue pair each, which are connected.
pub struct Pair {
    now: u64,
    ends: [End; 2],
    /// With the time at which each arrives, and where.
    under_way: VecDeque<(u64, usize, Frame)>,
}

/// One of them.
struct End {
    // Dropped in this order: nothing is done to memory any more when queue pair and completion
    // queue are gone.
    qp: Qp,
    cq: Cq,
    memory: Memory,
    device: SimulatedDevice,
    wire: Wire,
    waits: Waits,
    /// When the background thread wants to run, where it drives.
    run_at: Option<u64>,
    posted: u64,
    /// Address and key of the peer's memory.
    peer: (u64, u32),
}

/// What a host's device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets that left.
    pub packets: u64,
    /// System calls in which they did.
    pub sends: u64,
    /// System calls that looked for packets in a round of the engine.
    pub looks: u64,
    /// Turns that the engine gave to queue pairs.
    pub turns: u64,
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

impl Pair {
    /// Connected by that service. No receive is posted.
    ///
    /// # Errors
    /// What the device refused, in words.
    pub fn new(service: Service, waits: [Waits; 2]) -> Result<Pair, String> {
        let mut ends = [
            End::new(0, service, waits[0])?,
            End::new(1, service, waits[1])?,
        ];
        let known = [0, 1].map(|at| {
            let end: &End = &ends[at];
            (end.qp.qpn(), (end.memory.address(0), end.memory.key()))
        });
        for at in 0..2 {
            let (qpn, memory) = known[1 - at];
            ends[at].peer = memory;
            ends[at].connect(service, qpn, Gid::from(address(1 - at)))?;
        }
        Ok(Pair {
            now: BEGIN,
            ends,
            under_way: VecDeque::new(),
        })
    }

    /// The time since it began, ns.
    pub fn now(&self) -> u64 {
        self.now - BEGIN
    }

    /// What the device of this end has done.
    pub fn work(&self, end: usize) -> Work {
        let End { device, wire, .. } = &self.ends[end];
        let (
            LinkCounters {
                tx_packets,
                tx_syscalls,
                ..
            },
            _,
        ) = device.counters();
        Work {
            packets: tx_packets,
            sends: tx_syscalls,
            looks: wire.looks(),
            turns: device.turns(),
        }
    }

    /// The program of this end posts a work request of so many bytes.
    ///
    /// # Errors
    /// The device refuses it.
    pub fn post(
        &mut self,
        end: usize,
        kind: Kind,
        len: usize,
        signaled: bool,
    ) -> Result<(), String> {
        let now = self.now;
        let this = &mut self.ends[end];
        this.device.host().set_time(now);
        let (remote_addr, rkey) = this.peer;
        let imm = [0; 4];
        let op = match kind {
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm(imm),
            Kind::Write => SendOp::Write { remote_addr, rkey },
            Kind::WriteImm => SendOp::WriteImm {
                remote_addr,
                rkey,
                imm,
            },
            Kind::Read => SendOp::Read { remote_addr, rkey },
            Kind::FetchAdd => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
            Kind::CompareSwap => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: 0,
                swap: 0,
            },
            Kind::Bind | Kind::Unbind | Kind::SendInvalidate => {
                return Err("a pair has no memory windows".to_owned());
            }
        };
        this.posted += 1;
        let wqe = SendWqe {
            wr_id: this.posted,
            op,
            data: SendData::Gather(SgList::from_slice(&[this.memory.sge(0, len)])),
            signaled,
            solicited: false,
            fence: false,
            srqn: 0,
        };
        let posted = this.qp.post_send(&mut std::iter::once(Ok(wqe)));
        posted.map_err(|(_, why)| in_words(why))?;
        self.called(end);
        Ok(())
    }

    /// The program of this end posts so many receives.
    ///
    /// # Errors
    /// The device refuses one.
    pub fn post_receives(&mut self, end: usize, count: usize) -> Result<(), String> {
        let now = self.now;
        let this = &mut self.ends[end];
        this.device.host().set_time(now);
        let sges = SgList::from_slice(&[this.memory.sge(0, LONGEST)]);
        let mut wqes = (0..count).map(|_| {
            Ok(RecvWqe {
                wr_id: 0,
                sges: sges.clone(),
            })
        });
        let posted = this.qp.post_recv(&mut wqes);
        posted.map_err(|(_, why)| in_words(why))?;
        self.called(end);
        Ok(())
    }

    /// The program of this end looks at its completion queue once, for so many at most.
    ///
    /// # Errors
    /// The completion queue is broken.
    pub fn poll(&mut self, end: usize, most: usize) -> Result<Vec<Completion>, String> {
        let now = self.now;
        let this = &mut self.ends[end];
        this.device.host().set_time(now);
        let mut found = Vec::new();
        let polled = this
            .cq
            .poll(most, &mut |completion| found.push(*completion));
        polled.map_err(in_words)?;
        self.called(end);
        Ok(found)
    }

    /// The background thread of this end looks, as it does now and then where the program drives.
    pub fn run(&mut self, end: usize) {
        let now = self.now;
        let this = &mut self.ends[end];
        this.device.host().set_time(now);
        let next = this.device.run();
        if this.waits == Waits::Asleep {
            this.run_at = next.map(|at| at.max(now));
        }
        self.carry(end);
    }

    /// So much time passes, ns. What arrives wakes the background thread of who sleeps.
    ///
    /// # Errors
    /// A device has something to do at once for ever.
    pub fn pass(&mut self, ns: u64) -> Result<(), String> {
        let until = self.now + ns;
        let mut at_once = 0;
        loop {
            let arrival = self.under_way.front().map(|(at, ..)| *at);
            let runs = self.ends.iter().filter_map(|end| end.run_at).min();
            let next = arrival.into_iter().chain(runs).min();
            let Some(next) = next.filter(|at| *at <= until) else {
                break;
            };
            at_once = if next > self.now { 0 } else { at_once + 1 };
            if at_once > MOST_AT_ONCE {
                return Err("time stands still: events go on and on at one moment".to_owned());
            }
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now) {
                let Some((_, to, frame)) = self.under_way.pop_front() else {
                    break;
                };
                let end = &mut self.ends[to];
                end.wire.arrive(frame);
                if end.waits == Waits::Asleep {
                    end.run_at = Some(self.now);
                }
                continue;
            }
            for end in 0..2 {
                if self.ends[end].run_at.is_some_and(|at| at <= self.now) {
                    self.run(end);
                }
            }
        }
        self.now = until;
        Ok(())
    }

    /// The program has called. What it left in the engine wakes the background thread.
    fn called(&mut self, end: usize) {
        if self.ends[end].waits == Waits::Asleep {
            self.ends[end].run_at = Some(self.now);
        }
        self.carry(end);
    }

    fn carry(&mut self, end: usize) {
        while let Some(frame) = self.ends[end].wire.take() {
            self.under_way.push_back((self.now + DELAY, 1 - end, frame));
        }
    }
}

fn address(end: usize) -> std::net::IpAddr {
    [10, 0, 0, 1 + end as u8].into()
}

impl End {
    fn new(at: usize, service: Service, waits: Waits) -> Result<End, String> {
        let host = Host::simulated(&SimulatedHost {
            seed: 1 + at as u64,
            now_ns: BEGIN,
            addresses: vec![address(at)],
            mtu: 4500,
        });
        let (port, wire) = SimulatedPort::new(SimulatedPortConfig {
            addresses: vec![address(at)],
            first_range: 1 + 16 * at as u32,
            ..SimulatedPortConfig::default()
        });
        let device = SimulatedDevice::open(host, port).map_err(in_words)?;
        device.leave_to_polling(waits == Waits::Polling);
        let context: Context = device.context().map_err(in_words)?;
        let pd: Pd = context.alloc_pd();
        let cq = context.create_cq(4 * DEPTH, None, 0).map_err(in_words)?;
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = Memory::new(&pd, (1 << 28, LONGEST), all, |bytes| bytes.fill(0));
        let qp = pd
            .create_qp(&QpInit {
                qp_type: service.qp_type(),
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: QpCap {
                    max_send_wr: DEPTH,
                    max_recv_wr: DEPTH,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                sq_sig_all: false,
                cookie: 0,
            })
            .map_err(in_words)?;
        Ok(End {
            qp,
            cq,
            memory: memory.map_err(in_words)?,
            device,
            wire,
            waits,
            run_at: None,
            posted: 0,
            peer: (0, 0),
        })
    }

    /// Takes the queue pair to RTS.
    fn connect(&mut self, service: Service, qpn: u32, gid: Gid) -> Result<(), String> {
        let attr = QpAttr {
            path_mtu: Some(PathMtu::M1024),
            max_dest_rd_atomic: 16,
            max_rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..connect::attributes(qpn, gid)
        };
        connect::to_init(&self.qp, &attr)?;
        connect::to_rts(&self.qp, service, &attr)
    }
}
