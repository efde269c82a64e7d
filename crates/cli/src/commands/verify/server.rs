//! The side that is written to and read from.

use std::sync::atomic::Ordering;

use rnic::exchange::Exchange;
use rnic::{
    Completion, CompletionOpcode, Context, GidEntry, QueuePair, Rc, ReadableRegion, SendRequest,
    WritableRegion,
};

use super::plan::{self, Kind, Step};
use super::{Ends, GUARD, LAST, Losses, Note, Report, Task, UNTOUCHED, WINDOW, encode, pattern};
use crate::peer::waiting::PEER_TIMEOUT;
use crate::platform::failure::{Failure, Result};
use crate::text::count;

/// Receives posted on each queue pair: one for each operation in flight, the last message, and some
/// room.
pub const RECEIVES: usize = WINDOW + 2;

struct Lane {
    qp: QueuePair<Rc>,
    /// Written by the client, a slot for each operation in flight.
    region: WritableRegion,
    /// Word 0 is for fetch-and-add, word 1 for compare-and-swap.
    words: WritableRegion,
    /// Read by the client.
    _readable: ReadableRegion,
    next: u64,
    done: bool,
}

pub fn run(
    exchange: &mut Exchange,
    context: &Context,
    gid: GidEntry,
    task: &Task,
) -> Result<Report> {
    let mut ends = Ends::prepare(context, gid, task)?;
    let mut lanes = Vec::new();
    let mut memory = Vec::new();
    let mut parts = Vec::new();
    for index in 0..task.qps as usize {
        let region = ends.pd.writable(WINDOW * task.slot()).build()?;
        region.copy_in(0, &vec![UNTOUCHED; region.len()])?;
        let words = ends.pd.writable(16).atomic().build()?;
        let mut data = ends.pd.buffer(task.readable())?;
        pattern::fill(plan::readable_seed(task, index), 0, &mut data);
        let readable = ends.pd.share(data)?;
        for remote in [region.remote(), words.remote(), readable.remote()] {
            memory.extend_from_slice(&remote.to_bytes());
        }
        for _ in 0..RECEIVES {
            ends.prepared[index]
                .post_recv(ends.pd.buffer(task.max_size.max(8) as usize)?, index as u64)?;
        }
        parts.push((region, words, readable));
    }
    exchange.send(&memory)?;
    for (qp, (region, words, readable)) in ends.connect(exchange)?.into_iter().zip(parts) {
        lanes.push(Lane {
            qp,
            region,
            words,
            _readable: readable,
            next: 0,
            done: false,
        });
    }
    exchange.barrier()?;

    let mut report = Report::new();
    let mut scratch = vec![0; task.slot()];
    let mut losses = Losses::new(task);
    let qpns: Vec<u32> = lanes.iter().map(|lane| lane.qp.qpn()).collect();
    let lane_of = |qpn| qpns.iter().position(|of| *of == qpn);
    let is_open = |(index, lane): (usize, &Lane), losses: &Losses| !lane.done && !losses.has(index);
    while lanes.iter().enumerate().any(|lane| is_open(lane, &losses)) {
        // Of READs and atomics nothing comes until the last.
        let Some(completion) = losses.wait(&ends.cq, exchange, lane_of)? else {
            if exchange.is_closed() {
                return Err(rnic::Error::Timeout(PEER_TIMEOUT).into());
            }
            continue;
        };
        let lane = completion.id() as usize;
        if completion.opcode() != CompletionOpcode::Send && !losses.has(lane) {
            lanes[lane].take(completion, task, lane, &mut report, &mut scratch)?;
        }
    }
    for (index, lane) in lanes.iter().enumerate() {
        // What was cut short may have been written in part.
        if !losses.has(index) {
            lane.last_look(index, &mut report)?;
        }
    }
    let words: Vec<_> = lanes
        .iter()
        .map(|lane| {
            Ok((
                lane.words.load_u64(0, Ordering::SeqCst)?,
                lane.words.load_u64(8, Ordering::SeqCst)?,
            ))
        })
        .collect::<rnic::Result<_>>()?;
    exchange.send(&encode(&Note::Done(report.clone(), words))?)?;
    // Nobody goes before the other one's last acknowledgement is there.
    losses.part(exchange)?;
    Ok(report)
}

impl Lane {
    /// Handles a message: it belongs to the next step that is not silent.
    fn take(
        &mut self,
        mut got: Completion,
        task: &Task,
        index: usize,
        report: &mut Report,
        scratch: &mut [u8],
    ) -> Result<()> {
        if got.imm() == Some(LAST) && got.opcode() == CompletionOpcode::Recv && got.byte_len() == 0
        {
            self.done = true;
            return Ok(());
        }
        let step = loop {
            let step = plan::step(task, index, self.next);
            if !step.kind.is_silent() {
                break step;
            }
            self.next += 1;
        };
        let number = self.next;
        self.next += 1;
        let name = || {
            format!(
                "QP {index} operation {number} ({:?}, {})",
                step.kind,
                count(step.len as u64, "byte")
            )
        };
        let imm = (number as u32).to_be_bytes();
        let expected = match step.kind {
            Kind::Send => (CompletionOpcode::Recv, None, step.len),
            Kind::SendImm => (CompletionOpcode::Recv, Some(imm), step.len),
            Kind::WriteImm => (CompletionOpcode::RecvRdmaWithImm, Some(imm), step.len),
            _ => (CompletionOpcode::Recv, None, 8),
        };
        let found = (got.opcode(), got.imm(), got.byte_len());
        if found != expected {
            report.mismatch(|| format!("{}: completion {found:?} instead of {expected:?}", name()));
        }
        match step.kind {
            Kind::Send | Kind::SendImm => report.check(name, step.seed, 0, got.data()),
            _ => {
                if step.kind == Kind::Write && got.data() != number.to_be_bytes() {
                    report.mismatch(|| format!("{}: announced as {:?}", name(), got.data()));
                }
                self.look(&step, name, report, scratch)?;
            }
        }
        let buffer = got
            .take_buffer()
            .ok_or_else(|| Failure::new("a receive without its buffer"))?;
        self.qp.post_recv(buffer, index as u64)?;
        self.qp
            .post(SendRequest::send_inline(&number.to_be_bytes()))?;
        Ok(())
    }

    /// Checks a written range and the bytes around it, and wipes it.
    fn look(
        &self,
        step: &Step,
        name: impl Fn() -> String,
        report: &mut Report,
        scratch: &mut [u8],
    ) -> Result<()> {
        let window = &mut scratch[..step.len + 2 * GUARD];
        self.region.copy_out(step.offset - GUARD, window)?;
        let (before, rest) = window.split_at(GUARD);
        let (written, after) = rest.split_at(step.len);
        if before.iter().chain(after).any(|b| *b != UNTOUCHED) {
            report.mismatch(|| format!("{}: bytes beside the range have changed", name()));
        }
        report.check(&name, step.seed, 0, written);
        window.fill(UNTOUCHED);
        self.region.copy_in(step.offset - GUARD, window)?;
        Ok(())
    }

    /// Nothing may have been written anywhere after the last operation.
    fn last_look(&self, index: usize, report: &mut Report) -> Result<()> {
        let mut all = vec![0; self.region.len()];
        self.region.copy_out(0, &mut all)?;
        if let Some(at) = all.iter().position(|b| *b != UNTOUCHED) {
            report.mismatch(|| {
                format!("QP {index}: byte {at} of the region has changed without an operation")
            });
        }
        Ok(())
    }
}
