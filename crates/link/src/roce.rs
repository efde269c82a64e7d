//! The link as the device sees it.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::os::fd::RawFd;

use rnic_wire::cm::Addressee;
use rnic_wire::{Flow, ICRC_LEN, IcrcContext, PeerIds, ROCE_PORT};

use crate::batch::TxBatch;
use crate::datagram::{Arrival, Link, Train};
use crate::domains::{DomainError, DomainKey};
use crate::door::{self, HEADER_LEN, MESSAGE_LEN};
use crate::faults::Faults;
use crate::framing::{Numbering, dest_qpn, seal};
use crate::host::{Deliver, HostPath, Room};
use crate::neighbours::{Neighbours, PeerId};
use crate::path::{PathId, PathSpec, Paths};
use crate::pcap::Pcap;
use crate::ports::Ports;
use crate::qp1::{self, QP1, Recipient};
use crate::registry::{QpnRange, range_of};
use crate::share::Share;
use crate::steering::{FIRST_PROBE_QPN, MULTICAST_QPN};
use crate::udp::UdpLink;
use crate::udp::backlog::Backlog;
use crate::wills::{Estate, Will, WillId};
use crate::{Gso, LinkConfig, LinkCounters, LinkError, sys, udp};

/// A packet that arrived: ICRC right, QPN ours.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// From the first byte of the BTH to the last pad byte, without ICRC.
    pub bytes: &'a [u8],
    /// Destination QPN from the BTH; [`MULTICAST_QPN`]: `dst` is a multicast group.
    pub dest_qpn: u32,
}

/// Another look is worth its system call when the last one brought this many bytes, or more packets than the two that
/// a reply and its ACK are.
const MORE_LIKELY: usize = 8192;
/// When the rings bring so many packets in a call, the next one comes late, and a look more costs little.
const BUSY: usize = 16;
/// How long the door is looked at in every call after something came through it.
const DOOR_WATCH_NS: u64 = 100_000_000;
/// How long the socket is left alone while rings are in use and it had nothing at the last look.
const LOOK_EVERY_NS: u64 = 20_000;
/// Otherwise in every so many calls.
const DOOR_EVERY: u32 = 256;

/// The process's part of the host's RoCEv2 port. Not `Sync`: the engine's lock guards it.
///
/// # Drive contract
/// Sending: [`packet`](RoceLink::packet) gives room, the caller fills it (or [`retract`](RoceLink::retract)s it), and
/// [`flush`](RoceLink::flush) sends; when `packet` gives `None`, flush first. Receiving: [`receive`](RoceLink::receive)
/// when [`rx_fd`](RoceLink::rx_fd) is readable, or whenever the caller polls; it may leave packets behind, so wait for
/// the descriptors level-triggered. [`maintain`](RoceLink::maintain) now and then.
///
/// After [`abandon`](RoceLink::abandon) all calls do nothing.
pub struct RoceLink {
    live: Option<Live>,
    counters: LinkCounters,
}

struct Live {
    link: Box<dyn Link>,
    batch: TxBatch,
    paths: Paths,
    gso: Gso,
    inbox: Inbox,
    share: Share,
    backlog: Backlog,
    host: Option<HostPath>,
    /// When the socket is looked at again while rings are in use.
    look_at: u64,
    /// The packet given out last is in a ring's buffer.
    by_host: bool,
    /// A ring was full since the last [`RoceLink::take_blocked`].
    blocked: bool,
    /// The time at the last call that had one.
    now: u64,
}

impl RoceLink {
    /// Joins the host's port 4791 and claims a first QPN range.
    pub fn open(config: &LinkConfig) -> Result<RoceLink, LinkError> {
        let capture = match &config.pcap {
            Some(path) => Some(crate::pcap::Capture::open(path)?),
            None => None,
        };
        let share = Share::join()?;
        let udp = UdpLink::new(share.receiver().clone());
        let mut link: Box<dyn Link> = match capture {
            Some(capture) => Box::new(Pcap::new(udp, capture)),
            None => Box::new(udp),
        };
        let host = if config.host_path && config.faults.is_none() && config.pcap.is_none() {
            Some(share.open_host_path()?)
        } else {
            None
        };
        if let Some(spec) = config.faults {
            link = Box::new(Faults::new(link, spec));
        }
        let mut link = RoceLink {
            live: Some(Live {
                link,
                batch: TxBatch::default(),
                paths: Paths::default(),
                gso: Gso::from_environment(config),
                inbox: Inbox::default(),
                backlog: Backlog::new(udp::rx::is_dual_stack(share.receiver())),
                share,
                host,
                look_at: 0,
                by_host: false,
                blocked: false,
                now: 0,
            }),
            counters: LinkCounters::default(),
        };
        link.settle();
        Ok(link)
    }

