//! The engine: what moves packets between the link and the queue pairs of this process.
//!
//! *Whoever polls, drives.* There is one engine per process behind one lock. `ibv_poll_cq` and `ibv_post_send` run it in
//! the caller's thread; a background thread runs it when the application does not call (see [`background`]).

mod acks;
mod addresses;
mod background;
mod fork;
mod gate;
mod host;
mod port;
mod srq_table;
mod table;
mod timers;
mod wakeup;
mod watch;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rnic_link::{LinkConfig, LinkCounters, LinkError, MULTICAST_QPN, PathId, Received, RoceLink};
use rnic_transport::{Address, Counters, PacketSink, QpEvent, QueuePair, Time};
use rnic_wire::ip::{Ipv4Header, UDP_LEN};
use rnic_wire::{Gid, Grh, ICRC_LEN, Packet, UdPrefix};

pub(crate) use addresses::{AhNumber, AhTable};

pub(crate) use acks::HeldAck;
pub use fork::{after_fork_child, after_fork_parent, before_fork};
pub use watch::{PortCounters, port_counters, watch_counters};

use crate::context::AsyncEvents;
use crate::cq::CqTasks;
use crate::error::{Error, Result};
use crate::gid_table::GidEntry;
use crate::memory::MemoryTable;
use crate::multicast::Groups;
use crate::qp::{QpEntry, QpState};
use crate::report;
use crate::sys::{self, ForkWitness};
use crate::xrcd::Domains;
use background::Background;
use gate::Gate;
use host::DeviceHost;
pub(crate) use srq_table::SrqTable;
use table::QpTable;
use timers::Timers;

/// Bytes of packets one queue pair may build before the next has its turn.
const QUANTUM: usize = 64 * 1024;
/// Turns given out per call, so that a call ends although a peer reads without end.
const TURNS: usize = 16;
/// Packets taken from the link per call.
const RECEIVE_BUDGET: usize = 256;
/// Bounds of a queue pair's send window, bytes.
const WINDOW: std::ops::RangeInclusive<usize> = 64 * 1024..=1024 * 1024;

/// What is wrong with packets that no queue pair took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// No queue pair of that number.
    pub unknown_qpn: u64,
    /// Header lengths, version, opcode or padding wrong.
    pub malformed: u64,
    /// P_Key not in the table.
    pub bad_pkey: u64,
    /// Not from the address, or not to the address, that the queue pair is connected with.
    pub wrong_address: u64,
    /// The queue pair is in a state that receives nothing.
    pub not_ready: u64,
}

/// Everything the engine's lock guards.
pub(crate) struct Engine {
    pub(crate) link: RoceLink,
    pub(crate) memory: MemoryTable,
    pub(crate) ahs: AhTable,
    groups: Groups,
    gate: Gate,
    /// Numbers of the UD queue pairs.
    datagram_qps: Vec<u32>,
    qps: QpTable,
    pub(crate) srqs: SrqTable,
    pub(crate) domains: Domains,
    timers: Timers,
    cq_tasks: Arc<CqTasks>,
    ready: VecDeque<u32>,
    /// Bytes built since the last flush.
    staged: usize,
    drops: DropCounters,
    /// Counts of queue pairs that were destroyed.
    retired: Counters,
    told: watch::Told,
    /// The process is about to end: nothing is received any more.
    closed: bool,
}

impl Engine {
    fn open() -> std::result::Result<Engine, LinkError> {
        let config = config_from_environment()?;
        let link = RoceLink::open(&config)?;
        let srqs = SrqTable::new(link.qpn_ranges().first().map_or(0, |range| range.first));
        let mut qps = QpTable::default();
        for range in link.qpn_ranges() {
            qps.add_range(*range);
        }
        Ok(Engine {
            link,
            memory: MemoryTable::default(),
            ahs: AhTable::default(),
            groups: Groups::default(),
            gate: Gate::default(),
            datagram_qps: Vec::new(),
            qps,
            srqs,
            domains: Domains::default(),
            timers: Timers::default(),
            cq_tasks: Arc::default(),
            ready: VecDeque::new(),
            staged: 0,
            drops: DropCounters::default(),
            retired: Counters::default(),
            told: watch::Told::default(),
            closed: false,
        })
    }

