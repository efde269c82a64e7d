//! What is taken from the interfaces, as queue pairs and paths come and go.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::program::{Tables, Use};
use super::ways::Ways;
use crate::staging::path::Route;
use rnic_host::QpnRange;
use rnic_sys::FdSet;

/// Paths with an end at an address of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    /// To other hosts.
    pub(super) outside: usize,
    /// Within the host.
    pub(super) within: usize,
}

impl Users {
    pub(super) fn of(self) -> Use {
        match self {
            Users { outside: 1.., .. } => Use::Outside,
            Users { within: 1.., .. } => Use::Within,
            _ => Use::None,
        }
    }
}

/// What is taken from interfaces, and what tells that something came.
pub(crate) struct Filter {
    tables: Vec<Tables>,
    /// Without loopback's, which no table needs.
    pub(super) addresses: HashMap<IpAddr, Users>,
    /// The UDP socket and those of AF_XDP.
    arrivals: FdSet,
    ways: Arc<Ways>,
    /// Long rows of packets take the UDP sockets.
    rows: bool,
}

impl Filter {
    pub(super) fn new(tables: Vec<Tables>, arrivals: FdSet, ways: Arc<Ways>, rows: bool) -> Filter {
        Filter {
            tables,
            addresses: HashMap::new(),
            arrivals,
            ways,
            rows,
        }
    }

    /// Long rows of packets take the UDP sockets, where the kernel cuts them.
    #[inline]
    pub(crate) fn leaves_rows(&self) -> bool {
        self.rows
    }

    /// Packets to QPNs of this range are taken from now on. Where a table has no room, they take
    /// the sockets.
    pub(crate) fn take_range(&self, range: QpnRange) {
        for tables in &self.tables {
            let _ = tables.take_range(range.first);
        }
    }

    /// There is a path more. `is_new`: none went there.
    pub(crate) fn add_path(&mut self, route: &Route, is_new: bool) {
        // The first path that goes there has the neighbour looked for.
        if is_new && route.may_pass_network_stack() {
            self.ways.look_for((route.flow.src, route.flow.dst));
        }
        self.count(route, |users| users + 1);
    }

    /// There is one less.
    pub(crate) fn remove_path(&mut self, route: &Route) {
        self.count(route, |users| users.saturating_sub(1));
    }

    fn count(&mut self, route: &Route, change: impl Fn(usize) -> usize) {
        let flow = route.flow;
        if route.may_pass_network_stack() {
            self.change(flow.src, |users| users.outside = change(users.outside));
        } else if route.local && !flow.dst.is_multicast() {
            for end in [flow.src, flow.dst] {
                self.change(end, |users| users.within = change(users.within));
            }
        }
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Users)) {
        if address.is_loopback() {
            return;
        }
        let users = self.addresses.entry(address).or_default();
        let before = users.of();
        change(users);
        let now = users.of();
        if now == Use::None {
            self.addresses.remove(&address);
        }
        if now != before {
            for tables in &self.tables {
                let _ = tables.set_address(address, now);
            }
        }
    }

    /// The ways to peers, for the thread that looks after them.
    pub(crate) fn ways(&self) -> &Arc<Ways> {
        &self.ways
    }

    /// Readable when packets are there.
    pub(crate) fn fd(&self) -> RawFd {
        self.arrivals.raw()
    }
}
