//! The engine: what moves packets between the link and the queue pairs of this process.
//!
//! *Whoever polls, drives.* There is one engine per process, or several
//! ([`shard`](crate::driving)), each behind a lock. `ibv_poll_cq` and `ibv_post_send` run it in the
//! caller's thread; a background thread runs it when the application does not call (see
//! [`crate::driving`]).

mod agenda;
mod batching;
mod counters;
mod device_view;
mod fast_post;
mod fast_reply;
mod flow;
mod incast_group;
mod one_sided;
mod packet_sink;
mod post_batching;
mod receive;
mod receive_hold;
mod round;
mod services;
mod standing;
mod tables;
mod timers;
mod tx_blocked;

use std::collections::{TryReserveError, VecDeque};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic_host::SourcePorts;
use rnic_link::{Copies, LinkConfig, LinkCounters, LinkError, PathId, Port, RoceLink};
use rnic_settings::HostPath;
use rnic_transport::{Counters, QueuePair};
use rnic_wire::Gid;

pub use crate::observe::DropCounters;
pub(crate) use ack_coalescing::HeldAck;
pub(crate) use ack_piggyback::Piggyback;
pub(crate) use ah_table::{AhNumber, AhTable};
use batching::{ack_coalescing, ack_piggyback, doorbell, one_sided_batch, uc_writes};
pub(crate) use counters::sum;
pub use counters::{KeyViolations, Objects, PortCounters, watch_counters};
pub(crate) use fast_reply::Awaited;
use flow::{fairness, incast, local_pause, receive_horizon};
pub(crate) use round::Acks;
pub(crate) use services::cm as cm_service;
use services::cm::Cm;
pub(crate) use services::peers as peer_service;
use services::peers::Neighbourhood;
pub(crate) use services::resources;
pub(crate) use tables::fast_path::FastPath;
use tables::multicast::Groups;
pub(crate) use tables::qp_entry::{Peer, QpEntry};
use tables::{ah_table, common, qp_table, srq_table};

use crate::addressing::gid_table::GidEntry;
use crate::error::{Error, Result};
use crate::host::{Clock, Host};
use crate::memory::MemoryTable;
use crate::observe;
use crate::queues::{CqTasks, Domains, QpState};
use ack_piggyback::DelayedAcks;
pub(crate) use common::Common;
use device_view::DeviceView;
use doorbell::Batcher;
pub(crate) use doorbell::Posted;
use fairness::Fairness;
pub(crate) use fairness::several_engines;
pub(crate) use fast_post::{Ended, ShortPost};
pub(crate) use incast::{Incast, IncastMember, Requests};
use local_pause::LocalPause;
pub(crate) use one_sided::Uses;
use one_sided_batch::OneSidedBatch;
pub(crate) use one_sided_batch::Succession;
pub(crate) use qp_table::QpTable;
use receive_hold::ReceiveHold;
use receive_horizon::ReceiveHorizon;
pub(crate) use srq_table::SrqTable;
pub(crate) use timers::Timers;
use tx_blocked::TxBlocked;
pub(crate) use uc_writes::UcWrites;

/// How often somebody looks after an engine that the application drives, ns, where that costs
/// little.
pub(crate) const TICK_NS: u64 = 1_000_000;

/// Bounds of a queue pair's send window, bytes.
const WINDOW: std::ops::RangeInclusive<usize> = 64 * 1024..=1024 * 1024;

/// Which queue pair or packet has to wait for what.
#[derive(Debug)]
struct Flow {
    fairness: Fairness,
    local_pause: LocalPause,
    tx_blocked: TxBlocked,
    receive_hold: ReceiveHold,
    receive_horizon: ReceiveHorizon,
}

/// What waits for others, so that they leave together.
#[derive(Debug, Default)]
pub(crate) struct Batching {
    doorbell: Batcher,
    pub(crate) one_sided: OneSidedBatch,
    /// ACKs that wait for the application's answer.
    pub(crate) delayed_acks: DelayedAcks,
}

/// What the engine has counted.
#[derive(Debug, Default)]
struct Counted {
    drops: DropCounters,
    /// Of queue pairs that were destroyed.
    retired: Counters,
    /// Turns given to queue pairs.
    turns: u64,
    reported: counters::Reported,
}