    pub(crate) fn qp_mut(&mut self, qpn: u32) -> Option<&mut QpEntry> {
        self.qps.get_mut(qpn)
    }

    pub(crate) fn allocate_qpn(&mut self) -> Result<u32> {
        if self.qps.len() >= crate::device::MAX_QP as usize {
            return Err(Error::new(
                "ibv_create_qp",
                libc::ENOMEM,
                format!("the device's {} queue pairs are all in use", self.qps.len()),
            ));
        }
        if let Some(qpn) = self.qps.free_qpn() {
            return Ok(qpn);
        }
        let range = self
            .link
            .claim_qpn_range()
            .map_err(|e| Error::new("ibv_create_qp", libc::ENOMEM, e.to_string()))?;
        self.qps.add_range(range);
        self.qps
            .free_qpn()
            .ok_or_else(|| Error::new("ibv_create_qp", libc::ENOMEM, "no free queue pair number"))
    }

    /// All queue pairs.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &QpEntry> {
        self.qps.iter()
    }

    pub(crate) fn counters(&self) -> (LinkCounters, DropCounters) {
        (self.link.counters(), self.drops)
    }

    pub(crate) fn insert_qp(&mut self, entry: QpEntry) {
        if matches!(entry.transport, QueuePair::Ud(_)) {
            self.datagram_qps.push(entry.shared.qpn);
        }
        self.qps.insert(entry);
    }

    /// Takes a queue pair out. An ACK that waits for a reply leaves before: the peer's work is done, and it is to know.
    pub(crate) fn remove_qp(&mut self, qpn: u32) {
        self.send_last(qpn);
        self.memory.invalidate_all_of(qpn);
        if let Some(entry) = self.qps.remove(qpn) {
            report::destroyed(&entry);
            self.retired += entry.transport.counters();
            entry.abandon_receive(&mut self.srqs);
            if let Some(peer) = entry.peer {
                self.link.release_path(peer.path);
            }
            if matches!(entry.transport, QueuePair::Ud(_)) {
                self.groups.forget(qpn, &mut self.link);
                self.datagram_qps.retain(|q| *q != qpn);
                self.sweep_ahs();
            }
        }
    }

    /// Takes out all queue pairs of a context.
    pub(crate) fn remove_qps_of(&mut self, context: u64) {
        for qpn in self.qps.qpns() {
            let Some(shared) = self.qps.get_mut(qpn).map(|entry| entry.shared.clone()) else {
                continue;
            };
            if shared.context().id() == context && !shared.has_listener_outside(context) {
                self.remove_qp(qpn);
                shared.set_removed();
                for cq in shared.cqs() {
                    cq.purge(qpn);
                }
            }
        }
    }

    /// The receive in use of a queue pair ends without a completion, as it is reset.
    pub(crate) fn abandon_receive(&mut self, qpn: u32) {
        let Engine { qps, srqs, .. } = self;
        if let Some(entry) = qps.get_mut(qpn) {
            entry.abandon_receive(srqs);
        }
    }

    /// A queue pair, and the address handles that its work requests may name.
    pub(crate) fn qp_and_ahs(&mut self, qpn: u32) -> (Option<&mut QpEntry>, &AhTable) {
        (self.qps.get_mut(qpn), &self.ahs)
    }

    /// Gives an address handle up, now or when the last work request that may name it has left.
    pub(crate) fn remove_ah(&mut self, number: AhNumber) {
        self.ahs.retire(number);
        self.sweep_ahs();
    }

    fn sweep_ahs(&mut self) {
        let Engine {
            ahs,
            link,
            qps,
            datagram_qps,
            ..
        } = self;
        let queued = |qpn: &u32| {
            qps.get_mut(*qpn)
                .is_some_and(|entry| entry.transport.sends_outstanding() > 0)
        };
        if ahs.has_retired() && !datagram_qps.iter().any(queued) {
            ahs.sweep(link);
        }
    }

    pub(crate) fn attach_mcast(&mut self, mgid: Gid, qpn: u32, table: &[GidEntry]) -> Result<()> {
        self.groups.attach(mgid, qpn, table, &mut self.link)
    }

    pub(crate) fn detach_mcast(&mut self, mgid: Gid, qpn: u32) -> Result<()> {
        self.groups.detach(mgid, qpn, &mut self.link)
    }

    pub(crate) fn is_attached(&self, qpn: u32) -> bool {
        self.groups.has(qpn)
    }

    /// What a queue pair may have unacknowledged: a share of a receive buffer like ours, taken for the peer's.
    pub(crate) fn window_bytes(&self) -> u32 {
        (self.link.receive_buffer() / 4).clamp(*WINDOW.start(), *WINDOW.end()) as u32
    }

    /// Moves a queue pair to ERR and flushes its queues; also flushes what was posted in ERR.
    pub(crate) fn flush_qp(&mut self, qpn: u32) {
        self.send_last(qpn);
        let Engine {
            qps, memory, srqs, ..
        } = self;
        if let Some(entry) = qps.get_mut(qpn) {
            let (transport, mut host) = lend(entry, memory, srqs);
            transport.fail(&mut host);
            entry.shared.set_state(QpState::Err);
            entry.free_retired();
        }
    }

    /// Lets the send queue of a queue pair come to rest (SQD).
    pub(crate) fn drain_qp(&mut self, qpn: u32) {
        let Engine {
            qps, memory, srqs, ..
        } = self;
        if let Some(entry) = qps.get_mut(qpn) {
            let notify = entry.attr.en_sqd_async_notify;
            let (transport, mut host) = lend(entry, memory, srqs);
            transport.drain(notify, &mut host);
        }
    }

    /// Lets a queue pair that is about to fall silent say what it owes: an ACK may wait for a reply that never comes.
    pub(crate) fn send_last(&mut self, qpn: u32) {
        if self
            .qps
            .get_mut(qpn)
            .is_some_and(|entry| entry.transport.wants_transmit())
        {
            self.ready.push_front(qpn);
            self.send_out(Acks::Leave);
        }
    }

    /// Puts a queue pair into the list of those that want to transmit.
    pub(crate) fn schedule(&mut self, qpn: u32) {
        if let Some(entry) = self.qps.get_mut(qpn) {
            schedule(entry, &mut self.ready);
        }
    }

    /// One round: receive, fire timers, transmit. Gives the number of packets received.
    fn round(&mut self, door: bool) -> usize {
        let received = self.take_in(door);
        self.send_out(Acks::Leave);
        self.tell();
        received
    }

    /// The first half of a round: receive and fire timers.
    fn take_in(&mut self, door: bool) -> usize {
        if self.closed {
            return 0;
        }
        let now = sys::now_ns();
        let received = self.receive(now, door);
        self.fire_timers(Time(now));
        if self.cq_tasks.next().is_some_and(|at| at <= now) {
            self.attend_to_cqs(now);
        }
        received
    }

    /// Does what completion queues have asked for.
    #[cold]
    fn attend_to_cqs(&mut self, now: u64) {
        let due = self.cq_tasks.take(now);
        for cq in due.reminders {
            cq.remind(now);
        }
        for qpn in due.failed {
            self.fail_for_lost_completion(qpn);
        }
    }

    /// A queue pair that cannot report a completion is of no use any more: "local work queue catastrophic error" (IBTA
    /// vol. 1, 11.6.3.2). It is told once; what the flush adds is lost too.
    fn fail_for_lost_completion(&mut self, qpn: u32) {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return;
        };
        if std::mem::replace(&mut entry.completion_lost, true) {
            return;
        }
        let shared = entry.shared.clone();
        self.flush_qp(qpn);
        shared.post_event(QpEvent::Fatal);
    }

    /// The second half: what is ready to be sent leaves.
    pub(crate) fn send_out(&mut self, acks: Acks) {
        let waits = || {
            self.link.has_pending()
                || self.link.next_timeout().is_some()
                || self.gate.deadline().is_some()
        };
        if !self.closed && (!self.ready.is_empty() || waits()) {
            self.transmit(acks);
        }
    }

    fn receive(&mut self, now: u64, door: bool) -> usize {
        let Engine {
            link,
            memory,
            qps,
            srqs,
            ready,
            drops,
            timers,
            groups,
            ..
        } = self;
        link.receive(now, RECEIVE_BUDGET, door, &mut |received| {
            let mut deliver = |qpn| {
                deliver(
                    Time(now),
                    &received,
                    qpn,
                    qps,
                    memory,
                    srqs,
                    ready,
                    timers,
                    drops,
                );
            };
            if received.dest_qpn != MULTICAST_QPN {
                deliver(received.dest_qpn);
                return;
            }
            for qpn in groups.members(received.dst) {
                deliver(*qpn);
            }
        })
    }

    fn fire_timers(&mut self, now: Time) {
        while let Some((at, qpn)) = self.timers.pop_due(now) {
            let Some(entry) = self.qps.get_mut(qpn) else {
                continue;
            };
            if entry.armed != Some(at) {
                continue;
            }
            entry.armed = None;
            if entry.transport.next_timeout().is_some_and(|due| due <= now) {
                let (transport, mut host) = lend(entry, &mut self.memory, &mut self.srqs);
                transport.handle_timeout(now, &mut host);
                settle(entry, &mut self.ready, &mut self.timers);
            } else {
                self.timers.note(entry);
            }
        }
    }

    /// Lets the queue pairs that want to transmit do so, in turn.
    pub(crate) fn transmit(&mut self, acks: Acks) {
        self.transmit_at(sys::now_ns(), acks);
    }

    fn transmit_at(&mut self, now: u64, acks: Acks) {
        if self.gate.is_closed() {
            self.ready.extend(self.gate.try_open(&mut self.link, now));
        }
        let mut turns = TURNS;
        // Those with a held ACK stay in the list, behind all others.
        let mut held = 0;
        while turns > 0 && self.ready.len() > held {
            let Some(qpn) = self.ready.pop_front() else {
                break;
            };
            turns -= 1;
            held += usize::from(self.give_turn(qpn, now, acks));
            // A full staging buffer must leave before anybody can go on.
            if self.staged >= QUANTUM {
                self.flush(now);
            }
        }
        self.flush(now);
        if self.ahs.has_retired() {
            self.sweep_ahs();
        }
    }

    /// Lets one queue pair build packets; true: an ACK is all that it still has to send, and may wait.
    fn give_turn(&mut self, qpn: u32, now: u64, acks: Acks) -> bool {
        let Some(entry) = self.qps.get_mut(qpn) else {
            return false;
        };
        let unreliable = !matches!(entry.transport, QueuePair::Rc(_));
        if unreliable && self.gate.is_closed() {
            self.gate.hold(qpn);
            return false;
        }
        entry.ready = false;
        let hold = acks == Acks::MayWait
            && entry.transport.owes_only_ack()
            && entry.held_ack.may_wait(now);
        let mut sink = PathSink {
            link: &mut self.link,
            ahs: &mut self.ahs,
            path: entry.peer.map(|peer| peer.path),
            staged: &mut self.staged,
            gate: unreliable.then_some(&mut self.gate),
        };
        let (transport, mut host) = lend(entry, &mut self.memory, &mut self.srqs);
        if hold {
            transport.poll_requests(Time(now), &mut host, &mut sink, QUANTUM);
        } else {
            transport.poll_transmit(Time(now), &mut host, &mut sink, QUANTUM);
            entry.held_ack.left();
        }
        settle(entry, &mut self.ready, &mut self.timers);
        let held = hold && !entry.transport.may_request();
        if unreliable && self.gate.is_due(&self.link) {
            self.flush(now);
            self.gate.look(&mut self.link, now);
        }
        held
    }

    fn flush(&mut self, now: u64) {
        self.link.flush(now);
        self.staged = 0;
    }

    /// When the engine must run again although nothing arrives.
    fn next_deadline(&self) -> Option<u64> {
        let timer = self.timers.next().map(|t| t.0);
        let gate = self.gate.deadline();
        [timer, self.link.next_timeout(), self.cq_tasks.next(), gate]
            .into_iter()
            .flatten()
            .min()
    }
}

