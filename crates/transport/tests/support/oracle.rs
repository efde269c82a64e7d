//! Who knows how it must end: turns a [`Scenario`] into work requests and into what both sides must
//! see afterwards.
//!
//! The operations of one direction happen at the responder in posting order, so they are simply
//! executed here, one after the other, on copies of the memories. The four directions and queue
//! pairs of a scenario own disjoint regions. Within a direction, ranges overlap at will. Only two
//! orders are not given by RDMA: a READ or atomic against a later operation that uses what it
//! brought home, and a READ against a later store to what it reads. Where a scenario has such a
//! pair, the later operation gets a fence, so that a fence that does not hold shows as wrong bytes.

use super::accent::Accent;
use super::memory::{Effect, Region, Rights, Srq, push_effect};
use super::network::Impairments;
use super::pair::{Pair, Path};
use rnic_transport::{
    AckRequest, Completion, CompletionOpcode, Flush, Immediate, Pd, Placement, RcAttr, RecvWqe,
    Role, SendData, SendOp, SendWqe, SgList, Sge, Status,
};
use rnic_wire::{PathMtu, Psn};
use std::ops::Range;

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
}

const EVERYWHERE: Placement = Placement {
    global: true,
    persistent: true,
};

impl Kind {
    fn takes_receive(self) -> bool {
        !matches!(
            self,
            Kind::Write
                | Kind::Read
                | Kind::CompareSwap
                | Kind::FetchAdd
                | Kind::AtomicWrite
                | Kind::Flush
        )
    }

    /// Of eight bytes, aligned.
    fn is_of_a_word(self) -> bool {
        self.is_atomic() || self == Kind::AtomicWrite
    }

    fn is_atomic(self) -> bool {
        matches!(self, Kind::CompareSwap | Kind::FetchAdd)
    }

    fn opcode(self) -> CompletionOpcode {
        match self {
            Kind::Send | Kind::SendImm | Kind::SendInvalidate => CompletionOpcode::Send,
            Kind::Write | Kind::WriteImm => CompletionOpcode::RdmaWrite,
            Kind::Read => CompletionOpcode::RdmaRead,
            Kind::CompareSwap => CompletionOpcode::CompareSwap,
            Kind::FetchAdd => CompletionOpcode::FetchAdd,
            Kind::AtomicWrite => CompletionOpcode::AtomicWrite,
            Kind::Flush => CompletionOpcode::Flush,
        }
    }
}

/// Length of a message.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    Exact(u32),
    /// A few packets, give or take a byte.
    Packets {
        count: u8,
        delta: i8,
    },
}

impl Size {
    fn bytes(self, mtu: PathMtu) -> u64 {
        match self {
            Size::Exact(len) => u64::from(len),
            Size::Packets { count, delta } => {
                (i64::from(count) * mtu.bytes() as i64 + i64::from(delta)).max(0) as u64
            }
        }
    }
}

/// One operation, as a test case describes it.
#[derive(Clone, Copy)]
pub struct OpSpec {
    pub kind: Kind,
    pub size: Size,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    pub inline: bool,
    /// Pieces of the gather (scatter) list, 0..=4.
    pub pieces: u8,
    /// Pieces of the receive's scatter list.
    pub receive_pieces: u8,
    /// Bytes by which the receive is larger than the message.
    pub slack: u16,
    /// Nanoseconds between the post before and this one.
    pub post_delay: u32,
    /// Nanoseconds between the receive before and the one for this message.
    pub receive_delay: u32,
}

impl std::fmt::Debug for OpSpec {
    /// One line, also where `{:#?}` asks for many: a test case has dozens of these.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.size)?;
        for (set, name) in [
            (self.signaled, "signaled"),
            (self.fence, "fence"),
            (self.solicited, "solicited"),
            (self.inline, "inline"),
        ] {
            if set {
                write!(f, " {name}")?;
            }
        }
        write!(
            f,
            " pieces {}/{} slack {} delays {}/{} ns",
            self.pieces, self.receive_pieces, self.slack, self.post_delay, self.receive_delay
        )
    }
}

