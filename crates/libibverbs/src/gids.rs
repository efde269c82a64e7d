//! The GID table of a device as the program sees it.

use std::fs;
use std::net::IpAddr;

use rnic_nic::{Gid, GidEntry};

/// A row as a device tells it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub index: u32,
    pub gid: [u8; 16],
    pub ifindex: u32,
}

/// The rows with what the system says of their interfaces. Where it says nothing, the port's MTU
/// counts.
pub fn table(rows: Vec<Row>, port_mtu: u32, is_up: bool) -> Vec<GidEntry> {
    let interfaces = rnic_nic::gid_table();
    let entry = |row: Row| {
        let gid = Gid(row.gid);
        let addr = gid.ip();
        let of_addr = |entry: &&GidEntry| match row.ifindex {
            0 => entry.addr == addr,
            ifindex => entry.ifindex == ifindex,
        };
        let interface = interfaces.iter().find(of_addr);
        let ifindex = interface.map_or(row.ifindex, |found| found.ifindex);
        let is_link_local = matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
        GidEntry {
            index: row.index,
            gid,
            addr,
            ifindex,
            ifname: interface.map_or_else(String::new, |found| found.ifname.clone()),
            netdev_mtu: interface.map_or(port_mtu, |found| found.netdev_mtu),
            scope_id: if is_link_local { ifindex } else { 0 },
            loopback: interface.map_or(addr.is_loopback(), |found| found.loopback),
            running: interface.map_or(is_up, |found| found.running),
        }
    };
    rows.into_iter().map(entry).collect()
}

/// What sysfs says of a row, for libraries that have no call for it: it is RoCE v2, and the index of
/// its interface is this (0: unknown).
pub fn roce_v2_interface(device: &str, port: u8, index: u32) -> Option<u32> {
    let folder = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs");
    let kind = fs::read_to_string(format!("{folder}/types/{index}")).ok()?;
    if kind.trim() != "RoCE v2" {
        return None;
    }
    let name = fs::read_to_string(format!("{folder}/ndevs/{index}")).unwrap_or_default();
    let ifindex = fs::read_to_string(format!("/sys/class/net/{}/ifindex", name.trim()));
    Some(ifindex.map_or(0, |text| text.trim().parse().unwrap_or(0)))
}