/// Everything that a shard's lock guards.
pub(crate) struct Engine {
    /// Its place among the process's shards.
    pub(crate) index: usize,
    pub(crate) common: Arc<Common>,
    pub(crate) link: Port,
    /// Whose packets from addresses of this host are.
    source_ports: Option<Arc<SourcePorts>>,
    pub(crate) memory: MemoryTable,
    pub(crate) ahs: AhTable,
    pub(crate) cm: Cm,
    groups: Groups,
    flow: Flow,
    pub(crate) batching: Batching,
    counted: Counted,
    /// Numbers of the UD queue pairs.
    datagram_qps: Vec<u32>,
    pub(crate) qps: QpTable,
    pub(crate) srqs: SrqTable,
    pub(crate) domains: Domains,
    pub(crate) neighbours: Neighbourhood,
    pub(crate) timers: Timers,
    pub(crate) cq_tasks: Arc<CqTasks>,
    pub(crate) ready: VecDeque<u32>,
    /// Requests of this round that came by rings and were executed.
    proven: Vec<one_sided::ProvenKey>,
    /// Queue pairs whose payload goes by reference, and some whose payload did.
    by_reference: Vec<u32>,
    /// So many of those were left there at the last transmission, since their ACKs may wait.
    pub(crate) held: usize,
    /// ACKs are held for a thread that waited and has its event: they leave with what it posts, in
    /// one wake-up of the peer.
    answer_takes_acks: bool,
    /// See [`Engine::quick_poll`].
    quick_polls_left: u8,
    clock: Clock,
    /// Bytes built since the last flush.
    staged: usize,
    /// Nothing is held back for speed (`RNIC_STRICT`): what is posted or owed leaves at once.
    pub(crate) strict: bool,
    /// The process is about to end: nothing is received any more.
    pub(crate) closed: bool,
}

impl Engine {
    /// The first, or only, one.
    pub(crate) fn open(config: &LinkConfig) -> std::result::Result<Engine, LinkError> {
        let link = RoceLink::open(config)?;
        Ok(Engine::on(Host::system(), link.into()))
    }

    /// The first, or only, one on that host, whose packets leave and come by `link`.
    pub(crate) fn on(host: Host, link: Port) -> Engine {
        let common = Arc::new(Common::new(host.clone()));
        for range in link.qpn_ranges() {
            common.add_range(*range, 0);
        }
        let (_, first_range) = link.card().unwrap_or_default();
        common.first_range.store(first_range, Ordering::Relaxed);
        Engine::new(0, link, common, MemoryTable::new(host))
    }

    /// For the link of another one beside this one, which is the first.
    pub(crate) fn config_beside(&self, own: &LinkConfig) -> LinkConfig {
        LinkConfig {
            beside: self.link.card().map(|(_, first_range)| first_range),
            ..own.clone()
        }
    }

    /// That other one, with all that is the same in both.
    pub(crate) fn beside(
        &self,
        index: usize,
        link: Port,
    ) -> std::result::Result<Engine, TryReserveError> {
        let memory = self.memory.beside()?;
        Ok(Engine::new(index, link, self.common.clone(), memory))
    }

    fn new(index: usize, link: Port, common: Arc<Common>, memory: MemoryTable) -> Engine {
        let host = common.host.clone();
        let mut qps = QpTable::new(host.clone());
        for range in link.qpn_ranges() {
            qps.add_range(*range);
        }
        let cm = Cm::new(&link, host.clone());
        Engine {
            index,
            common,
            source_ports: link.source_ports(),
            link,
            memory,
            ahs: AhTable::default(),
            cm,
            groups: Groups::default(),
            flow: Flow {
                fairness: Fairness::of(index),
                local_pause: LocalPause::default(),
                tx_blocked: TxBlocked::default(),
                receive_hold: ReceiveHold::default(),
                receive_horizon: ReceiveHorizon::default(),
            },
            batching: Batching::default(),
            counted: Counted::default(),
            datagram_qps: Vec::new(),
            qps,
            srqs: SrqTable::default(),
            domains: Domains::default(),
            neighbours: Neighbourhood::default(),
            timers: Timers::default(),
            cq_tasks: Arc::default(),
            ready: VecDeque::new(),
            proven: Vec::new(),
            by_reference: Vec::new(),
            held: 0,
            answer_takes_acks: false,
            quick_polls_left: 0,
            clock: Clock::of(host.clone()),
            staged: 0,
            strict: rnic_settings::STRICT.is_on(),
            closed: false,
        }
    }

    /// The time, at most a few microseconds ago. All that the engine does goes by this one clock.
    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn qp_mut(&mut self, qpn: u32) -> Option<&mut QpEntry> {
        self.qps.get_mut(qpn)
    }