/// One connection.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    pub mtu: PathMtu,
    /// Operations of each side.
    pub ops: [Vec<OpSpec>; 2],
    pub sq_psn: [u32; 2],
    pub max_rd_atomic: [u8; 2],
    /// By how much the responder's resources exceed the requester's limit.
    pub spare_resources: u8,
    pub window: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    /// Receives count as a shared queue: no credits on the wire.
    pub shared_receives: bool,
    /// Which side speaks like Linux.
    pub linux: [bool; 2],
    /// How the packets of each side go.
    pub paths: [Path; 2],
    /// XRC: side 0 alone has operations, and names one of two SRQs of side 1 in each.
    pub xrc: bool,
    /// When short messages that are not signaled ask for an acknowledge, if they leave as they are
    /// posted.
    pub ack_request: AckRequest,
}

/// A test case.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub impairments: Impairments,
    pub flows: Vec<FlowSpec>,
}

/// Bytes of all messages of one direction of one flow, at most: keeps a test case short.
const DIRECTION_BYTES: u64 = 32 << 20;

#[derive(Debug)]
struct Posted {
    wr_id: u64,
    signaled: bool,
    completion: Completion,
    effects: Vec<Effect>,
    bytes: u64,
}

/// What one direction of one connection must come to.
#[derive(Debug)]
struct Direction {
    posted: Vec<Posted>,
    receives: Vec<Completion>,
    psns: u32,
}

/// What a scenario must come to.
pub struct Oracle {
    memories: [Vec<Region>; 2],
    /// By flow and requester.
    directions: Vec<[Direction; 2]>,
    attrs: Vec<[RcAttr; 2]>,
    /// All payload of all messages.
    pub bytes: u64,
    /// About as many packets as a perfect network needs.
    pub packets: u64,
}

struct Builder {
    rng: fastrand::Rng,
    next_addr: [u64; 2],
    next_key: u32,
}

impl Builder {
    /// Registers a region of random bytes on both the pair's and the oracle's side.
    fn region(
        &mut self,
        pair: &mut Pair,
        memories: &mut [Vec<Region>; 2],
        nic: usize,
        len: u64,
        rights: Rights,
        pd: Pd,
    ) -> usize {
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        let base = self.next_addr[nic] + self.rng.u64(0..64);
        self.next_addr[nic] = base + len + 4096;
        // Odd steps: never the same twice in a test, never a plain count.
        self.next_key = self.next_key.wrapping_add(0x9e37_79b1);
        let lkey = self.next_key;
        self.next_key = self.next_key.wrapping_add(0x9e37_79b1);
        let region = Region {
            base,
            bytes,
            lkey,
            rkey: self.next_key,
            pd,
            rights,
            invalidatable: false,
            revoked: false,
            unmapped: false,
        };
        memories[nic].push(region.clone());
        pair.nics[nic].memory.register(region)
    }

    /// Cuts `len` into `pieces` lengths, some of them perhaps 0.
    fn cut(&mut self, len: u64, pieces: u8) -> Vec<u64> {
        if pieces == 0 && len == 0 {
            return Vec::new();
        }
        let mut cuts: Vec<u64> = (1..pieces.max(1)).map(|_| self.rng.u64(0..=len)).collect();
        cuts.push(0);
        cuts.push(len);
        cuts.sort_unstable();
        cuts.windows(2).map(|w| w[1] - w[0]).collect()
    }

    /// A scatter/gather list of `len` bytes somewhere in `region`.
    fn list(&mut self, region: &Region, len: u64, pieces: u8) -> SgList {
        self.cut(len, pieces)
            .into_iter()
            .map(|length| Sge {
                addr: region.base + self.rng.u64(0..=region.bytes.len() as u64 - length),
                length: length as u32,
                lkey: region.lkey,
            })
            .collect()
    }
}

fn gather(region: &Region, list: &[Sge]) -> Vec<u8> {
    let mut out = Vec::new();
    for sge in list {
        let start = (sge.addr - region.base) as usize;
        out.extend_from_slice(&region.bytes[start..start + sge.length as usize]);
    }
    out
}

fn scatter(region: &mut Region, list: &[Sge], mut data: &[u8]) {
    for sge in list {
        let start = (sge.addr - region.base) as usize;
        let (now, later) = data.split_at(data.len().min(sge.length as usize));
        region.bytes[start..start + now.len()].copy_from_slice(now);
        data = later;
    }
    assert!(data.is_empty(), "the list is shorter than the message");
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn spans(list: &[Sge]) -> impl Iterator<Item = Range<u64>> + '_ {
    list.iter()
        .map(|sge| sge.addr..sge.addr + u64::from(sge.length))
}

