//! The program at one end of a flow, and the oracle that knows how it must end.
//!
//! Both directions of a flow have memory of their own. What a SEND or WRITE brings is a piece of
//! the sender's `source`, whose bytes are known. WRITEs go to `target`, and may overlap: at the end
//! it is what they make of it in their order. READs come from `remote`, which nobody changes, and
//! atomics go to words of it; each brings its result to a place of its own in `landing`.

use std::sync::OnceLock;

use rnic_nic::{
    Access, AhAttr, Completion, CompletionOpcode, Context, Cq, Gid, Immediate, Pd, Qp, QpAttr,
    QpAttrMask as M, QpCap, QpInit, QpState, QpType, RecvWqe, SendData, SendOp, SendWqe, SgList,
    Status,
};

use crate::digest::Digest;
use crate::memory::Memory;
use crate::scenario::{Direction, Flow, Kind, Op, Service};

/// Words of `remote` that atomics go to; the rest of it is read.
const WORDS: usize = 8;
/// Completions that one look takes.
const LOOK: usize = 16;
/// Receives have wr_ids from here on.
const RECEIVE: u64 = 1 << 32;
/// Bytes behind a message that are looked at when it comes; at the end all are.
const BEHIND: usize = 64;
/// What a receive's buffer holds before its message comes.
const EMPTY: u8 = 0xee;

/// What the peer may reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachable {
    target: (u64, u32),
    remote: (u64, u32),
}

/// One end of a flow.
pub(crate) struct Side {
    flow: usize,
    /// Which end of it.
    end: usize,
    service: Service,
    /// The network keeps packets in order, each once.
    in_order: bool,
    depth: usize,
    late: u64,
    /// What this side posts, and what the peer does.
    own: Direction,
    peers: Direction,
    /// Length of the regions that these operations are placed in.
    own_len: usize,
    peers_len: usize,
    // Dropped in this order: nothing is done to memory any more when queue pair and completion
    // queue are gone.
    qp: Qp,
    cq: Cq,
    source: Memory,
    landing: Memory,
    inbox: Memory,
    target: Memory,
    remote: Memory,
    /// Where each operation's result comes to in `landing`.
    places: Vec<usize>,
    peer: Option<Reachable>,
    /// Bytes of a receive's buffer.
    room: usize,
    /// Slots of `inbox` that may be posted again from a time on, and which of them are posted.
    free: Vec<(u64, usize)>,
    is_posted: Vec<bool>,
    /// Bytes of each that its last message has left.
    dirty: Vec<usize>,
    /// Messages that must come.
    due: usize,
    /// Of each operation that was posted, when.
    posted_times: Vec<u64>,
    /// Of each that was seen to complete, how long that took.
    pub(crate) latencies: Vec<u64>,
    /// Operations posted so far, and the time of the last.
    posted: usize,
    posted_at: u64,
    /// Those that are known to be complete.
    completed: usize,
    /// Messages received so far.
    received: usize,
    /// The operation that was received last, plus one.
    received_op: usize,
    /// An operation of this side has failed, as it should.
    failed: bool,
    /// What the first operation that fails may end with, whatever the scenario says.
    may_end: Vec<Status>,
    /// Its process was killed.
    is_dead: bool,
    rng: fastrand::Rng,
}

/// The longest operation, bytes.
pub(crate) const LONGEST: u32 = 1 << 21;
const PATTERN_LEN: usize = LONGEST as usize + (1 << 18) + (1 << 12);

/// Bytes that look random, of which all memory that nobody writes has a piece.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut rng = fastrand::Rng::with_seed(0x7061_7474_6572_6e00);
        let words = (0..PATTERN_LEN / 8).map(|_| rng.u64(..));
        words.flat_map(u64::to_le_bytes).collect()
    })
}

/// What `source` holds at a place, which depends on all that may be confused.
fn source_bytes(flow: usize, end: usize, at: usize, len: usize) -> &'static [u8] {
    let begin = (flow * 4099 + end * 2053) % (1 << 18) + at;
    &pattern()[begin..begin + len]
}

/// The same for the part of `remote` behind its words.
fn remote_bytes(flow: usize, end: usize, at: usize, len: usize) -> &'static [u8] {
    source_bytes(flow + 77, end, at, len)
}

/// Where in a region an operation's bytes are.
fn place(op: usize, len: usize, region: usize) -> usize {
    op * 97 % (region - len + 1)
}

fn largest(direction: &Direction) -> usize {
    let lens = direction.ops.iter().map(|op| op.len as usize);
    lens.max().unwrap_or(0).max(64)
}

