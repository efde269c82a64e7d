//! The GID table: one RoCE v2 entry per address of the host.

use std::net::IpAddr;

use rnic_wire::{Gid, PathMtu};

use crate::sys;

/// An entry of the GID table. All are of type RoCE v2.
#[derive(Clone, Debug)]
pub struct GidEntry {
    /// Position in the table, what `sgid_index` names.
    pub index: u32,
    /// The GID: the IPv6 address, or the IPv4 address mapped.
    pub gid: Gid,
    /// The same as an address.
    pub addr: IpAddr,
    /// Interface that has the address.
    pub ifindex: u32,
    /// Its name.
    pub ifname: String,
    /// Its MTU, bytes.
    pub netdev_mtu: u32,
    /// Scope of a link-local address, else 0.
    pub scope_id: u32,
    /// On a loopback interface.
    pub loopback: bool,
}

/// Reads the host's addresses: interfaces in the order of their index, loopback last; on each IPv4 first, then
/// global IPv6, then link-local. So index 0 is the address other hosts know.
pub fn gid_table() -> Vec<GidEntry> {
    let Ok((mut found, _)) = sys::interface_addresses() else {
        return Vec::new();
    };
    found.sort_by_key(|a| {
        let kind = match a.addr {
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) if v6.is_unicast_link_local() => 2,
            IpAddr::V6(_) => 1,
        };
        // The sort is stable: addresses of one kind stay in the kernel's order.
        (a.loopback, a.index, kind)
    });
    // One address on two interfaces cannot be told apart by its GID; the first counts.
    let mut seen = Vec::new();
    found.retain(|a| {
        let key = (a.addr, a.scope_id);
        let fresh = !seen.contains(&key);
        seen.push(key);
        fresh
    });
    found
        .into_iter()
        .enumerate()
        .map(|(index, a)| GidEntry {
            index: index as u32,
            gid: Gid::from(a.addr),
            addr: a.addr,
            ifindex: a.index,
            netdev_mtu: sys::interface_mtu(&a.name).unwrap_or(1500),
            ifname: a.name,
            scope_id: if matches!(a.addr, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
                a.scope_id
            } else {
                0
            },
            loopback: a.loopback,
        })
        .collect()
}

/// The port's active MTU: what every interface of the table can carry. Loopback counts only when it is alone, so that
/// a default MTU works towards other hosts too.
pub(crate) fn active_mtu(table: &[GidEntry]) -> PathMtu {
    let smallest = |loopback: bool| {
        table
            .iter()
            .filter(|e| e.loopback == loopback)
            .map(|e| e.netdev_mtu)
            .min()
    };
    PathMtu::largest_for_netdev(smallest(false).or_else(|| smallest(true)).unwrap_or(1500))
}

/// The device's GUID in host order: EUI-64 of the first hardware address, else derived from the machine's id.
pub fn device_guid() -> u64 {
    if let Ok((_, Some(m))) = sys::interface_addresses() {
        return u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]]);
    }
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    // Locally administered, as an address nobody assigned must be.
    (hash & !(1 << 56)) | 2 << 56
}
