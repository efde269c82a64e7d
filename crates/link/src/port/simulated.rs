//! A port whose packets somebody else carries: a simulated network.
//!
//! The device has the [`SimulatedPort`], whoever simulates the [`Wire`] at its other end. What the
//! device sends lies there until it is [taken](Wire::take); what [arrives](Wire::arrive) lies there
//! until the device takes it in. Nothing happens in between: no time passes, nothing is lost but
//! what the receive buffer has no room for, as at a socket.
//!
//! A port [of a host](SimulatedPort::of_host) has what processes of one host share (`membership`),
//! in files: several of them with the same folder are processes of one host. A packet for that host
//! may come to any of them. What is for another one, this one [hands over](Wire::take_handed_over).
//! They may also share memory, as real ones do (`rings`). Who simulates then has a look at what
//! would wake them, [stops](SimulatedFolder::set_stopped) and [kills](Wire::die_after) them.

mod folder;
mod membership;
mod rings;
mod wire;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rnic_host::MULTICAST_QPN;
use rnic_host::registry::QpnRange;
use rnic_host::train::IpMarks;
use rnic_wire::ICRC_LEN;

use crate::roce::{Look, QuickPoll};
use crate::shm::{Deliver, Forgotten, Received, Room, ShmRoute, SimulatedProcess};
use crate::staging::path::PathId;
use crate::{Address, AddressVector, LinkCounters, LinkError};

pub use folder::SimulatedFolder;
use membership::Recipients;
pub(super) use membership::SimulatedMembership;
use rings::Rings;
use rnic_settings::HostPath;
pub use wire::{Frame, Wire};

/// Packets that are built before a flush.
const MOST_STAGED: usize = 64;

/// Where packets of a path go that is none: LID 0 is nobody's.
const NOWHERE: Address = Address::Ib { lid: 0 };

/// How the port is to be.
#[derive(Clone, Debug)]
pub struct SimulatedPortConfig {
    /// The host's addresses: a packet for another one is not taken in.
    pub addresses: Vec<IpAddr>,
    /// The port is one of an InfiniBand subnet, too, where this is its LID.
    pub lid: Option<u16>,
    /// First QPN range ([`QpnRange::of`]); more follow it.
    pub first_range: u32,
    /// The longest IP packet that leaves, bytes; 0: any.
    pub mtu: u32,
    /// Bytes that are kept of packets which the device has not taken in.
    pub receive_buffer: usize,
    /// Packets that may lie at the wire: more wait in the device, as for a full socket.
    pub send_queue: usize,
    /// How it reaches other processes of its host, and itself.
    pub host_path: HostPath,
    /// Decides what is random about copies through memory.
    pub seed: u64,
}

impl Default for SimulatedPortConfig {
    fn default() -> SimulatedPortConfig {
        SimulatedPortConfig {
            addresses: Vec::new(),
            lid: None,
            first_range: 1,
            mtu: 0,
            receive_buffer: 8 << 20,
            send_queue: usize::MAX,
            host_path: HostPath::Off,
            seed: 0,
        }
    }
}

#[derive(Debug)]
struct Path {
    spec: AddressVector,
    /// Through memory.
    route: Option<ShmRoute>,
    users: usize,
}

/// The device's end.
#[derive(Debug)]
pub struct SimulatedPort {
    wire: Wire,
    config: SimulatedPortConfig,
    ranges: Vec<QpnRange>,
    /// Its part in what the processes of its host share.
    membership: Option<SimulatedMembership>,
    /// What others of its host know of it.
    process: Option<Arc<SimulatedProcess>>,
    rings: Option<Rings>,
    is_dead: bool,
    /// What a killed process leaves in memory.
    forgotten: Option<Forgotten>,
    paths: Vec<(u32, Option<Path>)>,
    /// Built since the last flush.
    staged: Vec<Frame>,
    /// The packet given out last is one for a ring.
    by_ring: bool,
    blocked: bool,
    /// The time at the last call that had one.
    now: u64,
    counters: LinkCounters,
}