impl Scenario {
    /// Sets the stage in virtual time: regions, queue pairs, and when which work request will be
    /// posted.
    pub fn stage(&self) -> (Pair, Oracle) {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut pair = Pair::new(self.impairments.clone(), rng.u64(..));
        let mut builder = Builder {
            next_addr: [0x7f00_0000_0000, 0x5500_0000_1000],
            next_key: rng.u32(..),
            rng,
        };
        let mut oracle = Oracle {
            memories: [Vec::new(), Vec::new()],
            directions: Vec::new(),
            attrs: Vec::new(),
            bytes: 0,
            packets: 0,
        };
        for (index, flow) in self.flows.iter().enumerate() {
            let attrs = flow.attrs(index as u32);
            let mut connected = attrs;
            if flow.xrc {
                assert!(flow.ops[1].is_empty(), "an XRC target requests nothing");
                // Its own domain must not matter.
                connected[1].pd = Pd(u32::MAX);
            }
            let qp = pair.connect(connected);
            for (nic, path) in pair.nics.iter_mut().zip(flow.paths) {
                nic.qps[qp].path = path;
            }
            for (nic, linux) in pair.nics.iter_mut().zip(flow.linux) {
                nic.qps[qp].ack_request = flow.ack_request;
                nic.qps[qp].queues.shared = flow.shared_receives || flow.xrc;
                if flow.xrc {
                    let srqs = SRQS.map(|number| (number, Srq::new(attrs[1].pd)));
                    nic.qps[qp].queues.srqs = srqs.into();
                }
                nic.qps[qp].accent = linux.then(Accent::default);
            }
            let directions = [0, 1].map(|requester| {
                direction(
                    &mut pair,
                    &mut oracle.memories,
                    &mut builder,
                    flow,
                    &attrs,
                    qp,
                    requester,
                )
            });
            oracle.bytes += directions
                .iter()
                .flat_map(|d| d.posted.iter().map(|p| p.bytes))
                .sum::<u64>();
            let packets: u32 = directions.iter().map(|d| d.psns + 4).sum();
            oracle.packets += u64::from(packets);
            oracle.directions.push(directions);
            oracle.attrs.push(attrs);
        }
        // A storm loses two packets of three, and each loss costs what was under way behind it.
        pair.packet_limit = 20_000 + 500 * oracle.packets;
        (pair, oracle)
    }
}

/// The SRQs of an XRC domain.
const SRQS: [u32; 2] = [0x51, 0xff_ff52];

impl FlowSpec {
    fn attrs(&self, index: u32) -> [RcAttr; 2] {
        let qpn = |side: usize| [0x11, 0x0f_ff00][side] + index;
        [0, 1].map(|side| RcAttr {
            role: match (self.xrc, side) {
                (false, _) => Role::Rc,
                (true, 0) => Role::XrcInitiator,
                (true, _) => Role::XrcTarget,
            },
            qpn: qpn(side),
            pd: Pd(10 * index + side as u32),
            dest_qpn: qpn(1 - side),
            mtu: self.mtu,
            pkey: 0xffff,
            sq_psn: Psn::new(self.sq_psn[side]),
            rq_psn: Psn::new(self.sq_psn[1 - side]),
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
            max_rd_atomic: self.max_rd_atomic[side],
            max_dest_rd_atomic: self.max_rd_atomic[1 - side].saturating_add(self.spare_resources),
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            flush: EVERYWHERE,
            window_bytes: self.window,
        })
    }
}