/// What becomes of an ACK that is all a queue pair has to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acks {
    /// It leaves.
    Leave,
    /// It may be held ([`acks`]): whoever drives is back at once.
    MayWait,
}

/// Splits an entry into its protocol and what the protocol asks of the device.
fn lend<'a>(
    entry: &'a mut QpEntry,
    memory: &'a mut MemoryTable,
    srqs: &'a mut SrqTable,
) -> (&'a mut QueuePair, DeviceHost<'a>) {
    let QpEntry {
        transport,
        shared,
        receives,
        selected_srq,
        signals,
        ..
    } = entry;
    let host = DeviceHost {
        memory,
        shared,
        receives,
        srqs,
        selected_srq,
        signals,
    };
    (transport, host)
}

fn schedule(entry: &mut QpEntry, ready: &mut VecDeque<u32>) {
    if !entry.ready && entry.transport.wants_transmit() {
        entry.ready = true;
        ready.push_back(entry.shared.qpn);
    }
}

/// After the protocol was called: note what changed.
fn settle(entry: &mut QpEntry, ready: &mut VecDeque<u32>, timers: &mut Timers) {
    if entry.transport.is_error() {
        if entry.shared.state() != QpState::Err {
            entry.shared.set_state(QpState::Err);
            entry.free_retired();
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

/// Checks what the transport leaves to the device, and hands the packet to queue pair `qpn`.
#[allow(
    clippy::too_many_arguments,
    reason = "the parts of the engine, lent one by one"
)]
#[inline]
fn deliver(
    now: Time,
    received: &Received<'_>,
    qpn: u32,
    qps: &mut QpTable,
    memory: &mut MemoryTable,
    srqs: &mut SrqTable,
    ready: &mut VecDeque<u32>,
    timers: &mut Timers,
    drops: &mut DropCounters,
) {
    let Some(entry) = qps.get_mut(qpn) else {
        drops.unknown_qpn += 1;
        return;
    };
    match entry.peer {
        Some(peer) if peer.remote != received.src || peer.local != received.dst => {
            drops.wrong_address += 1;
            return;
        }
        Some(_) => {}
        // Datagrams come from anywhere.
        None if matches!(entry.transport, QueuePair::Ud(_)) => {}
        None => {
            drops.not_ready += 1;
            return;
        }
    }
    let Ok(packet) = Packet::parse(received.bytes) else {
        drops.malformed += 1;
        return;
    };
    // Full and limited members of the default partition (IBTA vol. 1, 10.9.3).
    if packet.bth.pkey & 0x7fff != 0x7fff {
        drops.bad_pkey += 1;
        return;
    }
    let (transport, mut host) = lend(entry, memory, srqs);
    transport.handle_packet(now, &packet, || network_header(received), &mut host);
    if entry.transport.owes_only_ack() {
        entry.held_ack.arrived(now.0);
    }
    settle(entry, ready, timers);
}

/// The IP header of a packet, as far as a UDP socket shows it.
fn network_header(received: &Received<'_>) -> UdPrefix {
    /// What Linux sends with.
    const HOPS: u8 = 64;
    const UDP: u8 = 17;
    let udp_len = (UDP_LEN + received.bytes.len() + ICRC_LEN) as u16;
    match (received.src, received.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => UdPrefix::V4(Ipv4Header {
            tos: 0,
            total_len: Ipv4Header::LEN as u16 + udp_len,
            id: 0,
            dont_fragment: true,
            ttl: HOPS,
            protocol: UDP,
            src,
            dst,
        }),
        (src, dst) => UdPrefix::V6(Grh {
            traffic_class: 0,
            flow_label: 0,
            payload_len: udp_len,
            next_header: UDP,
            hop_limit: HOPS,
            sgid: Gid::from(src).0,
            dgid: Gid::from(dst).0,
        }),
    }
}

/// What the link has of paths, as the transport's place for packets.
struct PathSink<'a> {
    link: &'a mut RoceLink,
    ahs: &'a mut AhTable,
    /// Of a connection.
    path: Option<PathId>,
    staged: &'a mut usize,
    /// Of a service without acknowledgements.
    gate: Option<&'a mut Gate>,
}