/// Length of the regions that operations of a direction are placed in.
fn region_len(direction: &Direction) -> usize {
    largest(direction) + 512
}

/// What a word holds when these operations of a direction were executed, each once.
fn word_after(ops: &[Op], word: usize) -> u64 {
    let ops = ops.iter().enumerate();
    let same = ops.filter(|(at, _)| at % WORDS == word);
    same.fold(0, |value: u64, (at, op)| match op.kind {
        Kind::FetchAdd => value.wrapping_add(at as u64 + 1),
        Kind::CompareSwap => at as u64 * 1000,
        _ => value,
    })
}

fn in_words<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

impl Side {
    /// End `end` of the flow, on a host whose device this is.
    pub(crate) fn new(
        flow_at: usize,
        end: usize,
        flow: &Flow,
        context: &Context,
        (seed, in_order): (u64, bool),
    ) -> Result<Side, String> {
        let (own, peers) = (
            flow.directions[end].clone(),
            flow.directions[1 - end].clone(),
        );
        let due = peers.ops.iter();
        let due = due.filter(|op| op.kind.takes_receive() && op.expect == Status::Success);
        let due = due.count();
        if own.ops.iter().any(|op| op.len > LONGEST) {
            return Err(format!(
                "flow {flow_at}: an operation has more than {LONGEST} bytes"
            ));
        }
        let pd: Pd = context.alloc_pd();
        let cq = context
            .create_cq(2 * (flow.depth + flow.receives) + 16, None, 0)
            .map_err(in_words)?;
        let local = Access::LOCAL_WRITE;
        let memory = |nth: u64, len: usize, access, fill: &dyn Fn(&mut [u8])| {
            Memory::new(&pd, (nth << 28, len), access, fill).map_err(in_words)
        };
        let empty = |bytes: &mut [u8]| bytes.fill(EMPTY);
        let source = memory(1, region_len(&own), Access(0), &|bytes| {
            bytes.copy_from_slice(source_bytes(flow_at, end, 0, bytes.len()));
        })?;
        let mut places = Vec::new();
        let mut landing = 64;
        for op in &own.ops {
            places.push(landing);
            if op.kind == Kind::Read || op.kind.is_atomic() {
                landing += (op.len as usize).next_multiple_of(8);
            }
        }
        let landing = memory(2, landing, local, &empty)?;
        let room = largest(&peers);
        let receives = flow.receives as usize;
        let inbox = memory(3, room * receives, local, &empty)?;
        let target = memory(4, region_len(&peers), local | Access::REMOTE_WRITE, &empty)?;
        let remote = memory(
            5,
            8 * WORDS + region_len(&peers),
            local | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            &|bytes| {
                let (words, rest) = bytes.split_at_mut(8 * WORDS);
                words.fill(0);
                rest.copy_from_slice(remote_bytes(flow_at, end, 0, rest.len()));
            },
        )?;
        let qp = pd
            .create_qp(&QpInit {
                qp_type: match flow.service {
                    Service::Rc => QpType::Rc,
                    Service::Uc => QpType::Uc,
                },
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: QpCap {
                    max_send_wr: flow.depth,
                    max_recv_wr: flow.receives,
                    max_send_sge: 2,
                    max_recv_sge: 2,
                    max_inline_data: 0,
                },
                sq_sig_all: false,
                cookie: 0,
            })
            .map_err(in_words)?;
        Ok(Side {
            flow: flow_at,
            end,
            service: flow.service,
            in_order,
            depth: flow.depth as usize,
            late: flow.late,
            own_len: region_len(&own),
            peers_len: region_len(&peers),
            own,
            peers,
            qp,
            cq,
            source,
            landing,
            inbox,
            target,
            remote,
            places,
            peer: None,
            room,
            free: (0..receives).map(|slot| (0, slot)).collect(),
            is_posted: vec![false; receives],
            dirty: vec![0; receives],
            due,
            posted_times: Vec::new(),
            latencies: Vec::new(),
            posted: 0,
            posted_at: 0,
            completed: 0,
            received: 0,
            received_op: 0,
            failed: false,
            may_end: Vec::new(),
            is_dead: false,
            rng: fastrand::Rng::with_seed(seed),
        })
    }

    /// What the other end needs to know.
    pub(crate) fn reachable(&self) -> (u32, Reachable) {
        let reachable = Reachable {
            target: (self.target.address(0), self.target.key()),
            remote: (self.remote.address(0), self.remote.key()),
        };
        (self.qp.qpn(), reachable)
    }

