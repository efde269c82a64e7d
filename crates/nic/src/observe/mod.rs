//! What a software NIC can tell and hardware cannot: which memory, which right, which peer.
//!
//! `rnic run` names a file in `RNIC_REPORT` and reads it when the program has ended. Every record
//! is one line, appended by one system call: processes do not disturb one another, and what was
//! recorded survives `_exit` and SIGKILL. The file stays open, at a number that disturbs no program
//! (`sys/src/kept.rs`).
//! Without the variable nothing is kept and nothing is written.
//!
//! All of this lies on the way into a failure or in verbs that are slow anyway; the data path only
//! tests [`lint::is_on`] where it says so.

pub(crate) mod cm;
mod connection;
mod counters;
mod drops;
mod failure;
mod file;
mod latency;
mod line;
pub(crate) mod lint;
mod silent;
pub(crate) mod trace;
mod usage;
pub(crate) mod waits;
mod way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rnic_link::Address;
use rustix_futex_sync::{Mutex, MutexGuard};

pub(crate) use connection::{Unheard, modified, unheard};
pub(crate) use counters::{Reporter, destroyed, note_all};
pub use drops::DropCounters;
pub(crate) use failure::{
    Access, evidence, failed, local_fault, other_partition, overran, remote_fault, request_name,
};
pub use failure::{refused_verb, survived_refusals, was_reached};
pub(crate) use file::closed;
pub use latency::Histogram;
pub(crate) use latency::Latencies;
pub use waits::{
    Asleep, Awaited, Futures, Over, Unacknowledged, wait_for_acks, wait_in_sockets, wait_over,
};
pub(crate) use way::no_answer;

use crate::memory::RegionFacts;
use crate::queues::{self, QpAttr};
use line::Line;

/// What is told of a process, each kind up to a number of its own: the first ones matter, and a
/// file has an end. What belongs to each connection that ends well must not leave nothing for the
/// one that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Failures and refusals.
    Failure,
    /// Queue pairs that the program moved to ERR.
    Flush,
    /// Connections that did not come about, and requests that were refused.
    Connection,
    /// Connections that take long.
    Slowness,
    /// What became of them, and of those behind one that did not come about.
    Answer,
    /// Messages that were dropped without a word.
    Drop,
    /// Queue pairs that were connected, and what became of them.
    Life,
    /// Packets that no queue pair took.
    Unheard,
    /// Requests for connections that came, and what became of them.
    Request,
}

/// Failures and refusals that a process tells of.
pub const MOST_FAILURES: u32 = 256;

impl Kind {
    const MOST: [u32; 9] = [MOST_FAILURES, 16, 128, 64, 256, 128, 2048, 128, 512];
}
/// Regions remembered after their end.
const GRAVES: usize = 64;

/// What `rnic run` asked for.
#[derive(Debug)]
struct Settings {
    file: PathBuf,
    /// `RNIC_STATS`: counters, too.
    stats: bool,
    /// `RNIC_LINT`: what would fail on hardware, too.
    lint: bool,
    /// `RNIC_USAGE`: how queue pairs are used, too.
    usage: bool,
    /// `RNIC_WATCH`: what threads wait for in calls that are not the device's, too.
    watch: bool,
}

fn settings() -> Option<&'static Settings> {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    SETTINGS
        .get_or_init(|| {
            Some(Settings {
                file: rnic_settings::REPORT.path()?,
                stats: rnic_settings::STATS.is_on(),
                lint: rnic_settings::LINT.is_on(),
                usage: rnic_settings::USAGE.is_on(),
                watch: rnic_settings::WATCH.is_on(),
            })
        })
        .as_ref()
}

/// Somebody reads what is recorded.
pub(crate) fn is_on() -> bool {
    settings().is_some()
}

/// The two ends of a connected queue pair, and what they agreed on.
#[derive(Clone, Copy, Debug)]
struct Connection {
    local: Address,
    remote: Address,
    attr: QpAttr,
    /// When it was connected.
    since_ns: u64,
}

