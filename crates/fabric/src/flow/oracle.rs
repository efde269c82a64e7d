//! What completes next at an end of a flow, with what, and what memory holds when all is over.

use std::rc::Rc;

use rnic_nic::{Completion, CompletionOpcode, Immediate, Status};

use super::layout::{EMPTY, Regions, WORDS};
use super::layout::{place_of, region_len, remote_bytes, source_bytes, word_after};
use super::windows::{key_at, statuses};
use crate::inbox::Inbox;
use crate::scenario::{Direction, Flow, Kind, Op, Service};

/// A direction of a flow, which both ends know.
#[derive(Clone)]
pub(crate) struct Way {
    direction: Rc<Direction>,
    /// How each of its operations ends.
    ends: Rc<[Status]>,
}

impl Way {
    /// # Errors
    /// The scenario wants an operation to end in a way that the rules of windows exclude.
    pub(crate) fn new(direction: &Direction) -> Result<Way, String> {
        Ok(Way {
            ends: ends(direction)?.into(),
            direction: Rc::new(direction.clone()),
        })
    }
}

/// What is known of an end so far.
pub(super) struct Oracle {
    flow: usize,
    /// Which end of it.
    end: usize,
    service: Service,
    /// The network keeps packets in order, each once.
    in_order: bool,
    /// What this end posts, and what the other one does.
    pub(super) own: Rc<Direction>,
    pub(super) peers: Rc<Direction>,
    /// How each of these ends.
    own_ends: Rc<[Status]>,
    peers_ends: Rc<[Status]>,
    /// Keys that the windows were made with which the peer's operations name.
    windows: Vec<u32>,
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
    /// It has ended without an answer.
    gave_up: bool,
    /// A work request that the peer has asked for is in the send queue, behind so many own ones.
    asked_behind: Option<usize>,
    /// What the first operation that fails may end with, whatever the scenario says.
    may_end: Vec<Status>,
    /// A receive was flushed.
    has_flushed: bool,
    /// Its process was killed.
    is_dead: bool,
}