/// Leads nowhere: the link loses and counts what goes there.
const NOWHERE: PathId = PathId(u32::MAX);

impl PathSink<'_> {
    #[inline]
    fn packet_by(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        if let Some(gate) = &mut self.gate
            && self.link.is_local(path)
        {
            gate.count(len);
        }
        let room = self.link.packet(path, len)?;
        *self.staged += len;
        Some(room)
    }
}

impl PacketSink for PathSink<'_> {
    fn packet(&mut self, len: usize) -> Option<&mut [u8]> {
        self.packet_by(self.path.unwrap_or(NOWHERE), len)
    }

    fn packet_to(&mut self, to: &Address, len: usize) -> Option<&mut [u8]> {
        let path = self.ahs.path(AhNumber(to.path), to.qpn, self.link);
        self.packet_by(path.unwrap_or(NOWHERE), len)
    }

    fn retract(&mut self) {
        self.link.retract();
    }
}

fn config_from_environment() -> std::result::Result<LinkConfig, LinkError> {
    let mut config = LinkConfig::default();
    if let Some(text) = std::env::var_os("RNIC_FAULTS") {
        let text = text.to_string_lossy();
        config.faults = Some(text.parse().map_err(|e| LinkError::Io {
            what: "RNIC_FAULTS",
            source: std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{e}")),
        })?);
    }
    config.pcap = std::env::var_os("RNIC_PCAP").map(Into::into);
    config.no_gso = std::env::var_os("RNIC_NO_GSO").is_some();
    Ok(config)
}