    /// EBUSY as well: see [`crate::driving::Shard::lock_with`].
    pub(crate) fn allocate_qpn(&mut self) -> Result<u32> {
        const VERB: &str = "ibv_create_qp";
        let live = self.common.live.load(Ordering::Relaxed);
        if live >= crate::device::MAX_QP as usize {
            return Err(Error::new(
                VERB,
                libc::ENOMEM,
                format!("the device's {live} queue pairs are all in use"),
            ));
        }
        let Engine {
            qps,
            link,
            common,
            index,
            ..
        } = self;
        let claim = || {
            let range = link.claim_qpn_range()?;
            common.add_range(range, *index);
            Ok::<_, LinkError>(range)
        };
        qps.allocate(common.host.now_ns(), claim)
            .map_err(|e| no_number(VERB, &e))?
            .ok_or_else(|| Error::new(VERB, libc::ENOMEM, "no free queue pair number"))
    }

    /// EBUSY as well: see [`crate::driving::Shard::lock_with`].
    pub(crate) fn allocate_srqn(&mut self) -> Result<u32> {
        const VERB: &str = "ibv_create_srq";
        let Engine {
            srqs,
            qps,
            link,
            common,
            index,
            ..
        } = self;
        let none = |why| Error::new(VERB, libc::ENOMEM, why);
        if srqs.is_full() {
            return Err(none("all shared receive queues are in use"));
        }
        srqs.set_ranges(link.qpn_ranges());
        if let Some(number) = srqs.free_number() {
            return Ok(number);
        }
        let range = link.claim_qpn_range().map_err(|e| no_number(VERB, &e))?;
        common.add_range(range, *index);
        qps.add_range(range);
        srqs.set_ranges(link.qpn_ranges());
        srqs.free_number().ok_or_else(|| none("no free number"))
    }