impl SimulatedPort {
    /// A port, and the wire that it is at.
    pub fn new(config: SimulatedPortConfig) -> (SimulatedPort, Wire) {
        let wire = Wire::new(config.receive_buffer, config.first_range);
        let port = SimulatedPort {
            wire: wire.clone(),
            ranges: vec![QpnRange::of(config.first_range)],
            membership: None,
            process: None,
            rings: None,
            is_dead: false,
            forgotten: None,
            config,
            paths: Vec::new(),
            staged: Vec::new(),
            by_ring: false,
            blocked: false,
            now: 0,
            counters: LinkCounters::default(),
        };
        (port, wire)
    }

    /// That of a process of the host whose runtime folder this is, which is made if it is missing.
    /// The first range is the one that was asked for, or the next that is free. It is claimed until
    /// the port is dropped.
    ///
    /// # Errors
    /// The folder cannot be used, or all ranges are claimed.
    pub fn of_host(
        config: SimulatedPortConfig,
        runtime: &SimulatedFolder,
    ) -> Result<(SimulatedPort, Wire), LinkError> {
        let (membership, first) =
            SimulatedMembership::join(runtime.path(), config.first_range, &config.addresses)?;
        let (addresses, others) = (config.addresses.clone(), runtime.processes().clone());
        let process = SimulatedProcess::new(first, addresses, others, config.seed);
        let process = Arc::new(process);
        let rings = Rings::open(&membership, &process, config.host_path)?;
        let (mut port, wire) = SimulatedPort::new(SimulatedPortConfig {
            first_range: first,
            ..config
        });
        port.membership = Some(membership);
        port.process = Some(process);
        port.rings = rings;
        Ok((port, wire))
    }

    pub(super) fn membership(&self) -> Option<&SimulatedMembership> {
        self.membership.as_ref()
    }

    pub(super) fn membership_mut(&mut self) -> Option<&mut SimulatedMembership> {
        self.membership.as_mut()
    }

    /// The process is killed. What it has sent is on its way; nothing follows.
    pub(super) fn abandon(&mut self) {
        if let Some(membership) = self.membership.take() {
            membership.abandon();
        }
        if let Some(rings) = self.rings.take() {
            rings.shm.cma_counters().add_to(&mut self.counters);
            self.forgotten = rings.die();
        }
        self.staged.clear();
        self.is_dead = true;
        self.wire.queues().is_dead = true;
        // Nobody has its other end.
        self.wire.cut();
        self.wire.queues().is_dead = true;
    }

    pub(super) fn qpn_ranges(&self) -> &[QpnRange] {
        &self.ranges
    }

    pub(super) fn claim_qpn_range(&mut self) -> Result<QpnRange, LinkError> {
        let range = match &mut self.membership {
            Some(membership) => membership.claim()?,
            None => QpnRange::of(self.config.first_range + self.ranges.len() as u32),
        };
        self.ranges.push(range);
        Ok(range)
    }

    pub(super) fn lid(&self) -> Option<u16> {
        self.config.lid
    }

    pub(super) fn path(&mut self, spec: &AddressVector) -> Result<PathId, LinkError> {
        let key = spec.key();
        let same = |path: &Option<Path>| path.as_ref().is_some_and(|path| path.spec == key);
        let place = match self.paths.iter().position(|(_, path)| same(path)) {
            Some(place) => place,
            None => {
                let free = self.paths.iter().position(|(_, path)| path.is_none());
                let place = free.unwrap_or(self.paths.len());
                if place >= PathId::PLACES {
                    return Err(LinkError::Io {
                        what: "set up a path",
                        source: io::Error::from_raw_os_error(libc::ENOMEM),
                    });
                }
                if place == self.paths.len() {
                    self.paths.push((0, None));
                }
                let route = self.new_route(&key);
                self.paths[place].1 = Some(Path {
                    spec: key,
                    route,
                    users: 0,
                });
                place
            }
        };
        let (generation, path) = &mut self.paths[place];
        if let Some(path) = path {
            path.users += 1;
        }
        Ok(PathId::new(*generation, place))
    }

