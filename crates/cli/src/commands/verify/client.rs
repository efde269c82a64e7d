//! The side that acts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rnic::exchange::Exchange;
use rnic::{
    Buffer, Completion, CompletionOpcode, Context, GidEntry, QueuePair, Rc, RemoteMemory,
    SendRequest,
};

use super::plan::{self, Kind, Step};
use super::server::RECEIVES;
use super::{Ends, LAST, Losses, Note, Report, Task, WINDOW, pattern};
use crate::peer::waiting::PEER_TIMEOUT;
use crate::platform::failure::{Failure, Result};
use crate::text::count;

/// What queue pairs have, if they are not told otherwise.
const RETRIES: u8 = 7;
/// A connection of which nothing is under way and nothing comes for so long is asked whether it is
/// still there.
const SILENCE: Duration = Duration::from_secs(1);

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    After(Duration),
    /// On each queue pair.
    Iterations(u64),
}

/// What both sides found, and what it took.
#[derive(Default)]
pub struct Outcome {
    pub client: Report,
    pub server: Report,
    operations: [u64; 3],
    bytes: [u64; 3],
    time: Duration,
    packets: u64,
    retransmitted: u64,
    timeouts: u64,
    /// Connections that gave up.
    lost: usize,
}

impl Outcome {
    #[cfg(test)]
    pub fn of_losses(lost: usize, [client, server]: [bool; 2]) -> Outcome {
        let report = |faults| Report {
            faults,
            ..Report::default()
        };
        Outcome {
            client: report(client),
            server: report(server),
            lost,
            ..Outcome::default()
        }
    }

    /// Connections may give up where packets are damaged on purpose, and nowhere else.
    pub fn judge_losses(&self, task: &Task) -> Result<()> {
        let connections = match self.lost {
            0 => return Ok(()),
            1 => "1 connection".to_owned(),
            n => format!("{n} connections"),
        };
        let what = format!(
            "{connections} of {} gave up: no answer to a packet and its {RETRIES} repetitions (status 12, retries exceeded)",
            task.qps
        );
        if self.client.faults || self.server.faults {
            crate::say!("{what}");
            crate::say!(
                "  that is what a connection has to do, and so much loss makes it likely; all that was done before it was checked"
            );
            return Ok(());
        }
        Err(Failure::new(what)
            .cause("no faults are injected on either side, so the network loses packets, or the peer is held up")
            .next("RNIC_PCAP=trace.pcap keeps the packets of a run, for `rnic dissect trace.pcap`"))
    }

    pub fn print(&self, task: &Task) {
        for (n, name) in ["send", "write", "read"].iter().enumerate() {
            crate::say!(
                "{name:>8}: {:>21} {:>20}",
                count(self.operations[n], "operation"),
                count(self.bytes[n], "byte")
            );
        }
        let atomics = self.client.checked_operations - self.operations[2];
        crate::say!("{:>8}: {:>21}", "atomic", count(atomics, "operation"));
        crate::say!(
            "{}, {:.2} s; the client sent {}, {} of them again, after {}",
            count(task.qps as u64, "QP"),
            self.time.as_secs_f64(),
            count(self.packets, "packet"),
            self.retransmitted,
            count(self.timeouts, "timeout")
        );
    }
}

/// An operation that is not done.
struct Pending {
    index: u64,
    step: Step,
    /// What an atomic must find.
    expect: u64,
}

struct Lane {
    qp: QueuePair<Rc>,
    region: RemoteMemory,
    words: RemoteMemory,
    readable: RemoteMemory,
    next: u64,
    /// Oldest first.
    pending: VecDeque<Pending>,
    buffers: Vec<Buffer>,
    sum: u64,
    swapped: u64,
    closing: bool,
    closed: bool,
}

/// Ids of work requests: lane, and operation shifted by these.
const KIND_DATA: u64 = 0;
const KIND_TAIL: u64 = 1;
const KIND_QUESTION: u64 = 2;