    /// Waits, not for long, until this process has learnt its place in the group: packets would be handed over before.
    fn settle(&mut self) {
        for attempt in 0..20 {
            let Some(live) = &mut self.live else { return };
            if live.share.settled() {
                break;
            }
            if attempt % 5 == 4 {
                live.share.probe();
            }
            sys::wait_readable(live.share.receiver(), 10);
            self.receive(0, 64, true, &mut |_| {});
        }
        self.counters = LinkCounters::default();
    }

    /// The QPN ranges of this process.
    pub fn qpn_ranges(&self) -> &[QpnRange] {
        self.live.as_ref().map_or(&[], |live| live.share.ranges())
    }

    /// Claims one more range.
    pub fn claim_qpn_range(&mut self) -> Result<QpnRange, LinkError> {
        match &mut self.live {
            Some(live) => live.share.claim(),
            None => Err(LinkError::Io {
                what: "claim a QPN range",
                source: std::io::ErrorKind::NotConnected.into(),
            }),
        }
    }

    /// Conversations with other processes of this user; `None` after [`abandon`](RoceLink::abandon).
    #[inline]
    pub fn neighbours(&mut self) -> Option<&mut Neighbours> {
        self.live.as_mut().map(|live| live.share.neighbours())
    }

    /// The other process whose range `number` lies in.
    ///
    /// # Errors
    /// Nobody has it, or its process takes no connections.
    pub fn owner_of(&mut self, number: u32) -> std::io::Result<PeerId> {
        match &mut self.live {
            Some(live) => live.share.owner_of(number),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// What other processes need to know to find this one: the runtime folder's number, and this process's door.
    pub fn card(&self) -> Option<(u64, u32)> {
        self.live.as_ref().and_then(|live| live.share.card())
    }

    /// The other process with that door.
    ///
    /// # Errors
    /// It is not there.
    pub fn neighbour(&mut self, door: u32) -> std::io::Result<PeerId> {
        match &mut self.live {
            Some(live) => live.share.neighbour(door),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Opens an XRC domain for this process, which has it not open, under the rules of `ibv_open_xrcd(3)`.
    ///
    /// # Errors
    /// See [`DomainError`].
    pub fn open_domain(
        &mut self,
        key: DomainKey,
        create: bool,
        exclusive: bool,
    ) -> Result<(), DomainError> {
        match &mut self.live {
            Some(live) => live.share.open_domain(key, create, exclusive),
            None => Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into()),
        }
    }

    /// Closes one that this process has open.
    pub fn close_domain(&mut self, key: DomainKey) {
        if let Some(live) = &mut self.live {
            live.share.close_domain(key);
        }
    }

    /// The QPN ranges of all live processes of the host, this one's included. Some system calls for each.
    pub fn live_ranges(&self) -> Vec<u32> {
        let live = self.live.as_ref();
        live.map_or(Vec::new(), |live| live.share.live_ranges())
    }

    /// The host's port table; `None` after [`abandon`](RoceLink::abandon).
    pub fn ports(&self) -> Option<Ports> {
        self.live.as_ref().map(|live| live.share.ports().clone())
    }

    /// Leaves a will: should this process be killed, another of this host executes it (one that asks, see
    /// [`take_wills_of_the_dead`](RoceLink::take_wills_of_the_dead)). Two system calls at most, but for the first.
    ///
    /// # Errors
    /// No room on the file system, or 131,072 wills.
    pub fn write_will(&mut self, will: &Will) -> std::io::Result<WillId> {
        match &mut self.live {
            Some(live) => live.share.write_will(will),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Takes it back: there is nothing left to be said. All wills of a process that closes the link are taken back.
    pub fn strike_will(&mut self, will: WillId) {
        if let Some(live) = &mut self.live {
            live.share.strike_will(will);
        }
    }

    /// What processes left that were killed and did not close the link: for this process alone to execute, until it drops
    /// the estate. Takes a few microseconds per process that leaves wills, so once a second is often enough. Empty, too,
    /// while another process is at the registry.
    pub fn take_wills_of_the_dead(&mut self) -> Vec<Estate> {
        let live = self.live.as_ref();
        live.map_or(Vec::new(), |live| live.share.take_wills_of_the_dead())
    }

    /// Sets up (or finds again) a path; counted, give it back with `release_path`.
    pub fn path(&mut self, spec: &PathSpec) -> Result<PathId, LinkError> {
        let Some(live) = &mut self.live else {
            return Err(LinkError::Io {
                what: "set up a path",
                source: std::io::ErrorKind::NotConnected.into(),
            });
        };
        let gso = live.gso;
        let gso = |local| match gso {
            Gso::On => true,
            Gso::Off => false,
            Gso::LocalOnly => local,
        };
        let (share, host) = (&live.share, &mut live.host);
        live.paths.open(spec, gso, |key| {
            host.as_mut().and_then(|host| share.host_route(host, key))
        })
    }

    /// Joins a multicast group on an interface: from now on packets to it arrive here, a copy for each process that is a
    /// member, with [`MULTICAST_QPN`] as their QPN.
    ///
    /// # Errors
    /// No such interface, or more groups than the system allows a socket (`net.ipv4.igmp_max_memberships`).
    pub fn join(&mut self, group: IpAddr, ifindex: u32) -> std::io::Result<()> {
        self.set_membership(group, ifindex, true)?;
        if let Some(live) = &mut self.live {
            live.share.groups.join(group, ifindex);
        }
        Ok(())
    }

    /// Leaves it; all memberships end with the process.
    pub fn leave(&mut self, group: IpAddr, ifindex: u32) {
        // The interface may be gone, and the membership with it.
        let _ = self.set_membership(group, ifindex, false);
        if let Some(live) = &mut self.live {
            live.share.groups.leave(group, ifindex);
        }
    }

    fn set_membership(&self, group: IpAddr, ifindex: u32, member: bool) -> std::io::Result<()> {
        match &self.live {
            Some(live) => sys::set_membership(live.share.receiver(), group, ifindex, member),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Gives a path back.
    pub fn release_path(&mut self, path: PathId) {
        if let Some(live) = &mut self.live
            && let Some(route) = live.paths.release(path)
            && let Some(host) = &mut live.host
        {
            host.release(route);
        }
    }

    /// Packets of this path come to sockets of processes of this host, or (multicast) of this host too.
    #[inline]
    pub fn is_local(&self, path: PathId) -> bool {
        let live = self.live.as_ref();
        live.and_then(|live| live.paths.get(path))
            .is_some_and(|route| route.local && route.host.is_none())
    }

    /// Bytes that wait in the fullest receive buffer of the host's processes, of twice [`receive_buffer`] that fit;
    /// 0 if unknown. Takes some ten microseconds.
    ///
    /// [`receive_buffer`]: RoceLink::receive_buffer
    pub fn host_backlog(&mut self) -> usize {
        self.live.as_mut().map_or(0, |live| live.backlog.most())
    }

    /// Largest IP packet that the way to the peer takes, bytes (65536 on lo); `None` if unknown.
    pub fn path_ip_mtu(&self, spec: &PathSpec) -> Option<u32> {
        udp::tx::path_mtu(spec)
    }

    /// Room for one packet of `len` bytes (BTH .. last pad byte; the link adds the ICRC), with arbitrary content;
    /// `None`: flush first, or, if [`take_blocked`](RoceLink::take_blocked) says so, wait. A packet of a path that was given
    /// back is lost.
    #[inline]
    pub fn packet(&mut self, path: PathId, len: usize) -> Option<&mut [u8]> {
        let live = self.live.as_mut()?;
        let route = live.paths.get(path);
        live.by_host = false;
        if let Some(route) = route.and_then(|route| route.host)
            && let Some(host) = &mut live.host
        {
            match host.room(route, len, live.now, &mut self.counters) {
                Room::Yes => {
                    live.by_host = true;
                    return Some(host.packet());
                }
                Room::Full => {
                    live.blocked = true;
                    return None;
                }
                Room::Gone => {}
            }
        }
        let segments = route.map_or(1, |route| live.link.max_segments(route));
        live.batch.packet(route, len, segments)
    }

    /// Takes back the packet given out last.
    pub fn retract(&mut self) {
        if let Some(live) = &mut self.live {
            match &mut live.host {
                Some(host) if live.by_host => host.retract(),
                _ => live.batch.retract(),
            }
        }
    }

    /// The time, for packets that are built before the next call that has one: how long a ring is full is measured by it.
    #[inline]
    pub fn set_time(&mut self, now_ns: u64) {
        if let Some(live) = &mut self.live {
            live.now = now_ns;
        }
    }

    /// Packets are waiting for `flush`.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.batch.is_empty() || host_has_pending(live))
    }

    /// [`packet`](RoceLink::packet) gave no room since the last call because the peer's process has to take packets from
    /// its ring first: flushing does not help, and another path may well have room.
    #[inline]
    pub fn take_blocked(&mut self) -> bool {
        self.live
            .as_mut()
            .is_some_and(|live| std::mem::take(&mut live.blocked))
    }

    /// The application polls, so no process has to wake this one for packets (true), or it does not any more.
    pub fn leave_to_polling(&mut self, polled: bool) {
        if let Some(host) = self.live.as_mut().and_then(|live| live.host.as_mut()) {
            host.set_polled(polled);
        }
    }

    /// Nobody will look at the rings from now on unless [`wake_fd`](RoceLink::wake_fd) is readable. True: something is
    /// there already.
    pub fn fall_asleep(&mut self) -> bool {
        let live = self.live.as_mut();
        live.and_then(|live| live.host.as_mut())
            .is_some_and(HostPath::fall_asleep)
    }

    /// Packets lie in the rings of other processes or of this one.
    pub fn has_arrivals(&self) -> bool {
        let live = self.live.as_ref();
        live.and_then(|live| live.host.as_ref())
            .is_some_and(HostPath::has_arrivals)
    }

    /// [`receive`](RoceLink::receive) left packets behind for which no descriptor is readable.
    #[inline]
    pub fn has_left(&self) -> bool {
        let live = self.live.as_ref();
        live.and_then(|live| live.host.as_ref())
            .is_some_and(HostPath::has_left)
    }

    /// Readable when a process of this host woke this one; -1 if none ever does.
    pub fn wake_fd(&self) -> RawFd {
        let live = self.live.as_ref();
        live.and_then(|live| live.host.as_ref())
            .map_or(-1, HostPath::wake_fd)
    }

    /// Completes ICRCs and sends all packets built since the last flush. Never blocks; what the kernel refuses is
    /// counted and lost, as on a wire.
    pub fn flush(&mut self, now_ns: u64) {
        let Some(live) = &mut self.live else { return };
        live.now = now_ns;
        if let Some(host) = &mut live.host {
            host.flush(&mut self.counters);
        }
        if live.batch.is_empty() && live.link.next_timeout().is_none_or(|t| t > now_ns) {
            return;
        }
        let (runs, bytes) = live.batch.parts_mut();
        for run in runs {
            let Some(route) = &run.route else { continue };
            let numbering = if run.count > 1 {
                Numbering::Batch
            } else {
                Numbering::Single
            };
            let bytes = &mut bytes[run.start..run.start + run.len];
            seal(bytes, run.segment, &route.icrc, numbering);
        }
        live.link.send(&mut live.batch, now_ns, &mut self.counters);
        live.batch.clear();
    }

    /// Receives until nothing is there, about `budget` packets were handed to `deliver`, or as many batches held nothing
    /// for it; never blocks.
    /// Returns packets delivered. `door`: also look at the hand-over door (the background thread does; other calls
    /// look there too while it is in use, and rarely else).
    pub fn receive(
        &mut self,
        now_ns: u64,
        budget: usize,
        door: bool,
        deliver: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        self.receive_while(now_ns, budget, door, &mut |received| {
            deliver(received);
            ControlFlow::Continue(())
        })
    }

    /// As [`receive`](RoceLink::receive), but `deliver` may break: the packet it was offered then stays, and all behind
    /// it; the next call offers it again first. Meanwhile the descriptors may be readable, or not.
    pub fn receive_while(
        &mut self,
        now_ns: u64,
        budget: usize,
        door: bool,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let Some(live) = &mut self.live else { return 0 };
        let counters = &mut self.counters;
        let inbox = &mut live.inbox;
        live.now = now_ns;
        let mut delivered = inbox.go_on(now_ns, &mut live.share, counters, deliver);
        let door = door || inbox.door_is_due(now_ns);
        let (mut budget, mut rings_are_busy) = (budget, false);
        if let Some(host) = &mut live.host
            && inbox.rest.is_none()
        {
            if door {
                host.attend(counters);
            }
            let share = &live.share;
            let owns = |qpn| share.owns(qpn);
            let taken = host.receive(
                now_ns,
                budget - delivered.min(budget),
                &owns,
                counters,
                deliver,
            );
            delivered += taken;
            rings_are_busy = taken >= BUSY;
            let quiet = host.is_in_use() && !door && now_ns != 0 && now_ns < live.look_at;
            // Nor does a packet that has to stay in its ring: others would starve in the socket behind it.
            if quiet {
                return delivered;
            }
            // What the rings brought does not keep the socket from its look: it loses what they only hold back.
            budget = budget.max(delivered.saturating_add(1 + budget / 4));
        }
        let before = counters.rx_packets;
        // What is for others, or for nobody, must not keep the caller either.
        let mut looks = 0;
        while delivered < budget && looks < budget && inbox.rest.is_none() {
            looks += 1;
            counters.rx_syscalls += 1;
            match live.link.receive(&mut inbox.buffer) {
                Ok(Arrival::Train(train)) => {
                    let astray = counters.rx_handed_over;
                    let origin = Origin::Port { now_ns };
                    delivered +=
                        inbox.train(0, &train, false, origin, &mut live.share, counters, deliver);
                    let all_ours = counters.rx_handed_over == astray;
                    looks += std::mem::take(&mut inbox.managed);
                    let last = train.len < MORE_LIKELY && train.len <= 2 * train.segment;
                    if last && all_ours && !rings_are_busy {
                        break;
                    }
                }
                Ok(Arrival::Useless) => counters.rx_truncated += 1,
                Ok(Arrival::Empty) => {
                    live.share.groups.drained();
                    break;
                }
                Err(_) => break,
            }
        }
        if counters.rx_packets == before {
            live.look_at = now_ns.saturating_add(LOOK_EVERY_NS);
        }
        let lost = live.share.finish_hand_over(now_ns);
        counters.hand_over_lost(lost);
        if door {
            while delivered < budget && looks < budget.saturating_mul(2) && inbox.rest.is_none() {
                looks += 1;
                counters.rx_syscalls += 1;
                let Some(len) = live.share.door().receive(&mut inbox.buffer) else {
                    break;
                };
                inbox.door_until = now_ns.saturating_add(DOOR_WATCH_NS);
                delivered += inbox.message(0, len, &mut live.share, counters, deliver);
                looks += std::mem::take(&mut inbox.managed);
            }
        }
        live.share.after_receive();
        delivered
    }

    /// When `flush` must be called for held-back packets (fault injection's delay and reorder), or `receive` for those
    /// that wait to be handed over.
    pub fn next_timeout(&self) -> Option<u64> {
        let live = self.live.as_ref()?;
        let hand_over = live.share.door().next_timeout();
        [live.link.next_timeout(), hand_over]
            .into_iter()
            .flatten()
            .min()
    }

    /// The socket on which packets arrive: readable means call `receive`. -1 after `abandon`.
    pub fn rx_fd(&self) -> RawFd {
        self.live
            .as_ref()
            .map_or(-1, |live| live.share.receiver().raw())
    }

    /// The hand-over door and other rarely readable descriptors: readable means call `receive(.., door: true, ..)`.
    pub fn door_fds(&self) -> Vec<RawFd> {
        self.live
            .iter()
            .flat_map(|live| {
                let listener = live.host.as_ref().map(HostPath::listener_fd);
                live.share.door_fds().into_iter().chain(listener)
            })
            .collect()
    }

    /// House-keeping of the registry (reap dead processes, refresh the steering program when stale); call it every
    /// now and then from the background thread. Returns after how many nanoseconds it wants to be called again.
    pub fn maintain(&mut self, now_ns: u64) -> u64 {
        match &mut self.live {
            Some(live) => {
                if let Some(host) = &mut live.host {
                    host.maintain();
                    host.attend(&mut self.counters);
                }
                live.share.maintain(now_ns)
            }
            None => u64::MAX,
        }
    }

    /// Half the effective receive buffer in bytes: what all peers together may have in flight towards us.
    pub fn receive_buffer(&self) -> usize {
        self.live
            .as_ref()
            .map_or(0, |live| udp::rx::receive_buffer(live.share.receiver()) / 2)
    }

    /// In a forked child: close every descriptor without telling anyone.
    pub fn abandon(&mut self) {
        // Nothing of it is changed that others see: the parent's part goes on.
        self.live = None;
    }

    /// Counts since open.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }
}

impl RoceLink {
    /// Receives what is still there, for the sake of packets that are for others.
    fn drain(&mut self) {
        // A flood must not keep a process from ending.
        for _ in 0..10_000 {
            let before = self.counters.rx_packets;
            self.receive(0, usize::MAX, false, &mut |_| {});
            if self.counters.rx_packets == before {
                break;
            }
        }
    }
}

impl Drop for RoceLink {
    fn drop(&mut self) {
        if let Some(live) = &mut self.live {
            // What lies in rings is for nobody but this process, and a producer need not go on.
            live.host = None;
            live.share.begin_to_leave();
            self.drain();
        }
        if let Some(live) = self.live.take() {
            let Live { link, share, .. } = live;
            // Closes its copy of the receiving socket.
            drop(link);
            share.leave();
        }
    }
}

#[inline]
fn host_has_pending(live: &Live) -> bool {
    live.host.as_ref().is_some_and(HostPath::has_pending)
}

/// The receiving side: buffer and what is known about senders.
struct Inbox {
    buffer: Box<[u8]>,
    /// By hash of addresses and port; a sender that falls to the same place as another displaces it.
    senders: Vec<Option<Sender>>,
    door_until: u64,
    calls: u32,
    /// What nobody took yet of the buffer.
    rest: Option<Rest>,
    /// Packets to QP 1 since the last look: each costs system calls.
    managed: usize,
}

/// Packets in the buffer that wait; the ICRC of the first is right.
struct Rest {
    start: usize,
    /// Of what is left.
    train: Train,
    /// Where the door's message ends that the train is part of; `None`: it came through the port.
    message_end: Option<usize>,
}

struct Sender {
    flow: Flow,
    icrc: IcrcContext,
    ids: PeerIds,
}

const SENDERS: usize = 256;

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            buffer: vec![0; MESSAGE_LEN].into(),
            senders: (0..SENDERS).map(|_| None).collect(),
            door_until: 0,
            calls: 0,
            rest: None,
            managed: 0,
        }
    }
}

impl Sender {
    fn new(flow: Flow) -> Sender {
        Sender {
            flow,
            icrc: IcrcContext::new(&flow),
            ids: PeerIds::default(),
        }
    }
}

fn sender_of(senders: &mut [Option<Sender>], flow: Flow) -> &mut Sender {
    let slot = &mut senders[place_of(&flow)];
    if slot.as_ref().is_some_and(|sender| sender.flow != flow) {
        *slot = None;
    }
    slot.get_or_insert_with(|| Sender::new(flow))
}

fn place_of(flow: &Flow) -> usize {
    let fold = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            bits as u64 ^ (bits >> 64) as u64
        }
    };
    let key =
        fold(flow.src) ^ fold(flow.dst).rotate_left(29) ^ u64::from(flow.src_port).rotate_left(47);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SENDERS
}

impl Inbox {
    fn door_is_due(&mut self, now_ns: u64) -> bool {
        self.calls = self.calls.wrapping_add(1);
        now_ns < self.door_until || self.calls.is_multiple_of(DOOR_EVERY)
    }

