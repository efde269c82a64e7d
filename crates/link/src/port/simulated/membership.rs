//! A simulated port's part in what the processes of its host share: the same files as those of
//! processes. Whoever simulates hands packets over.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rnic_host::HostError;
use rnic_host::last_words::{self, DeadProcess, LastWords, LastWordsFile, LastWordsId};
use rnic_host::ports::Ports;
use rnic_host::qp1::{self, QP1, Recipient, range_of_id};
use rnic_host::registry::{Locked, QpnRange, RANGES, Registry, range_of};
use rnic_host::source_ports::SourcePorts;
use rnic_sys::Fd;
use rnic_wire::cm::Addressee;

use super::Frame;

/// A process of the host.
#[derive(Debug)]
pub(in crate::port) struct SimulatedMembership {
    registry: Registry,
    first: u32,
    ports: Ports,
    source_ports: Arc<SourcePorts>,
    /// From the first record on.
    last_words: Option<LastWordsFile>,
    is_killed: bool,
}

/// Whom a packet is for.
#[derive(Debug, Default)]
pub(super) struct Recipients {
    pub(super) this_one: bool,
    /// The first ranges of others.
    pub(super) others: Vec<u32>,
    /// It came to QP 1, and is no message of the connection manager.
    pub(super) is_nonsense: bool,
}

impl SimulatedMembership {
    /// Claims a range, from `first` on; gives it.
    pub(super) fn join(
        runtime: &Path,
        first: u32,
        addresses: &[IpAddr],
    ) -> Result<(SimulatedMembership, u32), HostError> {
        let mut registry = Registry::open(runtime)?;
        let path = registry.path().to_path_buf();
        let in_folder = |source| HostError::Runtime {
            path: path.clone(),
            source,
        };
        let locked = lock(&registry).map_err(in_folder)?;
        registry.claim_from(&locked, first).map_err(in_folder)?;
        let first = registry
            .claim(&locked, None)
            .map_err(in_folder)?
            .map_err(|live| HostError::NoQpnRange { live })?;
        let ports = Ports::open(&registry, first).map_err(in_folder)?;
        ports.purge(first).map_err(in_folder)?;
        let source_ports = SourcePorts::open(&registry).map_err(in_folder)?;
        source_ports.add_range(first).map_err(in_folder)?;
        for address in addresses {
            let from = SocketAddr::new(*address, src_port(first));
            source_ports.note(&from).map_err(in_folder)?;
        }
        drop(locked);
        let membership = SimulatedMembership {
            registry,
            first,
            ports,
            source_ports: Arc::new(source_ports),
            last_words: None,
            is_killed: false,
        };
        Ok((membership, first))
    }

    pub(super) fn claim(&mut self) -> Result<QpnRange, HostError> {
        let path = self.registry.path().to_path_buf();
        let in_folder = |source| HostError::Runtime {
            path: path.clone(),
            source,
        };
        let locked = lock(&self.registry).map_err(in_folder)?;
        let range = self.registry.claim(&locked, None);
        let range = range
            .map_err(in_folder)?
            .map_err(|live| HostError::NoQpnRange { live })?;
        self.ports.purge(range).map_err(in_folder)?;
        self.source_ports.add_range(range).map_err(in_folder)?;
        Ok(QpnRange::of(range))
    }

    /// The UDP port that it sends from, and no other process of the host.
    pub(super) fn src_port(&self) -> u16 {
        src_port(self.first)
    }

    /// See [`rnic_host::membership::Membership::folder`].
    pub(super) fn folder(&self) -> (&Fd, &Path) {
        (self.registry.dir(), self.registry.path())
    }

    /// See [`rnic_host::membership::Membership::number_of`].
    pub(super) fn number_of(&self, qpn: u32) -> Option<(u32, bool)> {
        let range = range_of(qpn);
        if self.registry.owns(range) {
            return Some((self.first, true));
        }
        let first_range = self.registry.entry(range)?.first_range;
        (!self.registry.owns(first_range)).then_some((first_range, false))
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(in crate::port) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(in crate::port) fn source_ports(&self) -> &Arc<SourcePorts> {
        &self.source_ports
    }

    pub(in crate::port) fn live_ranges(&self) -> Vec<u32> {
        let live = self.registry.live().unwrap_or_default();
        live.iter().map(|(range, _)| *range).collect()
    }

    pub(in crate::port) fn write_last_words(
        &mut self,
        last_words: &LastWords,
    ) -> io::Result<LastWordsId> {
        if self.last_words.is_none() {
            let locked = lock(&self.registry)?;
            self.last_words = Some(LastWordsFile::create(&self.registry, &locked)?);
        }
        match &mut self.last_words {
            Some(file) => file.write(last_words),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(in crate::port) fn remove_last_words(&mut self, id: LastWordsId) {
        if let Some(file) = &mut self.last_words {
            file.remove(id);
        }
    }

    pub(in crate::port) fn take_last_words_of_the_dead(&self) -> Vec<DeadProcess> {
        let Ok(locked) = lock(&self.registry) else {
            return Vec::new();
        };
        let mut dead = last_words::take_from_the_dead(&self.registry, &locked);
        // The names of their files are random, and so is their order.
        dead.sort_by(|a, b| a.last_words().cmp(b.last_words()));
        dead
    }

    /// Whom a packet is for that came to this process.
    pub(super) fn recipients(&self, frame: &Frame) -> Recipients {
        let qpn = frame.dest_qpn();
        if qpn != QP1 {
            return self.owner_of(range_of(qpn));
        }
        match qp1::recipient(&frame.bytes) {
            None => Recipients {
                is_nonsense: true,
                ..Recipients::default()
            },
            Some(Recipient::All) => {
                let mut others = self.registry.first_ranges().unwrap_or_default();
                others.retain(|range| *range != self.first);
                Recipients {
                    this_one: true,
                    others,
                    is_nonsense: false,
                }
            }
            Some(Recipient::One(addressee)) => {
                let range = match addressee {
                    Addressee::Connection(id) => Some(range_of_id(id)),
                    Addressee::Service(service, addr) => self.ports.listener_of(service, addr),
                    Addressee::Nobody => None,
                };
                let recipients = range.map(|range| self.owner_of(range)).unwrap_or_default();
                // What is nobody's stays where it came.
                Recipients {
                    this_one: recipients.others.is_empty(),
                    ..recipients
                }
            }
        }
    }

    fn owner_of(&self, range: u32) -> Recipients {
        let this_one = self.registry.owns(range);
        let entry = self.registry.entry(range).filter(|_| range < RANGES);
        let others = entry.filter(|_| !this_one && self.ports.range_is_alive(range));
        Recipients {
            this_one,
            others: others.iter().map(|entry| entry.first_range).collect(),
            is_nonsense: false,
        }
    }

    /// The process is killed: the kernel closes its files, and nobody removes what it wrote.
    pub(super) fn abandon(mut self) {
        self.is_killed = true;
        if let Some(file) = self.last_words.take() {
            file.leave_behind();
        }
    }
}

impl Drop for SimulatedMembership {
    fn drop(&mut self) {
        if !self.is_killed {
            self.registry.release_all();
        }
    }
}

fn src_port(first: u32) -> u16 {
    0xc000 | (first & 0x3fff) as u16
}

/// Who simulates has one thread for a host: nobody else has it now.
fn lock(registry: &Registry) -> io::Result<Locked> {
    registry.lock(Duration::ZERO)
}
