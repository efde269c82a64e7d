//! When each work request was posted, done, and seen by the program, for `rnic run --trace`.
//!
//! The times are of the clock of captures (CLOCK_REALTIME), so that both can be put together. They
//! are lines in a file of their own. When it is off, the data path pays one test of a flag that
//! never changes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_transport::{Completion, CompletionOpcode, SendData, SendOp, SendWqe};
use rustix_futex_sync::{Mutex, MutexGuard};

use super::line::Line;
use super::request_name;
use crate::queues::QpShared;

/// Lines that a process writes: the first requests are shown, and a file has an end.
const MOST_LINES: u32 = 20_000;
/// They are written when so many bytes wait.
const WRITE_AT: usize = 32 * 1024;

static ON: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(super) struct Trace {
    file: Option<PathBuf>,
    /// By a fork a child has the parent's lines, which the parent writes.
    pid: u32,
    left: u32,
    lines: String,
}

static TRACE: Mutex<Trace> = Mutex::new(Trace {
    file: None,
    pid: 0,
    left: 0,
    lines: String::new(),
});

pub(super) type Guard = MutexGuard<'static, Trace>;

/// For fork(2).
pub(super) fn hold() -> Guard {
    TRACE.lock()
}

/// `--trace` was given.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The device was opened.
pub(super) fn start() {
    let Some(file) = rnic_settings::TRACE.path() else {
        return;
    };
    let mut trace = TRACE.lock();
    if trace.file.is_none() {
        trace.file = Some(file);
        trace.left = MOST_LINES;
        trace.pid = std::process::id();
    }
    ON.store(true, Ordering::Relaxed);
}

/// Adds a line.
fn add(record: &str, fill: impl FnOnce(&mut Line)) {
    let ns = rnic_sys::now_realtime_ns();
    let mut trace = TRACE.lock();
    if trace.pid != std::process::id() {
        trace.pid = std::process::id();
        trace.lines.clear();
        trace.left = MOST_LINES;
    }
    if trace.left == 0 {
        return;
    }
    trace.left -= 1;
    let mut line = Line::new(record);
    line.number("time_ns", ns)
        .number("pid", u64::from(std::process::id()));
    fill(&mut line);
    let line = line.finish();
    trace.lines.push_str(&line);
    if trace.lines.len() >= WRITE_AT {
        trace.write();
    }
}

impl Trace {
    fn write(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if let (Some(file), false) = (&self.file, lines.is_empty()) {
            super::file::append_to(file, &lines);
        }
    }
}

/// Writes what waits, now and then and at the end: programs are killed.
pub(super) fn flush() {
    if is_on() {
        let mut trace = TRACE.lock();
        if trace.pid == std::process::id() {
            trace.write();
        }
    }
}

fn operation(op: &SendOp) -> &'static str {
    match op {
        // The service says where it goes.
        SendOp::Datagram { .. } => request_name(&SendOp::Send),
        op => request_name(op),
    }
}

fn is_receive(completion: &Completion) -> bool {
    use CompletionOpcode::{Recv, RecvRdmaWithImm};
    matches!(completion.opcode, Recv | RecvRdmaWithImm)
}

/// A send work request is being posted.
pub(crate) fn posted(shared: &QpShared, wqe: &SendWqe) {
    add("posted", |line| {
        line.number("qpn", u64::from(shared.qpn))
            .text("qp_type", shared.type_name())
            .number("wr_id", wqe.wr_id)
            .text("operation", operation(&wqe.op))
            .flag("local", wqe.op.is_local())
            .number("bytes", wqe.data.len())
            .flag("signaled", wqe.signaled)
            .flag("inline", matches!(wqe.data, SendData::Inline(_)));
    });
}

/// A completion is there.
pub(crate) fn completed(qpn: u32, completion: &Completion) {
    add("completed", |line| {
        line.number("qpn", u64::from(qpn))
            .number("wr_id", completion.wr_id)
            .flag("receive", is_receive(completion))
            .number("bytes", u64::from(completion.byte_len))
            .number("status", completion.status as u64);
    });
}

/// The program has it.
pub(crate) fn polled(completion: &Completion) {
    add("polled", |line| {
        line.number("qpn", u64::from(completion.qpn))
            .number("wr_id", completion.wr_id)
            .flag("receive", is_receive(completion));
    });
}