    /// Offers what was left once more. Returns packets delivered.
    #[inline]
    fn go_on(
        &mut self,
        now_ns: u64,
        share: &mut Share,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        match self.rest.take() {
            None => 0,
            Some(rest) => self.go_on_with(&rest, now_ns, share, counters, deliver),
        }
    }

    #[cold]
    fn go_on_with(
        &mut self,
        rest: &Rest,
        now_ns: u64,
        share: &mut Share,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let Rest { start, train, .. } = rest;
        let origin = match rest.message_end {
            None => Origin::Port { now_ns },
            Some(end) => Origin::Door { end },
        };
        let mut delivered = self.train(*start, train, true, origin, share, counters, deliver);
        if let Some(end) = rest.message_end
            && self.rest.is_none()
        {
            delivered += self.message(start + train.len, end, share, counters, deliver);
        }
        delivered
    }

    /// Sorts a message of the door, or its end, which lies in the buffer from `at` to `len`. Returns packets delivered.
    fn message(
        &mut self,
        mut at: usize,
        len: usize,
        share: &mut Share,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let mut delivered = 0;
        while at < len && self.rest.is_none() {
            let Some(train) = door::decode_header(&self.buffer[at..len]) else {
                counters.rx_truncated += 1;
                break;
            };
            at += HEADER_LEN;
            let origin = Origin::Door { end: len };
            delivered += self.train(at, &train, false, origin, share, counters, deliver);
            at += train.len;
        }
        delivered
    }