fn id(lane: usize, index: u64, kind: u64) -> u64 {
    index << 16 | (lane as u64) << 2 | kind
}

pub fn run(
    exchange: &mut Exchange,
    context: &Context,
    gid: GidEntry,
    task: &Task,
    stop: Stop,
) -> Result<Outcome> {
    let mut ends = Ends::prepare(context, gid, task)?;
    let memory = exchange.recv()?;
    let mut memory = memory
        .chunks(RemoteMemory::BYTES)
        .map(RemoteMemory::from_bytes);
    let mut next = || {
        memory
            .next()
            .unwrap_or_else(|| RemoteMemory::from_bytes(&[]))
    };
    for (index, qp) in ends.prepared.iter().enumerate() {
        for _ in 0..RECEIVES {
            qp.post_recv(ends.pd.buffer(8)?, index as u64)?;
        }
    }
    let mut lanes = Vec::new();
    for qp in ends.connect(exchange)? {
        // An operation that is not yet confirmed may have given its buffer back, so there is never
        // one too few.
        let buffers = (0..WINDOW)
            .map(|_| ends.pd.buffer(task.max_size.max(8) as usize))
            .collect::<rnic::Result<_>>()?;
        lanes.push(Lane {
            qp,
            region: next()?,
            words: next()?,
            readable: next()?,
            next: 0,
            pending: VecDeque::new(),
            buffers,
            sum: 0,
            swapped: 0,
            closing: false,
            closed: false,
        });
    }
    exchange.barrier()?;

    let start = Instant::now();
    let mut outcome = Outcome {
        client: Report::new(),
        ..Outcome::default()
    };
    let mut losses = Losses::new(task);
    let qpns: Vec<u32> = lanes.iter().map(|lane| lane.qp.qpn()).collect();
    let lane_of = |qpn| qpns.iter().position(|of| *of == qpn);
    let mut heard = Instant::now();
    let mut asked = heard;
    loop {
        let mut open = false;
        for (index, lane) in lanes.iter_mut().enumerate() {
            if !losses.has(index) && !lane.closed {
                open = true;
                lane.fill(index, task, stop, start, &mut outcome)?;
            }
        }
        if !open {
            break;
        }
        let Some(completion) = losses.wait(&ends.cq, exchange, lane_of)? else {
            if heard.elapsed() > PEER_TIMEOUT || exchange.is_closed() {
                return Err(rnic::Error::Timeout(PEER_TIMEOUT).into());
            }
            if heard.max(asked).elapsed() > SILENCE {
                asked = Instant::now();
                for (index, lane) in lanes.iter_mut().enumerate() {
                    if !losses.has(index) && !lane.closed {
                        lane.ask(index)?;
                    }
                }
            }
            continue;
        };
        heard = Instant::now();
        let lane = match completion.opcode() {
            CompletionOpcode::Recv => completion.id() as usize,
            _ => (completion.id() >> 2) as usize & 0x3fff,
        };
        if !losses.has(lane) {
            lanes[lane].take(completion, task, lane, &mut outcome.client)?;
        }
    }
    outcome.time = start.elapsed();
    for lane in &lanes {
        let counters = lane.qp.counters();
        outcome.packets += counters.packets_sent;
        outcome.retransmitted += counters.retransmitted_packets;
        outcome.timeouts += counters.timeouts;
    }
    let Note::Done(server, words) = losses.next_note(exchange)? else {
        return Err(Failure::new("the server does not say what it found"));
    };
    outcome.server = server;
    outcome.lost = losses.count();
    for (index, (lane, found)) in lanes.iter().zip(words).enumerate() {
        if !lane.may_have_left(found, losses.has(index)) {
            outcome.client.mismatch(|| {
                format!(
                    "QP {index}: the words are {found:x?} in the end instead of {:x?}",
                    (lane.sum, lane.swapped)
                )
            });
        }
    }
    // Of a lost connection, what was not confirmed may have been done or not.
    let open = lanes
        .iter()
        .enumerate()
        .filter(|(index, _)| losses.has(*index));
    let unsure: usize = open.map(|(_, lane)| lane.messages_pending()).sum();
    let sides = (
        outcome.server.checked_operations,
        outcome.operations[0] + outcome.operations[1],
    );
    if !(sides.1 - unsure as u64..=sides.1).contains(&sides.0) {
        outcome.client.mismatch(|| {
            format!(
                "the server saw {} of {}",
                count(sides.0, "message"),
                sides.1
            )
        });
    }
    losses.part(exchange)?;
    Ok(outcome)
}