/// What all threads of the process share.
pub(crate) struct NicShared {
    engine: Mutex<Engine>,
    cq_tasks: Arc<CqTasks>,
    witness: ForkWitness,
    dead: AtomicBool,
    /// Calls of `ibv_poll_cq` and `ibv_post_send`, for the background thread to see that the application polls.
    polls: AtomicU64,
    background: Background,
    contexts: port::Contexts,
}

/// The process's NIC: shared by all its contexts, closed with the last.
#[derive(Clone)]
pub(crate) struct Nic {
    handle: Arc<NicHandle>,
}

struct NicHandle {
    shared: Arc<NicShared>,
}

impl std::fmt::Debug for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nic").finish_non_exhaustive()
    }
}

impl Nic {
    /// The process's NIC, opened if there is none.
    pub(crate) fn get() -> Result<Nic> {
        fork::get_or_open(|| {
            if crate::gid_table().is_empty() {
                return Err(Error::new(
                    "ibv_open_device",
                    libc::ENODEV,
                    "no network interface is up with an address; `ip link set lo up` is enough for this host alone",
                ));
            }
            let engine = Engine::open().map_err(|e| {
                let errno = match &e {
                    LinkError::PortTaken { .. } => libc::EADDRINUSE,
                    LinkError::Io { source, .. } | LinkError::Runtime { source, .. } => {
                        source.raw_os_error().unwrap_or(libc::EINVAL)
                    }
                    _ => libc::ENODEV,
                };
                Error::new("ibv_open_device", errno, e.to_string())
            })?;
            let shared = Arc::new(NicShared {
                background: Background::new()
                    .map_err(|_| Error::last_os("ibv_open_device", "eventfd"))?,
                cq_tasks: engine.cq_tasks.clone(),
                engine: Mutex::new(engine),
                witness: ForkWitness::new(),
                dead: AtomicBool::new(false),
                polls: AtomicU64::new(0),
                contexts: port::Contexts::default(),
            });
            background::start(&shared)?;
            report::opened(&shared);
            Ok(Arc::new(NicHandle { shared }))
        })
        .map(|handle| Nic { handle })
    }