    /// All queue pairs.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &QpEntry> {
        self.qps.iter()
    }

    /// For the report: what was counted since the last time. `last`: nothing will come any more.
    pub(crate) fn note_all(&self, last: bool) {
        let queue_pairs = self.entries();
        let queue_pairs = queue_pairs.map(|entry| (&*entry.shared, entry.transport.counters()));
        observe::note_all(self.index, queue_pairs, self.counters(), last);
    }

    pub(crate) fn counters(&self) -> (LinkCounters, DropCounters) {
        (self.link.all_counters(), self.counted.drops)
    }

    /// Enters a new queue pair, with memory for what may be posted to it, and in each list that it
    /// may be put into.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn insert_qp(
        &mut self,
        mut entry: QpEntry,
    ) -> std::result::Result<(), TryReserveError> {
        entry.take_memory()?;
        let all = self.qps.len() + 1;
        // Others than queue pairs may be in it, too.
        self.ready
            .try_reserve((all + 8).saturating_sub(self.ready.len()))?;
        reserve_for(&mut self.by_reference, all)?;
        reserve_for(&mut self.datagram_qps, all)?;
        self.flow.tx_blocked.try_reserve(all)?;
        self.flow.local_pause.try_reserve(all)?;
        self.batching.delayed_acks.try_reserve(all)?;
        self.timers.try_reserve(all)?;
        if matches!(entry.transport, QueuePair::Ud(_)) {
            self.datagram_qps.push(entry.shared.qpn);
        }
        self.flow.receive_hold.added(&entry);
        self.common.live.fetch_add(1, Ordering::Relaxed);
        self.qps.insert(entry);
        Ok(())
    }

    /// Takes a queue pair out. An ACK that waits for a reply leaves before: the peer's work is
    /// done, and it is to know. Gives what peers may still have under way by it, to be waited for
    /// without the engine's lock.
    pub(crate) fn remove_qp(&mut self, qpn: u32) -> Copies {
        self.send_last(qpn);
        let copies = self.revoke_qp(qpn);
        self.memory.windows().close_those_of(qpn);
        if let Some(mut entry) = self.qps.remove(qpn, self.common.host.now_ns()) {
            entry.withdraw();
            self.timers.incast.leave(&mut entry.incast_member);
            self.common.live.fetch_sub(1, Ordering::Relaxed);
            self.flow.receive_hold.removed(&entry);
            observe::destroyed(&entry.shared, &entry.transport.counters());
            self.counted.retired += entry.transport.counters();
            self.neighbours.take_leave(&entry, false, &mut self.link);
            entry.abandon_receive(&self.srqs);
            if let Some(peer) = entry.peer {
                self.link.release_path(peer.path);
            }
            if matches!(entry.transport, QueuePair::Ud(_)) {
                self.groups.forget(qpn, &mut self.link);
                self.datagram_qps.retain(|q| *q != qpn);
                self.sweep_ahs();
            }
        }
        copies
    }

    /// Takes out all queue pairs of a context.
    pub(crate) fn remove_qps_of(&mut self, context: u64) -> Copies {
        let mut copies = Copies::default();
        for qpn in self.qps.qpns() {
            let Some(shared) = self.qps.get_mut(qpn).map(|entry| entry.shared.clone()) else {
                continue;
            };
            if shared.owner.id == context && !shared.has_listener_outside(context) {
                copies.join(self.remove_qp(qpn));
                shared.set_removed();
                for cq in shared.cqs() {
                    cq.purge(qpn);
                }
            }
        }
        copies
    }

    /// The receive in use of a queue pair ends without a completion, as it is reset.
    pub(crate) fn abandon_receive(&mut self, qpn: u32) {
        let Engine {
            qps,
            srqs,
            neighbours,
            link,
            ..
        } = self;
        if let Some(entry) = qps.get_mut(qpn) {
            entry.abandon_receive(srqs);
            neighbours.take_leave(entry, false, link);
            entry.remote_srq = None;
            entry.update_fast_path();
        }
    }

    /// A queue pair, and the address handles that its work requests may name.
    /// Gives an address handle up, now or when the last work request that may name it has left.
    pub(crate) fn remove_ah(&mut self, number: AhNumber) {
        let Engine {
            ahs,
            qps,
            datagram_qps,
            ..
        } = self;
        let mut marks = Vec::new();
        for qpn in datagram_qps.iter() {
            if let Some(entry) = qps.get_mut(*qpn) {
                // A datagram is one packet.
                let queued = entry.transport.sends_outstanding();
                if queued > 0 {
                    marks.push((*qpn, entry.transport.sq_psn().add(queued)));
                }
            }
        }
        ahs.retire(number, marks);
        self.sweep_ahs();
    }

    fn sweep_ahs(&mut self) {
        let Engine { ahs, link, qps, .. } = self;
        ahs.sweep(link, |qpn, mark| {
            // One that is gone, or was flushed or reset meanwhile, has nothing queued, or only what
            // came behind.
            qps.get_mut(qpn).is_none_or(|entry| {
                entry.transport.sends_outstanding() == 0
                    || !entry.transport.sq_psn().is_before(mark)
            })
        });
    }

    pub(crate) fn attach_mcast(&mut self, mgid: Gid, qpn: u32, table: &[GidEntry]) -> Result<()> {
        self.groups.attach(mgid, qpn, table, &mut self.link)
    }

    /// Addresses have come or gone: so do memberships of groups.
    pub(super) fn follow_interfaces(&mut self, table: &[GidEntry]) {
        self.groups.follow(table, &mut self.link);
    }

    pub(crate) fn detach_mcast(&mut self, mgid: Gid, qpn: u32) -> Result<()> {
        self.groups.detach(mgid, qpn, &mut self.link)
    }

    pub(crate) fn is_attached(&self, qpn: u32) -> bool {
        self.groups.has(qpn)
    }

    /// What a queue pair may have unacknowledged: a share of a receive buffer like ours, taken for
    /// the peer's. A ring loses nothing that it has no room for.
    pub(crate) fn window_bytes(&self, path: Option<PathId>) -> u32 {
        if path.is_some_and(|path| self.link.is_by_memory(path)) {
            return *WINDOW.end() as u32;
        }
        (self.link.receive_buffer() / 4).clamp(*WINDOW.start(), *WINDOW.end()) as u32
    }

    /// Moves a queue pair to ERR and flushes its queues; also flushes what was posted in ERR.
    pub(crate) fn flush_qp(&mut self, qpn: u32) {
        self.send_last(qpn);
        let Engine {
            qps,
            memory,
            srqs,
            timers,
            ..
        } = self;
        if let Some(entry) = qps.get_mut(qpn) {
            let (transport, mut device) = lend(entry, memory, srqs);
            transport.fail(&mut device);
            timers.note(entry);
            entry.shared.set_state(QpState::Err);
            entry.free_retired();
            self.neighbours.take_leave(entry, true, &mut self.link);
            entry.remote_srq = entry.remote_srq.take().and_then(|e| e.only_read());
            entry.update_fast_path();
        }
    }

    /// Lets the send queue of a queue pair come to rest (SQD).
    pub(crate) fn drain_qp(&mut self, qpn: u32) {
        let Engine {
            qps, memory, srqs, ..
        } = self;
        if let Some(entry) = qps.get_mut(qpn) {
            let notify = entry.attr.en_sqd_async_notify;
            let (transport, mut device) = lend(entry, memory, srqs);
            transport.drain(notify, &mut device);
        }
    }

    /// Lets a queue pair that is about to fall silent say what it owes: an ACK may wait for a reply
    /// that never comes.
    pub(crate) fn send_last(&mut self, qpn: u32) {
        if self
            .qps
            .get_mut(qpn)
            .is_some_and(|entry| entry.staged || entry.transport.wants_transmit())
        {
            self.ready.push_front(qpn);
            let now = self.now();
            self.send_out(now, Acks::Leave);
        }
    }

    /// Puts a queue pair into the list of those that want to transmit, to which that was posted:
    /// what is short before all others.
    pub(crate) fn schedule_posted(&mut self, qpn: u32, posted: Posted) {
        let before = self.ready.len();
        self.schedule(qpn);
        if self.ready.len() > before && fairness::is_short(posted.bytes) {
            // From the end to the front.
            self.ready.rotate_right(1);
        }
    }

    /// Puts a queue pair into the list of those that want to transmit.
    pub(crate) fn schedule(&mut self, qpn: u32) {
        if let Some(entry) = self.qps.get_mut(qpn) {
            schedule(entry, &mut self.ready);
        }
    }
}

