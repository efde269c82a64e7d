//! This process's part in the shared port: its ranges, its reuseport slot, its hand-over
//! socket.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rnic_wire::cm::Addressee;

use crate::HostError;
use crate::domains::{DomainError, DomainKey, DomainLocks};
use crate::handover::{self, HandoverSocket};
use crate::last_words::{self, DeadProcess, LastWords, LastWordsFile, LastWordsId};
use crate::peers::{self, PeerId, Peers};
use crate::ports::Ports;
use crate::qp1::range_of_id;
use crate::registry::{self, Locked, QpnRange, Registry, range_of};
use crate::source_ports::SourcePorts;
use crate::train::Train;
use rnic_sys::{self as sys, Fd};

mod reuseport_slot;

use reuseport_slot::ReuseportSlot;

const MILLISECOND: u64 = 1_000_000;
const REAP_INTERVAL: u64 = 1_000 * MILLISECOND;
const TOUCH_INTERVAL: u64 = 3_600_000 * MILLISECOND;
/// How often at most the registry is asked for all processes, which takes a system call for each.
const OTHERS_INTERVAL: u64 = 10 * MILLISECOND;
/// When the registry's lock was busy.
const RETRY: u64 = 5 * MILLISECOND;
/// How long opening, and closing, wait for the lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process's part in what the processes of its host share.
pub struct Membership {
    registry: Registry,
    slot: ReuseportSlot,
    handover: HandoverSocket,
    neighbours: Peers,
    /// From the first domain of a file on.
    domains: Option<DomainLocks>,
    ports: Ports,
    source_ports: Arc<SourcePorts>,
    /// From the first record on.
    last_words: Option<LastWordsFile>,
    ranges: Vec<QpnRange>,
    /// The first range of the process's first link, if this is another one.
    beside: Option<u32>,
    /// Held from [`Membership::begin_to_leave`] on.
    leaving: Option<Locked>,
    reap_at: u64,
    touch_at: u64,
    /// The first ranges of the other processes, and until when that is taken for true.
    others: Others,
}

impl Membership {
    /// Joins the group and claims a range. `open_receiver` opens the receiving socket of the shared
    /// port; it is called while nobody else comes or goes.
    ///
    /// # Errors
    /// See [`HostError`]; or that of `open_receiver`.
    pub fn join<E: From<HostError>>(
        beside: Option<u32>,
        open_receiver: impl FnOnce() -> Result<Fd, E>,
    ) -> Result<Membership, E> {
        let runtime = registry::runtime_dir();
        let mut registry = Registry::open(&runtime)?;
        let path = registry.path().to_path_buf();
        let in_folder = |source| HostError::Runtime {
            path: path.clone(),
            source,
        };
        let locked = registry.lock(PATIENCE).map_err(in_folder)?;
        let receiver = Arc::new(open_receiver()?);
        let first = registry
            .claim(&locked, None)
            .map_err(in_folder)?
            .map_err(|live| HostError::NoQpnRange { live })?;
        let handover = HandoverSocket::open(registry.dir(), &path, first).map_err(in_folder)?;
        let neighbours = Peers::open(registry.dir(), &path, first).map_err(in_folder)?;
        let ports = Ports::open(&registry, first).map_err(in_folder)?;
        ports.purge(first).map_err(in_folder)?;
        let source_ports = SourcePorts::open(&registry).map_err(in_folder)?;
        source_ports.add_range(first).map_err(in_folder)?;
        let mut share = Membership {
            registry,
            slot: ReuseportSlot::new(receiver),
            handover,
            neighbours,
            domains: None,
            ports,
            source_ports: Arc::new(source_ports),
            last_words: None,
            ranges: Vec::new(),
            beside,
            leaving: None,
            reap_at: 0,
            touch_at: 0,
            others: Others::default(),
        };
        share.add(first);
        share
            .slot
            .steer(&share.registry, &locked)
            .map_err(in_folder)?;
        drop(locked);
        share.probe();
        Ok(share)
    }

    fn add(&mut self, range: u32) {
        self.ranges.push(QpnRange::of(range));
    }

    /// See `rnic_link::RoceLink::claim_qpn_range`.
    pub fn claim(&mut self) -> Result<QpnRange, HostError> {
        let path = self.registry.path().to_path_buf();
        let in_folder = |source| HostError::Runtime {
            path: path.clone(),
            source,
        };
        let locked = self.registry.lock(Duration::ZERO).map_err(in_folder)?;
        let range = self
            .registry
            .claim(&locked, self.slot.number())
            .map_err(in_folder)?
            .map_err(|live| HostError::NoQpnRange { live })?;
        self.ports.purge(range).map_err(in_folder)?;
        self.source_ports.add_range(range).map_err(in_folder)?;
        self.add(range);
        self.slot
            .steer(&self.registry, &locked)
            .map_err(in_folder)?;
        Ok(QpnRange::of(range))
    }

