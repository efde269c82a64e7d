//! The port follows the host's interfaces: what changes there becomes an event of every context.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rnic_wire::Gid;

use super::nic::NicShared;
use crate::context::{AsyncEvent, AsyncEvents};
use crate::gid_table::{GidEntry, gid_table};
use crate::sys::RouteSocket;

/// The number of the one port.
const PORT: u8 = 1;

/// Who is told: the event queues of the open contexts.
#[derive(Debug, Default)]
pub(crate) struct Contexts(Mutex<Vec<Weak<AsyncEvents>>>);

impl Contexts {
    pub(super) fn add(&self, events: &Arc<AsyncEvents>) {
        let mut list = self.0.lock();
        list.retain(|other| other.strong_count() > 0);
        list.push(Arc::downgrade(events));
    }

    /// An event of no object in particular.
    fn post(&self, event: AsyncEvent) {
        for events in self.0.lock().iter().filter_map(Weak::upgrade) {
            events.post(event);
        }
    }
}

/// Looks after the host's interfaces.
#[derive(Debug)]
pub(super) struct PortWatch {
    /// `None` where the kernel or a sandbox has no rtnetlink: then there are no such events.
    socket: Option<RouteSocket>,
    /// What the contexts know: index and GID of each row.
    told: Vec<(u32, Gid)>,
}

impl PortWatch {
    pub(super) fn open() -> PortWatch {
        // The socket first: what changes behind the look at the table is told.
        let socket = RouteSocket::open().ok();
        PortWatch {
            socket,
            told: rows(&gid_table()),
        }
    }

    /// Readable when there is something to look at; -1 if there never will be.
    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, RouteSocket::fd)
    }

    /// Reads the table and tells what is new.
    pub(super) fn look(&mut self, nic: &NicShared) {
        if let Some(socket) = &self.socket {
            socket.drain();
        }
        let table = gid_table();
        let rows = rows(&table);
        if rows == self.told {
            return;
        }
        for event in changes(&self.told, &rows) {
            nic.contexts.post(event);
        }
        self.told = rows;
        nic.engine.lock().cm_addresses_changed(table);
    }
}

fn rows(table: &[GidEntry]) -> Vec<(u32, Gid)> {
    table.iter().map(|row| (row.index, row.gid)).collect()
}

/// The events of a change. The port is up while it has an address (see `PortAttr::state`).
fn changes(before: &[(u32, Gid)], after: &[(u32, Gid)]) -> impl Iterator<Item = AsyncEvent> {
    let port = match (before.is_empty(), after.is_empty()) {
        (true, false) => Some(AsyncEvent::PortActive(PORT)),
        (false, true) => Some(AsyncEvent::PortError(PORT)),
        _ => None,
    };
    let gids = (before != after).then_some(AsyncEvent::GidChange(PORT));
    port.into_iter().chain(gids)
}

#[cfg(test)]
mod tests {
    //! Which change is which event.

    use super::*;

    #[test]
    fn the_port_is_up_while_it_has_an_address() {
        let (a, b) = ((0, Gid([1; 16])), (1, Gid([2; 16])));
        let told = |before: &[_], after: &[_]| changes(before, after).collect::<Vec<_>>();
        let gids = AsyncEvent::GidChange(1);
        assert_eq!(told(&[a], &[a]), []);
        assert_eq!(told(&[a], &[a, b]), [gids]);
        assert_eq!(told(&[a, b], &[b]), [gids]);
        assert_eq!(told(&[a], &[]), [AsyncEvent::PortError(1), gids]);
        assert_eq!(told(&[], &[b]), [AsyncEvent::PortActive(1), gids]);
        assert_eq!(told(&[], &[]), []);
    }
}
