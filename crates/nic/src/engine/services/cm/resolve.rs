//! Which address of the device is whose: binding, and the way to a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rnic_host::ports::PortClaim;
use rnic_wire::{Gid, PathMtu};

use super::entry::{Entry, Source};
use crate::addressing::gid_table::GidEntry;
use crate::addressing::pkey_table::PkeyTable;
use crate::error::{Error, Result};
use crate::host::Host;
use rnic_types::cm::PathRecord;

/// Linux' hop limit on RoCE v2.
const HOP_LIMIT: u8 = 64;
/// Packet life time that Linux' cma assumes (CMA_IBOE_PACKET_LIFETIME): 2^18 * 4.096 us.
const PACKET_LIFE_TIME: u8 = 18;

/// The way to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// `None`: the address is the host's, but not the device's.
    pub(crate) source: Option<Source>,
    /// Own address, port 0.
    pub(crate) addr: SocketAddr,
    /// What fits.
    pub(crate) mtu: PathMtu,
}

/// The row of the table that has an address.
pub(crate) fn row_of(addr: SocketAddr, table: &[GidEntry]) -> Option<&GidEntry> {
    let scope = match addr {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    };
    table
        .iter()
        .find(|row| row.addr == addr.ip() && row.scope_id == scope)
}

/// An address to bind to, checked; `None`: the wildcard.
pub(crate) fn bindable(
    verb: &'static str,
    addr: SocketAddr,
    table: &[GidEntry],
    host: &Host,
) -> Result<Option<Source>> {
    if addr.ip().is_unspecified() {
        return Ok(None);
    }
    if let SocketAddr::V6(v6) = addr
        && v6.ip().is_unicast_link_local()
        && v6.scope_id() == 0
    {
        return Err(Error::invalid(
            verb,
            format!(
                "{} is link-local: say on which interface (scope id)",
                v6.ip()
            ),
        ));
    }
    match row_of(addr, table) {
        Some(row) => Ok(Some(Source::of(row))),
        None => Err(Error::new(
            verb,
            libc::EADDRNOTAVAIL,
            not_the_devices(addr.ip(), host),
        )),
    }
}

/// Why an address is none of the device's.
pub(crate) fn not_the_devices(addr: IpAddr, host: &Host) -> String {
    match host.interface_of(addr) {
        Some((name, false)) => {
            format!("{addr} is on {name}, which is down (ip link set {name} up)")
        }
        Some((name, true)) => {
            format!("{addr} is on {name}, but not in the device's GID table (rnic devices)")
        }
        None => format!("{addr} is no address of this host"),
    }
}

/// The peer that an address means: the unspecified one is this host, as for sockets.
pub(crate) fn meant(peer: SocketAddr) -> SocketAddr {
    let mut meant = peer;
    if peer.ip().is_unspecified() {
        meant.set_ip(match peer {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    meant
}

/// Finds the way to `peer`, from `source` if that is no wildcard. Makes system calls.
pub(crate) fn find_way(
    verb: &'static str,
    source: Option<SocketAddr>,
    peer: SocketAddr,
    table: &[GidEntry],
    host: &Host,
) -> Result<Way> {
    // A wildcard, too: its port is taken in its own family alone.
    if source.is_some_and(|source| source.is_ipv4() != peer.is_ipv4()) {
        return Err(Error::invalid(
            verb,
            format!(
                "the own address and the peer {} are of two families",
                peer.ip()
            ),
        ));
    }
    let source = source.filter(|source| !source.ip().is_unspecified());
    let mut roce = peer;
    roce.set_port(rnic_wire::ROCE_PORT);
    let way = host.way_to(source, roce).map_err(|e| {
        let from = source.map_or(String::new(), |source| format!(" from {}", source.ip()));
        Error::new(
            verb,
            e.raw_os_error().unwrap_or(libc::EHOSTUNREACH),
            format!("no way{from} to {}: {e}", peer.ip()),
        )
    })?;
    let row = row_of(way.source, table);
    let device_mtu = row.map_or(1500, |row| row.netdev_mtu);
    Ok(Way {
        source: row.map(Source::of),
        addr: way.source,
        mtu: PathMtu::largest_for_netdev(way.mtu.unwrap_or(device_mtu).min(device_mtu)),
    })
}

impl Entry {
    /// The peer cannot be reached: as in Linux, the own address is what it was before. Another peer
    /// may be reached from another one; the port that was taken of this one is taken anew then.
    pub(crate) fn forget_what_was_found(&mut self) {
        if !std::mem::take(&mut self.found) {
            return;
        }
        let given = self.claim.as_ref().map(PortClaim::addr);
        let given = given.filter(|addr| addr.ip().is_unspecified());
        if given.is_none() {
            self.claim = None;
        }
        self.local = given.or(self.local.map(|local| {
            let any: IpAddr = match local {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            SocketAddr::new(any, local.port())
        }));
        self.source = None;
        self.mtu = None;
    }
}

/// The path record that Linux makes of an address on RoCE: there is nobody to ask.
pub(crate) fn path_record(entry: &Entry, pkeys: &PkeyTable) -> Option<PathRecord> {
    let (source, peer) = (entry.source?, entry.peer?);
    let ack_timeout = entry.options.ack_timeout.filter(|timeout| *timeout > 0);
    Some(PathRecord {
        dgid: Gid::from(peer.ip()),
        sgid: Gid::from(source.addr),
        flow_label: 0,
        hop_limit: HOP_LIMIT,
        traffic_class: entry.options.tos.unwrap_or(0),
        pkey: pkeys.get(entry.pkey_index)?,
        sl: 0,
        mtu: entry.mtu?,
        rate: 0,
        // The timeout of a queue pair is that of the path and one more.
        packet_life_time: ack_timeout.map_or(PACKET_LIFE_TIME, |timeout| timeout - 1),
    })
}