    /// The number of its first range, and of its sockets.
    pub fn first(&self) -> u32 {
        self.ranges.first().map_or(0, |own| range_of(own.first))
    }

    /// The folder where the sockets of all processes are, and its name.
    pub fn folder(&self) -> (&Fd, &Path) {
        (self.registry.dir(), self.registry.path())
    }

    /// The number under which a process has its sockets in the folder, if the QPN is one of its,
    /// and whether that is this process.
    pub fn number_of(&self, qpn: u32) -> Option<(u32, bool)> {
        let range = range_of(qpn);
        if self.registry.owns(range) {
            return Some((*self.registry.own().first()?, true));
        }
        let first_range = self.registry.entry(range)?.first_range;
        // A range of ours is no other process's.
        (!self.registry.owns(first_range)).then_some((first_range, false))
    }

    /// The QPN ranges of this process.
    pub fn ranges(&self) -> &[QpnRange] {
        &self.ranges
    }

    /// The receiving socket of the shared port.
    pub fn receiver(&self) -> &Arc<Fd> {
        self.slot.receiver()
    }

    /// The table of ports.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Says which process packets from addresses of this host come from.
    pub fn source_ports(&self) -> &Arc<SourcePorts> {
        &self.source_ports
    }

    /// See `rnic_link::RoceLink::write_last_words`.
    pub fn write_last_words(&mut self, last_words: &LastWords) -> io::Result<LastWordsId> {
        if self.last_words.is_none() {
            let locked = self.registry.lock(Duration::ZERO)?;
            self.last_words = Some(LastWordsFile::create(&self.registry, &locked)?);
        }
        match &mut self.last_words {
            Some(file) => file.write(last_words),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// See `rnic_link::RoceLink::remove_last_words`.
    pub fn remove_last_words(&mut self, id: LastWordsId) {
        if let Some(file) = &mut self.last_words {
            file.remove(id);
        }
    }

    /// See `rnic_link::RoceLink::take_last_words_of_the_dead`.
    pub fn take_last_words_of_the_dead(&self) -> Vec<DeadProcess> {
        // Another process has the lock: next time.
        let locked = self.registry.lock(Duration::ZERO);
        locked.map_or(Vec::new(), |locked| {
            last_words::take_from_the_dead(&self.registry, &locked)
        })
    }

    /// The other process that has a QPN's range now.
    pub fn process_of(&self, qpn: u32) -> Option<u32> {
        let range = range_of(qpn);
        if self.registry.owns(range) {
            return None;
        }
        let entry = self.registry.entry(range)?;
        self.ports.range_is_alive(range).then_some(entry.pid)
    }

    /// See `rnic_link::RoceLink::live_ranges`.
    pub fn live_ranges(&self) -> Vec<u32> {
        let live = self.registry.live().unwrap_or_default();
        live.iter().map(|(range, _)| *range).collect()
    }

    /// The socket by which others hand over what is for this process.
    pub fn handover(&self) -> &HandoverSocket {
        &self.handover
    }

    /// What this process receives is in that capture file.
    pub fn captured_in(&mut self, file: u16) {
        self.handover.captured_in(file);
    }

    /// See `rnic_link::RoceLink::card`.
    pub fn card(&self) -> Option<(u64, u32)> {
        let first_range = *self.registry.own().first()?;
        Some((self.registry.cookie(), first_range))
    }

    /// The descriptors of the hand-over socket and of the neighbours.
    pub fn handover_fds(&self) -> [std::os::fd::RawFd; 2] {
        [self.handover.raw_fd(), self.neighbours.raw_fd()]
    }

    /// Conversations with other processes.
    pub fn neighbours(&mut self) -> &mut Peers {
        &mut self.neighbours
    }

    /// See `rnic_link::RoceLink::owner_of`.
    pub fn owner_of(&mut self, number: u32) -> io::Result<PeerId> {
        let range = range_of(number);
        let entry = self.registry.entry(range);
        match entry.filter(|entry| !self.registry.owns(entry.first_range)) {
            Some(entry) if self.ports.range_is_alive(range) => self.neighbour(entry.first_range),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// See `rnic_link::RoceLink::neighbour`.
    pub fn neighbour(&mut self, first_range: u32) -> io::Result<PeerId> {
        let (dir, path) = (self.registry.dir(), self.registry.path());
        self.neighbours.connect(dir, path, first_range)
    }

    /// See `rnic_link::RoceLink::open_domain`.
    pub fn open_domain(
        &mut self,
        key: DomainKey,
        create: bool,
        exclusive: bool,
    ) -> Result<(), DomainError> {
        let domains = match self.domains.take() {
            Some(domains) => domains,
            None => DomainLocks::new(&self.registry)?,
        };
        self.domains.insert(domains).hold(key, create, exclusive)
    }

    /// See `rnic_link::RoceLink::close_domain`.
    pub fn close_domain(&mut self, key: DomainKey) {
        if let Some(domains) = &self.domains {
            domains.release(key);
        }
    }

    /// Is the QPN one of ours?
    #[inline]
    pub fn owns(&self, qpn: u32) -> bool {
        self.registry.owns(range_of(qpn))
    }

    /// Steering is set up as far as it can be.
    pub fn settled(&self) -> bool {
        self.slot.settled()
    }

    /// Sends a round of probes; a process that gets one learns its slot.
    pub fn probe(&self) {
        self.slot.probe(&self.registry);
    }

    /// Takes note of a probe; false: it is none.
    pub fn on_probe(&mut self, train: &Train, packet: &[u8]) -> bool {
        self.slot.on_probe(&self.registry, train, packet)
    }

    /// Publishes a slot learnt; to be called after packets were received.
    #[inline]
    pub fn after_receive(&mut self) {
        if self.slot.is_unpublished() && self.leaving.is_none() {
            self.slot.publish(&self.registry);
        }
    }

    /// Something came that steering should have brought to another process.
    pub fn steering_is_stale(&mut self, now_ns: u64) {
        self.slot.is_stale(&self.registry, now_ns);
    }

    /// Gives packets of one foreign range to its owner, in the end by
    /// [`Membership::finish_hand_over`]. `None`: there is no owner; else how many packets of
    /// earlier calls were lost.
    pub fn hand_over(&mut self, qpn: u32, train: &Train, bytes: &[u8], now_ns: u64) -> Option<u64> {
        let entry = self.registry.entry(range_of(qpn))?;
        if self.registry.owns(entry.first_range) {
            return None;
        }
        let lost = self.hand_to(entry.first_range, train, bytes, now_ns);
        self.steering_is_stale(now_ns);
        Some(lost)
    }

    /// Gives packets to the process with that first range; how many packets were lost, of these or
    /// of earlier calls.
    pub fn hand_to(&mut self, first_range: u32, train: &Train, bytes: &[u8], now_ns: u64) -> u64 {
        let (dir, path) = (self.registry.dir(), self.registry.path());
        self.handover
            .push(dir, path, now_ns, first_range, train, bytes)
    }

    /// The first range of the other process that a message to QP 1 is for; `None`: it is for this
    /// one, or for none that lives.
    pub fn process_for(&self, addressee: &Addressee) -> Option<u32> {
        let range = match addressee {
            Addressee::Connection(id) => range_of_id(*id),
            Addressee::Service(service, addr) => self.ports.listener_of(*service, *addr)?,
            Addressee::Nobody => return None,
        };
        if self.registry.owns(range) {
            return None;
        }
        let first_range = self.registry.entry(range)?.first_range;
        let other = !self.registry.owns(first_range);
        (other && self.ports.range_is_alive(range)).then_some(first_range)
    }

    /// Of a process with several links: where what is for QP 1 goes instead of here.
    pub fn first_link(&self) -> Option<u32> {
        self.beside
    }

    /// Gives a packet to all other processes; to how many, and how many packets were lost, of these
    /// or of earlier calls.
    pub fn hand_to_all(&mut self, train: &Train, bytes: &[u8], now_ns: u64) -> (u64, u64) {
        let changed = self.registry.changed();
        if !self.others.are_known(now_ns, changed) {
            let registry = &self.registry;
            self.others.first_ranges = registry.first_ranges().unwrap_or_default();
            let others = &mut self.others.first_ranges;
            others.retain(|range| !registry.owns(*range));
            self.others.learnt(now_ns, changed, sys::now_realtime_ns());
        }
        let mut lost = 0;
        for i in 0..self.others.first_ranges.len() {
            lost += self.hand_to(self.others.first_ranges[i], train, bytes, now_ns);
        }
        (self.others.first_ranges.len() as u64, lost)
    }

    /// Sends what is still to be handed over; how many packets were lost.
    #[inline]
    pub fn finish_hand_over(&mut self, now_ns: u64) -> u64 {
        let (dir, path) = (self.registry.dir(), self.registry.path());
        self.handover.flush(dir, path, now_ns)
    }

    /// See `rnic_link::RoceLink::maintain`.
    pub fn maintain(&mut self, now_ns: u64) -> u64 {
        if now_ns >= self.reap_at {
            self.reap_at = now_ns.saturating_add(REAP_INTERVAL);
            if self.reap().unwrap_or(false) {
                self.probe();
            }
            if self.slot.number().is_none() {
                self.steering_is_stale(now_ns);
            }
            // Only the first of a process's links takes what is for QP 1.
            if self.beside.is_none() {
                self.slot.mind_requests(&self.registry);
            }
            self.neighbours.maintain();
        }
        if now_ns >= self.touch_at {
            self.touch_at = now_ns.saturating_add(TOUCH_INTERVAL);
            self.registry.touch();
            self.ports.touch();
            self.source_ports.touch();
            for socket in sockets(self.first()) {
                sys::touch_at(self.registry.dir(), &socket);
            }
            if let Some(file) = &self.last_words {
                file.touch();
            }
            if let Some(domains) = &self.domains {
                domains.touch();
            }
        }
        self.after_receive();
        if self.slot.is_unpublished() {
            RETRY
        } else {
            self.reap_at - now_ns
        }
    }

    /// Clears what dead processes left; true: there was something.
    fn reap(&mut self) -> io::Result<bool> {
        if self.registry.dead()?.is_empty() {
            return Ok(false);
        }
        let locked = self.registry.lock(Duration::ZERO)?;
        // Looked at once more: it may have been claimed again since.
        let dead = self.registry.dead()?;
        for &(range, entry) in &dead {
            self.registry.clear(&locked, range)?;
            if entry.first_range == range {
                for socket in sockets(range) {
                    sys::remove_at(self.registry.dir(), &socket);
                }
            }
        }
        Ok(!dead.is_empty())
    }

    /// Before [`Membership::leave`]: nobody comes or goes from now on, so no more packets go astray
    /// to this process than are in its socket's queue already. They should be received and handed
    /// over.
    pub fn begin_to_leave(&mut self) {
        self.leaving = self.registry.lock(Duration::from_millis(500)).ok();
        let ranges = self.ranges.iter().map(|own| range_of(own.first));
        self.source_ports.leave(ranges);
    }

    /// Leaves the group: closes the receiving socket (the last copy must be this one), gives the
    /// ranges back, and lets the others find out about their slots.
    pub fn leave(self) {
        let Membership {
            mut registry,
            slot,
            handover,
            neighbours,
            ranges,
            leaving,
            ..
        } = self;
        let steered = slot.is_steered();
        drop(slot);
        drop(handover);
        drop(neighbours);
        if let Some(first) = ranges.first() {
            for socket in sockets(range_of(first.first)) {
                sys::remove_at(registry.dir(), &socket);
            }
        }
        registry.release_all();
        drop(leaving);
        let others = registry.live().map_or(0, |live| live.len());
        if steered && others > 0 {
            reuseport_slot::send_probes(registry.cookie(), others + 1);
        }
    }
}

/// The name of the socket in the registry's folder where a process gets its rings, for packets
/// through memory.
pub fn ring_socket(number: u32) -> String {
    format!("host.{number}")
}

/// The names of a process's sockets in the registry's folder.
fn sockets(number: u32) -> [String; 3] {
    [
        handover::file_name(number),
        peers::file_name(number),
        ring_socket(number),
    ]
}

/// The first ranges of all other processes, as they were a moment ago. One that is gone may be in
/// the list; one that has come is, at once.
#[derive(Debug, Default)]
struct Others {
    first_ranges: Vec<u32>,
    until: u64,
    /// When the registry was changed last, if that says whether it was changed since.
    changed: Option<u64>,
}

impl Others {
    fn are_known(&self, now_ns: u64, changed: Option<u64>) -> bool {
        now_ns < self.until && changed.is_some() && self.changed == changed
    }

    /// `wallclock` is that of `changed`.
    fn learnt(&mut self, now_ns: u64, changed: Option<u64>, wallclock: u64) {
        self.until = now_ns.saturating_add(OTHERS_INTERVAL);
        // Another change within the clock's step would leave no trace.
        self.changed = changed.filter(|at| wallclock.saturating_sub(*at) > OTHERS_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_come_since_is_in_the_list_of_others() {
        let mut others = Others::default();
        assert!(!others.are_known(0, Some(5)));
        others.learnt(0, Some(5), 5 + 2 * OTHERS_INTERVAL);
        assert!(others.are_known(1, Some(5)));
        assert!(!others.are_known(1, Some(6)), "somebody came");
        assert!(!others.are_known(1, None), "nobody knows");
        assert!(
            !others.are_known(OTHERS_INTERVAL, Some(5)),
            "some may have gone"
        );
        // Learnt within a step of the clock in which somebody came.
        others.learnt(0, Some(5), 6);
        assert!(!others.are_known(1, Some(5)));
    }
}