    pub(super) fn release_path(&mut self, id: PathId) {
        let Some((generation, slot)) = self.paths.get_mut(id.place()) else {
            return;
        };
        if *generation == id.generation()
            && let Some(path) = slot
        {
            path.users -= 1;
            if path.users == 0 {
                if let (Some(route), Some(rings)) = (path.route, &mut self.rings) {
                    rings.shm.release(route);
                }
                *slot = None;
                *generation = PathId::next_generation(*generation);
            }
        }
    }

    #[inline]
    fn known_path(&self, id: PathId) -> Option<&Path> {
        let (generation, path) = self.paths.get(id.place())?;
        path.as_ref().filter(|_| *generation == id.generation())
    }

    #[inline]
    fn spec(&self, id: PathId) -> Option<&AddressVector> {
        self.known_path(id).map(|path| &path.spec)
    }

    pub(super) fn is_of_this_host(&self, id: PathId) -> bool {
        self.spec(id).is_some_and(|spec| self.is_own(spec.remote()))
    }

    pub(super) fn batch_bytes(&self, id: PathId, len: usize) -> Option<usize> {
        (!self.is_by_memory(id)).then_some(MOST_STAGED * len)
    }

    fn is_own(&self, address: Address) -> bool {
        match address {
            Address::RoceV2(ip) => self.config.addresses.contains(&ip),
            Address::Ib { lid } => self.config.lid == Some(lid),
        }
    }

    pub(super) fn has_way(&self, _: &AddressVector) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn takes(&self, len: u32) -> Result<(), u32> {
        match self.config.mtu {
            0 => Ok(()),
            mtu if len <= mtu => Ok(()),
            mtu => Err(mtu),
        }
    }

    #[inline]
    pub(super) fn packet(&mut self, id: PathId, len: usize) -> Option<&mut [u8]> {
        // What a dead process sends goes nowhere: it does not know.
        self.lives_on();
        let room = self.room_in_ring(id, len);
        self.by_ring = room == Some(Room::Yes);
        match room {
            Some(Room::Yes) => self.rings.as_mut().map(|rings| rings.shm.packet()),
            Some(Room::Full) => {
                self.blocked = true;
                None
            }
            Some(Room::Gone) | None => self.frame(id, len),
        }
    }

    fn frame(&mut self, id: PathId, len: usize) -> Option<&mut [u8]> {
        if self.staged.len() >= MOST_STAGED {
            return None;
        }
        let mut queues = self.wire.queues();
        if queues.sent.len() + self.staged.len() >= self.config.send_queue {
            self.blocked = true;
            return None;
        }
        let mut bytes = queues.spare.pop().unwrap_or_default();
        drop(queues);
        bytes.resize(len, 0);
        let src_port = |dest_qpn: u32| match &self.membership {
            Some(membership) => membership.src_port(),
            None => 0xc000 | (dest_qpn >> 12) as u16 & 0x3fff,
        };
        let frame = match self.spec(id) {
            Some(AddressVector::RoceV2(spec)) => Frame {
                src: spec.local.into(),
                dst: spec.remote.into(),
                src_port: src_port(spec.dest_qpn),
                sl: 0,
                traffic_class: spec.traffic_class,
                hop_limit: spec.hop_limit,
                bytes,
            },
            Some(spec @ AddressVector::Ib(path)) => Frame {
                src: spec.local(),
                dst: spec.remote(),
                src_port: 0,
                sl: path.sl,
                traffic_class: 0,
                hop_limit: 0,
                bytes,
            },
            // What leads nowhere has no address, and is lost.
            None => Frame {
                src: NOWHERE,
                dst: NOWHERE,
                src_port: 0,
                sl: 0,
                traffic_class: 0,
                hop_limit: 0,
                bytes,
            },
        };
        self.staged.push(frame);
        self.staged.last_mut().map(|frame| &mut frame.bytes[..])
    }

