//! What completes next at an end of a flow, with what, and what memory holds when all is over.

use rnic_nic::{Completion, CompletionOpcode, Immediate, Status};

use super::layout::{EMPTY, Regions, WORDS, region_len, remote_bytes, source_bytes, word_after};
use crate::inbox::Inbox;
use crate::pattern::place;
use crate::scenario::{Direction, Flow, Kind, Op, Service};

/// What is known of an end so far.
pub(super) struct Oracle {
    flow: usize,
    /// Which end of it.
    end: usize,
    service: Service,
    /// The network keeps packets in order, each once.
    in_order: bool,
    /// What this end posts, and what the other one does.
    pub(super) own: Direction,
    peers: Direction,
    /// Length of the regions that these operations are placed in.
    own_len: usize,
    peers_len: usize,
    /// Own operations that make a completion.
    signaled: Vec<bool>,
    /// Messages that must come.
    due: usize,
    /// Of each operation that was posted, when.
    posted_times: Vec<u64>,
    /// Of each that was seen to complete, how long that took.
    pub(super) latencies: Vec<u64>,
    /// Operations that are known to be complete.
    completed: usize,
    /// Messages received so far.
    received: usize,
    /// The operation that was received last, plus one.
    received_op: usize,
    /// An operation of this end has failed, as it should.
    failed: bool,
}

impl Oracle {
    /// Of end `end` of flow `at`.
    pub(super) fn new((at, end): (usize, usize), flow: &Flow, in_order: bool) -> Oracle {
        let (own, peers) = (
            flow.directions[end].clone(),
            flow.directions[1 - end].clone(),
        );
        let due = peers.ops.iter();
        let due = due.filter(|op| op.kind.takes_receive() && op.expect == Status::Success);
        let due = due.count();
        let half = (flow.depth as usize / 2).max(1);
        let signaled = own.ops.iter().enumerate().map(|(nth, op)| {
            op.signaled || nth + 1 == own.ops.len() || (nth + 1).is_multiple_of(half)
        });
        Oracle {
            flow: at,
            end,
            service: flow.service,
            in_order,
            signaled: signaled.collect(),
            own_len: region_len(&own),
            peers_len: region_len(&peers),
            own,
            peers,
            due,
            posted_times: Vec::new(),
            latencies: Vec::new(),
            completed: 0,
            received: 0,
            received_op: 0,
            failed: false,
        }
    }

    /// Messages that the program has received.
    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// Operations posted so far.
    pub(super) fn posted(&self) -> usize {
        self.posted_times.len()
    }

    /// Operations in the send queue, as far as the program knows.
    pub(super) fn queued(&self) -> usize {
        self.posted() - self.completed
    }

    /// Whether operation `nth` makes a completion.
    pub(super) fn is_signaled(&self, nth: usize) -> bool {
        self.signaled[nth]
    }

    /// The next operation is posted.
    pub(super) fn posts(&mut self, now: u64) {
        self.posted_times.push(now);
    }

    /// Each completion is there, and each message that must come.
    pub(super) fn is_done(&self) -> bool {
        let all_received = self.service == Service::Uc || self.received >= self.due;
        self.completed == self.own.ops.len() && all_received
    }

    /// How far it is, in words.
    pub(super) fn progress(&self) -> String {
        format!(
            "{} of {} completed, {} posted, {} received",
            self.completed,
            self.own.ops.len(),
            self.posted(),
            self.received,
        )
    }

    /// Where operation `nth`'s bytes are in the region that they come from or go to.
    pub(super) fn place(&self, nth: usize) -> usize {
        place(nth, self.own.ops[nth].len as usize, self.own_len)
    }

    /// What operation `nth`'s word holds before it: all atomics before it were executed.
    pub(super) fn word_before(&self, nth: usize) -> u64 {
        word_after(&self.own.ops[..nth], nth % WORDS)
    }