impl Lane {
    /// Starts operations until the window is full.
    fn fill(
        &mut self,
        lane: usize,
        task: &Task,
        stop: Stop,
        start: Instant,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let over = match stop {
            Stop::After(time) => start.elapsed() >= time,
            Stop::Iterations(n) => self.next >= n,
        };
        if over || self.closing {
            if self.pending.is_empty() && !self.closing {
                self.closing = true;
                self.qp.post(
                    SendRequest::send_inline(&[])
                        .imm(LAST)
                        .id(id(lane, 0, KIND_TAIL)),
                )?;
            }
            return Ok(());
        }
        // By number, not by count: operation n uses the slot of operation n - WINDOW, which must be
        // over.
        while self
            .pending
            .front()
            .is_none_or(|oldest| self.next < oldest.index + WINDOW as u64)
        {
            if matches!(stop, Stop::Iterations(n) if self.next >= n) {
                break;
            }
            let Some(buffer) = self.buffers.pop() else {
                break;
            };
            let step = plan::step(task, lane, self.next);
            let group = match step.kind {
                Kind::Send | Kind::SendImm => Some(0),
                Kind::Write | Kind::WriteImm => Some(1),
                Kind::Read => Some(2),
                _ => None,
            };
            if let Some(group) = group {
                outcome.operations[group] += 1;
                outcome.bytes[group] += step.len as u64;
            }
            self.start(lane, step, buffer)?;
        }
        Ok(())
    }

    /// Sends something that changes nothing. If the peer's queue pair has given up, it is not
    /// answered.
    fn ask(&mut self, lane: usize) -> Result<()> {
        let nothing = self.region.slice(0, 0)?;
        self.qp
            .post(SendRequest::write_inline(&[], nothing).id(id(lane, 0, KIND_QUESTION)))?;
        Ok(())
    }

    /// Messages that the server has not confirmed.
    fn messages_pending(&self) -> usize {
        let pending = self.pending.iter();
        pending.filter(|p| !p.step.kind.is_silent()).count()
    }

    /// Whether the words that atomics change may be these in the end. Of a lost connection any
    /// number of those that are not done were executed, in order.
    fn may_have_left(&self, (sum, swapped): (u64, u64), lost: bool) -> bool {
        let before = |kind: Kind, found: u64| {
            let mut its = self.pending.iter().filter(|p| p.step.kind == kind);
            lost && its.any(|p| p.expect == found)
        };
        (sum == self.sum || before(Kind::FetchAdd, sum))
            && (swapped == self.swapped || before(Kind::CompareSwap, swapped))
    }

