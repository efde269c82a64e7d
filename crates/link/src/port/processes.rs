//! What the device has together with the other processes of the host: QPN ranges, ports, domains,
//! last words. A port that has no host is alone: each QPN is its own, and nobody else is there.

use std::io;
use std::sync::Arc;

use rnic_host::domains::{DomainError, DomainKey};
use rnic_host::last_words::{DeadProcess, LastWords, LastWordsId};
use rnic_host::peers::{PeerId, Peers};
use rnic_host::ports::Ports;
use rnic_host::registry::{QpnRange, RANGE_BITS};
use rnic_host::source_ports::SourcePorts;

use super::simulated::SimulatedMembership;
use super::{Port, either};
use crate::LinkError;
use crate::staging::path::PathId;

/// There is no other process.
fn alone() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Port {
    /// The QPN ranges of this process.
    pub fn qpn_ranges(&self) -> &[QpnRange] {
        match self {
            Port::Roce(link) => link.qpn_ranges(),
            Port::Simulated(port) => port.qpn_ranges(),
        }
    }

    /// Claims one more range.
    ///
    /// # Errors
    /// See [`LinkError`]; [busy](LinkError::is_busy): another process is at the registry.
    pub fn claim_qpn_range(&mut self) -> Result<QpnRange, LinkError> {
        match self {
            Port::Roce(link) => link.claim_qpn_range(),
            Port::Simulated(port) => port.claim_qpn_range(),
        }
    }

    /// Says which process packets from addresses of this host come from.
    pub fn source_ports(&self) -> Option<Arc<SourcePorts>> {
        match self {
            Port::Roce(link) => link.source_ports(),
            Port::Simulated(port) => Some(port.membership()?.source_ports().clone()),
        }
    }

    /// Bytes that wait in the fullest receive buffer of the host's processes; 0 if unknown.
    pub fn host_backlog(&mut self) -> usize {
        match self {
            Port::Roce(link) => link.host_backlog(),
            Port::Simulated(port) => port.host_backlog(),
        }
    }

    /// Conversations with other processes of this user.
    #[inline]
    pub fn neighbours(&mut self) -> Option<&mut Peers> {
        self.roce_mut()?.neighbours()
    }

    /// The other process whose range `number` lies in.
    ///
    /// # Errors
    /// Nobody has it, or its process takes no connections.
    pub fn owner_of(&mut self, number: u32) -> io::Result<PeerId> {
        self.roce_mut().ok_or_else(alone)?.owner_of(number)
    }

    /// What other processes need to know to find this one: the runtime folder's number, and this
    /// process's first range.
    pub fn card(&self) -> Option<(u64, u32)> {
        self.roce()?.card()
    }

    /// The other process with that first range.
    ///
    /// # Errors
    /// It is not there.
    pub fn neighbour(&mut self, first_range: u32) -> io::Result<PeerId> {
        self.roce_mut().ok_or_else(alone)?.neighbour(first_range)
    }

    /// Opens an XRC domain for this process, which has it not open, under the rules of
    /// `ibv_open_xrcd(3)`.
    ///
    /// # Errors
    /// See [`DomainError`].
    pub fn open_domain(
        &mut self,
        key: DomainKey,
        create: bool,
        exclusive: bool,
    ) -> Result<(), DomainError> {
        self.roce_mut()
            .ok_or_else(alone)?
            .open_domain(key, create, exclusive)
    }

    /// Closes one that this process has open.
    pub fn close_domain(&mut self, key: DomainKey) {
        if let Some(link) = self.roce_mut() {
            link.close_domain(key);
        }
    }

    /// The QPN ranges of all live processes of the host, this one's included.
    pub fn live_ranges(&self) -> Vec<u32> {
        match self {
            Port::Roce(link) => link.live_ranges(),
            Port::Simulated(port) => port
                .membership()
                .map_or(Vec::new(), SimulatedMembership::live_ranges),
        }
    }

    /// The other process of this host that has queue pair `qpn`, to which the path leads, is
    /// stopped, or the one that has shared receive queue `srq`. Of other hosts' processes nothing
    /// is known.
    pub fn peer_is_stopped(
        &mut self,
        path: PathId,
        qpn: u32,
        srq: Option<u32>,
        now_ns: u64,
    ) -> bool {
        match self {
            Port::Roce(link) => link.peer_is_stopped(path, qpn, srq, now_ns),
            Port::Simulated(port) => port.peer_is_stopped(path, qpn, srq),
        }
    }

    /// The same of the other process of this host that has a range of queue pair numbers.
    pub fn owner_is_stopped(&mut self, range: u32, now_ns: u64) -> bool {
        match self {
            Port::Roce(link) => link.owner_is_stopped(range, now_ns),
            Port::Simulated(port) => port.owner_is_stopped(range << RANGE_BITS),
        }
    }

    /// The same of a process that this one talks to.
    pub fn neighbour_is_stopped(&mut self, peer: PeerId, now_ns: u64) -> bool {
        self.roce_mut()
            .is_some_and(|link| link.neighbour_is_stopped(peer, now_ns))
    }

    /// While false, what a stopped process of this host has no room for waits until it goes on.
    /// True: it is lost after a second.
    #[inline]
    pub fn lose_what_stopped_peers_leave(&mut self, lose: bool) {
        either!(self, port => port.lose_what_stopped_peers_leave(lose));
    }

    /// The host's port table; `None`: it has none.
    pub fn ports(&self) -> Option<Ports> {
        match self {
            Port::Roce(link) => link.ports(),
            Port::Simulated(port) => Some(port.membership()?.ports().clone()),
        }
    }

    /// Leaves last words: should this process be killed, another of this host sends them.
    ///
    /// # Errors
    /// No room; TimedOut: a process has the registry's lock at this moment.
    pub fn write_last_words(&mut self, last_words: &LastWords) -> io::Result<LastWordsId> {
        match self {
            Port::Roce(link) => link.write_last_words(last_words),
            Port::Simulated(port) => port
                .membership_mut()
                .ok_or_else(alone)?
                .write_last_words(last_words),
        }
    }

    /// Takes a record back: there is nothing left to be said.
    pub fn remove_last_words(&mut self, id: LastWordsId) {
        match self {
            Port::Roce(link) => link.remove_last_words(id),
            Port::Simulated(port) => {
                if let Some(membership) = port.membership_mut() {
                    membership.remove_last_words(id);
                }
            }
        }
    }

    /// What processes left that were killed, for this process alone to send.
    pub fn take_last_words_of_the_dead(&mut self) -> Vec<DeadProcess> {
        match self {
            Port::Roce(link) => link.take_last_words_of_the_dead(),
            Port::Simulated(port) => port
                .membership()
                .map_or(Vec::new(), SimulatedMembership::take_last_words_of_the_dead),
        }
    }
}
