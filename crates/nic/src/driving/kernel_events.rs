//! The kernel's tables of interfaces, routes and neighbours: the background thread follows them, as
//! a rule without the engine, so that no message waits for what it asks. What changes at the host's
//! interfaces becomes an event of every context.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use rnic_link::Ways;
use rnic_sys::RouteEvents;
use rnic_wire::Gid;
use rustix_futex_sync::Mutex;

use super::shard::Shard;
use crate::addressing::gid_table::{GidEntry, gid_table};
use crate::queues::{AsyncEvent, AsyncEvents};
use rnic_types::PortState;

/// The number of the one port.
const PORT: u8 = 1;
/// Interfaces, and their addresses of both families (rtnetlink(7), `RTNLGRP_`).
const GROUPS: [u32; 3] = [1, 5, 9];

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

/// What the contexts know.
#[derive(Debug, PartialEq, Eq)]
struct View {
    state: PortState,
    /// Index and GID of each row.
    rows: Vec<(u32, Gid)>,
}

impl View {
    fn of(table: &[GidEntry]) -> View {
        View {
            state: crate::device::port_state(table),
            rows: table.iter().map(|row| (row.index, row.gid)).collect(),
        }
    }

    /// The events that tell of `after`.
    fn changes(&self, after: &View) -> impl Iterator<Item = AsyncEvent> {
        let port = (self.state != after.state).then_some(match after.state {
            PortState::Active => AsyncEvent::PortActive(PORT),
            PortState::Down => AsyncEvent::PortError(PORT),
        });
        let gids = (self.rows != after.rows).then_some(AsyncEvent::GidChange(PORT));
        port.into_iter().chain(gids)
    }
}

/// Looks after the host's interfaces.
#[derive(Debug)]
pub(super) struct PortWatch {
    /// `None` where the kernel or a sandbox has no rtnetlink: then there are no such events.
    socket: Option<RouteEvents>,
    reported: View,
}

impl PortWatch {
    pub(super) fn open() -> PortWatch {
        // The socket first: what changes behind the look at the table is told.
        let socket = RouteEvents::open(&GROUPS).ok();
        PortWatch {
            socket,
            reported: View::of(&gid_table()),
        }
    }

    /// Readable when there is something to look at; -1 if there never will be.
    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, RouteEvents::raw_fd)
    }

    /// Reads the table and tells what is new.
    pub(super) fn look(&mut self, shard: &Shard) {
        if let Some(socket) = &self.socket {
            socket.drain();
        }
        let table = gid_table();
        let seen = View::of(&table);
        for event in self.reported.changes(&seen) {
            shard.contexts.post(event);
        }
        let mut engine = shard.engine.lock();
        engine.follow_interfaces(&table);
        if self.reported.rows != seen.rows {
            engine.cm_addresses_changed(table);
        }
        drop(engine);
        self.reported = seen;
    }
}

/// What follows them.
pub(super) struct KernelTables {
    port: PortWatch,
    /// If packets leave past the kernel's network stack.
    ways: Option<Arc<Ways>>,
    /// When the ways are to be tended.
    tend_at: u64,
}

impl KernelTables {
    pub(super) fn new(port: PortWatch, ways: Option<Arc<Ways>>) -> KernelTables {
        let tend_at = if ways.is_some() { 0 } else { u64::MAX };
        KernelTables {
            port,
            ways,
            tend_at,
        }
    }

    /// Readable when one has changed; -1: nobody asks.
    pub(super) fn fds(&self) -> [RawFd; 2] {
        let ways = self.ways.as_ref().map_or(-1, |ways| ways.raw_fd());
        [self.port.fd(), ways]
    }

    /// When to look even though none has.
    pub(super) fn deadline(&self) -> u64 {
        self.tend_at
    }

    /// `changed`: of [`KernelTables::fds`].
    pub(super) fn look(&mut self, shared: &Shard, changed: [bool; 2]) {
        let [port, ways_changed] = changed;
        if port {
            self.port.look(shared);
        }
        if let Some(ways) = &self.ways {
            let now = shared.host.now_ns();
            if ways_changed || now >= self.tend_at {
                self.tend_at = ways.tend(now, ways_changed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which change is which event.

    use super::*;

    #[test]
    fn each_change_is_told_by_its_event() {
        use PortState::{Active, Down};
        let (a, b) = ((0, Gid([1; 16])), (1, Gid([2; 16])));
        let changes = |(before, old): (PortState, &[_]), (after, new): (PortState, &[_])| {
            let view = |state, rows: &[_]| View {
                state,
                rows: rows.to_vec(),
            };
            let (before, after) = (view(before, old), view(after, new));
            before.changes(&after).collect::<Vec<_>>()
        };
        let (gids, up) = (AsyncEvent::GidChange(1), AsyncEvent::PortActive(1));
        let down = AsyncEvent::PortError(1);
        assert_eq!(changes((Active, &[a]), (Active, &[a])), []);
        assert_eq!(changes((Active, &[a]), (Active, &[a, b])), [gids]);
        assert_eq!(changes((Active, &[a, b]), (Active, &[b])), [gids]);
        assert_eq!(changes((Active, &[a]), (Down, &[])), [down, gids]);
        assert_eq!(changes((Down, &[]), (Active, &[b])), [up, gids]);
        // The cable: addresses stay.
        assert_eq!(changes((Active, &[a]), (Down, &[a])), [down]);
        assert_eq!(changes((Down, &[a]), (Active, &[a])), [up]);
        assert_eq!(changes((Down, &[]), (Down, &[a])), [gids]);
    }
}