    /// Sorts the packets of a train, which lies in the buffer from `start` on; `checked`: the ICRC of the first is right.
    /// Returns packets delivered.
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of the link, lent one by one"
    )]
    fn train(
        &mut self,
        start: usize,
        train: &Train,
        mut checked: bool,
        origin: Origin,
        share: &mut Share,
        counters: &mut LinkCounters,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        let Inbox {
            buffer,
            senders,
            rest: left,
            managed,
            ..
        } = self;
        let mut rest = &buffer[start..start + train.len];
        let flow = Flow {
            src: train.src,
            dst: train.dst,
            src_port: train.src_port,
            dst_port: ROCE_PORT,
        };
        let sender = sender_of(senders, flow);
        let came_before = counters.rx_packets;
        let mut delivered = 0;
        while !rest.is_empty() {
            let (packet, behind) = rest.split_at(train.segment.min(rest.len()));
            match dest_qpn(packet) {
                // Each member has a copy of its own; a unicast packet cannot claim to be one.
                Some(qpn)
                    if !(share.owns(qpn)
                        || qpn == MULTICAST_QPN
                            && train.dst.is_multicast()
                            && share.groups.may_hear(train.dst)
                        || qpn == QP1 && checked) =>
                {
                    if qpn == QP1 {
                        *managed += 1;
                        checked = sender.ids.check(&sender.icrc, packet).is_ok();
                        if checked && is_for_us(packet, origin, share, counters, train) {
                            continue;
                        }
                        counters.rx_bad_icrc += u64::from(!checked);
                        counters.rx_packets += 1;
                        counters.rx_bytes += packet.len() as u64;
                        checked = false;
                        rest = behind;
                        continue;
                    }
                    let n = foreign_run(rest, train.segment, qpn);
                    let (run, behind) = rest.split_at((n * train.segment).min(rest.len()));
                    foreign(train, run, n, qpn, origin, share, counters);
                    rest = behind;
                    continue;
                }
                Some(qpn) if checked || sender.ids.check(&sender.icrc, packet).is_ok() => {
                    let taken = deliver(Received {
                        src: flow.src,
                        dst: flow.dst,
                        bytes: &packet[..packet.len() - ICRC_LEN],
                        dest_qpn: qpn,
                    });
                    if taken.is_break() {
                        *left = Some(Rest {
                            start: start + train.len - rest.len(),
                            train: Train {
                                len: rest.len(),
                                ..*train
                            },
                            message_end: origin.message_end(),
                        });
                        break;
                    }
                    delivered += 1;
                }
                Some(_) => counters.rx_bad_icrc += 1,
                None => counters.rx_truncated += 1,
            }
            counters.rx_packets += 1;
            counters.rx_bytes += packet.len() as u64;
            counters.rx_adopted += u64::from(origin.message_end().is_some());
            checked = false;
            rest = behind;
        }
        if train.dst.is_multicast() {
            counters.rx_multicast += counters.rx_packets - came_before;
        }
        delivered
    }
}

