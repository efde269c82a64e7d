//! What was resolved: addresses, GIDs and the path between them.

use std::net::SocketAddr;

use rnic_wire::Gid;

use super::entry::Entry;
use crate::addressing::pkey_table::PkeyTable;
use rnic_types::cm::PathRecord;

/// What an id knows of its way (`rdma_ucm`'s query route, address, path and GID in one).
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Own address and port once bound, also implicitly; `None` before.
    pub local: Option<SocketAddr>,
    /// The peer's, once resolved; of the passive side, from the request.
    pub peer: Option<SocketAddr>,
    /// The id is bound to the device: an address of it is its own, and not a wildcard.
    pub on_device: bool,
    /// 1 on the device, else 0.
    pub port_num: u8,
    /// Row of the GID table of the own address.
    pub gid_index: u32,
    /// Own GID; zero before.
    pub sgid: Gid,
    /// The peer's GID; zero before.
    pub dgid: Gid,
    /// Of its path on the device, before of index 0 of the table; else 0.
    pub pkey: u16,
    /// Node GUID of the device, host order.
    pub node_guid: u64,
    /// Once the route is resolved.
    pub path: Option<PathRecord>,
}

impl Route {
    pub(crate) fn of(entry: &Entry, node_guid: u64, pkeys: &PkeyTable) -> Route {
        let source = entry.source;
        Route {
            local: entry.local,
            peer: entry.peer,
            on_device: source.is_some(),
            port_num: u8::from(source.is_some()),
            gid_index: source.map_or(0, |source| source.gid_index),
            sgid: source.map_or(Gid::default(), |source| Gid::from(source.addr)),
            dgid: entry
                .peer
                .map_or(Gid::default(), |peer| Gid::from(peer.ip())),
            pkey: source
                .and_then(|_| pkeys.get(entry.pkey_index))
                .unwrap_or(0),
            node_guid: source.map_or(0, |_| node_guid),
            path: entry.path,
        }
    }
}