    pub(super) fn row(
        &mut self,
        path: PathId,
        len: usize,
        most: usize,
        mut build: impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        for count in 0..most {
            let Some(packet) = self.packet(path, len) else {
                return count;
            };
            if !build(packet) {
                self.retract();
                return count;
            }
        }
        most
    }

    pub(super) fn send_short(&mut self, path: PathId, packet: &[u8]) -> bool {
        self.lives_on();
        if let (Some(route), Some(Rings { shm, .. })) = (self.route(path), &mut self.rings) {
            return shm.send_short(route, packet, self.now, &mut self.counters);
        }
        let room = self.packet(path, packet.len());
        room.map(|room| room.copy_from_slice(packet)).is_some()
    }

    pub(super) fn retract(&mut self) {
        if let Some(Rings { shm, .. }) = self.rings.as_mut().filter(|_| self.by_ring) {
            shm.retract();
        } else if let Some(frame) = self.staged.pop() {
            self.wire.put_by(frame.bytes);
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        let rings = self.rings.as_ref();
        !self.staged.is_empty() || rings.is_some_and(|rings| rings.shm.has_pending())
    }

    pub(super) fn take_blocked(&mut self) -> bool {
        std::mem::take(&mut self.blocked)
    }

    pub(super) fn flush(&mut self, now_ns: u64) {
        self.now = now_ns;
        self.flush_rings();
        if self.staged.is_empty() {
            return;
        }
        self.counters.tx_syscalls += 1;
        let mut queues = self.wire.queues();
        let headers = |frame: &Frame| frame.dst.header_len() as usize;
        for frame in self.staged.drain(..) {
            let len = frame.bytes.len() + ICRC_LEN;
            let too_long = self.config.mtu != 0 && len + headers(&frame) > self.config.mtu as usize;
            if frame.dst == NOWHERE || too_long {
                self.counters.tx_errors += 1;
                queues.put_by(frame.bytes);
                continue;
            }
            if queues.is_dead {
                queues.put_by(frame.bytes);
                continue;
            }
            self.counters.tx_packets += 1;
            self.counters.tx_bytes += len as u64;
            self.counters.tx_multicast += u64::from(frame.dst.is_multicast());
            queues.sent.push_back(frame);
        }
    }

    pub(super) fn send_what_waits(&mut self) {
        self.flush(self.now);
    }

    pub(super) fn join(&mut self, group: IpAddr, _ifindex: u32) -> io::Result<()> {
        self.wire.queues().groups.push(group);
        Ok(())
    }

    pub(super) fn leave(&mut self, group: IpAddr, _ifindex: u32) {
        let mut queues = self.wire.queues();
        if let Some(at) = queues.groups.iter().position(|other| *other == group) {
            queues.groups.swap_remove(at);
        }
    }

    /// As a socket, to look at which takes a system call, unless rings are in use.
    pub(super) fn quick_poll(&mut self, socket: bool) -> QuickPoll {
        if let Some(Rings { shm, .. }) = &self.rings {
            let waits = self.has_pending() || self.has_packets();
            if shm.is_in_use() && shm.is_still() && !waits {
                return QuickPoll::NothingInMemory;
            }
            if waits || shm.is_in_use() || shm.has_left() {
                return QuickPoll::Something;
            }
        }
        match !socket || self.has_pending() || self.has_arrivals() {
            true => QuickPoll::Something,
            false => QuickPoll::NothingAtSocket,
        }
    }

    pub(super) fn receive_while(
        &mut self,
        now_ns: u64,
        budget: usize,
        look: Look,
        deliver: &mut Deliver<'_>,
    ) -> usize {
        self.now = now_ns;
        self.wire.queues().looks += 1;
        if look == Look::Handover
            && let Some(rings) = &mut self.rings
        {
            rings.shm.attend(&mut self.counters);
        }
        let mut delivered = self.receive_from_rings(budget, deliver);
        while delivered < budget {
            let mut queues = self.wire.queues();
            let Some((frame, is_handed_over)) = queues.arrived.pop_front() else {
                break;
            };
            drop(queues);
            let qpn = frame.dest_qpn();
            let multicast = frame.dst.is_multicast();
            let mut ours = multicast || self.owns(qpn);
            if let Some(membership) = &self.membership
                && !multicast
                && !is_handed_over
                && (qpn == rnic_host::QP1 || !ours)
            {
                let recipients = membership.recipients(&frame);
                ours = recipients.this_one;
                self.hand_over(recipients, &frame);
            }
            let received = Received {
                src: frame.src,
                dst: frame.dst,
                src_port: frame.src_port,
                marks: (frame.hop_limit > 0).then_some(IpMarks {
                    traffic_class: frame.traffic_class,
                    hop_limit: frame.hop_limit,
                }),
                bytes: &frame.bytes,
                detached: None,
                dest_qpn: if multicast { MULTICAST_QPN } else { qpn },
                ring: None,
            };
            if ours && deliver(&received).is_break() {
                // Whoever else it is for has it.
                self.wire.queues().arrived.push_front((frame, true));
                break;
            }
            let mut queues = self.wire.queues();
            queues.waiting -= frame.bytes.len();
            self.counters.rx_packets += 1;
            self.counters.rx_bytes += (frame.bytes.len() + ICRC_LEN) as u64;
            self.counters.rx_multicast += u64::from(multicast);
            self.counters.rx_unknown_qpn += u64::from(!ours);
            queues.put_by(frame.bytes);
            delivered += usize::from(ours);
        }
        delivered
    }

    #[cold]
    fn hand_over(&mut self, recipients: Recipients, frame: &Frame) {
        self.counters.rx_bad_mad += u64::from(recipients.is_nonsense);
        self.counters.rx_handed_over += recipients.others.len() as u64;
        let others = recipients.others.into_iter();
        let frames = others.map(|first_range| (first_range, frame.clone()));
        self.wire.queues().handed_over.extend(frames);
    }

    fn owns(&self, qpn: u32) -> bool {
        qpn == rnic_host::QP1 || is_within(&self.ranges, qpn)
    }

    /// Bytes that wait in this process's receive buffer. Those of others of its host do not count:
    /// no path of a simulated port is a local one, which they would hold up.
    pub(super) fn host_backlog(&self) -> usize {
        self.wire.queues().waiting
    }

    pub(super) fn receive_buffer(&self) -> usize {
        self.config.receive_buffer / 2
    }

    #[inline]
    fn has_packets(&self) -> bool {
        !self.wire.queues().arrived.is_empty()
    }

    #[inline]
    pub(super) fn has_arrivals(&self) -> bool {
        let rings = self.rings.as_ref();
        self.has_packets() || rings.is_some_and(|rings| rings.shm.has_arrivals())
    }

    #[inline]
    pub(super) fn has_left(&self) -> bool {
        let rings = self.rings.as_ref();
        self.has_packets() || rings.is_some_and(|rings| rings.shm.has_left())
    }

    pub(super) fn counters(&self) -> LinkCounters {
        let mut counters = self.counters;
        counters.rx_overrun += self.wire.queues().overrun;
        if let Some(rings) = &self.rings {
            rings.shm.cma_counters().add_to(&mut counters);
        }
        counters
    }
}

/// One of the ranges has that QPN.
fn is_within(ranges: &[QpnRange], qpn: u32) -> bool {
    let within = |range: &QpnRange| qpn.wrapping_sub(range.first) < range.count;
    ranges.iter().any(within)
}

#[cfg(all(test, not(loom)))]
mod tests;