    /// Takes the queue pair to RTS.
    pub(crate) fn connect(
        &mut self,
        flow: &Flow,
        (peer, reachable): (u32, Reachable),
        gid: Gid,
    ) -> Result<(), String> {
        self.peer = Some(reachable);
        let attr = QpAttr {
            qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            port_num: 1,
            path_mtu: Some(flow.mtu),
            dest_qp_num: peer,
            rq_psn: flow.psns[1 - self.end],
            sq_psn: flow.psns[self.end],
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: flow.timeout,
            retry_cnt: flow.retry,
            rnr_retry: flow.rnr_retry,
            ah: AhAttr {
                dgid: gid,
                sgid_index: 0,
                is_global: true,
                port_num: 1,
                ..AhAttr::default()
            },
            ..QpAttr::default()
        };
        let to = |qp_state, mask| {
            let attr = QpAttr { qp_state, ..attr };
            self.qp.modify(&attr, M::STATE | mask).map_err(in_words)
        };
        to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS)?;
        // Before anybody can send, as programs do.
        self.post_receives(0)?;
        let to = |qp_state, mask| {
            let attr = QpAttr { qp_state, ..attr };
            self.qp.modify(&attr, M::STATE | mask).map_err(in_words)
        };
        let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        match self.service {
            Service::Uc => {
                to(QpState::Rtr, rtr)?;
                to(QpState::Rts, M::SQ_PSN)
            }
            Service::Rc => {
                to(QpState::Rtr, rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER)?;
                let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN;
                to(QpState::Rts, rts | M::MAX_QP_RD_ATOMIC)
            }
        }
    }

    /// From now on the peer may be unable to do its part: the next operation may end with this
    /// status, and all behind it are flushed.
    pub(crate) fn may_end_with(&mut self, status: Status) {
        self.may_end.push(status);
    }

    /// Its process is killed.
    pub(crate) fn die(&mut self) {
        self.is_dead = true;
    }

    /// Deregisters what the peer writes to. False: EBUSY.
    pub(crate) fn deregister(&mut self) -> bool {
        self.target.deregister()
    }

    /// What the queue pair has counted.
    pub(crate) fn counters(&self) -> rnic_nic::Counters {
        self.qp.counters()
    }

    /// How much longer an operation may take because programs look late, and post receives late,
    /// ns. `look`: how late they look.
    pub(crate) fn waits_for_receives(&self, look: u64) -> u64 {
        (self.late + 2 * look) * self.depth as u64
    }

    /// Messages that the program has received.
    pub(crate) fn received(&self) -> usize {
        // What a killed one has received nobody knows.
        if self.is_dead { 0 } else { self.received }
    }

    /// Each completion is there, and each message that must come.
    pub(crate) fn is_done(&self) -> bool {
        if self.is_dead {
            return true;
        }
        if !self.may_end.is_empty() {
            let all = if self.failed {
                self.posted
            } else {
                self.own.ops.len()
            };
            return self.completed == all;
        }
        let all_received = self.service == Service::Uc || self.received >= self.due;
        self.completed == self.own.ops.len() && all_received
    }

    /// What the program waits for, in words.
    pub(crate) fn waits_for(&self) -> String {
        format!(
            "end {} of flow {}: {} of {} completed, {} posted, {} received, {:?}",
            self.end,
            self.flow,
            self.completed,
            self.own.ops.len(),
            self.posted,
            self.received,
            self.qp.state(),
        )
    }

    /// One look of the program: takes completions, posts what it can. Gives when it wants to look
    /// again for its own sake, and whether it found something or posted.
    pub(crate) fn look(
        &mut self,
        now: u64,
        digest: &mut Digest,
    ) -> Result<(Option<u64>, bool), String> {
        let posted = self.posted;
        let mut taken: [Option<Completion>; LOOK] = [None; LOOK];
        let mut count = 0;
        self.cq
            .poll(LOOK, &mut |completion| {
                taken[count] = Some(*completion);
                count += 1;
            })
            .map_err(in_words)?;
        for completion in taken.into_iter().flatten() {
            digest.word(completion.wr_id ^ now << 20);
            digest.word(u64::from(completion.byte_len) << 32 | completion.status as u64);
            let checked = match completion.wr_id >= RECEIVE {
                true => self.check_receive(now, &completion),
                false => self.check_send(now, &completion),
            };
            checked.map_err(|why| format!("end {} of flow {}: {why}", self.end, self.flow))?;
        }
        let next_receive = self.post_receives(now)?;
        let next_send = self.post_sends(now)?;
        let again = (count == LOOK).then_some(now);
        let next = [again, next_receive, next_send].into_iter().flatten().min();
        Ok((next, count > 0 || self.posted > posted))
    }

    fn post_receives(&mut self, now: u64) -> Result<Option<u64>, String> {
        if self.free.is_empty() || self.qp.state() == QpState::Err {
            return Ok(None);
        }
        let mut free = std::mem::take(&mut self.free);
        let (inbox, room, dirty) = (&self.inbox, self.room, &mut self.dirty);
        let ready = free.extract_if(.., |(at, _)| *at <= now);
        let wqes: Vec<_> = ready
            .map(|(_, slot)| {
                self.is_posted[slot] = true;
                inbox.fill(slot * room, std::mem::take(&mut dirty[slot]), EMPTY);
                Ok(RecvWqe {
                    wr_id: RECEIVE + slot as u64,
                    sges: SgList::from_slice(&[inbox.sge(slot * room, room)]),
                })
            })
            .collect();
        self.free = free;
        if !wqes.is_empty() {
            self.qp
                .post_recv(&mut wqes.into_iter())
                .map_err(|(_, why)| format!("a receive is refused: {why}"))?;
        }
        Ok(self.free.iter().map(|(at, _)| *at).min())
    }

    /// Whether operation `nth` makes a completion.
    fn is_signaled(&self, nth: usize) -> bool {
        let op = &self.own.ops[nth];
        op.signaled
            || nth + 1 == self.own.ops.len()
            || (nth + 1).is_multiple_of((self.depth / 2).max(1))
    }

    fn post_sends(&mut self, now: u64) -> Result<Option<u64>, String> {
        let mut wqes = Vec::new();
        let mut next = None;
        while self.posted < self.own.ops.len()
            && (!self.failed || self.may_end.is_empty())
            && self.posted - self.completed < self.depth
            // What was posted together leaves together; what was not, need not.
            && wqes.len() < 4
        {
            let op = self.own.ops[self.posted];
            let due = self.posted_at.saturating_add(op.after);
            if due > now {
                next = Some(due);
                break;
            }
            wqes.push(Ok(self.request(self.posted, &op)));
            self.posted += 1;
            self.posted_at = now;
            self.posted_times.push(now);
        }
        if wqes.is_empty() {
            return Ok(next);
        }
        let more = wqes.len() == 4;
        self.qp
            .post_send(&mut wqes.into_iter())
            .map_err(|(_, why)| format!("a work request is refused: {why}"))?;
        Ok(if more { Some(now + 1) } else { next })
    }

    fn request(&self, nth: usize, op: &Op) -> SendWqe {
        let (len, peer) = (op.len as usize, self.peer.expect("connected"));
        let imm = (nth as u32).to_be_bytes();
        let (target, target_key) = peer.target;
        let (remote, remote_key) = peer.remote;
        let to_target = target + place(nth, len, self.own_len) as u64;
        let word = remote + (nth % WORDS * 8) as u64;
        let send_op = match op.kind {
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm(imm),
            Kind::Write => SendOp::Write {
                remote_addr: to_target,
                rkey: target_key,
            },
            Kind::WriteImm => SendOp::WriteImm {
                remote_addr: to_target,
                rkey: target_key,
                imm,
            },
            Kind::Read => SendOp::Read {
                remote_addr: remote + self.read_from(nth, len) as u64,
                rkey: remote_key,
            },
            Kind::FetchAdd => SendOp::FetchAdd {
                remote_addr: word,
                rkey: remote_key,
                add: nth as u64 + 1,
            },
            Kind::CompareSwap => SendOp::CompareSwap {
                remote_addr: word,
                rkey: remote_key,
                compare: self.word_before(nth),
                swap: nth as u64 * 1000,
            },
        };
        let sge = match op.kind {
            Kind::Read | Kind::FetchAdd | Kind::CompareSwap => {
                self.landing.sge(self.places[nth], len)
            }
            _ => self.source.sge(place(nth, len, self.own_len), len),
        };
        SendWqe {
            wr_id: nth as u64,
            op: send_op,
            data: SendData::Gather(SgList::from_slice(&[sge])),
            signaled: self.is_signaled(nth),
            solicited: false,
            fence: op.fence,
            srqn: 0,
        }
    }

    fn read_from(&self, nth: usize, len: usize) -> usize {
        8 * WORDS + place(nth, len, self.own_len)
    }

    /// What operation `nth`'s word holds before it: all atomics before it were executed.
    fn word_before(&self, nth: usize) -> u64 {
        word_after(&self.own.ops[..nth], nth % WORDS)
    }

    fn check_send(&mut self, now: u64, completion: &Completion) -> Result<(), String> {
        let nth = completion.wr_id as usize;
        if !self.may_end.is_empty() && completion.status != Status::Success {
            return self.check_end(nth, completion.status);
        }
        let due = (self.completed..self.posted).find(|at| {
            // What fails completes in any case.
            self.is_signaled(*at) || self.own.ops[*at].expect != Status::Success
        });
        if due != Some(nth) {
            return Err(format!("operation {nth} completes, due was {due:?}"));
        }
        let op = self.own.ops[nth];
        if completion.status != op.expect {
            return Err(format!(
                "operation {nth} ({:?}) ends with {:?}, not {:?}",
                op.kind, completion.status, op.expect
            ));
        }
        self.failed |= op.expect != Status::Success;
        if op.expect == Status::Success {
            let opcode = match op.kind {
                Kind::Send | Kind::SendImm => CompletionOpcode::Send,
                Kind::Write | Kind::WriteImm => CompletionOpcode::RdmaWrite,
                Kind::Read => CompletionOpcode::RdmaRead,
                Kind::FetchAdd => CompletionOpcode::FetchAdd,
                Kind::CompareSwap => CompletionOpcode::CompareSwap,
            };
            if completion.opcode != opcode {
                return Err(format!(
                    "operation {nth} is told as {:?}",
                    completion.opcode
                ));
            }
            // Those without a completion are over as well.
            for at in self.completed..=nth {
                self.check_landing(at)?;
            }
        }
        self.latencies.push(now - self.posted_times[nth]);
        self.completed = nth + 1;
        Ok(())
    }

    /// Operation `nth` fails, since the peer cannot do its part any more.
    fn check_end(&mut self, nth: usize, status: Status) -> Result<(), String> {
        let mut before = self.completed..nth.min(self.posted);
        let skipped = before.find(|at| self.failed || self.is_signaled(*at));
        if nth < self.completed || nth >= self.posted || skipped.is_some() {
            let due = self.completed;
            return Err(format!(
                "operation {nth} fails with {status:?}, due was {due}"
            ));
        }
        let due = match self.failed {
            true => &[Status::WorkRequestFlushed][..],
            false => &self.may_end,
        };
        if !due.contains(&status) {
            return Err(format!("operation {nth} ends with {status:?}, not {due:?}"));
        }
        self.failed = true;
        self.completed = nth + 1;
        Ok(())
    }

    fn check_landing(&self, nth: usize) -> Result<(), String> {
        let (op, at) = (self.own.ops[nth], self.places[nth]);
        let len = op.len as usize;
        match op.kind {
            Kind::Read => {
                let from = place(nth, len, self.own_len);
                let wanted = remote_bytes(self.flow, 1 - self.end, from, len);
                match self.landing.differs(at, wanted) {
                    Some(byte) => Err(format!("READ {nth}: byte {byte} is wrong")),
                    None => Ok(()),
                }
            }
            Kind::FetchAdd | Kind::CompareSwap => {
                let (is, wanted) = (self.landing.word(at), self.word_before(nth));
                match is == wanted {
                    true => Ok(()),
                    false => Err(format!("atomic {nth} brings {is}, not {wanted}")),
                }
            }
            _ => Ok(()),
        }
    }

    fn check_receive(&mut self, now: u64, completion: &Completion) -> Result<(), String> {
        let slot = (completion.wr_id - RECEIVE) as usize;
        if self.is_posted.get(slot) != Some(&true) {
            return Err(format!("receive {slot} completes, and is not posted"));
        }
        self.is_posted[slot] = false;
        let again = match self.late {
            0 => now,
            late => now + self.rng.u64(..=late),
        };
        self.free.push((again, slot));
        if completion.status != Status::Success {
            let may_fail = self.failed || self.may_end.contains(&Status::WorkRequestFlushed);
            let flushed = completion.status == Status::WorkRequestFlushed && may_fail;
            return match flushed {
                true => Ok(()),
                false => Err(format!("receive {slot} ends with {:?}", completion.status)),
            };
        }
        // UC takes the first packet of a message whatever its PSN is (IBTA vol. 1, 9.8.2.2.1): what
        // the network repeats comes again, and what it delays comes late.
        let strict = self.service == Service::Rc || self.in_order;
        let begin = if strict { self.received_op } else { 0 };
        let candidates = begin..self.peers.ops.len();
        let mut candidates = candidates.filter(|nth| self.peers.ops[*nth].kind.takes_receive());
        let nth = match self.service {
            Service::Rc => candidates.next(),
            // Some before it may be lost.
            Service::Uc => candidates.find(|nth| self.is_message(*nth, slot, completion)),
        };
        let Some(nth) = nth else {
            return Err(format!("receive {slot}: nobody has sent that"));
        };
        if !self.is_message(nth, slot, completion) {
            return Err(format!(
                "receive {slot}: {:?}, {} bytes, is not operation {nth} of the peer",
                completion.opcode, completion.byte_len
            ));
        }
        self.dirty[slot] = completion.byte_len as usize;
        self.received_op = nth + 1;
        self.received += 1;
        Ok(())
    }

    /// What came is what that operation of the peer sends.
    fn is_message(&self, nth: usize, slot: usize, completion: &Completion) -> bool {
        let op = self.peers.ops[nth];
        let imm = Immediate::Data((nth as u32).to_be_bytes());
        let (opcode, immediate, len) = match op.kind {
            Kind::SendImm => (CompletionOpcode::Recv, imm, op.len as usize),
            Kind::WriteImm => (CompletionOpcode::RecvRdmaWithImm, imm, 0),
            _ => (CompletionOpcode::Recv, Immediate::None, op.len as usize),
        };
        let from = place(nth, len, self.peers_len);
        let at = slot * self.room;
        let wanted = source_bytes(self.flow, 1 - self.end, from, len);
        // A message of UC that ended in the middle has left bytes there, and the receive to the
        // next one.
        let rest_is_empty =
            || self.service == Service::Uc || self.is_empty(at + len, BEHIND.min(self.room - len));
        completion.opcode == opcode
            && completion.immediate == immediate
            && completion.byte_len == op.len
            && self.inbox.differs(at, wanted).is_none()
            && rest_is_empty()
    }

    fn is_empty(&self, at: usize, len: usize) -> bool {
        self.inbox.with(at, len, |bytes| {
            let (chunks, rest) = bytes.as_chunks::<64>();
            chunks.iter().all(|chunk| *chunk == [EMPTY; 64]) && rest.iter().all(|b| *b == EMPTY)
        })
    }

    /// At the end: what the peer has written is there, and nothing else has changed.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("end {} of flow {}: {what}", self.end, self.flow));
        let all = [
            &self.source,
            &self.landing,
            &self.inbox,
            &self.target,
            &self.remote,
        ];
        if !all.iter().all(|memory| memory.guards_hold()) {
            return wrong("a byte outside of the regions has changed");
        }
        if !all.iter().all(|memory| memory.is_left_alone()) {
            return wrong("a byte has changed that was deregistered");
        }
        if self.service == Service::Uc
            || !self.may_end.is_empty()
            || self.is_dead
            || self.peers.ops.iter().any(|op| op.expect != Status::Success)
        {
            return Ok(());
        }
        for (slot, dirty) in self.dirty.iter().enumerate() {
            if !self.is_empty(slot * self.room + dirty, self.room - dirty) {
                return wrong("a byte of a receive has changed that belongs to no message");
            }
        }
        let len = self.peers_len;
        let mut model = vec![EMPTY; len];
        for (nth, op) in self.peers.ops.iter().enumerate() {
            if op.kind.is_write() {
                let at = place(nth, op.len as usize, len);
                let len = op.len as usize;
                let bytes = source_bytes(self.flow, 1 - self.end, at, len);
                model[at..at + len].copy_from_slice(bytes);
            }
        }
        if let Some(byte) = self.target.differs(0, &model) {
            return wrong(&format!("byte {byte} of what the peer wrote is wrong"));
        }
        for word in 0..WORDS {
            let (is, due) = (
                self.remote.word(8 * word),
                word_after(&self.peers.ops, word),
            );
            if is != due {
                return wrong(&format!("word {word} is {is}, and atomics make it {due}"));
            }
        }
        let fixed = remote_bytes(self.flow, self.end, 0, len);
        if self.remote.differs(8 * WORDS, fixed).is_some() {
            return wrong("memory that may only be read has changed");
        }
        let fixed = source_bytes(self.flow, self.end, 0, self.own_len);
        match self.source.differs(0, fixed) {
            Some(_) => wrong("memory that nobody may write has changed"),
            None => Ok(()),
        }
    }
}
