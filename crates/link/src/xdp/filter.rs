//! What is taken from the interfaces, as queue pairs and paths come and go.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;

use super::hops;
use super::program::Tables;
use crate::QpnRange;
use crate::sys::FdSet;

/// What is taken from interfaces, and what tells that something came.
pub(crate) struct Filter {
    tables: Vec<Tables>,
    /// Paths from each address.
    pub(super) addresses: HashMap<IpAddr, usize>,
    /// The UDP socket and those of AF_XDP.
    arrivals: FdSet,
}

impl Filter {
    pub(super) fn new(tables: Vec<Tables>, arrivals: FdSet) -> Filter {
        Filter {
            tables,
            addresses: HashMap::new(),
            arrivals,
        }
    }

    /// Packets to QPNs of this range are taken from now on. Where a table has no room, they take the sockets.
    pub(crate) fn take_range(&self, range: QpnRange) {
        for tables in &self.tables {
            let _ = tables.take_range(range.first);
        }
    }

    /// There is a path more from this address, to a peer on another host who was not one before if `to` is given.
    pub(crate) fn add_path(&mut self, from: IpAddr, to: Option<IpAddr>) {
        if let Some(to) = to {
            hops::look_for(from, to);
        }
        let users = self.addresses.entry(from).or_default();
        *users += 1;
        if *users == 1 {
            for tables in &self.tables {
                let _ = tables.take_address(from, true);
            }
        }
    }

    /// There is one less.
    pub(crate) fn remove_path(&mut self, from: IpAddr) {
        let Some(users) = self.addresses.get_mut(&from) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.addresses.remove(&from);
            for tables in &self.tables {
                let _ = tables.take_address(from, false);
            }
        }
    }

    /// Readable when packets are there.
    pub(crate) fn fd(&self) -> RawFd {
        self.arrivals.raw()
    }
}
