//! All paths in use, and by which ways packets leave on each.

use std::collections::{HashMap, TryReserveError};
use std::sync::Arc;

use crate::LinkError;
use crate::shm::ShmRoute;
use crate::staging::path::{PathId, PathSpec, Route};
use crate::udp::tx::TxSockets;
use rnic_host::addresses::is_own_address;
use rnic_host::qp1::QP1;
use rnic_host::source_ports::SourcePorts;

/// By which ways packets of a path leave.
pub(super) struct Egress {
    /// Through memory, as long as the ring is open.
    pub(super) shm: Option<ShmRoute>,
    /// By a socket, or past the kernel's network stack.
    pub(super) route: Arc<Route>,
}

struct Entry {
    egress: Egress,
    key: PathSpec,
    users: usize,
}

/// All paths in use, counted.
#[derive(Default)]
pub(super) struct Paths {
    entries: Vec<(u32, Option<Entry>)>,
    free: Vec<usize>,
    by_key: HashMap<PathSpec, usize>,
    sockets: TxSockets,
}

impl Paths {
    /// Sockets are noted there as this process's.
    pub(super) fn noted_in(source_ports: Arc<SourcePorts>) -> Paths {
        Paths {
            sockets: TxSockets::noted_in(source_ports),
            ..Paths::default()
        }
    }

    /// Closes what was not used for long.
    pub(super) fn tidy(&mut self) {
        self.sockets.tidy();
    }

    #[inline]
    fn entry(&self, id: PathId) -> Option<&Entry> {
        let (generation, entry) = self.entries.get(id.place())?;
        entry.as_ref().filter(|_| *generation == id.generation())
    }

    /// The ways of a path; `None`: it was given back.
    #[inline]
    pub(super) fn get(&self, id: PathId) -> Option<&Egress> {
        self.entry(id).map(|entry| &entry.egress)
    }

    #[inline]
    pub(super) fn route(&self, id: PathId) -> Option<&Arc<Route>> {
        self.get(id).map(|egress| &egress.route)
    }

    #[inline]
    pub(super) fn shm(&self, id: PathId) -> Option<ShmRoute> {
        self.get(id)?.shm
    }

    /// It was opened once only.
    pub(super) fn is_new(&self, id: PathId) -> bool {
        self.entry(id).is_some_and(|entry| entry.users == 1)
    }

    /// `gso(local)`: may the kernel cut runs for it? `local`: it leads to an address of this host;
    /// `shm` may then know a way through memory.
    pub(super) fn open(
        &mut self,
        spec: &PathSpec,
        gso: impl FnOnce(bool) -> bool,
        shm: impl FnOnce(&PathSpec) -> Option<ShmRoute>,
    ) -> Result<PathId, LinkError> {
        let key = spec.key();
        if let Some(&place) = self.by_key.get(&key) {
            let (generation, entry) = &mut self.entries[place];
            if let Some(entry) = entry {
                entry.users += 1;
                return Ok(PathId::new(*generation, place));
            }
        }
        if self.by_key.len() >= PathId::PLACES {
            return Err(LinkError::Io {
                what: "set up a path",
                source: std::io::Error::from_raw_os_error(libc::ENOMEM),
            });
        }
        self.reserve_one().map_err(|_| LinkError::Io {
            what: "set up a path",
            source: std::io::Error::from_raw_os_error(libc::ENOMEM),
        })?;
        let socket = self.sockets.choose(&key)?;
        let (local, multicast) = (
            is_own_address(key.remote, key.scope_id),
            key.remote.is_multicast(),
        );
        // What the kernel cuts is steered as one, and each message to QP 1 may be for another
        // process.
        let for_queue_pairs = key.dest_qpn != QP1;
        let gso = gso(local) && for_queue_pairs;
        let shm = if local && for_queue_pairs {
            shm(&key)
        } else {
            None
        };
        let entry = Entry {
            egress: Egress {
                shm,
                route: Arc::new(Route::new(
                    &key,
                    socket,
                    gso,
                    local || multicast,
                    for_queue_pairs,
                )),
            },
            key,
            users: 1,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            self.entries.len() - 1
        });
        self.entries[place].1 = Some(entry);
        self.by_key.insert(key, place);
        Ok(PathId::new(self.entries[place].0, place))
    }

    /// Makes room for one path more.
    fn reserve_one(&mut self) -> Result<(), TryReserveError> {
        let all = self.entries.len() + 1;
        self.entries.try_reserve(1)?;
        let more = all.saturating_sub(self.free.len());
        self.free.try_reserve(more)?;
        self.by_key.try_reserve(1)
    }

    /// Gives the way through memory that it had, if it is gone now.
    pub(super) fn release(&mut self, id: PathId) -> Option<ShmRoute> {
        let place = id.place();
        let (generation, slot) = self.entries.get_mut(place)?;
        let entry = slot.as_mut().filter(|_| *generation == id.generation())?;
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        let Egress { shm, route } = &entry.egress;
        let shm = *shm;
        self.by_key.remove(&entry.key);
        route.socket.drop_from(&entry.key);
        *slot = None;
        *generation = PathId::next_generation(*generation);
        self.free.push(place);
        self.sockets.tidy();
        shm
    }
}

#[cfg(test)]
mod tests;