/// Registers the regions of one direction, schedules its work requests and executes them on the
/// oracle's memories.
fn direction(
    pair: &mut Pair,
    memories: &mut [Vec<Region>; 2],
    b: &mut Builder,
    flow: &FlowSpec,
    attrs: &[RcAttr; 2],
    qp: usize,
    requester: usize,
) -> Direction {
    let responder = 1 - requester;
    let ops = &flow.ops[requester];
    let (own, peer) = (attrs[requester], attrs[responder]);
    let mtu = flow.mtu.bytes() as u64;

    let mut budget = DIRECTION_BYTES;
    let lens: Vec<u64> = ops
        .iter()
        .map(|op| {
            let len = if op.kind.is_of_a_word() {
                8
            } else {
                op.size.bytes(flow.mtu).min(budget)
            };
            budget -= len.min(budget);
            len
        })
        .collect();
    let longest = lens.iter().copied().max().unwrap_or(0);
    let receive_bytes: u64 = ops
        .iter()
        .zip(&lens)
        .filter(|(op, _)| op.kind.takes_receive())
        .map(|(op, len)| len + u64::from(op.slack) + 16 * 8)
        .sum();

    // Small beside the longest message, so that ranges do overlap.
    let local_len = longest + longest / 4 + 256;
    let local = b.region(pair, memories, requester, local_len, Rights::LOCAL, own.pd);
    let remote = b.region(pair, memories, responder, local_len, Rights::ALL, peer.pd);
    let receive = b.region(
        pair,
        memories,
        responder,
        receive_bytes,
        Rights::LOCAL,
        peer.pd,
    );

    let mut result = Direction {
        posted: Vec::new(),
        receives: Vec::new(),
        psns: 0,
    };
    let mut receive_used = 0;
    let (mut post_at, mut receive_at) = (0, 0);
    // Ranges under earlier READs and atomics since the last fence: brought home to, and read from.
    let mut pending_local: Vec<Range<u64>> = Vec::new();
    let mut pending_remote: Vec<Range<u64>> = Vec::new();

    for (index, (spec, &len)) in ops.iter().zip(&lens).enumerate() {
        let wr_id = (requester as u64 + 1) << 32 | index as u64;
        let kind = spec.kind;
        let srqn = if flow.xrc { SRQS[index % 2] } else { 0 };
        let loads = !(kind == Kind::Read || kind.is_atomic());
        let inline = spec.inline && loads && len <= 512 && kind != Kind::Flush;
        let list = if inline || kind == Kind::Flush {
            SgList::new()
        } else {
            b.list(
                &memories[requester][local],
                len,
                if len == 0 {
                    spec.pieces
                } else {
                    spec.pieces.max(1)
                },
            )
        };
        let rkey = memories[responder][remote].rkey;
        let remote_addr = {
            let region = &memories[responder][remote];
            let addr = region.base + b.rng.u64(0..=region.bytes.len() as u64 - len - 8);
            if kind.is_of_a_word() {
                addr.next_multiple_of(8)
            } else {
                addr
            }
        };
        let target = remote_addr..remote_addr + len;
        let touches_remote = !matches!(kind, Kind::Send | Kind::SendImm | Kind::SendInvalidate);
        let stores_remote = touches_remote && !matches!(kind, Kind::Read | Kind::Flush);

        let fence = spec.fence
            || loads && spans(&list).any(|s| pending_local.iter().any(|p| overlaps(p, &s)))
            || stores_remote && pending_remote.iter().any(|p| overlaps(p, &target));
        if fence {
            pending_local.clear();
            pending_remote.clear();
        }
        if !loads {
            pending_local.extend(spans(&list));
        }
        if kind == Kind::Read {
            pending_remote.push(target.clone());
        }

        // What it carries, and what it does.
        let (data, bytes) = if inline {
            let mut bytes = vec![0; len as usize];
            b.rng.fill(&mut bytes);
            (SendData::Inline(bytes.as_slice().into()), bytes)
        } else {
            let bytes = if loads {
                gather(&memories[requester][local], &list)
            } else {
                Vec::new()
            };
            (SendData::Gather(list.clone()), bytes)
        };
        let start = (remote_addr - memories[responder][remote].base) as usize;
        let span = start..start + len as usize;
        let mut effects = Vec::new();
        let mut immediate = Immediate::None;
        let imm = b.rng.u32(..).to_be_bytes();
        let op = match kind {
            Kind::Send => SendOp::Send,
            Kind::SendImm => {
                immediate = Immediate::Data(imm);
                SendOp::SendImm(imm)
            }
            Kind::SendInvalidate => {
                let window = b.region(pair, memories, responder, 16, Rights::ALL, peer.pd);
                let region = &mut memories[responder][window];
                pair.nics[responder].memory.regions[window].invalidatable = true;
                (region.invalidatable, region.revoked) = (true, true);
                immediate = Immediate::Invalidated(region.rkey);
                effects.push(Effect::Invalidate { rkey: region.rkey });
                SendOp::SendInvalidate(region.rkey)
            }
            Kind::Write | Kind::WriteImm | Kind::AtomicWrite => {
                memories[responder][remote].bytes[span].copy_from_slice(&bytes);
                if len > 0 {
                    effects.push(Effect::Write {
                        rkey,
                        va: remote_addr,
                        len,
                    });
                }
                if kind == Kind::Write {
                    SendOp::Write { remote_addr, rkey }
                } else if kind == Kind::AtomicWrite {
                    SendOp::AtomicWrite { remote_addr, rkey }
                } else {
                    immediate = Immediate::Data(imm);
                    SendOp::WriteImm {
                        remote_addr,
                        rkey,
                        imm,
                    }
                }
            }
            Kind::Read => {
                let data = memories[responder][remote].bytes[span].to_vec();
                scatter(&mut memories[requester][local], &list, &data);
                SendOp::Read { remote_addr, rkey }
            }
            Kind::Flush => {
                // It is there at its place among the stores, and only once.
                let whole_region = spec.solicited;
                effects.push(Effect::Flush {
                    rkey,
                    range: (!whole_region).then_some((remote_addr, len as u32)),
                    placement: EVERYWHERE,
                });
                SendOp::Flush(Flush {
                    remote_addr,
                    rkey,
                    length: len,
                    whole_region,
                    placement: EVERYWHERE,
                })
            }
            Kind::CompareSwap | Kind::FetchAdd => {
                let cell = &mut memories[responder][remote].bytes[span];
                let before = u64::from_ne_bytes((&*cell).try_into().expect("8 bytes"));
                let operand = b.rng.u64(..);
                let (op, after) = if kind == Kind::FetchAdd {
                    let op = SendOp::FetchAdd {
                        remote_addr,
                        rkey,
                        add: operand,
                    };
                    (op, before.wrapping_add(operand))
                } else {
                    let hit = b.rng.bool();
                    let op = SendOp::CompareSwap {
                        remote_addr,
                        rkey,
                        compare: if hit { before } else { before ^ operand | 1 },
                        swap: b.rng.u64(..),
                    };
                    let SendOp::CompareSwap { compare, swap, .. } = op else {
                        unreachable!()
                    };
                    (op, if compare == before { swap } else { before })
                };
                cell.copy_from_slice(&after.to_ne_bytes());
                effects.push(Effect::Atomic {
                    rkey,
                    va: remote_addr,
                    before,
                });
                scatter(
                    &mut memories[requester][local],
                    &list,
                    &before.to_ne_bytes(),
                );
                op
            }
        };

        if kind.takes_receive() {
            let id = (responder as u64 + 1) << 40 | index as u64;
            let region = &mut memories[responder][receive];
            let room = if kind == Kind::WriteImm {
                // Its bytes go elsewhere; the list of the receive is not looked at.
                u64::from(spec.slack)
            } else {
                len + u64::from(spec.slack)
            };
            let mut sges = SgList::new();
            for length in b.cut(room, spec.receive_pieces.max(u8::from(room > 0))) {
                sges.push(Sge {
                    addr: region.base + receive_used,
                    length: length as u32,
                    lkey: region.lkey,
                });
                // Nobody may write into the gap.
                receive_used += length + 16;
            }
            if kind != Kind::WriteImm {
                scatter(region, &sges, &bytes);
            }
            receive_at += u64::from(spec.receive_delay);
            let srq = flow.xrc.then_some(srqn);
            pair.post_receive_at(receive_at, responder, qp, srq, RecvWqe { wr_id: id, sges });
            result.receives.push(Completion {
                grh: None,
                pkey_index: 0,
                wr_id: id,
                status: Status::Success,
                opcode: if kind == Kind::WriteImm {
                    CompletionOpcode::RecvRdmaWithImm
                } else {
                    CompletionOpcode::Recv
                },
                byte_len: len as u32,
                vendor_err: 0,
                qpn: peer.qpn,
                src_qpn: own.qpn,
                immediate,
                solicited: spec.solicited,
            });
        }

        post_at += u64::from(spec.post_delay);
        let wqe = SendWqe {
            srqn,
            wr_id,
            op,
            data,
            signaled: spec.signaled,
            solicited: spec.solicited,
            fence,
        };
        pair.post_send_at(post_at, requester, qp, wqe);
        result.psns += match kind {
            Kind::Flush => 1,
            _ => len.div_ceil(mtu).max(1) as u32,
        };
        result.posted.push(Posted {
            wr_id,
            signaled: spec.signaled,
            completion: Completion {
                grh: None,
                pkey_index: 0,
                wr_id,
                status: Status::Success,
                opcode: kind.opcode(),
                byte_len: if loads { 0 } else { len as u32 },
                vendor_err: 0,
                qpn: own.qpn,
                src_qpn: 0,
                immediate: Immediate::None,
                solicited: false,
            },
            effects,
            bytes: len,
        });
    }
    result
}