    fn shared(&self) -> &NicShared {
        &self.handle.shared
    }

    /// The engine of this very process. In a forked child there is none: its copy may be locked by a thread that does not
    /// exist there, so every caller of [`Nic::lock`] has asked [`Nic::check_alive`] before, or asks here.
    pub(crate) fn lock_if_alive(&self) -> Option<MutexGuard<'_, Engine>> {
        self.shared().is_alive().then(|| self.lock())
    }

    /// The engine, waiting for its lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.shared().engine.lock()
    }

    /// What completion queues ask of the engine.
    pub(crate) fn cq_tasks(&self) -> &CqTasks {
        &self.shared().cq_tasks
    }

    /// Fails in a forked child, where the engine is a dead copy, and after shutdown.
    pub(crate) fn check_alive(&self, verb: &'static str) -> Result<()> {
        if self.shared().is_alive() {
            Ok(())
        } else {
            Err(Error::new(
                verb,
                libc::ENODEV,
                "this object was made before fork(): it belongs to the parent",
            ))
        }
    }

    /// Events of the port and the device go there, too, as long as it lives.
    pub(crate) fn tell_of_the_port(&self, events: &Arc<AsyncEvents>) {
        self.shared().contexts.add(events);
    }

    pub(crate) fn count_poll(&self) {
        // Exactness does not matter, only that it moves.
        let polls = &self.shared().polls;
        polls.store(
            polls.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Runs the engine for one round unless another thread is at it.
    ///
    /// `satisfied` is asked after packets were taken in. If the caller has what it waited for, it mostly answers at once:
    /// then what is ready to be sent waits for the answer. At the latest it leaves at the next round, or when the
    /// background thread looks, a millisecond later; it waits only while that thread leaves the engine to the application.
    pub(crate) fn drive(&self, verb: &'static str, satisfied: impl FnOnce() -> bool) -> Result<()> {
        self.check_alive(verb)?;
        if let Some(mut engine) = self.shared().engine.try_lock() {
            let owed = !engine.ready.is_empty();
            let received = engine.take_in(false);
            let acks = self.acks();
            let patient = received > 0 && !owed && acks == Acks::MayWait;
            if !(patient && satisfied()) {
                engine.send_out(acks);
            }
            self.after_drive(engine);
        }
        Ok(())
    }

    /// ACKs may wait while the application polls and the background thread leaves the engine to it.
    pub(crate) fn acks(&self) -> Acks {
        if self.shared().background.wakeup.is_watching() {
            Acks::MayWait
        } else {
            Acks::Leave
        }
    }

    /// Leaves the engine: if it has work or deadlines that the background thread does not know of, tell it.
    pub(crate) fn after_drive(&self, mut engine: MutexGuard<'_, Engine>) {
        engine.tell();
        let work_left = !engine.ready.is_empty();
        let deadline = engine.next_deadline();
        drop(engine);
        self.shared().background.wakeup.hear(work_left, deadline);
    }

    /// The application is about to wait for an event instead of polling.
    pub(crate) fn expect_sleep(&self) {
        self.shared().background.wakeup.stop_watching();
    }

    /// Called after each poll: if cores are short, an application that finds nothing lets others run.
    pub(crate) fn spin_or_rest(&self, found: bool) {
        background::spin_or_rest(self.shared(), found);
    }
}

impl NicShared {
    /// For the report: notes what was counted so far. Gives the number of queue pairs; `None` when all is over.
    pub(crate) fn note_counters(&self) -> Option<usize> {
        if !self.is_alive() {
            return None;
        }
        let engine = self.engine.lock();
        report::note_all(&engine, false);
        (!engine.closed).then(|| engine.qps.len())
    }

    fn is_alive(&self) -> bool {
        self.witness.same_process() && !self.dead.load(Ordering::Relaxed)
    }
}

impl Drop for NicHandle {
    fn drop(&mut self) {
        if self.shared.is_alive() {
            background::stop(&self.shared);
            report::note_all(&self.shared.engine.lock(), true);
            return;
        }
        // In a forked child: closing the copy must not tell anyone that the parent's part of the port is gone.
        if let Some(mut engine) = self.shared.engine.try_lock() {
            engine.link.abandon();
        }
        std::mem::forget(self.shared.clone());
    }
}

/// Stops the process's NIC for good (library fini): acknowledgements leave, all memory is revoked, nothing is received.
pub fn shutdown() {
    if let Some(handle) = fork::current()
        && handle.shared.is_alive()
        && let Some(mut engine) = handle
            .shared
            .engine
            .try_lock_for(std::time::Duration::from_millis(50))
    {
        engine.round(false);
        engine.closed = true;
        engine.memory.clear();
        for qpn in engine.qps.qpns() {
            engine.remove_qp(qpn);
        }
        report::note_all(&engine, true);
    }
}

/// The link's counters and the device's drops, if the device is open.
pub fn stats() -> Option<(LinkCounters, DropCounters)> {
    let handle = fork::current()?;
    handle
        .shared
        .is_alive()
        .then(|| handle.shared.engine.lock().counters())
}