    /// A completion of the send queue.
    pub(super) fn check_send(
        &mut self,
        now: u64,
        completion: &Completion,
        regions: &Regions,
    ) -> Result<(), String> {
        let nth = completion.wr_id as usize;
        let due = (self.completed..self.posted()).find(|at| {
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
            if completion.opcode != opcode(op.kind) {
                return Err(format!(
                    "operation {nth} is told as {:?}",
                    completion.opcode
                ));
            }
            // Those without a completion are over as well.
            for at in self.completed..=nth {
                self.check_landing(at, regions)?;
            }
        }
        self.latencies.push(now - self.posted_times[nth]);
        self.completed = nth + 1;
        Ok(())
    }

    fn check_landing(&self, nth: usize, regions: &Regions) -> Result<(), String> {
        let (op, at) = (self.own.ops[nth], regions.places[nth]);
        match op.kind {
            Kind::Read => {
                let from = self.place(nth);
                let wanted = remote_bytes(self.flow, 1 - self.end, from, op.len as usize);
                match regions.landing.differs(at, wanted) {
                    Some(byte) => Err(format!("READ {nth}: byte {byte} is wrong")),
                    None => Ok(()),
                }
            }
            Kind::FetchAdd | Kind::CompareSwap => {
                let (is, wanted) = (regions.landing.word(at), self.word_before(nth));
                match is == wanted {
                    true => Ok(()),
                    false => Err(format!("atomic {nth} brings {is}, not {wanted}")),
                }
            }
            _ => Ok(()),
        }
    }

    /// The receive of a slot has completed.
    pub(super) fn check_receive(
        &mut self,
        slot: usize,
        completion: &Completion,
        inbox: &mut Inbox,
    ) -> Result<(), String> {
        if completion.status != Status::Success {
            let flushed = completion.status == Status::WorkRequestFlushed && self.failed;
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
            Service::Uc => candidates.find(|nth| self.is_message(*nth, slot, completion, inbox)),
        };
        let Some(nth) = nth else {
            return Err(format!("receive {slot}: nobody has sent that"));
        };
        if !self.is_message(nth, slot, completion, inbox) {
            return Err(format!(
                "receive {slot}: {:?}, {} bytes, is not operation {nth} of the peer",
                completion.opcode, completion.byte_len
            ));
        }
        inbox.came(slot, completion.byte_len as usize);
        self.received_op = nth + 1;
        self.received += 1;
        Ok(())
    }

    /// What came is what that operation of the peer sends.
    fn is_message(&self, nth: usize, slot: usize, completion: &Completion, inbox: &Inbox) -> bool {
        let op = self.peers.ops[nth];
        let imm = Immediate::Data((nth as u32).to_be_bytes());
        let (opcode, immediate, len) = match op.kind {
            Kind::SendImm => (CompletionOpcode::Recv, imm, op.len as usize),
            Kind::WriteImm => (CompletionOpcode::RecvRdmaWithImm, imm, 0),
            _ => (CompletionOpcode::Recv, Immediate::None, op.len as usize),
        };
        let from = place(nth, len, self.peers_len);
        let wanted = source_bytes(self.flow, 1 - self.end, from, len);
        completion.opcode == opcode
            && completion.immediate == immediate
            && completion.byte_len == op.len
            && inbox.has(slot, 0, wanted)
            && inbox.is_empty_behind(slot, len)
    }

    /// At the end: what the peer has written is there, and nothing else has changed.
    pub(super) fn check_memory(&self, regions: &Regions, inbox: &Inbox) -> Result<(), String> {
        if !regions.guards_hold() || !inbox.guards_hold() {
            return Err("a byte outside of the regions has changed".to_owned());
        }
        if self.service == Service::Uc
            || self.peers.ops.iter().any(|op| op.expect != Status::Success)
        {
            return Ok(());
        }
        if !inbox.rest_is_empty() {
            return Err("a byte of a receive has changed that belongs to no message".to_owned());
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
        if let Some(byte) = regions.target.differs(0, &model) {
            return Err(format!("byte {byte} of what the peer wrote is wrong"));
        }
        self.check_words(&self.peers.ops, regions)?;
        let fixed = remote_bytes(self.flow, self.end, 0, len);
        if regions.remote.differs(8 * WORDS, fixed).is_some() {
            return Err("memory that may only be read has changed".to_owned());
        }
        let fixed = source_bytes(self.flow, self.end, 0, self.own_len);
        match regions.source.differs(0, fixed) {
            Some(_) => Err("memory that nobody may write has changed".to_owned()),
            None => Ok(()),
        }
    }

    fn check_words(&self, executed: &[Op], regions: &Regions) -> Result<(), String> {
        for word in 0..WORDS {
            let (is, due) = (regions.remote.word(8 * word), word_after(executed, word));
            if is != due {
                return Err(format!("word {word} is {is}, and atomics make it {due}"));
            }
        }
        Ok(())
    }
}

/// What a completion says of a work request.
fn opcode(kind: Kind) -> CompletionOpcode {
    match kind {
        Kind::Send | Kind::SendImm => CompletionOpcode::Send,
        Kind::Write | Kind::WriteImm => CompletionOpcode::RdmaWrite,
        Kind::Read => CompletionOpcode::RdmaRead,
        Kind::FetchAdd => CompletionOpcode::FetchAdd,
        Kind::CompareSwap => CompletionOpcode::CompareSwap,
    }
}