/// The fields of a successful send completion that mean something.
fn same_send(seen: &Completion, expected: &Completion) -> bool {
    // `byte_len` is defined for what brings bytes home.
    let length_counts = matches!(
        expected.opcode,
        CompletionOpcode::RdmaRead | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
    );
    (
        seen.wr_id,
        seen.status,
        seen.opcode,
        seen.qpn,
        seen.vendor_err,
    ) == (
        expected.wr_id,
        expected.status,
        expected.opcode,
        expected.qpn,
        0,
    ) && (!length_counts || seen.byte_len == expected.byte_len)
}

fn join(posted: &[Posted]) -> Vec<Effect> {
    let mut joined = Vec::new();
    for effect in posted.iter().flat_map(|p| &p.effects) {
        push_effect(&mut joined, effect.clone());
    }
    joined
}

/// Is `part` a beginning of `whole`? A WRITE may be unfinished.
fn is_beginning(part: &[Effect], whole: &[Effect]) -> bool {
    let Some((last, before)) = part.split_last() else {
        return true;
    };
    if part.len() > whole.len() || before != &whole[..before.len()] {
        return false;
    }
    match (last, &whole[before.len()]) {
        (
            Effect::Write { rkey, va, len },
            Effect::Write {
                rkey: whole_rkey,
                va: whole_va,
                len: whole_len,
            },
        ) => rkey == whole_rkey && va == whole_va && len <= whole_len,
        (last, other) => last == other,
    }
}