/// Where a train came from.
#[derive(Clone, Copy)]
enum Origin {
    /// Port 4791: what is not ours is handed over.
    Port { now_ns: u64 },
    /// The door, in a message that ends there: what is not ours is lost.
    Door { end: usize },
}

impl Origin {
    fn message_end(self) -> Option<usize> {
        match self {
            Origin::Port { .. } => None,
            Origin::Door { end } => Some(end),
        }
    }
}

/// How many packets at the front are for the same range as the first, whose QPN is given.
fn foreign_run(packets: &[u8], segment: usize, qpn: u32) -> usize {
    let same = |packet: &[u8]| dest_qpn(packet).is_some_and(|q| range_of(q) == range_of(qpn));
    packets
        .chunks(segment)
        .take_while(|packet| same(packet))
        .count()
}

/// A packet to QP 1 whose ICRC is right. What is for others (too) is handed over. False: it is not for this process, or is
/// nothing, and dropped.
#[cold]
fn is_for_us(
    packet: &[u8],
    origin: Origin,
    share: &mut Share,
    counters: &mut LinkCounters,
    train: &Train,
) -> bool {
    let Some(recipient) = qp1::recipient(&packet[..packet.len() - ICRC_LEN]) else {
        counters.rx_bad_mad += 1;
        return false;
    };
    // Who handed it over has looked. If its addressee is gone since, this process is as good as any.
    let Origin::Port { now_ns } = origin else {
        return true;
    };
    let single = Train {
        len: packet.len(),
        ..*train
    };
    let door = match recipient {
        Recipient::One(addressee) => match share.door_for(&addressee) {
            Some(door) => {
                if matches!(addressee, Addressee::Connection(_)) {
                    // These are steered; requests are not.
                    share.steering_is_stale(now_ns);
                }
                door
            }
            None => return true,
        },
        Recipient::All => {
            let (others, lost) = share.hand_to_all(&single, packet, now_ns);
            counters.rx_handed_over += others;
            counters.hand_over_lost(lost);
            return true;
        }
    };
    let lost = share.hand_to(door, &single, packet, now_ns);
    counters.rx_handed_over += 1;
    counters.hand_over_lost(lost);
    false
}