impl Oracle {
    /// Of end `end` of flow `at`.
    pub(super) fn new(
        (at, end): (usize, usize),
        (flow, ways): (&Flow, &[Way; 2]),
        in_order: bool,
        windows: Vec<u32>,
    ) -> Oracle {
        let Way {
            direction: own,
            ends: own_ends,
        } = ways[end].clone();
        let Way {
            direction: peers,
            ends: peers_ends,
        } = ways[1 - end].clone();
        let due = peers.ops.iter().zip(&*peers_ends);
        let due = due.filter(|(op, end)| op.kind.takes_receive() && **end == Status::Success);
        let due = match is_refused(&own, &own_ends) {
            // What the peer sends may come to a queue pair in ERR.
            true => 0,
            false => due.count(),
        };
        let half = (flow.depth as usize / 2).max(1);
        let signaled = own.ops.iter().enumerate().map(|(nth, op)| {
            let next_waits = own.ops.get(nth + 1).is_none_or(|op| op.kind.is_asked());
            op.signaled || next_waits || (nth + 1).is_multiple_of(half)
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
            own_ends,
            peers_ends,
            windows,
            due,
            posted_times: Vec::new(),
            latencies: Vec::new(),
            completed: 0,
            received: 0,
            received_op: 0,
            failed: false,
            gave_up: false,
            asked_behind: None,
            may_end: Vec::new(),
            has_flushed: false,
            is_dead: false,
        }
    }

    /// From now on the peer may be unable to do its part: the next operation may end with this
    /// status, and all behind it are flushed.
    pub(super) fn may_end_with(&mut self, status: Status) {
        self.may_end.push(status);
    }

    /// Its process is killed.
    pub(super) fn die(&mut self) {
        self.is_dead = true;
    }

    /// Messages that the program has received.
    pub(super) fn received(&self) -> usize {
        // What a killed one has received nobody knows.
        if self.is_dead { 0 } else { self.received }
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
    #[inline]
    pub(super) fn is_signaled(&self, nth: usize) -> bool {
        self.signaled[nth]
    }

    /// The next operation is posted.
    pub(super) fn posts(&mut self, now: u64) {
        self.posted_times.push(now);
    }

    /// Each completion is there, and each message that must come.
    pub(super) fn is_done(&self) -> bool {
        if self.is_dead {
            return true;
        }
        if !self.may_end.is_empty() {
            let all = if self.is_over() {
                self.posted()
            } else {
                self.own.ops.len()
            };
            return self.completed == all;
        }
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
        place_of(&self.own, nth, self.own_len)
    }

    /// An operation of this end has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// One has failed because of what has become of the peer: the program posts nothing more.
    pub(super) fn is_over(&self) -> bool {
        self.failed && !self.may_end.is_empty()
    }

    /// By the rules of windows an operation of this end or of the peer fails, which leaves both
    /// queue pairs in ERR, and what is under way without an answer.
    pub(super) fn has_refusals(&self) -> bool {
        self.is_refusing() || is_refused(&self.own, &self.own_ends)
    }

    /// A work request that the peer has asked for is posted.
    pub(super) fn posts_asked(&mut self) {
        self.asked_behind = Some(self.posted());
    }

    /// It has completed: so has each own one before it.
    pub(super) fn check_asked(&mut self, status: Status, regions: &Regions) -> Result<(), String> {
        let Some(behind) = self.asked_behind.take() else {
            return Err("what nobody has asked for completes".to_owned());
        };
        if let Some(due) = (self.completed..behind).find(|at| self.is_signaled(*at)) {
            return Err(format!("what was asked for completes, due was {due}"));
        }
        if status == Status::Success {
            for at in self.completed..behind {
                self.check_landing(at, regions)?;
            }
            self.completed = self.completed.max(behind);
        }
        self.failed |= status != Status::Success;
        Ok(())
    }

    /// What operation `nth`, which the peer was asked for, has come to; `None`: it was not asked,
    /// as the queue pair is in ERR.
    pub(super) fn hear(&mut self, nth: usize, status: Option<Status>) -> Result<(), String> {
        let due = self.own_ends[nth];
        let status = status.unwrap_or(Status::WorkRequestFlushed);
        if nth != self.completed || status != due {
            let kind = self.own.ops[nth].kind;
            return Err(format!(
                "operation {nth} ({kind:?}) ends with {status:?}, not {due:?}"
            ));
        }
        self.completed = nth + 1;
        Ok(())
    }

    /// What operation `nth`'s word holds before it: all atomics before it were executed.
    pub(super) fn word_before(&self, nth: usize) -> u64 {
        word_after(&self.own.ops[..nth], nth % WORDS)
    }

    /// A completion of the send queue.
    #[inline]
    pub(super) fn check_send(
        &mut self,
        now: u64,
        completion: &Completion,
        regions: &Regions,
    ) -> Result<(), String> {
        let nth = completion.wr_id as usize;
        if !self.may_end.is_empty() && completion.status != Status::Success {
            return self.check_end(nth, completion.status);
        }
        // The peer was refused something: its NAK leaves this queue pair in ERR, at any time.
        let flushed = completion.status == Status::WorkRequestFlushed && self.is_refusing();
        let gives_up = completion.status == Status::RetryExceeded && self.may_give_up(nth);
        let fails_first = (flushed || gives_up) && !self.failed;
        let due = (self.completed..self.posted()).find(|at| {
            // What fails completes in any case, and so does all behind it.
            let fails = self.own_ends[*at] != Status::Success || self.failed;
            self.is_signaled(*at) || fails || fails_first && *at == nth
        });
        if due != Some(nth) || self.asked_behind.is_some_and(|behind| nth >= behind) {
            return Err(format!("operation {nth} completes, due was {due:?}"));
        }
        let op = self.own.ops[nth];
        let is_over = self.failed && (self.is_refusing() || self.gave_up);
        self.gave_up |= gives_up;
        let end = match () {
            () if flushed || is_over => Status::WorkRequestFlushed,
            () if gives_up => Status::RetryExceeded,
            () => self.own_ends[nth],
        };
        if completion.status != end {
            return Err(format!(
                "operation {nth} ({:?}) ends with {:?}, not {end:?}",
                op.kind, completion.status
            ));
        }
        self.failed |= end != Status::Success;
        if end == Status::Success {
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

    /// Operation `nth` fails, since the peer cannot do its part any more.
    fn check_end(&mut self, nth: usize, status: Status) -> Result<(), String> {
        let mut before = self.completed..nth.min(self.posted());
        let skipped = before.find(|at| self.failed || self.is_signaled(*at));
        if nth < self.completed || nth >= self.posted() || skipped.is_some() {
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

    /// Bytes of the first operation of the peer that fails, if it is a SEND with invalidate.
    fn refused_send(&self) -> Option<usize> {
        let mut ends = self.peers_ends.iter();
        let refused = ends.position(|end| *end != Status::Success)?;
        let op = self.peers.ops[refused];
        (op.kind == Kind::SendInvalidate).then_some(op.len as usize)
    }

    /// Operation `nth` may end without an answer: the peer has refused one behind it, or this one,
    /// and is in ERR, and the network has lost its answer. That the peer did so is checked at the
    /// end.
    fn may_give_up(&self, nth: usize) -> bool {
        let mut ends = self.own_ends.iter();
        let refused = ends.position(|end| *end != Status::Success);
        is_refused(&self.own, &self.own_ends)
            && !self.failed
            && refused.is_some_and(|refused| nth <= refused)
    }

    /// An operation has ended without an answer, which only a peer that has refused something may
    /// leave out.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// An operation of the peer fails, and leaves this queue pair in ERR as well.
    fn is_refusing(&self) -> bool {
        is_refused(&self.peers, &self.peers_ends)
    }

    #[inline]
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
    #[inline]
    pub(super) fn check_receive(
        &mut self,
        slot: usize,
        completion: &Completion,
        inbox: &mut Inbox,
    ) -> Result<(), String> {
        if completion.status != Status::Success {
            // With a shared receive queue that is seen before what has failed.
            let may_fail = !self.may_end.is_empty();
            self.has_flushed |= completion.status == Status::WorkRequestFlushed;
            let is_over = self.failed || self.has_refusals() || may_fail;
            let as_due = match completion.status {
                Status::WorkRequestFlushed => is_over,
                // That of a SEND whose window cannot be invalidated. Its bytes are there.
                Status::RemoteInvalidRequest => {
                    let refused = self.refused_send();
                    inbox.came(slot, refused.unwrap_or(0));
                    refused.is_some()
                }
                _ => false,
            };
            return match as_due {
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
    #[inline]
    fn is_message(&self, nth: usize, slot: usize, completion: &Completion, inbox: &Inbox) -> bool {
        let op = self.peers.ops[nth];
        let imm = Immediate::Data((nth as u32).to_be_bytes());
        let (opcode, immediate, len) = match op.kind {
            Kind::SendImm => (CompletionOpcode::Recv, imm, op.len as usize),
            Kind::WriteImm => (CompletionOpcode::RecvRdmaWithImm, imm, 0),
            Kind::SendInvalidate => {
                let window = op.window().unwrap_or_default();
                let first = self.windows.get(window).copied().unwrap_or_default();
                let key = key_at(&self.peers, (nth, window), first);
                let key = Immediate::Invalidated(key);
                (CompletionOpcode::Recv, key, op.len as usize)
            }
            _ => (CompletionOpcode::Recv, Immediate::None, op.len as usize),
        };
        let from = place_of(&self.peers, nth, self.peers_len);
        let wanted = source_bytes(self.flow, 1 - self.end, from, len);
        completion.opcode == opcode
            && completion.immediate == immediate
            && completion.byte_len == op.len
            && inbox.has(slot, 0, wanted)
            && inbox.is_empty_behind(slot, len)
    }

    /// At the end: what the peer has written is there, and nothing else has changed.
    pub(super) fn check_memory(
        &self,
        regions: &Regions,
        inbox: Option<&Inbox>,
    ) -> Result<(), String> {
        if !regions.guards_hold() || inbox.is_some_and(|inbox| !inbox.guards_hold()) {
            return Err("a byte outside of the regions has changed".to_owned());
        }
        if !regions.are_left_alone() {
            return Err("a byte has changed that was deregistered".to_owned());
        }
        let by_peer = self.may_end.contains(&Status::WorkRequestFlushed) || self.is_refusing();
        if self.has_flushed && !self.failed && !by_peer && !self.is_dead {
            return Err("a receive was flushed, and nothing has failed".to_owned());
        }
        // What fails by the rules of windows leaves nothing behind, and what fails otherwise may.
        let otherwise = |way: &Direction| way.ops.iter().any(|op| op.expect != Status::Success);
        if self.service == Service::Uc
            || !self.may_end.is_empty()
            || self.is_dead
            || is_refused(&self.own, &self.own_ends)
            || self.peers.windows.is_empty() && otherwise(&self.peers)
        {
            return Ok(());
        }
        if inbox.is_some_and(|inbox| !inbox.rest_is_empty()) {
            return Err("a byte of a receive has changed that belongs to no message".to_owned());
        }
        let len = self.peers_len;
        let mut model = vec![EMPTY; len];
        for (nth, op) in self.peers.ops.iter().enumerate() {
            if op.kind.is_write() && self.peers_ends[nth] == Status::Success {
                let at = place_of(&self.peers, nth, len);
                let len = op.len as usize;
                let bytes = source_bytes(self.flow, 1 - self.end, at, len);
                model[at..at + len].copy_from_slice(bytes);
            }
        }
        if let Some(byte) = regions.target.differs(0, &model) {
            return Err(format!("byte {byte} of what the peer wrote is wrong"));
        }
        let ends = self.peers_ends.iter();
        let executed = ends.take_while(|end| **end == Status::Success).count();
        self.check_words(&self.peers.ops[..executed], regions)?;
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
        Kind::Send | Kind::SendImm | Kind::SendInvalidate => CompletionOpcode::Send,
        Kind::Write | Kind::WriteImm => CompletionOpcode::RdmaWrite,
        Kind::Read => CompletionOpcode::RdmaRead,
        Kind::FetchAdd => CompletionOpcode::FetchAdd,
        Kind::CompareSwap => CompletionOpcode::CompareSwap,
        Kind::Bind => CompletionOpcode::BindMw,
        Kind::Unbind => CompletionOpcode::LocalInvalidate,
    }
}

/// How each operation of a direction ends.
fn ends(direction: &Direction) -> Result<Vec<Status>, String> {
    let wanted = direction.ops.iter().map(|op| op.expect);
    if direction.windows.is_empty() {
        return Ok(wanted.collect());
    }
    let ends = statuses(direction)?;
    for (nth, (wanted, end)) in wanted.zip(&ends).enumerate() {
        if wanted != Status::Success && wanted != *end {
            return Err(format!(
                "operation {nth} is to end with {wanted:?}, and windows have it end with {end:?}"
            ));
        }
    }
    Ok(ends)
}

/// By the rules of windows an operation of a direction fails, and so all behind it.
fn is_refused(direction: &Direction, ends: &[Status]) -> bool {
    let last = ends.last();
    !direction.windows.is_empty() && last.is_some_and(|end| *end != Status::Success)
}

/// By the rules of windows an operation of the flow fails.
pub(crate) fn has_refusals(flow: &Flow) -> bool {
    let mut ways = flow.directions.iter();
    ways.any(|way| ends(way).is_ok_and(|ends| is_refused(way, &ends)))
}