    fn start(&mut self, lane: usize, step: Step, mut buffer: Buffer) -> Result<()> {
        let index = self.next;
        self.next += 1;
        let imm = (index as u32).to_be_bytes();
        if matches!(step.kind, Kind::Send | Kind::SendImm) || step.kind.is_write() {
            pattern::fill(step.seed, 0, &mut buffer[..step.len]);
        }
        let to = |memory: &RemoteMemory| memory.slice(step.offset as u64, step.len as u64);
        let mut expect = 0;
        let request = match step.kind {
            Kind::Send => SendRequest::send(buffer).range(..step.len)?,
            Kind::SendImm => SendRequest::send(buffer).range(..step.len)?.imm(imm),
            Kind::Write => SendRequest::write(buffer, to(&self.region)?).range(..step.len)?,
            Kind::WriteImm => SendRequest::write(buffer, to(&self.region)?)
                .range(..step.len)?
                .imm(imm),
            Kind::Read => {
                buffer[..step.len].fill(0);
                SendRequest::read(buffer, to(&self.readable)?).range(..step.len)?
            }
            Kind::FetchAdd => {
                expect = self.sum;
                self.sum = self.sum.wrapping_add(step.value);
                SendRequest::fetch_add(buffer, self.words.slice(0, 8)?, step.value)
            }
            Kind::CompareSwap => {
                expect = self.swapped;
                // A miss leaves what it finds.
                let compare = if step.miss {
                    !self.swapped
                } else {
                    self.swapped
                };
                if !step.miss {
                    self.swapped = step.value;
                }
                SendRequest::compare_swap(buffer, self.words.slice(8, 8)?, compare, step.value)
            }
        };
        self.pending.push_back(Pending {
            index,
            step,
            expect,
        });
        self.qp.post(request.id(id(lane, index, KIND_DATA)))?;
        if step.kind == Kind::Write {
            let note = SendRequest::send_inline(&index.to_be_bytes());
            self.qp.post(note.id(id(lane, index, KIND_TAIL)))?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        mut got: Completion,
        task: &Task,
        lane: usize,
        report: &mut Report,
    ) -> Result<()> {
        if got.opcode() == CompletionOpcode::Recv {
            return self.confirmed(got, lane, report);
        }
        if got.id() & 3 == KIND_QUESTION {
            return Ok(());
        }
        if got.id() & 3 == KIND_TAIL {
            self.closed = self.closing;
            return Ok(());
        }
        let index = got.id() >> 16;
        let Some(at) = self.pending.iter().position(|p| p.index == index) else {
            // Confirmed before its own completion was seen.
            self.buffers.extend(got.take_buffer());
            return Ok(());
        };
        let pending = &self.pending[at];
        let step = pending.step;
        let name = || {
            format!(
                "QP {lane} operation {index} ({:?}, {})",
                step.kind,
                count(step.len as u64, "byte")
            )
        };
        match step.kind {
            Kind::Read => {
                if got.byte_len() != step.len {
                    report.mismatch(|| {
                        format!("{}: {} came", name(), count(got.byte_len() as u64, "byte"))
                    });
                }
                report.check(
                    name,
                    plan::readable_seed(task, lane),
                    step.offset,
                    got.data(),
                );
            }
            Kind::FetchAdd | Kind::CompareSwap => {
                report.checked_operations += 1;
                let (found, expected) = (got.original_value(), pending.expect);
                if found != Some(expected) {
                    report.mismatch(|| {
                        format!("{}: found {found:x?} instead of {expected:x}", name())
                    });
                }
            }
            _ => {}
        }
        if step.kind.is_silent() {
            self.pending.remove(at);
        }
        self.buffers.extend(got.take_buffer());
        Ok(())
    }

    /// The server has checked an operation: it must be the oldest that it takes part in.
    fn confirmed(&mut self, mut got: Completion, lane: usize, report: &mut Report) -> Result<()> {
        let oldest = self.pending.iter().position(|p| !p.step.kind.is_silent());
        let expected = oldest.map(|at| self.pending[at].index.to_be_bytes());
        if expected.as_ref().map(|e| &e[..]) != Some(got.data()) {
            report.mismatch(|| {
                format!(
                    "QP {lane}: confirmation {:?} instead of {expected:?}",
                    got.data()
                )
            });
        }
        if let Some(at) = oldest {
            self.pending.remove(at);
        }
        if let Some(buffer) = got.take_buffer() {
            self.qp.post_recv(buffer, lane as u64)?;
        }
        Ok(())
    }
}