impl Oracle {
    /// Everything succeeded, exactly once, in order, and not a byte is other than it should be.
    ///
    /// # Panics
    /// Says what is not so.
    pub fn check_success(&self, pair: &Pair) {
        assert_eq!(pair.violations(), Vec::<String>::new());
        for (qp, directions) in self.directions.iter().enumerate() {
            for (requester, direction) in directions.iter().enumerate() {
                let here = format!("qp {qp}, requester {requester}");
                let own = &pair.nics[requester].qps[qp];
                let peer = &pair.nics[1 - requester].qps[qp];
                assert!(
                    !own.rc.is_error(),
                    "{here}: error state, {:?}; events {:?}; counters {:?} and {:?}",
                    own.queues
                        .send_completions
                        .iter()
                        .chain(&own.queues.recv_completions)
                        .find(|c| c.status != Status::Success),
                    own.queues.events,
                    own.rc.counters(),
                    peer.rc.counters()
                );
                let expected: Vec<_> = direction
                    .posted
                    .iter()
                    .filter(|p| p.signaled)
                    .map(|p| &p.completion)
                    .collect();
                for (seen, expected) in own.queues.send_completions.iter().zip(&expected) {
                    assert!(
                        same_send(seen, expected),
                        "{here}: {seen:?} instead of {expected:?}"
                    );
                }
                assert_eq!(
                    own.queues.send_completions.len(),
                    expected.len(),
                    "{here}: number of send completions"
                );
                assert_eq!(
                    peer.queues.recv_completions, direction.receives,
                    "{here}: receive completions"
                );
                assert_eq!(
                    peer.queues.effects,
                    join(&direction.posted),
                    "{here}: stores at the responder"
                );
                assert_eq!(
                    (own.rc.sends_outstanding(), own.rc.bytes_in_flight()),
                    (0, 0),
                    "{here}: outstanding sends, bytes in flight"
                );
                assert_eq!(own.rc.next_timeout(), None, "{here}: timer left");
                let psn = self.attrs[qp][requester].sq_psn.add(direction.psns);
                assert_eq!(own.rc.sq_psn(), psn, "{here}: sq_psn");
                assert_eq!(peer.rc.rq_psn(), psn, "{here}: rq_psn of the peer");
                assert_eq!(peer.queues.receives_open(), 0, "{here}: receives half done");
                assert!(peer.queues.receives.is_empty(), "{here}: receives left");
            }
        }
        for (n, (nic, expected)) in pair.nics.iter().zip(&self.memories).enumerate() {
            for (r, (region, expected)) in nic.memory.regions.iter().zip(expected).enumerate() {
                if region != expected {
                    let wrong: Vec<usize> = (0..expected.bytes.len())
                        .filter(|&i| region.bytes[i] != expected.bytes[i])
                        .collect();
                    panic!(
                        "nic {n} region {r} ({} bytes): {} bytes differ, first {:?}, last {:?}; revoked {} not {}",
                        expected.bytes.len(),
                        wrong.len(),
                        wrong.first(),
                        wrong.last(),
                        region.revoked,
                        expected.revoked
                    );
                }
            }
        }
    }

