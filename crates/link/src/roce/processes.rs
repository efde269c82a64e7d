//! What the link has together with the other processes of the host: QPN ranges, ports, domains,
//! last words.

use super::RoceLink;
use crate::LinkError;
use crate::staging::path::PathId;
use rnic_host::domains::{DomainError, DomainKey};
use rnic_host::last_words::{DeadProcess, LastWords, LastWordsId};
use rnic_host::peers::{PeerId, Peers};
use rnic_host::ports::Ports;
use rnic_host::registry::{QpnRange, RANGE_BITS};

impl RoceLink {
    /// The QPN ranges of this process.
    pub fn qpn_ranges(&self) -> &[QpnRange] {
        self.live
            .as_ref()
            .map_or(&[], |live| live.membership.ranges())
    }

    /// Claims one more range.
    ///
    /// # Errors
    /// See [`LinkError`]; [busy](LinkError::is_busy): another process is at the registry, for
    /// microseconds as a rule, and is not waited for.
    pub fn claim_qpn_range(&mut self) -> Result<QpnRange, LinkError> {
        match &mut self.live {
            Some(live) => {
                let range = live.membership.claim()?;
                if let Some(xdp) = &live.xdp {
                    xdp.take_range(range);
                }
                Ok(range)
            }
            None => Err(LinkError::Io {
                what: "claim a QPN range",
                source: std::io::ErrorKind::NotConnected.into(),
            }),
        }
    }

    /// Conversations with other processes of this user; `None` after
    /// [`abandon`](RoceLink::abandon).
    #[inline]
    pub fn neighbours(&mut self) -> Option<&mut Peers> {
        self.live.as_mut().map(|live| live.membership.neighbours())
    }

    /// The other process whose range `number` lies in.
    ///
    /// # Errors
    /// Nobody has it, or its process takes no connections.
    pub fn owner_of(&mut self, number: u32) -> std::io::Result<PeerId> {
        match &mut self.live {
            Some(live) => live.membership.owner_of(number),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// What other processes need to know to find this one: the runtime folder's number, and this
    /// process's first range.
    pub fn card(&self) -> Option<(u64, u32)> {
        self.live.as_ref().and_then(|live| live.membership.card())
    }

    /// The other process with that first range.
    ///
    /// # Errors
    /// It is not there.
    pub fn neighbour(&mut self, first_range: u32) -> std::io::Result<PeerId> {
        match &mut self.live {
            Some(live) => live.membership.neighbour(first_range),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
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
        match &mut self.live {
            Some(live) => live.membership.open_domain(key, create, exclusive),
            None => Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into()),
        }
    }

    /// Closes one that this process has open.
    pub fn close_domain(&mut self, key: DomainKey) {
        if let Some(live) = &mut self.live {
            live.membership.close_domain(key);
        }
    }

    /// The QPN ranges of all live processes of the host, this one's included. Some system calls for
    /// each.
    pub fn live_ranges(&self) -> Vec<u32> {
        let live = self.live.as_ref();
        live.map_or(Vec::new(), |live| live.membership.live_ranges())
    }

    /// The other process of this host that has queue pair `qpn`, to which the path leads, is
    /// stopped, or the one that has shared receive queue `srq`: nothing is answered until it goes
    /// on. Of other hosts' processes nothing is known. Some microseconds, but for the two
    /// milliseconds after.
    pub fn peer_is_stopped(
        &mut self,
        path: PathId,
        qpn: u32,
        srq: Option<u32>,
        now_ns: u64,
    ) -> bool {
        let Some(live) = &mut self.live else {
            return false;
        };
        let Some(ways) = live.paths.get(path).filter(|ways| ways.route.local) else {
            return false;
        };
        // The kernel gives the number that the process at the other end of a ring has here. It may
        // have another one for itself.
        let ring = ways.shm.zip(live.shm.as_mut());
        let at_ring = ring.and_then(|(route, shm)| shm.cma_window(route));
        let registered = live.membership.process_of(qpn);
        let peer = registered.map(|pid| at_ring.map_or(pid, |cma| cma.pid()));
        let owner = srq.and_then(|srq| live.membership.process_of(srq));
        let mut pids = peer.into_iter().chain(owner);
        pids.any(|pid| live.stopped.is(pid, now_ns))
    }

    /// The same of the other process of this host that has a range of queue pair numbers.
    pub fn owner_is_stopped(&mut self, range: u32, now_ns: u64) -> bool {
        self.live.as_mut().is_some_and(|live| {
            let pid = live.membership.process_of(range << RANGE_BITS);
            pid.is_some_and(|pid| live.stopped.is(pid, now_ns))
        })
    }

    /// The same of a process that this one talks to.
    pub fn neighbour_is_stopped(&mut self, peer: PeerId, now_ns: u64) -> bool {
        self.live.as_mut().is_some_and(|live| {
            let pid = live.membership.neighbours().pid(peer);
            pid.is_some_and(|pid| live.stopped.is(pid, now_ns))
        })
    }

    /// While false, what a stopped process of this host has no room for waits until it goes on.
    /// True: it is lost after a second, as what it has no room for while it runs.
    #[inline]
    pub fn lose_what_stopped_peers_leave(&mut self, lose: bool) {
        if let Some(shm) = self.live.as_mut().and_then(|live| live.shm.as_mut()) {
            shm.lose_what_stopped_peers_leave(lose);
        }
    }

    /// The host's port table; `None` after [`abandon`](RoceLink::abandon).
    pub fn ports(&self) -> Option<Ports> {
        self.live
            .as_ref()
            .map(|live| live.membership.ports().clone())
    }

    /// Leaves last words: should this process be killed, another of this host sends them (one that
    /// calls [`take_last_words_of_the_dead`](RoceLink::take_last_words_of_the_dead)). Two system
    /// calls at most, but for the first.
    ///
    /// # Errors
    /// No room on the file system, or 131,072 records; TimedOut: a process has the registry's lock
    /// at this moment.
    pub fn write_last_words(&mut self, last_words: &LastWords) -> std::io::Result<LastWordsId> {
        match &mut self.live {
            Some(live) => live.membership.write_last_words(last_words),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }

    /// Takes a record back: there is nothing left to be said. All records of a process that closes
    /// the link are taken back.
    pub fn remove_last_words(&mut self, id: LastWordsId) {
        if let Some(live) = &mut self.live {
            live.membership.remove_last_words(id);
        }
    }

    /// What processes left that were killed and did not close the link: for this process alone to
    /// send, until it drops the [`DeadProcess`]. Takes a few microseconds per process that leaves
    /// last words, so once a second is often enough. Empty, too, while another process is at the
    /// registry.
    pub fn take_last_words_of_the_dead(&mut self) -> Vec<DeadProcess> {
        let live = self.live.as_ref();
        live.map_or(Vec::new(), |live| {
            live.membership.take_last_words_of_the_dead()
        })
    }
}