/// Splits an entry into its protocol and what the protocol asks of the device.
pub(crate) fn lend<'a>(
    entry: &'a mut QpEntry,
    memory: &'a MemoryTable,
    srqs: &'a SrqTable,
) -> (&'a mut QueuePair, DeviceView<'a>) {
    let QpEntry {
        transport,
        shared,
        receives,
        selected_srq,
        signals,
        latencies,
        remote_srq,
        fast,
        cma,
        by_reference,
        ..
    } = entry;
    let device = DeviceView {
        memory,
        shared,
        receives,
        srqs,
        selected_srq,
        signals,
        latencies,
        packet: None,
        from: None,
        remote_srq,
        fast,
        cma: cma.as_deref(),
        by_reference,
    };
    (transport, device)
}

/// Why no range of numbers could be had.
fn no_number(verb: &'static str, error: &LinkError) -> Error {
    let errno = if error.is_busy() {
        libc::EBUSY
    } else {
        error.shortage().unwrap_or(libc::ENOMEM)
    };
    Error::new(verb, errno, error.to_string())
}

/// Makes room for `most` elements in all.
fn reserve_for<T>(list: &mut Vec<T>, most: usize) -> std::result::Result<(), TryReserveError> {
    list.try_reserve(most.saturating_sub(list.len()))
}

fn schedule(entry: &mut QpEntry, ready: &mut VecDeque<u32>) {
    if !entry.ready && entry.transport.wants_transmit() {
        entry.ready = true;
        ready.push_back(entry.shared.qpn);
    }
}

/// After the protocol was called: note what changed.
pub(crate) fn settle(entry: &mut QpEntry, ready: &mut VecDeque<u32>, timers: &mut Timers) {
    if entry.transport.is_error() {
        if entry.shared.state() != QpState::Err {
            entry.shared.set_state(QpState::Err);
            entry.free_retired();
        }
        // Its turn is where grants are taken back.
        if entry.granted && !entry.ready {
            entry.ready = true;
            ready.push_back(entry.shared.qpn);
        }
    } else if entry.transport.is_send_error() && entry.transport.sends_outstanding() == 0 {
        if entry.shared.state() != QpState::Sqe {
            entry.shared.set_state(QpState::Sqe);
        }
        entry.free_retired();
    }
    schedule(entry, ready);
    timers.note(entry);
}

/// How the link is opened, by the [settings](rnic_settings).
pub(crate) fn config_from_environment() -> std::result::Result<LinkConfig, LinkError> {
    let host_path = rnic_settings::host_path()?;
    Ok(LinkConfig {
        faults: parsed(&rnic_settings::FAULTS)?,
        xdp: parsed(&rnic_settings::XDP)?,
        pcap: rnic_settings::PCAP.path(),
        host_path: host_path != HostPath::Off,
        one_sided: host_path == HostPath::On,
        ..LinkConfig::default()
    })
}

/// What the link has a language of its own for.
fn parsed<T: FromStr<Err: Display>>(
    variable: &rnic_settings::Variable,
) -> std::result::Result<Option<T>, LinkError> {
    let Some(text) = variable.text() else {
        return Ok(None);
    };
    let parsed = text.to_string_lossy().parse();
    parsed
        .map(Some)
        .map_err(|why: T::Err| LinkError::variable(variable.name, why))
}