/// `n` packets for one range of others: a probe, or to be handed over, or nobody's.
#[cold]
fn foreign(
    train: &Train,
    run: &[u8],
    n: usize,
    qpn: u32,
    origin: Origin,
    share: &mut Share,
    counters: &mut LinkCounters,
) {
    if qpn >= FIRST_PROBE_QPN && n == 1 && share.on_probe(train, run) {
        return;
    }
    counters.rx_packets += n as u64;
    counters.rx_bytes += run.len() as u64;
    let train = Train {
        len: run.len(),
        ..*train
    };
    let handed_over = match origin {
        // See `groups`. To all others: which of them is the member is not known, and the rest have nothing to count.
        _ if qpn == MULTICAST_QPN && train.dst.is_multicast() => {
            if let Origin::Port { now_ns } = origin {
                let (others, lost) = share.hand_to_all(&train, run, now_ns);
                counters.rx_handed_over += others * n as u64;
                counters.hand_over_lost(lost);
            }
            return;
        }
        Origin::Port { now_ns } => share.hand_over(qpn, &train, run, now_ns),
        Origin::Door { .. } => None,
    };
    match handed_over {
        Some(lost) => {
            counters.rx_handed_over += n as u64;
            counters.hand_over_lost(lost);
        }
        None => counters.rx_unknown_qpn += n as u64,
    }
}

#[cfg(test)]
mod tests;