/// What is known of this process.
#[derive(Debug)]
pub(crate) struct State {
    /// Process id, to notice a fork, and a random number, as ids come again.
    process: Option<(u32, u64)>,
    connections: BTreeMap<u32, Connection>,
    /// Queue pairs of UD that were moved to RTR.
    datagrams: BTreeSet<u32>,
    /// The last fault of each queue pair, until the completion that it causes.
    local: BTreeMap<u32, failure::LocalNote>,
    remote: BTreeMap<u32, failure::RemoteNote>,
    sends: BTreeMap<u32, rnic_transport::SendFailed>,
    /// Room of a receive and bytes of the datagram that did not fit, likewise.
    too_long: BTreeMap<u32, (u64, u64)>,
    /// Queue pairs that failed or refused something: what is flushed there is no news.
    broken: BTreeSet<u32>,
    /// Queue pairs that dropped packets of another partition.
    partitions: BTreeSet<u32>,
    /// Regions that were deregistered last: key, what it was, when.
    graves: VecDeque<(u32, RegionFacts, u64)>,
    /// Of each [`Kind`].
    written: [u32; Kind::MOST.len()],
    verbs: BTreeMap<(&'static str, i32), u32>,
    /// Verbs were refused, of which it is not known whether the program has survived them.
    has_refused: bool,
    silent: BTreeMap<u32, silent::Silent>,
    /// What was dropped of packets to these numbers, and why.
    unheard: BTreeSet<(u32, &'static str, bool)>,
    inquiries: way::Inquiries,
    waits: waits::Waits,
    findings: lint::Findings,
    snapshots: counters::Snapshots,
}

impl State {
    const fn new() -> State {
        State {
            process: None,
            connections: BTreeMap::new(),
            datagrams: BTreeSet::new(),
            local: BTreeMap::new(),
            remote: BTreeMap::new(),
            sends: BTreeMap::new(),
            too_long: BTreeMap::new(),
            broken: BTreeSet::new(),
            partitions: BTreeSet::new(),
            graves: VecDeque::new(),
            written: [0; Kind::MOST.len()],
            verbs: BTreeMap::new(),
            has_refused: false,
            silent: BTreeMap::new(),
            unheard: BTreeSet::new(),
            inquiries: way::Inquiries::new(),
            waits: waits::Waits::new(),
            findings: lint::Findings::new(),
            snapshots: counters::Snapshots::new(),
        }
    }

    /// A record of this process. The first one introduces it.
    fn record(&mut self, name: &str) -> Line {
        let id = match self.process {
            Some((_, id)) => id,
            None => {
                // JSON numbers are exact up to 2^53.
                let id = rnic_sys::random_u64() >> 12;
                self.process = Some((std::process::id(), id));
                let program = std::env::args_os().next().unwrap_or_default();
                let program = std::path::Path::new(&program);
                let mut line = Line::new("process");
                line.number("process", id)
                    .number("pid", u64::from(std::process::id()))
                    .text(
                        "program",
                        &program.file_name().unwrap_or_default().to_string_lossy(),
                    );
                write(line);
                id
            }
        };
        let mut line = Line::new(name);
        line.number("process", id).number("ns", rnic_sys::now_ns());
        line
    }

    /// One more of that kind may be told.
    fn spend(&mut self, kind: Kind) -> bool {
        let written = &mut self.written[kind as usize];
        *written = written.saturating_add(1);
        *written <= Kind::MOST[kind as usize]
    }

    /// Writes who the queue pair is and with whom it talks.
    fn name_qp(&self, line: &mut Line, qpn: u32) {
        line.number("qpn", u64::from(qpn));
        if let Some(connection) = self.connections.get(&qpn) {
            line.text("local", &connection.local.to_string())
                .text("peer", &connection.remote.to_string())
                .number("peer_qpn", u64::from(connection.attr.dest_qp_num));
        }
    }
}

static STATE: Mutex<State> = Mutex::new(State::new());

pub(crate) type Guard = MutexGuard<'static, State>;

/// The state of this process; `None` if nobody reads it.
fn state() -> Option<Guard> {
    settings()?;
    let mut state = STATE.lock();
    if state
        .process
        .is_some_and(|(pid, _)| pid != std::process::id())
    {
        // A forked child: the parent tells its own story.
        *state = State::new();
    }
    Some(state)
}

/// Held across fork(2), so that the child finds all in order.
pub(crate) fn hold() -> Held {
    Held {
        _state: STATE.lock(),
        _trace: trace::hold(),
    }
}

/// See [`hold`].
#[derive(Debug)]
pub(crate) struct Held {
    _state: Guard,
    _trace: trace::Guard,
}

/// Who looks at each work request as it is posted: 0 nobody; 1 usage, which only counts; 2 lint or
/// trace.
static LOOKS: AtomicU8 = AtomicU8::new(0);

/// Lint, trace or usage look at each work request as it is posted.
#[inline]
pub(crate) fn sees_each_post() -> bool {
    LOOKS.load(Ordering::Relaxed) != 0
}

/// Lint or trace do, which follow it until it is done.
pub(crate) fn follows_each_post() -> bool {
    LOOKS.load(Ordering::Relaxed) > 1
}

/// Appends one record. That it cannot is no reason to disturb the program.
fn write(line: Line) {
    file::append(&line.finish());
}

/// The device was opened by this process. `note` notes what was counted so far, and gives the
/// number of queue pairs; `look` looks at threads that wait, and gives the number of those that
/// wait for long. `None` when all is over. Gives the thread that asks them.
pub(crate) fn opened(
    note: impl Fn() -> Option<usize> + Send + 'static,
    look: impl FnMut() -> Option<usize> + Send + 'static,
) -> Option<Reporter> {
    let settings = settings()?;
    lint::switch(settings.lint);
    trace::start();
    queues::usage::switch(settings.usage);
    let looks = match lint::is_on() || trace::is_on() {
        true => 2,
        false => u8::from(settings.usage),
    };
    LOOKS.store(looks, Ordering::Relaxed);
    if let Some(mut state) = state() {
        let line = state.record("opened");
        write(line);
    }
    Reporter::start(note, look)
}

impl State {
    fn forget(&mut self, qpn: u32) {
        self.connections.remove(&qpn);
        self.datagrams.remove(&qpn);
        self.local.remove(&qpn);
        self.remote.remove(&qpn);
        self.sends.remove(&qpn);
        self.too_long.remove(&qpn);
        self.broken.remove(&qpn);
        self.partitions.remove(&qpn);
        self.silent.remove(&qpn);
    }
}

/// A region has ended, or is about to.
pub(crate) fn deregistered(key: u32, region: Option<RegionFacts>) {
    if let (Some(mut state), Some(region)) = (state(), region) {
        if state.graves.len() == GRAVES {
            state.graves.pop_front();
        }
        state.graves.push_back((key, region, rnic_sys::now_ns()));
    }
}