    /// Queue pairs may have failed (retries exhausted), but honestly: what was reported as done is
    /// done, nothing was done twice or out of order, and every request has ended. Gives the number
    /// of queue pairs in error.
    ///
    /// # Panics
    /// Says what is not so.
    pub fn check_honest(&self, pair: &Pair) -> u32 {
        assert_eq!(pair.violations(), Vec::<String>::new());
        let mut failed = 0;
        for (qp, directions) in self.directions.iter().enumerate() {
            for (requester, direction) in directions.iter().enumerate() {
                let here = format!("qp {qp}, requester {requester}");
                let own = &pair.nics[requester].qps[qp];
                let peer = &pair.nics[1 - requester].qps[qp];
                let seen = &own.queues.send_completions;
                let successes = seen
                    .iter()
                    .take_while(|c| c.status == Status::Success)
                    .count();
                let expected: Vec<_> = direction.posted.iter().filter(|p| p.signaled).collect();
                for (seen, expected) in seen[..successes].iter().zip(&expected) {
                    assert!(
                        same_send(seen, &expected.completion),
                        "{here}: {seen:?} instead of {:?}",
                        expected.completion
                    );
                }
                // The first that failed, and whatever was posted before it, signaled or not.
                let done = match seen.get(successes) {
                    None => {
                        assert_eq!(successes, expected.len(), "{here}: send completions");
                        direction.posted.len()
                    }
                    Some(failure) => {
                        assert!(own.rc.is_error(), "{here}: {failure:?} without error state");
                        // Bad luck exhausts a counter; nothing else may come of it. A request
                        // posted into the error state that the last one left behind is flushed, all
                        // before it having been done.
                        assert!(
                            matches!(
                                failure.status,
                                Status::RetryExceeded | Status::RnrRetryExceeded
                            ),
                            "{here}: {failure:?}"
                        );
                        let first = direction
                            .posted
                            .iter()
                            .position(|p| p.wr_id == failure.wr_id)
                            .expect("ledger checked");
                        assert_eq!(
                            seen.len() - successes,
                            direction.posted.len() - first,
                            "{here}: every request after the failure is flushed"
                        );
                        first
                    }
                };
                if own.rc.is_error() {
                    failed += 1;
                } else {
                    assert_eq!(own.rc.sends_outstanding(), 0, "{here}");
                }
                let whole = join(&direction.posted);
                let least = join(&direction.posted[..done]);
                assert!(
                    is_beginning(&peer.queues.effects, &whole),
                    "{here}: {:?} is no beginning of {whole:?}",
                    peer.queues.effects
                );
                assert!(
                    is_beginning(&least, &peer.queues.effects),
                    "{here}: reported as done {least:?}, done {:?}",
                    peer.queues.effects
                );
                let received = peer
                    .queues
                    .recv_completions
                    .iter()
                    .take_while(|c| c.status == Status::Success)
                    .count();
                assert_eq!(
                    peer.queues.recv_completions[..received],
                    direction.receives[..received],
                    "{here}: receive completions"
                );
                let flushed = peer.queues.recv_completions.len() - received;
                assert!(
                    flushed == 0 || peer.rc.is_error(),
                    "{here}: receives flushed without error state"
                );
                // A shared queue keeps its receives for others.
                if peer.rc.is_error() && !peer.queues.shared {
                    assert_eq!(
                        peer.queues.recv_completions.len(),
                        direction.receives.len(),
                        "{here}: every receive ends"
                    );
                }
            }
        }
        failed
    }
}
